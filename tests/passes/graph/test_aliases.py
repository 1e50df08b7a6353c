"""A let that gives another name to something goes through every pass, and a recursive let is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes import get_pass, list_passes
from tilewright.passes.graph import FuseOps, InferType, ToANormalForm, ToGraphNormalForm

INPUT = np.array([0.1, -2, 3, 0.5], "float32")
HEAD = "def @main(%x: Tensor[(4,), float32]) {"

MODELS = {
    "parameter": f"{HEAD} let %a = %x let %b = %a %0 = exp(%b) %1 = add(%0, %a) %1 }}",
    "result": f"{HEAD} let %a = exp(%x) let %b = %a %b }}",
    "parameter as result": f"{HEAD} let %a = %x let %b = %a %b }}",
    "tuple": f"{HEAD} %0 = exp(%x) let %a = (%x, %0) let %b = %a %1 = %b.1 %2 = %a.0 %3 = add(%1, %2) %3 }}",
    "branch": f"""{HEAD} let %a = %x %0 = sum(%a) %1 = greater(%0, float32(0.0))
        %2 = if %1 {{ let %b = %a %3 = exp(%b) %3 }} else {{ let %c = %a %c }} %2 }}""",
    "value of a let": f"{HEAD} %0 = {{ let %b = %x let %c = %b %c }} let %a = %0 %1 = exp(%a) %1 }}",
}

#: Passes that print, make another function, or take loop nests only.
OTHERS = {"PrintIR", "Gradient", "PlanMemory", "LowerToTensorIR"}


@pytest.fixture(params=MODELS)
def aliases(request):
    return gi.parse(MODELS[request.param])


def test_no_pass_breaks_a_model_with_aliases(aliases):
    expected = gi.evaluate(aliases, INPUT)
    for name in sorted(set(list_passes()) - OTHERS):
        after = get_pass(name)(aliases)
        gi.verify(after)
        np.testing.assert_allclose(gi.evaluate(after, INPUT), expected, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("opt_level", range(4))
def test_aliases_build_at_every_level(aliases, opt_level):
    with tw.PassContext(opt_level=opt_level):
        model = tw.build(aliases)
    np.testing.assert_allclose(model(INPUT), gi.evaluate(aliases, INPUT), rtol=1e-6)


@pytest.mark.parametrize("opt_level", range(4))
def test_a_function_with_two_names_builds_at_every_level(opt_level):
    x, p = gi.var("x", shape=(4,)), gi.var("p", shape=(4,))
    f, g = (gi.Var(name, gi.FuncType([x.type], x.type)) for name in "fg")
    body = gi.Let(f, gi.Function([p], gi.exp(p)), gi.Let(g, f, gi.Call(g, [gi.Call(f, [x])])))
    with tw.PassContext(opt_level=opt_level):
        model = tw.build(gi.Function([x], body))
    np.testing.assert_allclose(model(INPUT), np.exp(np.exp(INPUT)), rtol=1e-5)


def test_an_alias_is_what_it_stands_for_in_graph_normal_form(rewrites):
    rewrites(ToGraphNormalForm(), MODELS["parameter"], f"{HEAD} %0 = exp(%x) %1 = add(%0, %x) %1 }}")


def test_an_alias_is_not_bound_in_a_normal_form(rewrites):
    rewrites(ToANormalForm(), MODELS["parameter"], f"{HEAD} let %v0 = exp(%x) let %v1 = add(%v0, %x) %v1 }}")


def test_operators_fuse_through_aliases():
    fused = FuseOps()(gi.parse(MODELS["parameter"]))
    assert "let" not in str(fused) and str(fused).count("Primitive") == 1


@pytest.mark.parametrize("a_pass", [InferType(), ToGraphNormalForm(), ToANormalForm(), FuseOps()])
def test_a_recursive_let_is_refused_by_name(a_pass):
    x = gi.var("x", shape=(4,))
    again = gi.Var("again", x.type)
    mod = tw.IRModule.from_expr(gi.Function([x], gi.Let(again, gi.exp(again), again + x)))
    for check in (a_pass, gi.verify, tw.build):
        with pytest.raises(tw.TilewrightError, match="let %again is recursive"):
            check(mod)


def test_a_function_that_calls_itself_by_let_is_refused_by_name():
    x, p = gi.var("x", shape=(4,)), gi.var("p", shape=(4,))
    step = gi.Var("step", gi.FuncType([x.type], x.type))
    body = gi.Let(step, gi.Function([p], gi.Call(step, [p * 2.0])), gi.Call(step, [x]))
    with pytest.raises(tw.TilewrightError, match="let %step is recursive"):
        tw.build(gi.Function([x], body))
