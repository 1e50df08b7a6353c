"""Random programs through random primitives and tensor passes in random legal orders: each step is refused by a
ScheduleError, which leaves the schedule as it was, or keeps the results that the interpreter gives."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from tests.fuzz.loop_programs import STEPS, Order, Program, Step, fuzzing, orders, programs, results
from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext, Sequential
from tilewright.passes.tensor import tensor_pipeline
from tilewright.tensorir import verify
from tilewright.tensorir.errors import ScheduleError, TilewrightError
from tilewright.tensorir.schedule import Schedule, Trace
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.structural import assert_structural_equal
from tilewright.tensorir.target import Target

#: Has instructions that add several products, and masks; nothing is run on it.
TARGET = Target("llvm", mcpu="znver4", mtriple="x86_64-unknown-linux-gnu", num_threads=2)

#: The passes without which loops stay blocks or buffers stay tensors; the interpreter runs these as well.
ORDERS = orders(tensor_pipeline(TARGET))


def scheduled(program: Program, steps: list[Step]) -> Schedule:
    """Apply the steps that are legal; each keeps the function valid."""
    sch = Schedule(program.func)
    for step in steps:
        before, trace = sch.func, str(sch.trace)
        try:
            step.apply(sch)
        except ScheduleError:
            assert sch.func is before
            assert str(sch.trace).startswith(trace)
        else:
            verify(sch.func)
    return sch


def assert_same(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 0.0) -> None:
    for one, other in zip(found, expected, strict=True):
        if tolerance:
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(one, other)


def lowered(func: PrimFunc, order: Order, level: int) -> PrimFunc:
    mod = IRModule({"f": func})
    with TARGET, PassContext(opt_level=level, disabled_pass=order.left_out):
        mod = Sequential(order.passes, name="random")(mod)
    found = mod["f"]
    assert isinstance(found, PrimFunc)
    return found


@fuzzing(quick=150, in_a_minute=600)
@given(programs(), st.lists(STEPS, max_size=14))
def test_steps_keep_the_results_or_are_refused(program: Program, steps: list[Step]) -> None:
    sch = scheduled(program, steps)
    assert_same(results(sch.func, program), results(program.func, program))


@fuzzing(quick=40, in_a_minute=300)
@given(programs(), st.lists(STEPS, max_size=14))
def test_a_saved_trace_makes_the_same_function_again(program: Program, steps: list[Step]) -> None:
    sch = scheduled(program, steps)
    again = Schedule(program.func)
    Trace.from_json(sch.trace.to_json()).apply(again)
    assert_structural_equal(again.func, sch.func)


@fuzzing(quick=60, in_a_minute=150)
@given(programs(), st.lists(STEPS, max_size=10), ORDERS, st.integers(0, 3))
def test_tensor_passes_in_any_legal_order_keep_the_results(
    program: Program, steps: list[Step], order: Order, level: int
) -> None:
    sch = scheduled(program, steps)
    try:
        after = lowered(sch.func, order, level)
    except TilewrightError as error:
        assert any(name in str(error) for name in order.left_out), "the error names no pass that was left out"
        return
    verify(after)
    expected = results(program.func, program)
    found = [one.reshape(other.shape) for one, other in zip(results(after, program), expected, strict=True)]
    assert_same(found, expected, 1e-6)
