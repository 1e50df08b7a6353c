"""Hypothesis strategies that make random programs of the loop-level IR, for round trips and differential tests.

Every program of :func:`prim_funcs` keeps the IR's rules and can be run: indices are in bounds, integers are never
divided by zero, temporary buffers are written before they are read, and the iterations of parallel and vectorized
loops touch different elements. Floating-point results may be infinite or NaN, and depend on how operations are
contracted, as in any program.

    @given(prim_funcs(), st.integers(0, 2**32 - 1))
    def test_some_pass_keeps_results(func, seed):
        arguments = make_arguments(func, seed)
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import hypothesis.strategies as st
import numpy as np

from tilewright.tensorir.dtype import BOOL, INT64, DataType
from tilewright.tensorir.expr import BinaryOp, Buffer, Cast, Choose, Compare, Expr, Select, UnaryOp, Var, call, const
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    Range,
    Stmt,
    sequence,
)

NUMBER_DTYPES = ("float32", "float64", "int32", "int64", "int8", "uint8")
NAMES = ("i", "j", "x", "i_1", "acc", "conv/1.weight", "for", "a b", "ä", "float32", "`", "")

#: The value that the symbolic dimension of a program takes in :func:`make_arguments`.
SYMBOLIC_SIZE = 5

_FLOAT_CALLS = ("abs", "floor", "ceil", "sqrt", "exp", "tanh")


@dataclasses.dataclass(frozen=True)
class Loop:
    """A variable that takes the values ``0 .. extent - 1`` (``extent`` is the size at run time)."""

    var: Var
    extent: int


@dataclasses.dataclass
class Scope:
    """The names that an expression may use."""

    loops: list[Loop]
    buffers: list[Buffer]
    lets: list[Var] = dataclasses.field(default_factory=list)
    #: The element that the statement before has stored.
    stored: list[Expr] = dataclasses.field(default_factory=list)


def size(extent: Expr) -> int:
    """The extent at run time."""
    return extent.value if hasattr(extent, "value") else SYMBOLIC_SIZE


@functools.cache
def word(*words: str) -> st.SearchStrategy[str]:
    """One of the words. Made once: Hypothesis checks each new strategy, which takes longer than to draw from it."""
    return st.sampled_from(words)


@functools.cache
def constants(dtype: Any) -> st.SearchStrategy[Expr]:
    """Constants of a scalar type, the unusual ones included."""
    dtype = DataType(dtype)
    if dtype.is_bool:
        return st.booleans().map(lambda value: const(value, BOOL))
    if dtype.is_float:
        special = st.sampled_from([0.0, -0.0, 1.0, 0.1, -2.5, 1e-7, 65504.0, float("inf"), float("-inf"), float("nan")])
        return st.one_of(special, st.floats(width=32)).map(lambda value: const(value, dtype))
    return st.one_of(st.integers(-4, 100), st.integers(-(1 << 63), (1 << 63) - 1)).map(lambda v: const(v, dtype))


@st.composite
def indices(draw: st.DrawFn, scope: Scope, extent: int) -> Expr:
    """An integer expression with values in ``[0, extent)``."""
    fitting = [loop for loop in scope.loops if loop.extent <= extent]
    kind = draw(word("var", "constant", "affine", "modulo", "clamp", "reverse", "read"))
    if kind == "read":
        held = [element for element in scope.stored if not element.dtype.is_float]
        held += [buffer[()] for buffer in scope.buffers if not buffer.shape and not buffer.dtype.is_float]
        if held:
            return Cast(INT64, draw(st.sampled_from(held))) % extent
    if kind == "var" and fitting:
        return draw(st.sampled_from(fitting)).var
    if kind == "reverse" and fitting:
        loop = draw(st.sampled_from(fitting))
        return const(loop.extent - 1, INT64) - loop.var
    if kind in ("affine", "modulo", "clamp") and scope.loops:
        loop, other = draw(st.sampled_from(scope.loops)), draw(st.sampled_from(scope.loops))
        index = loop.var * draw(st.integers(1, 3)) + other.var // draw(st.integers(1, 3)) + draw(st.integers(0, 2))
        if kind == "clamp":
            return BinaryOp("min", index, const(extent - 1, INT64))
        return index % extent
    return const(draw(st.integers(0, extent - 1)), INT64)


@st.composite
def loads(draw: st.DrawFn, scope: Scope, buffer: Buffer) -> Expr:
    """An element of ``buffer``, in bounds."""
    return buffer[tuple(draw(indices(scope, size(extent))) for extent in buffer.shape)]


@st.composite
def values(draw: st.DrawFn, scope: Scope, dtype: Any, depth: int = 3) -> Expr:
    """An expression of the scalar type ``dtype`` that is defined whatever the buffers hold."""
    dtype = DataType(dtype)
    if dtype.is_bool:
        return draw(conditions(scope, depth))
    leaves: list[st.SearchStrategy[Expr]] = [constants(dtype)]
    leaves += [loads(scope, buffer) for buffer in scope.buffers if buffer.dtype is dtype] * 2
    leaves += [st.just(expr) for expr in (*scope.lets, *scope.stored) if expr.dtype is dtype]
    if dtype is INT64:
        leaves += [st.just(loop.var) for loop in scope.loops]
    if depth == 0:
        return draw(st.one_of(leaves))
    inner = values(scope, dtype, depth - 1)
    kind = draw(word("leaf", "binary", "binary", "unary", "select", "choose", "cast", "division", "call"))
    if kind == "binary":
        ops = ["add", "sub", "mul", "min", "max"]
        ops += ["div"] if dtype.is_float else ["bitand", "bitor", "bitxor"]
        return BinaryOp(draw(word(*ops)), draw(inner), draw(inner))
    if kind == "unary":
        return UnaryOp(draw(word(*(["neg"] if dtype.is_float else ["neg", "bitnot"]))), draw(inner))
    if kind == "select":
        return Select(draw(conditions(scope, depth - 1)), draw(inner), draw(inner))
    if kind == "choose":
        return Choose(draw(values(scope, "int64", depth - 1)), tuple(draw(st.lists(inner, min_size=1, max_size=3))))
    if kind == "cast":
        sources = [other for other in NUMBER_DTYPES if not DataType(other).is_float or dtype.is_float]
        return Cast(dtype, draw(values(scope, draw(word(*sources)), depth - 1)))
    if kind == "division" and not dtype.is_float:
        op = draw(word("floordiv", "floormod", "truncdiv", "truncmod", "shl", "shr"))
        return BinaryOp(op, draw(inner), const(draw(st.integers(1, 7)), dtype))
    if kind == "call" and dtype.is_float:
        return call(draw(word(*_FLOAT_CALLS)), draw(inner))
    return draw(st.one_of(leaves))


@st.composite
def conditions(draw: st.DrawFn, scope: Scope, depth: int = 2) -> Expr:
    """A bool expression."""
    kind = draw(word("compare", "compare", "logic", "not", "constant")) if depth > 0 else "constant"
    if kind == "compare":
        dtype = draw(word(*NUMBER_DTYPES))
        inner = values(scope, dtype, depth - 1)
        return Compare(draw(word("eq", "ne", "lt", "le", "gt", "ge")), draw(inner), draw(inner))
    inner = conditions(scope, depth - 1)
    if kind == "logic":
        return BinaryOp(draw(word("and", "or", "bitand", "bitor", "bitxor")), draw(inner), draw(inner))
    if kind == "not":
        return UnaryOp("not", draw(inner))
    return draw(constants("bool"))


@st.composite
def nests(draw: st.DrawFn, target: Buffer, sources: list[Buffer], name: str, blocks: bool) -> Stmt:
    """Loops that write every element of ``target`` from the ``sources``: element by element, or as a reduction."""
    loops = [Loop(Var(draw(word(*NAMES))), size(extent)) for extent in target.shape]
    reduction = Loop(Var("k"), draw(st.integers(1, 4))) if draw(st.booleans()) else None
    block = blocks and draw(st.booleans())
    inner = [Loop(Var(f"v{axis}"), loop.extent) for axis, loop in enumerate(loops)] if block else loops
    inner_reduction = Loop(Var("vk"), reduction.extent) if block and reduction else reduction
    place = tuple(loop.var for loop in inner)
    scope = Scope([*inner, *([inner_reduction] if inner_reduction else [])], sources)
    init: Stmt | None = None
    if reduction:
        init = BufferStore(target, draw(values(Scope(inner, sources), target.dtype, 1)), place)
        step = BinaryOp(draw(word("add", "max", "min")), target[place], draw(values(scope, target.dtype, 2)))
        body: Stmt = BufferStore(target, step, place)
    else:
        body = draw(bodies(scope, target, place))
    if block:
        iters = [
            IterVar(new.var, 0, extent, "spatial", loop.var)
            for new, loop, extent in zip(inner, loops, target.shape, strict=True)
        ]
        if reduction and inner_reduction:
            iters.append(IterVar(inner_reduction.var, 0, reduction.extent, "reduction", reduction.var))
        region = BufferRegion(target, tuple(Range(index, 1) for index in place))
        needed = draw(st.none() | conditions(Scope(scope.loops, []), 2))
        body = Block(name, tuple(iters), None, (), (region,), init, body, needed=needed)
    if reduction:
        body = For(reduction.var, 0, reduction.extent, draw(word("serial", "unrolled")), body)
    if reduction and not block:
        body = sequence(init, body)
    for axis in reversed(range(len(loops))):
        kinds = ["serial", "unrolled", "parallel"]
        if axis == len(loops) - 1 and isinstance(body, BufferStore):
            kinds.append("vectorized")
        body = For(loops[axis].var, 0, target.shape[axis], draw(word(*kinds)), body)
    return body


@st.composite
def bodies(draw: st.DrawFn, scope: Scope, target: Buffer, place: tuple[Expr, ...]) -> Stmt:
    """Statements that store to ``target[place]``: directly, several times, through a let, or under a condition."""
    kind = draw(word("store", "let", "if", "again"))
    if kind == "let":
        dtype = DataType(draw(word(*NUMBER_DTYPES)))
        var = Var(draw(word(*NAMES)), dtype)
        value = draw(values(scope, dtype, 2))
        inner = dataclasses.replace(scope, lets=[*scope.lets, var])
        return LetStmt(var, value, draw(bodies(inner, target, place)))
    store = BufferStore(target, draw(values(scope, target.dtype)), place)
    if kind == "again":
        after = dataclasses.replace(scope, stored=[target[place]])
        value = draw(values(after, target.dtype))  # the same expression has another value after the store in between
        return sequence(store, BufferStore(target, value, place), BufferStore(target, value, place))
    if kind == "if":
        other = BufferStore(target, draw(values(scope, target.dtype, 1)), place)
        return IfThenElse(draw(conditions(scope)), store, other)
    return store


@st.composite
def prim_funcs(draw: st.DrawFn, blocks: bool = True, symbolic: bool = True) -> PrimFunc:
    """A function with one or two inputs, perhaps a temporary buffer, and an output.

    Args:
        blocks: whether computations may stand in blocks.
        symbolic: whether a dimension may be a variable of the function.
    """
    n = Var("n")
    extents: list[Any] = [1, 2, 3, 4, *([n] if symbolic else [])]
    shapes = st.lists(st.sampled_from(extents), min_size=0, max_size=3).map(tuple)
    dtypes = word(*NUMBER_DTYPES)
    inputs = [Buffer(draw(word(*NAMES)), draw(shapes), draw(dtypes)) for _ in range(draw(st.integers(1, 2)))]
    output = Buffer("out", draw(shapes), draw(dtypes), alignment=draw(st.sampled_from([0, 64])))
    if draw(st.booleans()):
        temporary = Buffer(
            draw(word(*NAMES)),
            draw(shapes.filter(lambda shape: n not in shape)),
            draw(dtypes),
            draw(word("stack", "arena")),
        )
        first = draw(nests(temporary, inputs, "first", blocks))
        body: Stmt = Allocate(temporary, sequence(first, draw(nests(output, [*inputs, temporary], "second", blocks))))
    else:
        body = draw(nests(output, inputs, "only", blocks))
    return PrimFunc("program", (*inputs, output, n), body, {"num_outputs": 1})


def make_arguments(func: PrimFunc, seed: int) -> list[Any]:
    """Arrays for the buffers of ``func`` (small random numbers; zeros for outputs) and the sizes after them."""
    generator = np.random.default_rng(seed)
    outputs = func.attrs.get("num_outputs", 0)
    arguments: list[Any] = []
    for position, buffer in enumerate(func.buffers):
        shape = tuple(size(extent) for extent in buffer.shape)
        if position >= len(func.buffers) - outputs:
            arguments.append(np.zeros(shape, buffer.dtype.numpy))
        elif buffer.dtype.is_float:
            arguments.append(np.asarray(generator.normal(size=shape)).astype(buffer.dtype.numpy))
        else:
            low = 0 if buffer.dtype.is_uint else -10
            arguments.append(np.asarray(generator.integers(low, 10, size=shape)).astype(buffer.dtype.numpy))
    return arguments + [SYMBOLIC_SIZE for _ in func.variables]
