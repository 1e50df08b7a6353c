"""Test formulas that differ along a short last dimension: vectors lie along the dimension before it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.schedule.facts import block_of
from tilewright.passes.schedule.positions import interleaves
from tilewright.tensorir import Schedule
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, select
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

TARGET = Target("llvm", mcpu="x86-64-v3", num_threads=1)


def beside(count: int, element: Callable[..., Expr], rows: int | Var = 64) -> PrimFunc:
    """Return a function of two vectors whose result has ``count`` columns."""
    a, b = (te.placeholder((rows * 4,), "float32", name) for name in "ab")
    return te.create_prim_func("f", [a, b], [te.compute((rows, count), lambda i, j: element(a, b, i, j), name="c")])


def applied(func: PrimFunc) -> set[str]:
    """Return the rules that schedule a function."""
    with PassContext(opt_level=3) as ctx, TARGET:
        ScheduleKernels()(IRModule({func.name: func}))
    return {remark.message.split(":")[0].removeprefix("plan of ") for remark in ctx.remarks if remark.kind == "plan"}


@pytest.mark.parametrize("count", [2, 3, 7, 16])
def test_positions_that_read_along_the_rows_are_interleaved(count: int) -> None:
    func = beside(count, lambda a, b, i, j: select(j < 1, a[i], b[i + j] * 2.0))
    assert applied(func) == {"interleaving"}


@pytest.mark.parametrize(
    ("count", "element", "rows"),
    [
        (17, lambda a, b, i, j: select(j < 1, a[i], b[i]), 64),  # too many vectors
        (2, lambda a, b, i, j: a[i] + b[i + j], 64),  # one formula
        (2, lambda a, b, i, j: select(j < 1, a[i * 2], b[i]), 64),  # every other element
        (2, lambda a, b, i, j: select(j < 1, a[i], b[i]), 4),  # fewer rows than lanes
    ],
)
def test_others_are_not(count: int, element: Callable[..., Expr], rows: int) -> None:
    assert applied(beside(count, element, rows)) == {"elementwise"}


def test_a_dimension_of_one_element_does_not_part_neighbours() -> None:
    a = te.placeholder((64, 1), "float32", "a")
    out = te.compute((64, 2), lambda i, j: select(j < 1, a[i, 0], a[i, 0] * 2.0), name="c")
    schedule = Schedule(te.create_prim_func("f", [a], [out]))
    assert interleaves(block_of(schedule, schedule.get_block("c")))


@pytest.mark.parametrize("rows", [64, 50, "n"])
@pytest.mark.parametrize("count", [2, 3, 8, 10])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_stack_along_the_last_axis_has_the_elements_of_numpy(rows: int | str, count: int, threads: int) -> None:
    params = [gi.var(f"x{number}", shape=(5, rows)) for number in range(count)]
    result = gi.stack(*[gi.exp(param) if number == 1 else param for number, param in enumerate(params)], axis=-1)
    model = tw.build(gi.Function(params, result), target=Target("llvm", num_threads=threads))
    values = np.random.default_rng(0).standard_normal((count, 5, 50 if rows == "n" else rows)).astype("float32")  # type: ignore[call-overload]
    expected = np.stack([np.exp(value) if number == 1 else value for number, value in enumerate(values)], axis=-1)
    np.testing.assert_allclose(model(*values), expected, rtol=1e-6)


def test_a_stack_needs_no_workspace_and_no_strided_store() -> None:
    params = [gi.var(f"x{number}", shape=(4096,)) for number in range(3)]
    lowered = tw.build(gi.Function(params, gi.stack(*params, axis=-1)), target=TARGET).ir("lowered")
    assert "arena: Buffer[(0,)" in lowered
    assert "interleave_3" in lowered and ", 3, 8)]" not in lowered
