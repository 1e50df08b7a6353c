"""Random schedules of random programs: no accepted sequence of primitives changes the results."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, given, settings

from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Var, maximum
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.schedule.nests import substitute_loops
from tilewright.tensorir.stmt import Allocate, For, PrimFunc, SeqStmt, Stmt

EXTENTS = (1, 2, 3, 5, 8)


def random_program(rng: random.Random) -> PrimFunc:
    """A few stages over two-dimensional tensors: elementwise, stencils, transposes, reductions."""
    dtype = rng.choice(("int64", "float32"))
    n = Var("n")
    rows: Any = rng.choice((*EXTENTS, n))
    cols = rng.choice(EXTENTS)
    x = te.placeholder((rows, cols), dtype, "x")
    tensors = [x]
    for number in range(rng.randint(1, 4)):
        a, b = rng.choice(tensors), rng.choice(tensors)
        tensors.append(random_stage(rng, a, b, f"t{number}"))
    outputs = [tensors[-1]]
    if rng.random() < 0.2 and len(tensors) > 2:
        outputs.append(tensors[-2])
    return te.create_prim_func("program", [x], outputs)


def random_stage(rng: random.Random, a: te.Tensor, b: te.Tensor, name: str) -> te.Tensor:
    rows, cols = a.shape
    kind = rng.choice(("unary", "binary", "transpose", "stencil", "row_sum", "column_max", "matmul", "pool", "flip"))
    same = all(
        p is q or getattr(p, "value", -1) == getattr(q, "value", -2) for p, q in zip(a.shape, b.shape, strict=True)
    )
    if kind == "binary" and same:
        return te.compute(a.shape, lambda i, j: a[i, j] * 3 + b[i, j], name)
    if kind == "transpose":
        return te.compute((cols, rows), lambda i, j: a[j, i] + 1, name)
    if kind == "stencil":
        return te.compute(a.shape, lambda i, j: a[maximum(i - 1, 0), j] + a[i, j], name)
    if kind == "flip":
        return te.compute(a.shape, lambda i, j: a[i, cols - 1 - j], name)
    if kind == "row_sum":
        k = te.reduce_axis(cols, "k")
        return te.compute((rows, 1), lambda i, j: te.sum(a[i, k], axis=k), name)
    if kind == "column_max":
        k = te.reduce_axis(rows, "k")
        return te.compute((2, cols), lambda i, j: te.max(a[k, j] * (i + 1).astype(a.dtype), axis=k), name)
    if kind == "matmul":
        k = te.reduce_axis(cols, "k")
        return te.compute((rows, rows), lambda i, j: te.sum(a[i, k] * a[j, k], axis=k), name)
    if kind == "pool":
        r, s = te.reduce_axis(2, "r"), te.reduce_axis(2, "s")
        return te.compute(
            (rows // 2 + 1, cols // 2 + 1),
            lambda i, j: te.sum(a[clamped(i * 2 + r, rows), clamped(j * 2 + s, cols)], axis=[r, s]),
            name,
        )
    return te.compute(a.shape, lambda i, j: a[i, j] * 2 - 1, name)


def clamped(index: Any, extent: Any) -> Any:
    return maximum(-maximum(-index, -(extent - 1)), 0)


def random_step(rng: random.Random, sch: Schedule) -> None:
    """Apply one random primitive; it may raise ScheduleError."""
    block = rng.choice(sch.get_blocks())
    loops = sch.get_loops(block)
    if not loops:
        return
    others = [loop for other in sch.get_blocks() for loop in sch.get_loops(other)]
    factor = rng.choice((1, 2, 3, 4))
    steps: dict[str, Callable[[], Any]] = {
        "split": lambda: sch.split(rng.choice(loops), [None, factor]),
        "split_inner": lambda: sch.split(rng.choice(loops), [factor, None]),
        "fuse": lambda: sch.fuse(*consecutive(rng, loops)),
        "reorder": lambda: sch.reorder(*rng.sample(loops, min(len(loops), rng.randint(2, 4)))),
        "parallel": lambda: sch.parallel(rng.choice(loops)),
        "vectorize": lambda: sch.vectorize(rng.choice(loops)),
        "unroll": lambda: sch.unroll(rng.choice(loops)),
        "compute_at": lambda: sch.compute_at(block, rng.choice(others)),
        "reverse_compute_at": lambda: sch.reverse_compute_at(block, rng.choice(others)),
        "compute_inline": lambda: sch.compute_inline(block),
        "reverse_compute_inline": lambda: sch.reverse_compute_inline(block),
        "cache_read": lambda: sch.cache_read(block, 0, "arena"),
        "cache_write": lambda: sch.cache_write(block, 0, "stack"),
        "decompose": lambda: sch.decompose_reduction(block, rng.choice(loops)),
        "rfactor": lambda: sch.rfactor(rng.choice(loops), rng.choice((0, 1, 2, -1)), reassociate=True),
        "swap_layout": lambda: sch.transform_layout(block, 0, lambda i, j: (j, i)),
        "tile_layout": lambda: sch.transform_layout(block, 0, lambda i, j: (j // factor, i, j % factor), 7),
        "tile": lambda: sch.tile(block, [factor, 2]),
        "peel": lambda: sch.peel(rng.choice(loops), factor),
        "set_scope": lambda: sch.set_scope(block, 0, "stack"),
    }
    steps[rng.choice(list(steps))]()


def consecutive(rng: random.Random, loops: list[Any]) -> list[Any]:
    start = rng.randrange(len(loops))
    return loops[start : start + rng.randint(1, 3)]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 40))
def test_accepted_steps_keep_the_results_and_replay(same: Callable[..., None], seed: int) -> None:
    rng = random.Random(seed)
    func = random_program(rng)
    sch = Schedule(func)
    for _ in range(rng.randint(1, 14)):
        before, steps = sch.func, str(sch.trace)
        blocks = [name for name in str(before).split() if name == "block"]
        try:
            random_step(rng, sch)
        except ScheduleError:
            assert len([name for name in str(before).split() if name == "block"]) == len(blocks)
            assert str(sch.trace).startswith(steps)
            assert sch.func is before
    same(func, sch, tolerance(func, sch), n=rng.choice((1, 3, 6)))


def tolerance(func: PrimFunc, sch: Schedule) -> float:
    """Results agree to the last bit, unless rfactor changed the order of floating-point steps."""
    factored = any(step.name == "rfactor" for step in sch.trace.instructions)
    return 1e-4 if factored and func.buffers[0].dtype.is_float else 0.0


def backwards(stmt: Stmt) -> Stmt:
    """The iterations of parallel and vectorized loops in the opposite order."""
    if isinstance(stmt, For):
        body = backwards(stmt.body)
        if stmt.kind in ("parallel", "vectorized"):
            body = substitute_loops(body, {stmt.var: stmt.min + stmt.min + stmt.extent - 1 - stmt.var})
        return For(stmt.var, stmt.min, stmt.extent, stmt.kind, body, stmt.annotations)
    if isinstance(stmt, SeqStmt):
        return SeqStmt(tuple(backwards(part) for part in stmt.stmts))
    if isinstance(stmt, Allocate):
        return Allocate(stmt.buffer, backwards(stmt.body))
    return stmt


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 40))
def test_parallel_iterations_run_in_any_order(results: Callable[..., Any], seed: int) -> None:
    rng = random.Random(seed)
    func = random_program(rng)
    sch = Schedule(func)
    for _ in range(rng.randint(4, 14)):
        with contextlib.suppress(ScheduleError):
            random_step(rng, sch)
    for ref in sch.get_loops(rng.choice(sch.get_blocks())):
        with contextlib.suppress(ScheduleError):
            sch.parallel(ref)
    sizes = {"n": 3}
    other = sch.func.with_body(backwards(sch.func.body))
    for expected, found in zip(results(func, sizes), results(other, sizes), strict=True):
        np.testing.assert_allclose(found, expected, rtol=tolerance(func, sch), atol=tolerance(func, sch))
