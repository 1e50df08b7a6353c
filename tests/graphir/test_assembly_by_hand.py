"""Modules written by hand: parameters from free variables, functions by name, their calls, tuples taken apart."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.tensorir.errors import TypeInferenceError

X, Y = gi.var("x", shape=(4,)), gi.var("y", shape=(4,))
A, B = np.arange(4, dtype="float32"), np.ones(4, "float32")


def test_free_variables_become_parameters_in_order_of_first_use():
    mod = tw.IRModule.from_expr(gi.exp(Y) + X * Y)
    main = mod["main"]
    assert main.params == (Y, X) and mod.get_global_var("main").type == main.type
    np.testing.assert_allclose(tw.build(mod)(y=A, x=B), np.exp(A) + A, rtol=1e-6)


def test_bound_variables_become_no_parameters():
    v, p = gi.Var("v", X.type), gi.Var("p", X.type)
    mod = tw.IRModule.from_expr(gi.Let(v, gi.exp(X), gi.Function([p], p + v)(v)))
    assert mod["main"].params == (X,)


def test_a_function_is_taken_as_it_is():
    function = gi.Function([X, Y], X)
    assert tw.IRModule.from_expr(function)["main"] is function


def test_two_free_variables_of_one_name_are_refused():
    with pytest.raises(ValueError, match=r"two free variables named x; make a gi\.Function"):
        tw.IRModule.from_expr(X + gi.var("x", shape=(4,)))


def test_a_function_is_added_and_replaced_by_its_name():
    mod = tw.IRModule()
    mod["main"] = gi.Function([X], X)
    mod["helper"] = first = gi.Function([X], gi.exp(X))
    mod["main"] = second = gi.Function([Y], gi.tanh(Y))
    assert [(gv.name, function) for gv, function in mod.functions.items()] == [("main", second), ("helper", first)]
    key = mod.get_global_var("main")
    mod[key] = third = gi.Function([X, Y], X + Y)
    assert mod["main"] is mod[key] is third and len(mod) == 2


def test_a_name_does_not_keep_the_type_of_a_function_that_was_replaced():
    mod = tw.IRModule.from_expr(gi.Function([X], X))
    mod["main"] = gi.Function([X, Y], X + Y)
    assert mod.get_global_var("main").type == mod["main"].type
    gi.verify(mod)


def test_what_is_no_function_is_not_added():
    mod = tw.IRModule()
    with pytest.raises(TypeError, match="function main: expected a Function or PrimFunc, found Call"):
        mod["main"] = gi.exp(X)
    with pytest.raises(TypeError, match="key is a GlobalVar or a name"):
        mod[3] = gi.Function([X], X)


def test_a_function_is_called_like_one_of_python():
    p, q = gi.var("p", shape=(4,)), gi.var("q", shape=(4,))
    scaled_sum = gi.Function([p, q], p * 2.0 + q)
    call = scaled_sum(X, B)
    gi.assert_structural_equal(call, gi.Call(scaled_sum, [X, gi.const(B)]))
    np.testing.assert_allclose(tw.build(tw.IRModule.from_expr(call))(A), A * 2 + 1)


def test_a_number_takes_the_type_of_the_parameter():
    n = gi.var("n", shape=(), dtype="float64")
    assert gi.Function([n], n)(2).args[0].dtype == "float64"


def test_a_function_of_the_module_and_a_variable_are_called():
    mod = tw.IRModule()
    mod["twice"] = gi.Function([Y], Y * 2.0)
    step = gi.Var("step", gi.FuncType([X.type], X.type))
    body = gi.Let(step, gi.Function([Y], gi.exp(Y)), step(mod.get_global_var("twice")(X)))
    mod["main"] = gi.Function([X], body)
    np.testing.assert_allclose(tw.build(mod)(A), np.exp(A * 2), rtol=1e-6)


def test_a_call_with_wrong_arguments_is_refused_where_it_is_made():
    function = gi.Function([X], X)
    with pytest.raises(TypeInferenceError, match="function: expected 1 arguments, found 2"):
        function(X, Y)
    with pytest.raises(
        TypeInferenceError, match=r"argument 0: expected Tensor\[\(4,\), float32\], found Tensor\[\(5,\)"
    ):
        function(gi.var("z", shape=(5,)))
    with pytest.raises(TypeInferenceError, match="call of x: expected a function, found Tensor"):
        X(Y)


def test_a_tuple_is_taken_apart():
    first, second = gi.split(X, 2)
    np.testing.assert_allclose(tw.build(gi.Function([X], second - first))(A), [2, 2])
    *rest, last = gi.Tuple([X, Y, X + Y])
    assert [field.index for field in (*rest, last)] == [0, 1, 2]
    with pytest.raises(ValueError, match="too many values to unpack"):
        first, second = gi.split(X, 4)


def test_a_tensor_is_not_taken_apart():
    with pytest.raises(TypeError, match="a tensor of a graph cannot be iterated over"):
        _, _ = gi.reshape(X, (2, 2))
