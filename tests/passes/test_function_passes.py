"""Test the arguments and results of function passes, and that they leave their input alone."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext, function_pass, module_pass, primfunc_pass
from tilewright.tensorir.errors import PassError
from tilewright.tensorir.expr import const
from tilewright.tensorir.stmt import Evaluate, PrimFunc


def functions_by_name(mod: IRModule) -> dict[str, Any]:
    return {gv.name: func for gv, func in mod.functions.items()}


def test_a_function_pass_sees_each_graph_function_with_module_and_context(mixed_mod: IRModule) -> None:
    seen = []

    @function_pass(opt_level=0)
    def look(func: Any, mod: Any, ctx: Any) -> Any:
        seen.append((func, mod, ctx))
        return func

    ctx = PassContext()
    look(mixed_mod, ctx)
    functions = functions_by_name(mixed_mod)
    assert seen == [(functions["main"], mixed_mod, ctx), (functions["other"], mixed_mod, ctx)]


def test_a_primfunc_pass_sees_each_loop_level_function(mixed_mod: IRModule) -> None:
    seen = []

    @primfunc_pass(opt_level=0)
    def look(func: Any, mod: Any, ctx: Any) -> Any:
        seen.append(func)
        return func

    look(mixed_mod)
    assert seen == [functions_by_name(mixed_mod)["kernel"]]


def test_without_a_context_argument_the_current_one_is_used(mod: IRModule) -> None:
    seen = []

    @module_pass(opt_level=0)
    def look(mod: Any, ctx: Any) -> Any:
        seen.append(ctx)
        return mod

    with PassContext() as ctx:
        look(mod)
    assert seen == [ctx]


@pytest.mark.parametrize("decorator", [function_pass, primfunc_pass])
def test_a_pass_that_changes_no_function_returns_the_same_module(decorator: Any, mixed_mod: IRModule) -> None:
    assert decorator(lambda func, mod, ctx: func, opt_level=0, name="Same")(mixed_mod) is mixed_mod


def test_a_changed_function_gives_a_new_module_and_leaves_the_old_one(mixed_mod: IRModule) -> None:
    before = functions_by_name(mixed_mod)
    replaced = gi.Function([x := gi.var("z", shape=(1,), dtype="float32")], x)

    @function_pass(opt_level=0)
    def replace(func: Any, mod: Any, ctx: Any) -> Any:
        return replaced if func is before["other"] else func

    after = replace(mixed_mod)
    assert after is not mixed_mod
    assert functions_by_name(mixed_mod) == before
    assert functions_by_name(after) == {**before, "other": replaced}


def test_a_changed_primfunc_gives_a_new_module(mixed_mod: IRModule) -> None:
    @primfunc_pass(opt_level=0)
    def mark(func: Any, mod: Any, ctx: Any) -> Any:
        return func.with_attr("marked", True)

    after = mark(mixed_mod)
    assert functions_by_name(after)["kernel"].attrs["marked"] is True
    assert "marked" not in functions_by_name(mixed_mod)["kernel"].attrs
    assert functions_by_name(after)["main"] is functions_by_name(mixed_mod)["main"]


@pytest.mark.parametrize("decorator", [function_pass, primfunc_pass])
def test_a_function_with_skip_optimization_is_left_untouched(decorator: Any, mixed_mod: IRModule) -> None:
    skipped = IRModule({gv: func.with_attr("SkipOptimization", True) for gv, func in mixed_mod.functions.items()})
    seen = []

    def look(func: Any, mod: Any, ctx: Any) -> Any:
        seen.append(func)
        return func.with_attr("touched", True)

    assert decorator(look, opt_level=0)(skipped) is skipped
    assert seen == []


def test_a_false_skip_optimization_skips_nothing(graph_function: gi.Function) -> None:
    mod = IRModule({"main": graph_function.with_attr("SkipOptimization", False)})
    touched = function_pass(lambda func, mod, ctx: func.with_attr("touched", True), opt_level=0, name="Touch")(mod)
    assert functions_by_name(touched)["main"].attrs["touched"] is True


def test_a_lowering_pass_may_run_on_skipped_functions(mixed_mod: IRModule) -> None:
    skipped = IRModule({gv: func.with_attr("SkipOptimization", True) for gv, func in mixed_mod.functions.items()})

    @primfunc_pass(opt_level=0)
    class Lower:
        essential = True

        def transform_function(self, func: Any, mod: Any, ctx: Any) -> Any:
            return func.with_attr("lowered", True)

    lowered = Lower()(skipped)  # type: ignore[operator]
    assert functions_by_name(lowered)["kernel"].attrs["lowered"] is True


def test_a_module_pass_may_add_and_remove_functions(mixed_mod: IRModule, graph_function: gi.Function) -> None:
    @module_pass(opt_level=0)
    def rename(mod: Any, ctx: Any) -> Any:
        doomed = [gv for gv in mod.functions if gv.name == "other"]
        return mod.without(doomed).with_functions({gi.GlobalVar("added"): graph_function})

    assert sorted(functions_by_name(rename(mixed_mod))) == ["added", "kernel", "main"]
    assert sorted(functions_by_name(mixed_mod)) == ["kernel", "main", "other"]


def test_a_function_pass_that_returns_another_type_names_pass_function_and_types(mod: IRModule) -> None:
    broken = function_pass(lambda func, mod, ctx: None, opt_level=0, name="Broken")
    with pytest.raises(PassError, match=r"Broken.*@main.*expected .*Function.*found NoneType.*return"):
        broken(mod)


def test_a_function_pass_may_not_return_a_loop_level_function(mod: IRModule) -> None:
    broken = function_pass(
        lambda func, mod, ctx: PrimFunc("p", (), Evaluate(const(0, "int32"))), opt_level=0, name="Broken"
    )
    with pytest.raises(PassError, match=r"expected a graphir Function .*found PrimFunc"):
        broken(mod)


def test_a_module_pass_that_returns_another_type_names_pass_and_types(mod: IRModule) -> None:
    broken = module_pass(lambda mod, ctx: {}, opt_level=0, name="Broken")
    with pytest.raises(PassError, match=r"Broken.*expected an IRModule.*found dict"):
        broken(mod)


def test_a_wrong_type_is_also_a_type_error(mod: IRModule) -> None:
    with pytest.raises(TypeError):
        module_pass(lambda mod, ctx: None, opt_level=0, name="Broken")(mod)


def test_a_function_instead_of_a_module_is_refused(graph_function: gi.Function) -> None:
    with pytest.raises(PassError, match="Same: expected an IRModule, found Function"):
        module_pass(lambda mod, ctx: mod, opt_level=0, name="Same")(graph_function)  # type: ignore[arg-type]


def test_a_pass_called_directly_is_not_gated_by_its_level_nor_disabled(mod: IRModule) -> None:
    runs = []

    @module_pass(opt_level=3)
    def expensive(mod: Any, ctx: Any) -> Any:
        runs.append(ctx)
        return mod

    with PassContext(opt_level=0, disabled_pass=["expensive"]):
        expensive(mod)
    assert len(runs) == 1


def test_the_infrastructure_adds_few_calls_to_a_pass(mod: IRModule) -> None:
    """Ten microseconds are 50 calls of .2 us. Those are measured in ``bench/bench_passes.py``; the number of calls does
    not depend on the machine."""
    same = function_pass(lambda func, mod, ctx: func, opt_level=0, name="Same")
    same(mod)
    calls = []

    def note(frame: Any, event: str, arg: Any) -> None:
        if event in ("call", "c_call"):
            calls.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        same(mod)
    finally:
        sys.setprofile(before)
    assert len(calls) <= 50, calls


@pytest.mark.parametrize("name", ["helper", "other"])
def test_a_function_pass_can_neither_add_nor_replace_functions(mixed_mod: IRModule, name: str) -> None:
    @function_pass(opt_level=0, name="Adds")
    def adds(func: Any, mod: Any, ctx: Any) -> Any:
        mod.update({gi.GlobalVar(name): func})
        return func.with_attr("seen", True)

    with pytest.raises(PassError, match=f"pass Adds has changed the module that it was given .*@{name}.*module_pass"):
        adds(mixed_mod)


def test_a_function_pass_cannot_return_a_module(mod: IRModule) -> None:
    more = function_pass(lambda func, mod, ctx: mod.with_functions({gi.GlobalVar("more"): func}), opt_level=0, name="P")
    with pytest.raises(PassError, match="pass P on function @main: expected a graphir Function to be returned"):
        more(mod)
