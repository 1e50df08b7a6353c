"""Draw well-typed graph modules at random, with Hypothesis, so that failures shrink.

A graph grows from its values: an operator is chosen, its arguments are found among the values there are (or made, as
parameters and constants), and its result joins them. So subgraphs are shared, values are used several times or never,
and graphs are deep or wide as it happens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.fuzz import control, networks, operators, ordering
from tests.fuzz.makers import Maker, complete
from tests.fuzz.pool import SIZES, Pool
from tests.fuzz.values import Array, Fill
from tilewright import graphir as gi
from tilewright.graphir.dims import bind_dims, symbol
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.common import Binary, Unary
from tilewright.tensorir.errors import ShapeError, TypeInferenceError

__all__ = ["Model", "models", "networks", "operators", "ordering"]

_MAKERS = complete()
_UNARY = [name for name in _MAKERS if isinstance(get_operator(name), Unary)]
_BINARY = [name for name in _MAKERS if isinstance(get_operator(name), Binary)]
_OTHERS = [name for name in _MAKERS if name not in {*_UNARY, *_BINARY}]


@dataclasses.dataclass(frozen=True)
class Model:
    """A module and what it is called with.

    Attributes:
        module: the module.
        fills: the elements of each parameter of ``main``.
        sizes: the sizes of the symbolic dimensions, for each call.
        seed: of the inputs.
        alike: whether parameters of one type get the same array.
        strided: whether arrays are views with strides.
    """

    module: IRModule
    fills: tuple[Fill, ...]
    sizes: tuple[dict[str, int], ...]
    seed: int
    alike: bool = False
    strided: bool = False

    def inputs(self, call: int) -> list[Array]:
        """Draw the inputs of a call."""
        rng = np.random.default_rng([self.seed, call])
        sizes = {symbol(name): size for name, size in self.sizes[call].items()}
        made: list[Array] = []
        known: dict[Any, Array] = {}
        main = self.module["main"]
        assert isinstance(main, gi.Function)
        for param, fill in zip(main.params, self.fills, strict=True):
            kind = param.tensor_type
            shape = bind_dims(kind.shape, sizes)
            array = fill.draw(rng, shape, kind.dtype)
            if self.strided and array.ndim:
                wide = np.zeros((*shape[:-1], 2 * shape[-1]), array.dtype)
                wide[..., ::2] = array
                array = wide[..., ::2]
            if self.alike:
                array = known.setdefault((shape, kind.dtype, fill), array)
            made.append(array)
        return made

    def __repr__(self) -> str:
        return f"Model(sizes={self.sizes}, fills={self.fills}, seed={self.seed})\n{self.module}"


def _chosen(pool: Pool) -> str:
    names = pool.pick((_OTHERS, _UNARY, _BINARY, _OTHERS, _BINARY, _OTHERS))
    return pool.pick(names)


def attempt(pool: Pool, name: str, make: Callable[[], gi.Expr]) -> gi.Expr | None:
    """Return what ``make`` makes, None if type inference refuses it."""
    try:
        found = make()
    except (TypeInferenceError, ShapeError) as error:
        pool.refused.append(f"{name}: {error}")
        return None
    return found if pool.fits(found) else None


@st.composite
def models(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    most: int = 12,
    flow: int = 12,
    large: int = 0,
    only: str | None = None,
) -> Model:
    """Draw a model of up to ``most`` operators.

    Args:
        most: the number of operators.
        large: how many of a hundred models have tensors of sizes for several threads.
        flow: how many of a hundred are control flow or make a size that becomes known at run time.
        only: the operator that each is, for tests of what makes it.
    """
    names = ("n", "m")[: draw(st.integers(0, 2))]
    calls = 2 if names else 1
    symbols = {name: tuple(draw(st.sampled_from(SIZES)) for _ in range(calls)) for name in names}
    pool = Pool(draw, symbols, large)
    lets: list[tuple[gi.Var, gi.Expr]] = []
    functions: dict[gi.GlobalVar, gi.Function] = {}
    flows: dict[str, Callable[[], gi.Expr]] = {
        "if": lambda: control.conditional(pool),
        "loop": lambda: control.loop(pool),
        "let": lambda: control.bound(pool, lets),
        "call": lambda: control.called(pool, functions),
        "size": lambda: control.sized(pool),
    }
    for _ in range(draw(st.integers(1, most))):
        if only is None and pool.chance(flow):
            name = pool.pick(sorted(flows))
            found = attempt(pool, name, flows[name])
        else:
            name = only or _chosen(pool)
            found = attempt(pool, name, _call(pool, name, _MAKERS[name]))
        if found is not None:
            pool.add(found)
    for name in names:  # a size comes with an input
        if not any(dim is symbol(name) for param in pool.params for dim in param.tensor_type.shape):
            pool.leaf((name,), "float32")
    if not pool.values:
        pool.values.append(pool.leaf((2,), "float32"))
    results = _ends(pool.values) if pool.chance(75) else [pool.values[-1]]
    for _ in range(pool.number(0, 2)):
        results.append(pool.pick(pool.values[::-1]))  # perhaps one twice
    if pool.params and pool.chance(10):
        results.append(pool.pick(pool.params))  # an input that is a result
    single = len(results) == 1 and pool.chance(70)
    body = control.wrapped(results[0] if single else gi.Tuple(results), lets)
    module = IRModule({gi.GlobalVar("main"): gi.Function(pool.params, body), **functions})
    sizes = tuple({name: symbols[name][number] for name in names} for number in range(calls))
    fills = tuple(pool.fills)
    return Model(module, fills, sizes, draw(st.integers(0, 2**16)), pool.chance(15), pool.chance(10))


def _ends(values: list[gi.Expr]) -> list[gi.Expr]:
    """Return values from which all others are needed, so that little of a graph is dead code."""
    found: list[gi.Expr] = []
    needed: set[gi.Expr] = set()
    for value in reversed(values):
        if value not in needed:
            found.append(value)
            needed.update(gi.post_order(value))
    return found


def _call(pool: Pool, name: str, make: Maker) -> Callable[[], gi.Expr]:
    return lambda: make(pool, get_operator(name))
