"""Nodes of the graph-level IR: immutable, typed where they are made, walked without recursion; modules."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import UnknownFunctionError
from tilewright.graphir.visitor import call_nodes, free_vars, post_order, rewrite, substitute, users
from tilewright.tensorir import PrimFunc
from tilewright.tensorir.errors import TypeInferenceError, VerifyError
from tilewright.tensorir.stmt import SeqStmt

F32 = gi.TensorType((2,))
BOOL = gi.TensorType((), "bool")
INT = gi.TensorType((), "int64")


def nodes() -> list[gi.Expr]:
    x = gi.Var("x", F32)
    pair = gi.Tuple([x, x])
    function = gi.Function([x], x + 1.0)
    state = gi.Var("s", INT)
    body = gi.Function([gi.Var("i", INT), state], gi.Tuple([state + 1]))
    loop = gi.Loop(gi.const(3), None, body, [gi.const(0)])
    choice = gi.If(gi.const(True), x, x)
    return [x, gi.const(1.0), gi.GlobalVar("f"), x + x, pair, pair[0], gi.Let(x, x, x), choice, function, loop]


@pytest.mark.parametrize("node", nodes(), ids=lambda node: type(node).__name__)
def test_nodes_are_immutable_and_rebuild_from_their_parts(node: gi.Expr) -> None:
    for name in ("type", "span", type(node).__slots__[0] if type(node).__slots__ else "type"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(node, name, None)
    again = node.with_children(node.children)
    assert type(again) is type(node) and again.type == node.type
    assert all(a is b for a, b in zip(again.children, node.children, strict=True))
    assert node.children == () or again is not node


def test_a_constant_is_shared_and_read_only() -> None:
    array = np.ones(3, np.float32)
    constant = gi.const(array)
    assert np.shares_memory(constant.data, array)
    with pytest.raises(ValueError, match="read-only"):
        constant.data[0] = 2
    array[0] = 5  # the user's own array stays writable


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [(1.5, "float32", ()), (2, "int64", ()), (True, "bool", ()), ([1.0, 2.0], "float32", (2,)), ([1, 2], "int64", (2,)),
     (np.float64(1), "float64", ()), (np.int8([1]), "int8", (1,))],
)  # fmt: skip
def test_constants_take_the_types_of_their_values(value: Any, dtype: str, shape: tuple[int, ...]) -> None:
    if isinstance(value, np.float64):  # a Python float too, but its type was chosen
        value = np.asarray(value)
    assert gi.const(value).type == gi.TensorType(shape, dtype)
    assert gi.const(value, "float16").dtype == "float16"


def test_a_constant_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="a constant holds numbers"):
        gi.const(["a"])
    with pytest.raises(TypeError, match="a constant holds numbers"):
        gi.const(np.zeros(2, complex))


def test_variables_are_made_from_types_or_shapes() -> None:
    assert gi.var("x", F32).type is F32
    assert gi.var("x", shape=("batch", 2), dtype="int8").shape == (gi.symbol("batch"), 2)
    assert gi.var("x").type is None
    with pytest.raises(TypeError, match="give a type or a shape, not both"):
        gi.var("x", F32, shape=(2,))
    with pytest.raises(TypeError, match="give a shape as shape="):
        gi.var("x", (2, 3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be negative"):
        gi.var("x", shape=(-1,))


def test_types_are_values() -> None:
    n = gi.symbol("n")
    assert gi.TensorType((n * 2,)) == gi.TensorType((n + n,))
    assert gi.TensorType(("n",)) != gi.TensorType(("m",))
    assert gi.TensorType((2,)) != gi.TensorType((2,), "int8") != gi.TupleType([F32])
    assert hash(gi.TensorType((n * 2,))) == hash(gi.TensorType((n + n,)))
    assert str(gi.FuncType([F32], gi.TupleType([F32]))) == "fn(Tensor[(2,), float32]) -> (Tensor[(2,), float32],)"


def test_if_checks_condition_and_branches() -> None:
    x, y = gi.Var("x", F32), gi.Var("y", gi.TensorType((3,)))
    assert gi.If(gi.Var("c", BOOL), x, x).type == F32
    with pytest.raises(TypeInferenceError, match=r"if: condition: expected Tensor\[\(\), bool\], found .*int64"):
        gi.If(gi.const(1), x, x)
    with pytest.raises(TypeInferenceError, match="if: branches differ"):
        gi.If(gi.const(True), x, y)


def test_let_and_function_check_declared_types() -> None:
    x, y = gi.Var("x", F32), gi.Var("y", gi.TensorType((3,)))
    with pytest.raises(TypeInferenceError, match=r"let x: expected Tensor\[\(2,\)"):
        gi.Let(x, y, x)
    with pytest.raises(TypeInferenceError, match="function: result: expected"):
        gi.Function([x], x, ret_type=y.type)
    with pytest.raises(ValueError, match="different variables"):
        gi.Function([x, x], x)
    with pytest.raises(TypeError, match="a function's parameter is a variable"):
        gi.Function([x + x], x)  # type: ignore[list-item]
    assert gi.Function([x], [x, x]).type == gi.FuncType([F32], gi.TupleType([F32, F32]))


def test_a_call_of_a_function_is_checked_against_its_type() -> None:
    x, y = gi.Var("x", F32), gi.Var("y", gi.TensorType((3,)))
    function = gi.Function([x], x.sum())
    assert gi.Call(function, [x]).type == gi.TensorType(())
    with pytest.raises(TypeInferenceError, match="function: argument 0: expected"):
        gi.Call(function, [y])
    with pytest.raises(TypeInferenceError, match="g: expected 1 arguments, found 2"):
        gi.Call(gi.GlobalVar("g", function.type), [x, x])
    with pytest.raises(TypeInferenceError, match="call of x: expected a function"):
        gi.Call(x, [x])
    with pytest.raises(TypeError, match=r"wrap values in gi\.const"):
        gi.Call("tanh", [np.ones(2)])  # type: ignore[list-item]


def test_a_loop_keeps_the_types_of_its_state() -> None:
    i, state = gi.Var("i", INT), gi.Var("s", F32)
    body = gi.Function([i, state], gi.Tuple([state * 2.0]))
    start = gi.Var("start", F32)
    assert gi.Loop(gi.const(3), None, body, [start]).type == gi.TupleType([F32])
    with pytest.raises(TypeInferenceError, match="loop: body: expected"):
        gi.Loop(gi.const(3), None, gi.Function([i, state], gi.Tuple([state.sum()])), [start])
    with pytest.raises(TypeInferenceError, match="loop: condition: expected"):
        gi.Loop(gi.const(3), gi.Function([i, state], state), body, [start])
    with pytest.raises(TypeInferenceError, match="loop: trip_count: expected"):
        gi.Loop(gi.const(3.0), None, body, [start])


def test_tuple_fields_are_checked() -> None:
    x = gi.Var("x", F32)
    with pytest.raises(TypeInferenceError, match="field 2: the tuple has 2 fields"):
        gi.TupleGetItem(gi.Tuple([x, x]), 2)
    with pytest.raises(TypeInferenceError, match="field 0: expected a tuple"):
        gi.TupleGetItem(x, 0)


def test_types_that_are_not_known_are_left_open() -> None:
    x = gi.var("x")
    assert gi.tanh(x).type is None
    with pytest.raises(TypeInferenceError, match="run the pass InferType"):
        _ = gi.tanh(x).shape
    typed = substitute(gi.tanh(x), {x: gi.Var("y", F32)})
    assert typed.type == F32


def chain(length: int) -> tuple[gi.Var, gi.Expr]:
    x = gi.Var("x", F32)
    expr: gi.Expr = x
    for _ in range(length):
        expr = gi.tanh(expr)
    return x, expr


def test_a_chain_of_100000_operators_is_walked_and_rewritten() -> None:
    x, expr = chain(100_000)
    assert len(call_nodes(expr)) == 100_000
    y = gi.Var("y", F32)
    changed = substitute(expr, {x: y})
    assert free_vars(changed) == [y] and free_vars(expr) == [x]
    assert rewrite(expr, lambda old, new: new) is expr


def test_post_order_of_a_function_is_the_same_however_often_and_by_whom_it_is_changed() -> None:
    x = gi.var("x", shape=(4,))
    function = gi.Function([x], gi.exp(gi.tanh(x)))
    first = post_order(function)
    assert first == [x, function.body.args[0], function.body, function]
    first.clear()
    assert post_order(function) == [x, function.body.args[0], function.body, function]


def test_a_function_that_was_walked_goes_with_its_last_reference() -> None:
    x = gi.var("x", shape=(4,))
    function = gi.Function([x], gi.exp(x))
    post_order(function)
    gone = weakref.ref(function)
    gc.disable()
    try:
        del function
        assert gone() is None
    finally:
        gc.enable()


def test_post_order_visits_each_node_once_and_parts_first() -> None:
    x = gi.Var("x", F32)
    shared = gi.tanh(x)
    top = shared + shared
    assert post_order(top) == [x, shared, top]
    assert users(top)[shared] == [top, top]


def test_a_cycle_is_an_error() -> None:
    x = gi.Var("x", F32)
    a = gi.tanh(x)
    b = gi.tanh(a)
    object.__setattr__(a, "args", (b,))
    with pytest.raises(VerifyError, match="cycle"):
        post_order(b)


def test_operators_pickle_by_name() -> None:
    assert pickle.loads(pickle.dumps(gi.nn.conv2d)) is gi.nn.conv2d


def test_a_module_maps_names_to_functions() -> None:
    x = gi.Var("x", F32)
    f, g = gi.Function([x], x), gi.Function([x], x + x)
    prim = PrimFunc("p", (), SeqStmt(()))
    mod = gi.IRModule({"main": f, "p": prim})
    main = mod.get_global_var("main")
    assert mod["main"] is mod[main] is f and mod[gi.GlobalVar("main")] is f and mod["p"] is prim
    assert "main" in mod and main in mod and "g" not in mod and len(mod) == 2 and next(iter(mod)) is main
    assert gi.IRModule({main: f})["main"] is f
    assert gi.IRModule.from_expr(gi.const(1.0) + 1.0)["main"].params == ()  # type: ignore[union-attr]
    assert gi.IRModule.from_expr(f)["main"] is f
    with pytest.raises(UnknownFunctionError, match="no function 'mian' in the module; did you mean 'main'"):
        mod["mian"]
    with pytest.raises(KeyError):
        mod["other"]
    copy = mod.functions
    copy.clear()
    assert len(mod) == 2
    changed = mod.with_functions({main: g})
    assert changed["main"] is g and mod["main"] is f and [v.name for v in changed] == ["main", "p"]
    assert "main" not in mod.without(["main"]) and mod.unique_name("main") == "main_1"
    mod.update(gi.IRModule({"main": g, "h": f}))
    assert mod["main"] is g and mod["h"] is f


def test_a_module_refuses_what_is_no_function() -> None:
    x = gi.Var("x", F32)
    f = gi.Function([x], x)
    with pytest.raises(TypeError, match="function main: expected a Function or PrimFunc, found Var"):
        gi.IRModule({"main": x})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="a function's key is a GlobalVar or a name, found 3"):
        gi.IRModule({3: f})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="two functions named"):
        gi.IRModule({gi.GlobalVar("f"): f, gi.GlobalVar("f"): f})


def test_functions_take_attributes() -> None:
    x = gi.Var("x", F32)
    function = gi.Function([x], x)
    marked = function.with_attr("SkipOptimization", True)
    assert marked.attrs == {"SkipOptimization": True} and function.attrs == {}
    assert function.with_body(x) is function and marked.with_body(x + x).attrs == marked.attrs
    with pytest.raises(TypeError):
        marked.attrs["other"] = 1  # type: ignore[index]
