"""Test the options of ``NumericCheck``: on_failure, every, passes, tolerance, reference, engine."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.runtime.observe.numeric.broken_passes import (
    drop_epilogue,
    failure,
    model,
    off_by_one,
    random,
    swap_operands,
    wrong_fold,
)
from tilewright import graphir as gi
from tilewright.passes import PassContext, Sequential, function_pass
from tilewright.passes.graph import FoldConstant
from tilewright.passes.pipelines import graph_pipeline
from tilewright.runtime.observe.numeric import NumericError
from tilewright.tensorir.errors import InputError


def test_recording_goes_on_and_names_each_culprit_once() -> None:
    check = tw.NumericCheck(seed=1, folder=None, on_failure="record")
    with PassContext(opt_level=1, instruments=[check]):
        tw.build(model(), target="llvm", passes={"graph": wrong_fold, "tensor": off_by_one})
    assert [found.pass_name for found in check.failures] == ["WrongFold", "OffByOne"]
    assert [step.passes for step in check.steps if step.status == "failed"] == [("WrongFold",), ("OffByOne",)]


def test_failure_after_another_is_not_shown_by_the_first() -> None:
    """The steps that lead to the second failure contain the first one."""
    check = tw.NumericCheck(seed=1, folder=None, on_failure="record")
    with PassContext(opt_level=1, instruments=[check]):
        tw.build(model(), target="llvm", passes={"optimized": drop_epilogue, "tensor": off_by_one})
    first, second = check.failures
    assert (first.pass_name, second.pass_name) == ("DropEpilogue", "OffByOne")
    assert second.minimized is None and "DropEpilogue" in second.note
    assert second.function.startswith("dense")


def test_checking_every_nth_pass_names_the_same_culprit() -> None:
    for every in (3, 1000):
        check = tw.NumericCheck(seed=1, folder=None, every=every)
        found = failure(check, model(), "graph", Sequential([FoldConstant(), swap_operands, drop_epilogue]))
        assert found.pass_name == "SwapOperands"
    clean = tw.NumericCheck(seed=1, folder=None, every=5)
    with PassContext(opt_level=3, instruments=[clean]):
        graph_pipeline()(model())
    assert all(len(step.passes) <= 5 for step in clean.steps)


def test_passes_that_are_not_to_be_checked_are_taken_for_granted() -> None:
    check = tw.NumericCheck(seed=1, folder=None, passes=["WrongFold", "FuseOps"])
    with PassContext(opt_level=3, instruments=[check]):
        tw.build(model(), target="llvm", passes={"graph": swap_operands})
    assert [step.passes for step in check.steps] == [("FuseOps",)]
    assert not check.failures


def test_pass_outside_of_tolerance_is_found_however_small_the_error() -> None:
    @function_pass(opt_level=0, name="Shift")
    def shift(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
        return func.with_body(func.body * np.float32(1 + 1e-4))

    loose = tw.NumericCheck(seed=1, folder=None, tolerance=1e-2)
    with PassContext(instruments=[loose]):
        shift(model())
    for tolerance in (None, 1e-6, (1e-6, 1e-6), {"float32": 1e-6}):
        strict = tw.NumericCheck(seed=1, folder=None, tolerance=tolerance)
        with PassContext(instruments=[strict]), pytest.raises(NumericError):
            shift(model())


def test_reference_may_be_given() -> None:
    mod, x = model(), random(3, 16)
    right = gi.evaluate(mod, x)
    for reference in (right, lambda x: gi.evaluate(mod, x), "original"):
        check = tw.NumericCheck([x], reference, folder=None)
        with PassContext(opt_level=3, instruments=[check]):
            tw.build(mod, target="llvm")
        assert {step.status for step in check.steps} == {"ok"}
    with (
        pytest.raises(InputError, match="results of shapes"),
        PassContext(instruments=[tw.NumericCheck([x], right[:2], folder=None)]),
    ):
        FoldConstant()(mod)


def test_engines_agree() -> None:
    for engine in ("interpreter", "compiled"):
        found = failure(tw.NumericCheck(seed=1, folder=None, engine=engine), model(1), "tensor", off_by_one, 1)
        assert found.pass_name == "OffByOne"


def test_inputs_that_do_not_fit_are_an_error_at_the_first_pass() -> None:
    for given, message in (({"y": random(3, 16)}, "'y'"), ([random(3, 17)], "shape"), ({}, "'x' is missing")):
        check = tw.NumericCheck(given, folder=None)
        with pytest.raises(InputError, match=message), PassContext(instruments=[check]):
            FoldConstant()(model())


def test_arguments_are_checked() -> None:
    for arguments in ({"reference": "float16"}, {"every": 0}, {"on_failure": "ignore"}, {"engine": "gpu"}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            tw.NumericCheck(**arguments)  # type: ignore[arg-type]
