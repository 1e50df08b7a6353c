"""``VerifyInstrument`` blames the pass that broke a rule or changed its input, and none for an invalid input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import (
    Pass,
    PassContext,
    Sequential,
    VerifyInstrument,
    function_pass,
    module_pass,
    primfunc_pass,
)
from tilewright.passes.instruments import verifying
from tilewright.tensorir import parse
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.expr import Var
from tilewright.tensorir.stmt import Evaluate, PrimFunc

KEEP = module_pass(lambda mod, ctx: mod, opt_level=1, name="Keep")


@pytest.fixture
def graph() -> IRModule:
    x = gi.var("x", shape=(4,))
    return IRModule.from_expr(gi.Function([x], gi.add(gi.tanh(x), gi.const(np.ones(4, "f4")))))


def wrong_type(function: gi.Function) -> gi.Function:
    body = function.body
    assert isinstance(body, gi.Call)
    return gi.Function(function.params, gi.Call(body.op, body.args, body.attrs, gi.TensorType((5,), "float32")))


@function_pass(opt_level=1, name="WrongType")
def break_graph(func: gi.Function, mod: Any, ctx: Any) -> gi.Function:
    return wrong_type(func)


@primfunc_pass(opt_level=1, name="Undefined")
def break_loops(func: PrimFunc, mod: Any, ctx: Any) -> PrimFunc:
    return func.with_body(Evaluate(Var("nowhere")))


def run(mod: IRModule, *passes: Pass, **options: Any) -> IRModule:
    with PassContext(instruments=[VerifyInstrument(**options)]):
        return Sequential(passes, name="pipeline")(mod)


def test_the_pass_that_breaks_a_rule_is_named_with_function_and_line(graph: IRModule) -> None:
    with pytest.raises(VerifyError) as caught:
        run(graph, KEEP, break_graph, KEEP)
    text = str(caught.value)
    assert text.startswith(
        "pass WrongType (opt_level 1) returned a module that breaks rules of the IR:\n@main: the type is Tensor"
    )
    assert "add(tanh(...), const[4]) : Tensor[(5,), float32]" in text


def test_loop_level_functions_are_verified_as_well(graph: IRModule) -> None:
    kernel = parse("primfunc @k(A: Buffer[(4,), float32]) { A[0] = float32(1.0) }")
    mod = IRModule({**graph.functions, gi.GlobalVar("k"): kernel})
    with pytest.raises(VerifyError, match=r"pass Undefined .*\n@k: ") as caught:
        run(mod, KEEP, break_loops)
    assert "nowhere" in str(caught.value)


def test_a_wrong_input_is_blamed_on_no_pass(graph: IRModule) -> None:
    function = graph["main"]
    assert isinstance(function, gi.Function)
    with pytest.raises(
        VerifyError, match=r"the input module of pass pipeline .* \(no earlier pass returned it\):\n@main: "
    ):
        run(IRModule.from_expr(wrong_type(function)), KEEP)


def test_a_call_of_a_function_that_a_pass_removed_is_found(graph: IRModule) -> None:
    x = gi.var("x", shape=(4,))
    callee = gi.GlobalVar("f", graph["main"].type)  # type: ignore[union-attr]
    mod = IRModule({"main": gi.Function([x], gi.Call(callee, [x])), callee: graph["main"]})  # type: ignore[dict-item]
    remove = module_pass(lambda mod, ctx: mod.without(["f"]), opt_level=1, name="Remove")
    with pytest.raises(VerifyError, match=r"pass Remove .*\n@main: function @f does not exist"):
        run(mod, KEEP, remove)


@pytest.mark.parametrize("change", ["added", "removed", "replaced"])
def test_a_pass_that_changes_the_functions_of_its_input_is_found(graph: IRModule, change: str) -> None:
    @module_pass(opt_level=1, name="Mutates")
    def mutates(mod: IRModule, ctx: Any) -> IRModule:
        result = IRModule(mod.functions)
        if change == "removed":
            del mod._functions[mod.get_global_var("main")]
        else:
            mod.update(IRModule({"main" if change == "replaced" else "more": gi.Function([], gi.const(1.0))}))
        return result

    with pytest.raises(
        VerifyError, match=f"pass Mutates .* {change} the function @(main|more) of its input module"
    ) as caught:
        run(graph, KEEP, mutates)
    assert not any("then instrument" in note for note in getattr(caught.value, "__notes__", ()))


def spoil_node(mod: IRModule) -> None:
    body = mod["main"].body
    object.__setattr__(body, "op", gi.get_operator("multiply"))


def spoil_data(mod: IRModule) -> None:
    data = mod["main"].body.args[1].data  # type: ignore[union-attr]
    data.base[...] = 3


@pytest.mark.parametrize("spoil", [spoil_node, spoil_data])
def test_nodes_and_data_that_a_pass_changes_are_found_if_wanted(graph: IRModule, spoil: Any) -> None:
    def mutates(mod: IRModule, ctx: Any) -> IRModule:
        spoil(mod)
        return mod

    with pytest.raises(VerifyError, match=r"pass Mutates .* changed the function @main of its input module"):
        run(graph, KEEP, module_pass(mutates, opt_level=1, name="Mutates"), check_mutation=True)


def test_what_stays_as_it_was_is_verified_once(graph: IRModule, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    check = verifying.problems_of
    monkeypatch.setattr(verifying, "problems_of", lambda mod, key: seen.append(key.name) or check(mod, key))
    again = module_pass(lambda mod, ctx: IRModule(mod.functions), opt_level=1, name="Again")
    run(graph, KEEP, again, again)
    assert seen == ["main"]


def test_it_is_usable_after_a_pass_that_failed(graph: IRModule) -> None:
    fail = module_pass(lambda mod, ctx: 1 / 0, opt_level=1, name="Fail")
    with PassContext(instruments=[VerifyInstrument(check_mutation=True)]):
        with pytest.raises(ZeroDivisionError):
            Sequential([KEEP, fail])(graph)
        assert KEEP(graph) is graph
        with pytest.raises(VerifyError, match="pass WrongType"):
            break_graph(graph)


@pytest.mark.parametrize("target", ["llvm", "numba"])
@pytest.mark.parametrize("opt_level", [0, 3])
def test_every_pass_of_a_build_keeps_the_rules(target: str, opt_level: int) -> None:
    x = gi.var("x", shape=("n", 16, 8, 8))
    weight = gi.const(np.ones((16, 16, 3, 3), "f4"))
    hidden = gi.nn.relu(gi.nn.conv2d(x, weight, padding=(1, 1, 1, 1)) + x)
    body = gi.nn.softmax(gi.nn.dense(gi.reshape(hidden, (-1, 1024)), gi.const(np.ones((8, 1024), "f4"))))
    with PassContext(opt_level=opt_level, instruments=[VerifyInstrument(check_mutation=True)]):
        tw.build(IRModule.from_expr(gi.Function([x], body)), target)
