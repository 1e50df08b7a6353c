"""Make control flow: conditionals, loops, bound names, calls of functions; and sizes that are known at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.fuzz.pool import Pool
from tests.fuzz.values import Fill
from tilewright import graphir as gi
from tilewright.graphir.runtime_sizes import with_runtime_size
from tilewright.graphir.types import FuncType, TensorType


def step(pool: Pool, x: gi.Expr) -> gi.Expr:
    """Return an expression of the type of ``x``, which it is computed from."""
    kind = x.tensor_type
    if kind.dtype.is_bool:
        return gi.logical_xor(x, kept(pool, x)) if pool.chance(50) else gi.logical_not(x)
    choices: list[Callable[[], gi.Expr]] = [lambda: gi.negative(x), lambda: x]
    choices.append(lambda: gi.add(x, kept(pool, x)))
    choices.append(lambda: gi.maximum(kept(pool, x), x))
    choices.append(lambda: gi.multiply(x, kept(pool, x)))
    if kind.ndim:
        choices.append(lambda: gi.flip(x, axis=pool.axis(x)))
        choices.append(lambda: gi.cumsum(x, axis=pool.axis(x)))
    if kind.dtype.is_float:
        choices.append(lambda: gi.tanh(x))
        if kind.ndim:
            choices.append(lambda: gi.nn.softmax(x, axis=pool.axis(x)))
            choices.append(lambda: gi.subtract(x, gi.mean(x, axis=-1, keepdims=True)))
    return pool.pick(choices)()


def kept(pool: Pool, x: gi.Expr) -> gi.Expr:
    """Return a value of just the type of ``x``."""
    return pool.exactly(x.tensor_type.shape, x.tensor_type.dtype)


def steps(pool: Pool, x: gi.Expr, most: int = 3) -> gi.Expr:
    """Return a few steps from ``x``."""
    for _ in range(pool.number(1, most)):
        x = step(pool, x)
    return x


def condition(pool: Pool) -> gi.Expr:
    """Return a bool without dimensions that depends on the values."""
    x = pool.numbers(most=3)
    zero = gi.const(0, x.tensor_type.dtype)
    return gi.greater(gi.max(x, initial=0.0 if x.tensor_type.dtype.is_float else 0), zero)


def conditional(pool: Pool) -> gi.Expr:
    """Return one of two expressions of one type."""
    x = pool.tensor()
    asked = condition(pool)
    pool.inner += 1
    branches = steps(pool, x), steps(pool, kept(pool, x))
    pool.inner -= 1
    return gi.If(asked, *(branches[::-1] if pool.chance(50) else branches))


def loop(pool: Pool) -> gi.Expr:
    """Return a loop that carries one or two values, and perhaps collects rows."""
    initial = [pool.tensor(most=3) for _ in range(pool.number(1, 2))]
    trips = (
        pool.leaf((), "int64", Fill("index", 0, 4))
        if not pool.inner and pool.chance(60)
        else gi.const(pool.number(0, 3))
    )
    counter = gi.var(pool.name("i"), TensorType((), "int64"))
    state = [gi.var(pool.name("s"), value.type) for value in initial]
    asked: gi.Expr | None = None
    if pool.chance(30):
        other = gi.var(pool.name("i"), TensorType((), "int64"))
        same = [gi.var(pool.name("s"), value.type) for value in initial]
        asked = gi.Function([other, *same], gi.less(other, gi.const(pool.number(0, 3))))
    collect: list[gi.Expr] = []
    if pool.chance(30):
        kind = initial[0].tensor_type
        collect = [pool.exactly((4, *kind.shape), kind.dtype)]
    pool.inner += 1
    known = len(pool.values)
    pool.values.extend(state)
    results = [steps(pool, value, 2) for value in state]
    del pool.values[known:]
    pool.inner -= 1
    rows = [results[0]] if collect else []
    body = gi.Function([counter, *state], gi.Tuple([*results, *rows]))
    return gi.Loop(trips, asked, body, initial, collect=collect)


def bound(pool: Pool, lets: list[tuple[gi.Var, gi.Expr]]) -> gi.Expr:
    """Bind a value to a name."""
    x = pool.tensor()
    variable = gi.var(pool.name("v"), x.type)
    lets.append((variable, step(pool, x)))
    return variable


def called(pool: Pool, functions: dict[gi.GlobalVar, gi.Function]) -> gi.Expr:
    """Call a function of the module, perhaps one that is called already."""
    for name, function in functions.items():
        if pool.chance(40):
            kind = function.params[0].tensor_type
            return gi.Call(name, [pool.exactly(kind.shape, kind.dtype)], None, function.body.type)
    x = pool.tensor()
    param = gi.var(pool.name("x"), x.type)
    pool.inner += 1
    known, pool.values = pool.values, [param]
    body = steps(pool, param)
    pool.values = known
    pool.inner -= 1
    name = gi.GlobalVar(pool.name("f"), FuncType([x.type], body.type))
    functions[name] = gi.Function([param], body)
    return gi.Call(name, [x], None, body.type)


def sized(pool: Pool) -> gi.Expr:
    """Return a slice whose length is computed by the model."""
    x = pool.tensor(least=1, most=3)
    extent = x.tensor_type.shape[0]
    least = pool.least(extent)
    size = pool.leaf((), "int64", Fill("index", 0, least)) if not pool.chance(40) else _count(pool, least)

    def cut(dim: object) -> gi.Expr:
        return gi.slice(x, begin=(0,), end=(dim,), axes=(0,))

    return with_runtime_size(size, cut)


def _count(pool: Pool, least: int) -> gi.Expr:
    """Return the number of elements of a bool vector that hold, at most ``least``."""
    x = pool.tensor(("bool",), most=3)
    return gi.clip(gi.sum(gi.cast(x, dtype="int64")), a_min=0, a_max=least)


def wrapped(body: gi.Expr, lets: Sequence[tuple[gi.Var, gi.Expr]]) -> gi.Expr:
    """Return ``body`` in the scope of the bound names."""
    for variable, value in reversed(lets):
        body = gi.Let(variable, value, body)
    return body
