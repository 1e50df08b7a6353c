"""Share loop nests of the tests of several schedule rules: schedule, run, and inspect them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.schedule.contraction import ContractionPlan, ScheduleContraction
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, offered_plans
from tilewright.tensorir import interpret
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, IntImm, all_of, call, maximum, select
from tilewright.tensorir.functor import walk
from tilewright.tensorir.guards import guarded
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import For, PrimFunc
from tilewright.tensorir.target import Target

TARGET = Target("llvm", mcpu="x86-64-v3", num_threads=2)


def planned_contraction(func: PrimFunc, target: Target = TARGET) -> ContractionPlan:
    """Return the best plan for the only sum of products of a kernel."""
    schedule = Schedule(func)
    (ref,) = reduction_blocks(schedule)
    with target:
        plans = offered_plans(ScheduleContraction(), Nest(schedule, ref, target, True))
    assert isinstance(plans, Iterator)
    return next(plans)


def apply_rule(
    rule: ScheduleRule[Any],
    schedule: Schedule,
    ref: BlockRef | None = None,
    target: Target | None = None,
    reassociate: bool = True,
) -> bool:
    """Apply the plan of the rule; return whether it has one."""
    with target or TARGET as current:
        plans = offered_plans(rule, Nest(schedule, ref, current, reassociate))
        if isinstance(plans, Declined):
            return False
        rule.apply(schedule, next(plans))
    return True


def scheduled(func: PrimFunc, opt_level: int = 3) -> tuple[PrimFunc, PassContext]:
    with PassContext(opt_level=opt_level) as ctx, TARGET:
        return ScheduleKernels()(IRModule({func.name: func}))[func.name], ctx


def run(func: PrimFunc, inputs: list[np.ndarray], shape: tuple[int, ...], **sizes: int) -> np.ndarray:
    out = np.full(shape, np.nan, np.float32)
    interpret(func, *inputs, out, *[sizes[var.name] for var in func.variables])
    return out


def loops_of(func: PrimFunc) -> list[For]:
    return [node for node in walk(func.body) if isinstance(node, For)]


def loop_kinds(func: PrimFunc) -> set[str]:
    return {loop.kind for loop in loops_of(func)}


def outermost(func: PrimFunc) -> list[For]:
    inner = {id(node) for loop in loops_of(func) for node in walk(loop.body)}
    return [loop for loop in loops_of(func) if id(loop) not in inner]


def innermost(func: PrimFunc) -> list[For]:
    return [loop for loop in loops_of(func) if not any(isinstance(node, For) for node in walk(loop.body))]


def extents(func: PrimFunc) -> list[int]:
    return [loop.extent.value for loop in loops_of(func) if isinstance(loop.extent, IntImm)]


def dense(m: object, n: int, k: int, transposed: bool = False) -> PrimFunc:
    a = te.placeholder((m, k), name="a")
    b = te.placeholder((n, k) if transposed else (k, n), name="b")
    bias = te.placeholder((n,), name="bias")
    r = te.reduce_axis(k, "r")
    product = te.compute((m, n), lambda i, j: te.sum(a[i, r] * (b[j, r] if transposed else b[r, j]), axis=r), name="c")
    biased = te.compute((m, n), lambda i, j: product[i, j] + bias[j], name="biased")
    return te.create_prim_func("dense", [a, b, bias], [te.compute((m, n), lambda i, j: maximum(biased[i, j], 0.0))])


def softmax(rows: object, columns: object) -> PrimFunc:
    x = te.placeholder((rows, columns), name="x")
    k, k2 = te.reduce_axis(columns, "k"), te.reduce_axis(columns, "k2")
    top = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="top")
    powers = te.compute((rows, columns), lambda i, j: call("exp", x[i, j] - top[i]), name="powers")
    total = te.compute((rows,), lambda i: te.sum(powers[i, k2], axis=k2), name="total")
    return te.create_prim_func("softmax", [x], [te.compute((rows, columns), lambda i, j: powers[i, j] / total[i])])


def row_sums(columns: int, dtype: str = "float32") -> PrimFunc:
    x = te.placeholder((6, columns), dtype, name="x")
    k = te.reduce_axis(columns, "k")
    return te.create_prim_func("row_sum", [x], [te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="s")])


def column_sums(columns: int) -> PrimFunc:
    x = te.placeholder((6, columns), name="x")
    k = te.reduce_axis(6, "k")
    return te.create_prim_func("sum", [x], [te.compute((columns,), lambda i: te.sum(x[k, i], axis=k), name="s")])


def windows_of_lines(lines: int, columns: int, size: int = 3) -> PrimFunc:
    """Sums of windows of ``lines`` by ``columns`` numbers with a border of zeros."""
    x = te.placeholder((lines, columns), name="x")
    k, l = te.reduce_axis(size, "k"), te.reduce_axis(size, "l")

    def element(i: Expr, j: Expr) -> Expr:
        inside = all_of(i >= 0, i < lines, j >= 0, j < columns)
        return select(inside, guarded(x[i, j], inside), 0.0)

    sums = te.compute((lines, columns), lambda i, j: te.sum(element(i + k - 1, j + l - 1), axis=(k, l)), name="s")
    return te.create_prim_func("windows", [x], [sums])


def chain(*shape: int, small: bool) -> PrimFunc:
    """``x + y`` where ``y`` is as large as ``x`` or holds one row."""
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape[-1:] if small else shape, name="y")
    result = te.compute(shape, lambda *i: x[i] + y[i[-1:] if small else i], name="sum")
    return te.create_prim_func("chain", [x, y], [result])
