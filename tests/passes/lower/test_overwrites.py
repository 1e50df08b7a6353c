"""Results reuse the memory of arguments that are dead afterwards, where no other element needs them either."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from both_targets import on_both_targets

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext
from tilewright.passes.lower import LowerToTensorIR
from tilewright.passes.lower.instructions import KernelCall
from tilewright.passes.lower.linearize import linearize
from tilewright.passes.lower.overwrites import find_overwrites
from tilewright.passes.lower.plan_memory import plan
from tilewright.passes.lower.primitive import lower_primitive

SHAPE = (1, 6, 8)
RNG = np.random.default_rng(3)


def group(formula: Callable[..., gi.Expr], *shapes: tuple[int, ...], dtype: str = "float32") -> tuple[int, ...]:
    params = [gi.var(f"p{number}", shape=shape, dtype=dtype) for number, shape in enumerate(shapes)]
    function = gi.Function(params, formula(*params), attrs={"Primitive": True, "kind": "opaque"})
    return find_overwrites(lower_primitive(function, "kernel"))


@pytest.mark.parametrize(
    ("formula", "shapes", "expected"),
    [
        (lambda x, y: gi.nn.relu(x + y), [SHAPE, SHAPE], (0, 1)),
        (lambda x, y: (x + y) * gi.exp(x), [SHAPE, SHAPE], (0, 1)),
        (lambda x, y: x + y, [SHAPE, SHAPE[1:]], (0,)),  # the other's elements are needed again
        (lambda x: gi.transpose(x, axes=(0, 2, 1)), [(1, 6, 6)], ()),
        (lambda x: x + gi.transpose(x, axes=(0, 2, 1)), [(1, 6, 6)], ()),
        (lambda x: x - gi.sum(x, axis=2, keepdims=True), [SHAPE], ()),  # a row's elements are needed for all of it
        (lambda x, r: gi.sum(x, axis=2) + r, [SHAPE, SHAPE[:2]], (1,)),
        (lambda x: gi.Tuple([x + 1.0, x + 2.0]), [SHAPE], ()),
        (lambda x: gi.cumsum(x, axis=1), [SHAPE], ()),
        (lambda x: gi.cast(x, dtype="float64"), [SHAPE], ()),
        (lambda x: gi.cast(x, dtype="int32"), [SHAPE], (0,)),
        (lambda x: gi.reshape(x, (6, 8)), [SHAPE], ()),
    ],
)
def test_arguments_that_may_be_overwritten(
    formula: Callable[..., gi.Expr], shapes: list[tuple[int, ...]], expected: tuple[int, ...]
) -> None:
    assert group(formula, *shapes) == expected


def test_residual_of_a_contraction_may_be_overwritten_and_its_factors_not() -> None:
    shapes = [(5, 4), (6, 4), (6,), (5, 6)]
    assert group(lambda x, w, b, r: gi.nn.relu(gi.nn.dense(x, w) + b + r), *shapes) == (3,)


def calls(body: gi.Expr, *params: gi.Var) -> list[KernelCall]:
    mod = LowerToTensorIR()(IRModule.from_expr(gi.Function(params, body)))
    program = linearize(mod["main"], mod)
    plan(program)
    return [call for call in program.body if isinstance(call, KernelCall)]


def test_chain_of_formulas_stays_in_one_place() -> None:
    x = gi.var("x", shape=(100,))
    made = calls(gi.sqrt(gi.abs(gi.sin(gi.exp(x)))), x)
    first, *others = [call.results[0] for call in made[:-1]]
    assert all(value.place is first.place for value in others)


def test_value_that_is_needed_later_keeps_its_place() -> None:
    x = gi.var("x", shape=(100,))
    value = gi.exp(x)
    made = calls(gi.abs(gi.subtract(gi.tanh(value), value)), x)
    places = [call.results[0].place for call in made]
    assert places[0] is not places[1]
    assert places[2] in places[:2]


def test_argument_given_twice_keeps_its_place_where_the_other_use_moves_elements() -> None:
    x = gi.var("x", shape=(10, 10))
    value = gi.exp(x)
    function = gi.Function(
        [p := gi.var("p", shape=(10, 10)), q := gi.var("q", shape=(10, 10))],
        gi.add(p, gi.transpose(q)),
        attrs={"Primitive": True, "kind": "opaque"},
    )
    made = calls(gi.abs(gi.Call(function, [value, value])), x)
    assert made[0].results[0].place is not made[1].results[0].place


def test_state_of_a_loop_is_not_overwritten_while_the_loop_needs_it() -> None:
    x = gi.var("x", shape=(4,))
    i, a = gi.var("i", shape=(), dtype="int64"), gi.var("a", shape=(4,))
    outside = gi.exp(x)
    step = gi.Function([i, a], gi.Tuple([gi.add(gi.multiply(a, 0.5), outside)]))
    loop = gi.Loop(gi.const(3), None, step, [x])
    with PassContext(opt_level=0):
        model = tw.build(gi.Function([x], gi.TupleGetItem(loop, 0)), target="llvm")
    values = np.linspace(-1, 1, 4, dtype="f4")
    expected = values
    for _ in range(3):
        expected = expected * 0.5 + np.exp(values)
    np.testing.assert_allclose(model(values), expected, rtol=1e-5)


@on_both_targets
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("rows", [1, 7, 65])
def test_residual_network_computes_the_same(target: tw.Target, opt_level: int, rows: int) -> None:
    x = gi.var("x", shape=(rows, 37))
    value: gi.Expr = x
    for _ in range(3):
        weight = gi.const((RNG.standard_normal((37, 37)) / 6).astype("f4"))
        value = gi.nn.relu(gi.nn.dense(gi.tanh(value), weight) + value)
    mod = IRModule.from_expr(gi.Function([x], value * 2.0))
    with PassContext(opt_level=opt_level) as ctx:
        model = tw.build(mod, target=target)
    assert any(int(word) > 0 for remark in ctx.remarks for word in [*_overwritten(remark.message)])
    values = RNG.standard_normal((rows, 37)).astype("f4")
    np.testing.assert_allclose(model(values), gi.evaluate(mod, values, dtype="float64"), rtol=1e-4, atol=1e-5)


def _overwritten(message: str) -> list[str]:
    """Return the number of calls that overwrite an argument, from PlanMemory's remark."""
    words = message.split()
    return [words[words.index("overwrite") - 1]] if "overwrite" in words else []


def test_code_of_such_a_kernel_assumes_nothing_of_their_memory() -> None:
    x = gi.var("x", shape=(8,))
    with PassContext(opt_level=1):
        model = tw.build(gi.Function([x], gi.cumsum(gi.exp(gi.cumsum(x, axis=0)), axis=0)), target="llvm")
    line = next(line for line in model.ir("llvm").splitlines() if line.startswith("define") and "tw.exp" in line)
    assert "noalias" not in line
