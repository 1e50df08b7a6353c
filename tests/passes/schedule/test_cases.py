"""Test formulas that are chosen by their place: the choice is unrolled, and the stage before is computed on the
tile."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.schedule.facts import block_of, case_variables
from tilewright.tensorir import interpret
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Choose, Var, choose, select
from tilewright.tensorir.functor import walk
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import Allocate, For, PrimFunc
from tilewright.tensorir.target import Target


def pairs(count: int | Var, width: int = 8, epilogue: bool = False) -> PrimFunc:
    """Sum and difference of neighbouring rows, and then of what lies at an even and at an odd place of the result."""
    a = te.placeholder((count * 2, width), name="a")
    both = te.compute(
        (count, 2, width),
        lambda i, k, j: choose(k, [a[i * 2, j] + a[i * 2 + 1, j], a[i * 2, j] - a[i * 2 + 1, j]]),
        name="both",
    )
    out = te.compute(
        (count * 2, width),
        lambda i, j: choose(i % 2, [both[i // 2, 0, j] * 3.0, both[i // 2, 1, j] + both[i // 2, 0, j]]),
        name="out",
    )
    if epilogue:
        out = te.compute(out.shape, lambda i, j: out[i, j] * out[i, j], name="square")
    return te.create_prim_func("f", [a], [out])


def expected(a: np.ndarray, epilogue: bool = False) -> np.ndarray:
    total, difference = a[0::2] + a[1::2], a[0::2] - a[1::2]
    out = np.empty_like(a)
    out[0::2], out[1::2] = total * 3, difference + total
    return out * out if epilogue else out


def scheduled(func: PrimFunc) -> PrimFunc:
    with PassContext(opt_level=3), Target("llvm", mcpu="x86-64-v3", num_threads=2):
        return ScheduleKernels()(IRModule({func.name: func}))[func.name]


@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize("count", [1, 4, 7])
def test_values_stay(count: int, epilogue: bool) -> None:
    a = np.random.default_rng(count).standard_normal((2 * count, 8)).astype(np.float32)
    out = np.full_like(a, np.nan)
    interpret(scheduled(pairs(count, epilogue=epilogue)), a, out)
    np.testing.assert_allclose(out, expected(a, epilogue), rtol=1e-6)


@pytest.mark.parametrize("epilogue", [False, True])
def test_values_stay_for_any_number_of_rows(epilogue: bool) -> None:
    rows = Var("rows")
    func = scheduled(pairs(rows, epilogue=epilogue))
    for count in (1, 5):
        a = np.random.default_rng(count).standard_normal((2 * count, 8)).astype(np.float32)
        out = np.full_like(a, np.nan)
        interpret(func, a, out, count)
        np.testing.assert_allclose(out, expected(a, epilogue), rtol=1e-6)


def test_loops_of_cases_are_unrolled_and_steps_stay_in_registers() -> None:
    func = scheduled(pairs(6))
    loops = [node for node in walk(func.body) if isinstance(node, For)]
    assert [(loop.kind, getattr(loop.extent, "value", None)) for loop in loops] == [
        ("parallel", 6),
        ("unrolled", 1),  # the tile's first step is for one pair of rows
        ("unrolled", 2),
        ("vectorized", 8),
        ("unrolled", 2),
        ("vectorized", 8),
    ]
    assert [node.buffer.scope for node in walk(func.body) if isinstance(node, Allocate)] == ["register"]


@pytest.mark.parametrize("count", [40, Var("rows")])
def test_what_follows_a_choice_is_computed_on_its_tile_in_a_loop(count: int | Var) -> None:
    """Each row is read where it was made, twice, and its formula is compiled once."""
    func = scheduled(pairs(count, epilogue=True))
    loops = [node for node in walk(func.body) if isinstance(node, For)]
    assert [loop.kind for loop in loops if loop.kind == "parallel"] == ["parallel"]
    assert [(loop.kind, getattr(loop.extent, "value", None)) for loop in loops[-2:]] == [
        ("serial", 2),
        ("vectorized", 8),
    ]
    assert [node.buffer.scope for node in walk(func.body) if isinstance(node, Allocate)] == ["register", "stack"]


def test_a_formula_with_cases_is_not_copied_into_each_case_of_its_reader() -> None:
    func = scheduled(pairs(6))
    assert sum(isinstance(node, Choose) for node in walk(func.body)) == 2


def test_variables_that_choose() -> None:
    schedule = Schedule(pairs(6))
    first, second = (block_of(schedule, ref) for ref in schedule.get_blocks())
    assert {var.name: size for var, size in case_variables(first).items()} == {"vk": None}
    assert {var.name: size for var, size in case_variables(second).items()} == {"vi": 2}


def test_a_choice_between_many_places_is_not_unrolled() -> None:
    a = te.placeholder((500, 8), name="a")
    out = te.compute((500, 8), lambda i, j: choose(i, [0.0, a[i, j]]), name="first")
    func = scheduled(te.create_prim_func("f", [a], [out]))
    assert not any(isinstance(node, For) and node.kind == "unrolled" for node in walk(func.body))


def test_a_comparison_with_a_place_is_no_case() -> None:
    a = te.placeholder((6, 8), name="a")
    out = te.compute((6, 8), lambda i, j: select(i.equal(0), a[i, j], 0.0), name="first")
    schedule = Schedule(te.create_prim_func("f", [a], [out]))
    assert not case_variables(block_of(schedule, schedule.get_blocks()[0]))
