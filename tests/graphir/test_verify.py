"""The verifier reports each broken rule with its line, and accepts valid modules."""

from __future__ import annotations

import pytest

from tilewright import graphir as gi
from tilewright.tensorir.errors import VerifyError

X = gi.var("x", shape=(4,))
V = gi.var("v", shape=(4,))


def wrong(body: gi.Expr, *params: gi.Var) -> str:
    with pytest.raises(VerifyError) as found:
        gi.verify(gi.IRModule({"main": gi.Function(params or (X,), body)}))
    return str(found.value)


def test_a_right_module_passes():
    c = gi.var("c", shape=(), dtype="bool")
    p = gi.var("p", shape=(4,))
    inner = gi.Function([p], p * X)
    body = gi.If(c, gi.Let(V, gi.tanh(X), V + V), gi.Call(inner, [X]))
    gi.verify(gi.IRModule({"main": gi.Function([X, c], body)}))


def test_an_undefined_variable_is_named():
    assert "variable %v is used, but nothing binds it" in wrong(X + V)


def test_a_variable_used_outside_of_its_let_is_named():
    assert "variable %v is used outside" in wrong(gi.add(gi.Let(V, gi.tanh(X), V), V))


def test_a_let_that_uses_its_variable_in_its_value_is_wrong():
    assert "let %v is recursive" in wrong(gi.Let(V, gi.tanh(V), X))


def test_a_parameter_used_outside_of_its_function_is_named():
    p = gi.var("p", shape=(4,))
    assert "variable %p is used outside" in wrong(gi.Call(gi.Function([p], p * p), [X]) + p)


def test_a_variable_bound_twice_is_named():
    assert "variable %v is bound 2 times" in wrong(gi.add(gi.Let(V, X, V), gi.Let(V, X, V)))


def test_an_unknown_function_is_named():
    assert "function @nothing does not exist" in wrong(gi.Call(gi.GlobalVar("nothing"), [X], type=X.type))


def test_arguments_must_fit_the_function_of_the_module():
    y = gi.var("y", shape=(5,))
    mod = gi.IRModule(
        {"f": gi.Function([y], y), "main": gi.Function([X], gi.Call(gi.GlobalVar("f"), [X], type=X.type))}
    )
    with pytest.raises(VerifyError, match=r"f: argument 0: expected Tensor\[\(5,\), float32\]"):
        gi.verify(mod)


def test_a_type_that_does_not_follow_is_named_with_the_line():
    text = wrong(gi.Call("tanh", [X], type=gi.TensorType((3,))))
    assert "the type is Tensor[(3,), float32], but follows as Tensor[(4,), float32]" in text
    assert "tanh(%x)" in text


def test_a_cycle_is_found():
    y = gi.tanh(X)
    object.__setattr__(y, "args", (gi.exp(y),))  # what no constructor can make
    assert "cycle" in wrong(y)


def test_a_fused_group_must_not_capture():
    p = gi.var("p", shape=(4,))
    group = gi.Function([p], p + X, attrs={"Primitive": True})
    assert "a fused group captures %x" in wrong(gi.Call(group, [X]))


def test_all_problems_are_listed_at_once():
    text = wrong(gi.add(V, gi.Call(gi.GlobalVar("nothing"), [X], type=X.type)))
    assert "%v" in text
    assert "@nothing" in text
