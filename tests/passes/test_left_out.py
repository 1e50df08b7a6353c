"""A build that fails because a pass was left out names the pass, and what left it out."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes import PassInstrument

ONES = np.ones((3, 16), "float32")


class Veto(PassInstrument):
    def __init__(self, pass_name):
        self.pass_name = pass_name

    def should_run(self, mod, info):
        return info.name != self.pass_name


def network():
    x = gi.var("x", shape=("n", 16))
    return gi.Function([x], gi.nn.softmax(gi.nn.dense(x, gi.const(np.ones((8, 16), "float32"))) + 1.0))


@pytest.mark.parametrize("target", ["llvm", "numba"])
@pytest.mark.parametrize("name", ["LowerToTensorIR", "LowerBlocks", "PlanMemory"])
def test_a_disabled_pass_is_named(name, target):
    message = f"a build cannot do without: {name}, as disabled_pass names {name}$"
    with tw.PassContext(disabled_pass=[name]), pytest.raises(tw.TilewrightError, match=message):
        tw.build(network(), target)


@pytest.mark.parametrize("name", ["LowerToTensorIR", "LowerBlocks", "PlanMemory"])
def test_a_vetoed_pass_is_named_with_the_instrument(name):
    message = f"a build cannot do without: {name}, as instrument Veto vetoed {name}$"
    with tw.PassContext(instruments=[Veto(name)]), pytest.raises(tw.TilewrightError, match=message):
        tw.build(network())


def test_the_passes_of_a_vetoed_pipeline_are_named():
    message = "a build cannot do without: LowerBlocks, .*UnrollLoop, as instrument Veto vetoed tensor_pipeline"
    with tw.PassContext(instruments=[Veto("tensor_pipeline")]), pytest.raises(tw.TilewrightError, match=message):
        tw.build(network())


def test_a_level_that_is_too_low_for_a_build_is_named():
    message = "InferType, SpecializeCalls, LowerToTensorIR, .*, as opt_level 0 is above the context's -1"
    with tw.PassContext(opt_level=-1), pytest.raises(tw.TilewrightError, match=message):
        tw.build(network())


def test_the_error_of_a_complete_build_is_as_it_was():
    x = gi.var("x", shape=(4,))
    module = gi.IRModule({"main": gi.Function([x], gi.exp(gi.Var("lost", x.type)))})
    with tw.PassContext(disabled_pass=["Simplify"]), pytest.raises(tw.TilewrightError) as caught:
        tw.build(module)
    assert "left out" not in str(caught.value)


def test_a_veto_of_an_earlier_build_is_forgotten():
    with tw.PassContext(instruments=[Veto("FlattenBuffer"), Veto("LowerBlocks")]), pytest.raises(tw.TilewrightError):
        tw.build(network())
    with tw.PassContext(disabled_pass=["PlanMemory"]), pytest.raises(tw.TilewrightError) as caught:
        tw.build(network())
    assert "LowerBlocks" not in str(caught.value)


def test_passes_that_a_build_can_do_without_may_be_left_out():
    with tw.PassContext(disabled_pass=["SkipUnseen", "FuseOps"], instruments=[Veto("ScheduleKernels")]):
        model = tw.build(network())
    np.testing.assert_allclose(model(ONES), np.full((3, 8), 1 / 8), rtol=1e-6)


@pytest.mark.parametrize("level", range(4))
def test_no_pass_is_named_for_another_fault(level):
    """A size that nothing computes: all that a build needs runs at each level."""
    filled = gi.broadcast_to(gi.const(np.float32(1)), shape=("size",))
    with tw.PassContext(opt_level=level), pytest.raises(tw.TilewrightError, match=r"\(bind_size makes them\)\nin pass"):
        tw.build(gi.Function([], filled))
