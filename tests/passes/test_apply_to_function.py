"""Test ``ApplyPassToFunction``: which functions change, and what happens to those that a pass adds or removes."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes import ApplyPassToFunction, PassContext, Sequential, function_pass, module_pass
from tilewright.tensorir.errors import PassError

#: Two functions that each add constants, called by a third.
SUMS = """
def @left(%x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  %0 = add(float32(1.0), float32(2.0)) : Tensor[(), float32]
  %1 = add(%x, %0) : Tensor[(4), float32]
  %1
}

def @right(%x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  %0 = add(float32(1.0), float32(2.0)) : Tensor[(), float32]
  %1 = multiply(%x, %0) : Tensor[(4), float32]
  %1
}

def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  %0 = @left(%x) : Tensor[(4), float32]
  %1 = @right(%0) : Tensor[(4), float32]
  %1
}
"""


@pytest.fixture
def sums() -> tw.IRModule:
    """Return the module of ``SUMS``."""
    return gi.parse(SUMS.replace("(4)", "(4,)"))


def names(mod: tw.IRModule) -> list[str]:
    return [gv.name for gv in mod]


def changed(before: tw.IRModule, after: tw.IRModule) -> list[str]:
    return [gv.name for gv in before if after[gv.name] is not before[gv]]


def test_only_functions_whose_names_match_are_folded(sums: tw.IRModule) -> None:
    folded = ApplyPassToFunction(tw.transform.FoldConstant(), "ri.*")(sums)
    assert changed(sums, folded) == ["right"]
    assert gi.structural_equal(folded["right"], tw.transform.FoldConstant()(sums)["right"])


def test_a_pattern_matches_from_the_start_of_a_name(sums: tw.IRModule) -> None:
    assert ApplyPassToFunction(tw.transform.FoldConstant(), "ight")(sums) is sums


def test_the_passes_of_a_pipeline_see_the_chosen_functions_only(sums: tw.IRModule) -> None:
    seen = []

    @function_pass(opt_level=0)
    def look(func: Any, mod: tw.IRModule, ctx: PassContext) -> Any:
        seen.append(next(gv.name for gv in mod if mod[gv] is func))
        return func

    assert ApplyPassToFunction(Sequential([look, look]), "left|main")(sums) is sums
    look(sums)
    assert seen == ["left", "main", "left", "main", "left", "right", "main"]


def test_one_inside_another_transforms_what_both_choose(sums: tw.IRModule) -> None:
    inner = ApplyPassToFunction(tw.transform.FoldConstant(), "left|main")
    assert changed(sums, ApplyPassToFunction(inner, "left|right")(sums)) == ["left"]


def test_what_a_module_pass_does_to_other_functions_is_put_back(sums: tw.IRModule) -> None:
    inlined = ApplyPassToFunction(tw.transform.InlineFunctions(), "left")(sums)
    assert names(inlined) == names(sums) and not changed(sums, inlined)


def test_a_function_that_the_pass_removes_stays_while_others_call_it(sums: tw.IRModule) -> None:
    remove = module_pass(lambda mod, ctx: mod.without(["left", "right"]), opt_level=0, name="Remove")
    assert names(ApplyPassToFunction(remove, "left")(sums)) == ["right", "main", "left"]
    assert names(ApplyPassToFunction(remove, "left|right|main")(sums)) == ["main"]


def test_functions_that_the_pass_adds_stay_where_chosen_ones_call_them() -> None:
    x, y = gi.var("x", shape=(4,)), gi.var("y", shape=(4,))
    closures = {name: gi.Function([x], gi.Function([y], gi.add(y, y))(x)) for name in ("one", "two")}
    mod = tw.IRModule(closures)
    lifted = ApplyPassToFunction(tw.transform.LambdaLift(), "one")(mod)
    assert len(tw.transform.LambdaLift()(mod)) == 4 and len(lifted) == 3
    assert changed(mod, lifted) == ["one"]
    gi.verify(lifted)


def test_a_new_type_of_a_function_that_others_call_is_an_error(sums: tw.IRModule) -> None:
    z = gi.var("z", shape=(2,))

    @function_pass(opt_level=0)
    def replace(func: Any, mod: tw.IRModule, ctx: PassContext) -> Any:
        return gi.Function([z], z)

    with pytest.raises(PassError, match=r"type of @left was fn\(Tensor\[\(4,\).*called by functions that are not"):
        ApplyPassToFunction(replace, "left")(sums)


def test_no_match_is_an_error_only_if_asked_for(sums: tw.IRModule) -> None:
    fold = tw.transform.FoldConstant()
    assert ApplyPassToFunction(fold, "middle")(sums) is sums
    with pytest.raises(PassError, match="no function matches; the module has @left, @right, @main"):
        ApplyPassToFunction(fold, "middle", error_if_no_function_matches_regex=True)(sums)


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="expected a pass, found"):
        ApplyPassToFunction(tw.transform.FoldConstant, "main")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is no regular expression"):
        ApplyPassToFunction(tw.transform.FoldConstant(), "(")
