"""Hypothesis strategies: programs of tensor expressions, steps of schedules, and orders of passes, so that failures
shrink to the smallest program, the fewest steps and the order nearest to the usual one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, settings

from tilewright.passes import Pass, Sequential
from tilewright.tensorir import interpret
from tilewright.tensorir import tensor as te
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.errors import PassError
from tilewright.tensorir.expr import Expr, IntImm, Var, const, maximum, minimum, select
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import PrimFunc

#: Minutes of each test that runs on with other examples; not set: the same examples each time, within seconds.
MINUTES = float(os.environ.get("TILEWRIGHT_FUZZ_MINUTES", "0"))

EXTENTS = (1, 2, 3, 5, 8, 17)
FLOATS = ("float32", "float64")
DTYPES = ("float32", "int64", "int32", "int8", "uint8", "float64")


def fuzzing(quick: int, in_a_minute: int) -> settings:
    """The settings of a test: the ``quick`` fixed examples, or as many others as run in the minutes asked for."""
    count = int(MINUTES * in_a_minute) if MINUTES else quick
    checks = list(HealthCheck)
    if MINUTES:
        return settings(max_examples=count, deadline=None, suppress_health_check=checks)
    return settings(max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=checks)


# -- programs ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, the size of its symbolic dimension, and the seed of its inputs."""

    func: PrimFunc
    size: int
    seed: int


STAGES = (
    *("scale", "scale", "add", "transpose", "stencil", "flip", "border", "row_sum", "row_argmax", "column_max"),
    *("matmul", "pool", "split_rows", "join_rows", "broadcast_row", "cast", "choose", "prefix"),
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """One to five stages over two-dimensional tensors; one or two are results."""
    dtype = draw(st.sampled_from(DTYPES))
    n = Var("n")
    rows: Any = draw(st.sampled_from((*EXTENTS, n)))
    cols = draw(st.sampled_from(EXTENTS))
    x = te.placeholder((rows, cols), dtype, "x")
    tensors = [x]
    for number in range(draw(st.integers(1, 5))):
        a, b = tensors[draw(st.integers(0, number))], tensors[draw(st.integers(0, number))]
        tensors.append(stage(draw(st.sampled_from(STAGES)), a, b, f"t{number}"))
    outputs = [tensors[-1]]
    if len(tensors) > 2 and draw(st.booleans()):
        outputs.append(tensors[-2])
    func = te.create_prim_func("program", [x], outputs)
    return Program(func, draw(st.sampled_from((1, 3, 6))), draw(st.integers(0, 99)))


def _same_shape(a: te.Tensor, b: te.Tensor) -> bool:
    return all(
        p is q or (isinstance(p, IntImm) and isinstance(q, IntImm) and p.value == q.value)
        for p, q in zip(a.shape, b.shape, strict=True)
    )


def stage(kind: str, a: te.Tensor, b: te.Tensor, name: str) -> te.Tensor:
    """A tensor computed of one or two others."""
    rows, cols = a.shape
    made = _reduction(kind, a, b, name)
    if made is not None:
        return made
    two = const(2, a.dtype)
    if kind == "add" and _same_shape(a, b) and a.dtype is b.dtype:
        return te.compute(a.shape, lambda i, j: a[i, j] * two + b[i, j], name)
    if kind == "transpose":
        return te.compute((cols, rows), lambda i, j: a[j, i] + two, name)
    if kind == "stencil":
        return te.compute(a.shape, lambda i, j: a[maximum(i - 1, 0), j] + a[i, j], name)
    if kind == "flip":
        return te.compute(a.shape, lambda i, j: a[i, cols - 1 - j], name)
    if kind == "border":
        inside = lambda i, j: (i >= 1) & (i <= rows) & (j >= 2) & (j < cols + 2)  # noqa: E731
        return te.compute(
            (rows + 2, cols + 3),
            lambda i, j: select(inside(i, j), a[clamped(i - 1, rows), clamped(j - 2, cols)], const(0, a.dtype)),
            name,
        )
    if kind == "split_rows":
        return te.compute((rows * cols, const(1, "int64")), lambda i, j: a[i // cols, i % cols], name)
    if kind == "join_rows":
        return te.compute((const(1, "int64"), rows * cols), lambda i, j: a[j // cols, j % cols] - two, name)
    if kind == "broadcast_row":
        return te.compute((rows + 1, cols), lambda i, j: a[rows - 1, j], name)
    if kind == "cast":
        return te.compute(a.shape, lambda i, j: a[i, j].astype("int32" if a.dtype.is_integer else "float64"), name)
    if kind == "choose":
        return te.compute(a.shape, lambda i, j: select((i + j) % 2 > 0, a[i, j], -a[i, j]), name)
    return te.compute(a.shape, lambda i, j: a[i, j] * two - const(1, a.dtype), name)


def _reduction(kind: str, a: te.Tensor, b: te.Tensor, name: str) -> te.Tensor | None:
    rows, cols = a.shape
    if kind == "row_sum":
        k = te.reduce_axis(cols, "k")
        return te.compute((rows, const(1, "int64")), lambda i, j: te.sum(a[i, k], axis=k), name)
    if kind == "row_argmax":
        k = te.reduce_axis(cols, "k")
        return te.compute((rows, const(2, "int64")), lambda i, j: te.max(a[i, k] + j.astype(a.dtype), axis=k), name)
    if kind == "column_max":
        k = te.reduce_axis(rows + 1, "k")
        return te.compute((const(2, "int64"), cols), lambda i, j: te.max(a[minimum(k, rows - 1), j], axis=k), name)
    if kind == "matmul":
        k = te.reduce_axis(cols, "k")
        return te.compute((rows, rows), lambda i, j: te.sum(a[i, k] * a[j, k], axis=k), name)
    if kind == "prefix":
        k = te.reduce_axis(cols, "k")
        return te.compute(a.shape, lambda i, j: te.sum(select(k <= j, a[i, k], const(0, a.dtype)), axis=k), name)
    if kind == "pool":
        r, s = te.reduce_axis(2, "r"), te.reduce_axis(2, "s")
        return te.compute(
            (rows // 2 + 1, cols // 2 + 1),
            lambda i, j: te.sum(a[clamped(i * 2 + r, rows), clamped(j * 2 + s, cols)], axis=[r, s]),
            name,
        )
    return None


def clamped(index: Any, extent: Any) -> Any:
    return maximum(minimum(index, extent - 1), 0)


# -- schedules --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Step:
    """A primitive with numbers from which its arguments are chosen among what there is."""

    name: str
    block: int
    loop: int
    other: int
    factor: int
    flag: bool

    def apply(self, sch: Schedule) -> None:
        """Apply the step.

        Raises:
            ScheduleError: it is not legal here.
        """
        blocks = sch.get_blocks()
        if not blocks:
            return
        block = blocks[self.block % len(blocks)]
        loops = sch.get_loops(block)
        if loops:
            _PRIMITIVES[self.name](self, sch, block, loops)


def _choose(items: Sequence[Any], number: int) -> Any:
    return items[number % len(items)]


def _anywhere(sch: Schedule, number: int) -> Any:
    return _choose([loop for block in sch.get_blocks() for loop in sch.get_loops(block)], number)


def _some(step: Step, loops: Sequence[Any]) -> list[Any]:
    """Some of the loops in another order."""
    order = sorted(range(len(loops)), key=lambda place: (place * (2 * step.loop + 1) + step.other) % 7)
    return [loops[place] for place in order[: max(2, step.factor)]]


_Primitive = Callable[[Step, Schedule, BlockRef, list[Any]], Any]

_SCOPES = ("global", "arena", "stack", "register")

_PRIMITIVES: dict[str, _Primitive] = {
    "split": lambda s, sch, b, ls: sch.split(_choose(ls, s.loop), [None, s.factor]),
    "split_outer": lambda s, sch, b, ls: sch.split(_choose(ls, s.loop), [s.factor, None]),
    "split_three": lambda s, sch, b, ls: sch.split(_choose(ls, s.loop), [None, s.factor, 2]),
    "fuse": lambda s, sch, b, ls: sch.fuse(*ls[s.loop % len(ls) :][: s.factor]),
    "reorder": lambda s, sch, b, ls: sch.reorder(*_some(s, ls)),
    "tile": lambda s, sch, b, ls: sch.tile(b, [s.factor, 2]),
    "peel": lambda s, sch, b, ls: sch.peel(_choose(ls, s.loop), s.factor),
    "parallel": lambda s, sch, b, ls: sch.parallel(_choose(ls, s.loop)),
    "vectorize": lambda s, sch, b, ls: sch.vectorize(_choose(ls, s.loop)),
    "unroll": lambda s, sch, b, ls: sch.unroll(_choose(ls, s.loop)),
    "annotate": lambda s, sch, b, ls: sch.annotate(_choose(ls, s.loop), "note", s.factor),
    "compute_at": lambda s, sch, b, ls: sch.compute_at(b, _anywhere(sch, s.other)),
    "reverse_compute_at": lambda s, sch, b, ls: sch.reverse_compute_at(b, _anywhere(sch, s.other)),
    "compute_inline": lambda s, sch, b, ls: sch.compute_inline(b),
    "reverse_compute_inline": lambda s, sch, b, ls: sch.reverse_compute_inline(b),
    "set_scope": lambda s, sch, b, ls: sch.set_scope(b, 0, _choose(_SCOPES, s.other)),
    "cache_read": lambda s, sch, b, ls: sch.cache_read(b, s.flag * 1, _choose(_SCOPES, s.other)),
    "cache_write": lambda s, sch, b, ls: sch.cache_write(b, 0, _choose(_SCOPES, s.other)),
    "decompose_reduction": lambda s, sch, b, ls: sch.decompose_reduction(b, _choose(ls, s.loop)),
    "rfactor": lambda s, sch, b, ls: sch.rfactor(_choose(ls, s.loop), s.other % 4 - 1),
    "swap_layout": lambda s, sch, b, ls: sch.transform_layout(b, 0, lambda i, j: (j, i)),
    "tile_layout": lambda s, sch, b, ls: sch.transform_layout(
        b, 0, lambda i, j: (j // s.factor, i, j % s.factor), 7 if s.flag else None
    ),
}

STEPS: st.SearchStrategy[Step] = st.builds(
    Step,
    st.sampled_from(sorted(_PRIMITIVES)),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 9),
    st.integers(1, 4),
    st.booleans(),
)


# -- orders of passes -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Order:
    """Passes in an order, without some."""

    passes: tuple[Pass, ...]
    left_out: frozenset[str]

    def __repr__(self) -> str:
        return f"{[each.info.name for each in self.passes]} without {sorted(self.left_out)}"


@st.composite
def orders(draw: st.DrawFn, pipeline: Sequential, most_moves: int = 4, most_left_out: int = 3) -> Order:
    """The passes of a pipeline after some moves and repetitions of single passes that it accepts."""
    passes = list(pipeline.passes)
    for _ in range(draw(st.integers(0, most_moves))):
        moved = list(passes)
        place, to = draw(st.integers(0, len(moved) - 1)), draw(st.integers(0, len(moved) - 1))
        again = draw(st.integers(0, 5)) == 5
        chosen = moved[place] if again else moved.pop(place)
        moved.insert(to, chosen)
        if accepted(moved, pipeline):
            passes = moved
    names = sorted({each.info.name for each in passes})
    left_out = draw(st.sets(st.sampled_from(names), max_size=most_left_out))
    return Order(tuple(passes), frozenset(left_out))


def accepted(passes: Sequence[Pass], pipeline: Sequential) -> bool:
    """Return whether the order is legal: no pass needs what an earlier one takes away or a later one provides."""
    try:
        Sequential(passes, name=pipeline.info.name, given=pipeline.given)
    except PassError:
        return False
    return True


# -- results ----------------------------------------------------------------------------------------------------------


def results(func: PrimFunc, program: Program) -> list[np.ndarray]:
    """The results of ``func`` on the inputs of the program; results start as numbers that no program computes, so that
    each element must be written. Workspaces that ``func`` has beside the program's buffers are provided."""
    rng = np.random.default_rng(program.seed)
    sizes = {var.name: program.size for var in func.variables}
    given = len(program.func.buffers)
    outputs = program.func.attrs["num_outputs"]
    arrays = []
    for number, buffer in enumerate(func.buffers):
        shape = tuple(extent_value(extent, func, sizes) for extent in buffer.shape)
        dtype = buffer.dtype.numpy
        if number >= given - outputs:
            arrays.append(np.full(shape, np.nan if buffer.dtype.is_float else 113, dtype))
        elif buffer.dtype.is_float:
            arrays.append(rng.integers(-4, 5, shape).astype(dtype))  # sums are exact in any order
        else:
            arrays.append(rng.integers(0 if buffer.dtype.is_uint else -9, 9, shape).astype(dtype))
    interpret(func, *arrays, *[sizes[var.name] for var in func.variables])
    return arrays[given - outputs : given]


def extent_value(extent: Expr, func: PrimFunc, sizes: dict[str, int]) -> int:
    value = Analyzer().simplify(substitute(extent, {var: IntImm(sizes[var.name]) for var in func.variables}))
    assert isinstance(value, IntImm)
    return value.value
