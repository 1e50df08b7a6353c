"""``TraceSymbol`` follows a name through the passes, and reports where it gets lost."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import Pass, PassContext, Sequential, TraceSymbol, function_pass, module_pass
from tilewright.passes.graph import (
    AlterOpLayout,
    EliminateCommonSubexpr,
    FoldConstant,
    FuseOps,
    InlineFunctions,
    SimplifyInference,
)
from tilewright.passes.lower import LowerToTensorIR


def op(name: str, label: str | None, *args: gi.Expr, **attrs: Any) -> gi.Call:
    return gi.Call(name, args, attrs or None, span=label)


def traced(symbol: str, body: gi.Expr | IRModule, *passes: Pass, opt_level: int = 3) -> list[str]:
    """The lines of the story behind the first, which is about the input."""
    mod = body if isinstance(body, IRModule) else IRModule.from_expr(gi.Function([X], body))
    trace = TraceSymbol(symbol)
    with PassContext(opt_level=opt_level, instruments=[trace]):
        Sequential(passes, name="pipeline")(mod)
    return trace.render().splitlines()


X = gi.var("x", shape=(4, 8))
WEIGHT = gi.const(np.ones((8, 8), "f4"))


def layer() -> gi.Expr:
    return op("nn.relu", "relu1", op("matmul", "product1", X, WEIGHT))


def test_a_fused_operator_is_followed_into_its_group_and_kernel() -> None:
    assert traced("product1", layer(), FuseOps(), LowerToTensorIR()) == [
        "input: product1 is matmul : Tensor[(4, 8), float32] in @main",
        "FuseOps: now matmul in a fused group in @main, with nn.relu relu1",
        "LowerToTensorIR: now matmul in kernel @matmul_relu, called in @main, with nn.relu relu1",
    ]


def test_an_operator_is_followed_to_the_call_of_its_kernel_in_a_build() -> None:
    trace = TraceSymbol("relu1")
    with PassContext(opt_level=2, instruments=[trace]):
        tw.build(IRModule.from_expr(gi.Function([X], op("cumsum", None, layer(), axis=0))))
    lines = trace.render().splitlines()
    assert lines[-1].startswith("PlanMemory: now call 0 (@") and lines[-1].endswith(") in @main")
    assert any(line.startswith("    missed: nn.relu relu1 and cumsum not fused") for line in lines)
    assert "    applied: scheduled by the rule 'contraction'" in lines


def test_nodes_of_imported_models_are_found_by_their_name_in_quotes() -> None:
    assert traced("conv1", op("tanh", "Tanh 'conv1'", X))[0].startswith("input: conv1 is tanh")


def test_an_operator_that_is_decomposed_is_all_of_its_parts() -> None:
    statistics = [gi.const(np.ones(8, "f4")) for _ in range(4)]
    body = op("nn.batch_norm", "bn1", X, *statistics, axis=1)
    _, line = traced("bn1", body, SimplifyInference())
    assert line.startswith("SimplifyInference: now ")
    assert {"add", "multiply"} <= set(line[len("SimplifyInference: now ") :].replace(",", " ").split())


def test_another_layout_shows_as_another_type_with_the_reason() -> None:
    x = gi.var("x", shape=(1, 16, 8, 8))
    conv = op("nn.conv2d", "conv1", x, gi.const(np.ones((16, 16, 3, 3), "f4")))
    mod = IRModule.from_expr(gi.Function([x], op("nn.relu", "relu1", conv)))
    lines = traced("relu1", mod, AlterOpLayout())
    assert lines[1].startswith("AlterOpLayout: now nn.relu, layout_transform in @main")
    assert any("applied: nn.conv2d works in" in line for line in traced("conv1", mod, AlterOpLayout()))


def test_a_constant_that_is_computed_keeps_the_name() -> None:
    body = gi.add(X, op("exp", "scale1", gi.const(np.ones((4, 8), "f4"))))
    assert traced("scale1", body, FoldConstant())[1] == (
        "FoldConstant: folded into a constant : Tensor[(4, 8), float32] in @main"
    )


def test_what_is_merged_is_gone_with_what_takes_its_place() -> None:
    body = gi.add(op("tanh", "first", X), op("tanh", "second", X))
    assert traced("second", body, EliminateCommonSubexpr())[1:] == [
        "EliminateCommonSubexpr: gone",
        "    applied: tanh second replaced by the equal call tanh first",
    ]


def test_what_a_pass_drops_without_a_word_is_lost() -> None:
    drop = function_pass(lambda func, mod, ctx: func.with_body(func.params[0]), opt_level=0, name="Drop")
    assert traced("relu1", layer(), drop)[1:] == ["Drop: gone: lost, without a remark of the pass"]


def test_a_function_that_is_renamed_is_followed() -> None:
    def rename(mod: IRModule, ctx: Any) -> IRModule:
        return IRModule({"better" if key.name == "worse" else key.name: f for key, f in mod.functions.items()})

    mod = IRModule({"worse": gi.Function([X], layer())})
    drop = module_pass(lambda mod, ctx: mod.without(["better"]), opt_level=0, name="Drop")
    lines = traced("worse", mod, module_pass(rename, opt_level=0, name="Rename"), drop)
    assert lines == [
        "input: worse is a graph function in the module, @worse",
        "Rename: renamed to @better",
        "Drop: gone: lost, without a remark of the pass",
    ]


def test_a_parameter_that_is_renamed_is_followed() -> None:
    def rename(func: gi.Function, mod: Any, ctx: Any) -> gi.Function:
        fresh = gi.var("y", shape=(4, 8))
        return gi.Function([fresh], gi.substitute(func.body, {func.params[0]: fresh}))

    again = function_pass(rename, opt_level=0, name="Rename")
    keep = function_pass(lambda func, mod, ctx: func.with_attr("n", 1), opt_level=0, name="Keep")
    assert traced("x", layer(), again, keep)[1:] == ["Rename: renamed to %y, a parameter of @main"]


def test_a_function_that_is_inlined_is_gone_and_the_pass_says_so() -> None:
    callee = gi.GlobalVar("f", gi.FuncType([X.type], X.type))
    y = gi.var("y", shape=(4, 8))
    mod = IRModule({"main": gi.Function([y], gi.Call(callee, [y])), callee: gi.Function([X], layer())})
    remove = module_pass(lambda mod, ctx: mod.without(["f"]), opt_level=0, name="Remove")
    lines = traced("f", mod, InlineFunctions(), remove)
    assert "    applied: @f inlined" in lines


def test_a_kernel_appears_when_it_is_made() -> None:
    lines = traced("matmul_relu", layer(), FuseOps(), LowerToTensorIR())
    assert lines[:2] == [
        "input: matmul_relu does not occur yet",
        "LowerToTensorIR: appears: a loop nest in the module, @matmul_relu",
    ]


def test_a_name_that_is_never_there_gets_a_suggestion() -> None:
    (line,) = traced("produkt1", layer(), FuseOps())
    assert line.startswith("produkt1: no function, variable or operator has this name. Did you mean 'product1'")


def test_without_passes_there_is_no_story() -> None:
    assert TraceSymbol("x").render() == "x: no pass has run"


def test_each_build_begins_with_its_input_and_data_is_the_story() -> None:
    trace = TraceSymbol("relu1")
    with PassContext(opt_level=1, instruments=[trace]):
        for _ in range(2):
            FuseOps()(IRModule.from_expr(gi.Function([X], layer())))
    assert [event.pass_name for event in trace.events] == ["input", "FuseOps"] * 2
    assert trace.as_dict()["events"][1]["text"].startswith("now nn.relu in a fused group")
    assert json.loads(trace.to_json()) == trace.as_dict()


def test_it_goes_on_after_a_pass_that_failed() -> None:
    mod = IRModule.from_expr(gi.Function([X], layer()))
    fail = module_pass(lambda mod, ctx: 1 / 0, opt_level=0, name="Fail")
    trace = TraceSymbol("relu1")
    with PassContext(opt_level=1, instruments=[trace]):
        with pytest.raises(ZeroDivisionError):
            Sequential([fail])(mod)
        FuseOps()(mod)
    assert [event.pass_name for event in trace.events] == ["input", "FuseOps"]
