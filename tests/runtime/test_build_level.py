"""The optimization level of a build: given to ``build``, or one default for Python and the command line."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.cli.compile_ import compile_model
from tilewright.passes import PassInstrument, module_pass
from tilewright.passes.context import DEFAULT_OPT_LEVEL, PassContext

X = gi.var("x", shape=("n",))
MODEL = gi.Function([X], gi.exp(X) + 1.0)


class Levels(PassInstrument):
    """Notes the level of each pass's context, and how often the context is entered and left."""

    def __init__(self):
        self.levels, self.entered = set(), []

    def enter_pass_ctx(self):
        self.entered.append("enter")

    def exit_pass_ctx(self):
        self.entered.append("exit")

    def run_before_pass(self, mod, info):
        self.levels.add(PassContext.current().opt_level)


def test_build_takes_a_level_and_keeps_the_rest_of_the_context():
    levels = Levels()
    with PassContext(opt_level=0, disabled_pass=["FuseOps"], instruments=[levels]) as context:
        model = tw.build(MODEL, opt_level=1)
        assert PassContext.current() is context and context.opt_level == 0
        assert levels.levels == {1} and levels.entered == ["enter"]
        assert "Primitive" not in model.ir("optimized") and context.remarks
    assert levels.entered == ["enter", "exit"]


def test_a_level_of_a_build_is_that_of_a_context():
    with PassContext(opt_level=3):
        expected = tw.build(MODEL)
    assert tw.build(MODEL, opt_level=3).ir("lowered") == expected.ir("lowered")
    assert tw.build(MODEL, opt_level=0).ir("lowered") != expected.ir("lowered")


def test_the_level_ends_with_a_build_that_fails():
    @module_pass(opt_level=0, name="Fails")
    def fails(mod, ctx):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tw.build(MODEL, opt_level=3, passes={"graph": fails})
    assert PassContext.current().opt_level == DEFAULT_OPT_LEVEL


@pytest.mark.parametrize("wrong", ["3", 2.0, True])
def test_what_is_no_level_is_refused(wrong):
    with pytest.raises(TypeError, match="opt_level is an integer"):
        tw.build(MODEL, opt_level=wrong)


def test_instruments_that_a_pass_replaces_during_the_build_stay_replaced():
    old, new = Levels(), Levels()

    @module_pass(opt_level=0, name="Replaces")
    def replaces(mod, ctx):
        ctx.override_instruments([new])
        return mod

    with PassContext(instruments=[old]) as context:
        tw.build(MODEL, opt_level=1, passes={"graph": replaces})
        assert context.instruments == [new]
    assert (old.entered, new.entered) == (["enter", "exit"], ["enter", "exit"])


def test_python_and_the_command_line_have_one_default():
    (option,) = (param for param in compile_model.params if param.name == "opt_level")
    assert option.default == PassContext().opt_level == DEFAULT_OPT_LEVEL == 2
