"""InferType fills in types and says which one is wrong or missing."""

from __future__ import annotations

import pytest

from tilewright import graphir as gi
from tilewright.passes.graph import InferType
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.expr import Buffer
from tilewright.tensorir.stmt import BufferStore, PrimFunc


def test_calls_of_functions_get_the_type_of_the_module_s_function():
    x, p = gi.var("x", shape=("n", 4)), gi.var("p", shape=("n", 4))
    call = gi.tanh(gi.Call(gi.GlobalVar("f"), [x]))
    assert call.type is None
    mod = InferType()(gi.IRModule({"main": gi.Function([x], call), "f": gi.Function([p], gi.sum(p, axis=1))}))
    assert mod["main"].body.type == gi.TensorType(("n",))


def test_lets_without_a_type_get_that_of_their_value():
    x, v = gi.var("x", shape=(4,)), gi.var("v")
    mod = InferType()(gi.IRModule({"main": gi.Function([x], gi.Let(v, gi.less(x, 0.0), v))}))
    assert mod["main"].body.var.type == gi.TensorType((4,), "bool")


def test_a_typed_module_stays_the_same_object(network):
    mod, _ = network
    assert InferType()(mod) is mod


@pytest.mark.parametrize("stale", [None, gi.FuncType([gi.TensorType((8,))], gi.TensorType((8,)))])
def test_the_name_of_a_called_function_gets_its_signature(stale):
    x, p = gi.var("x", shape=(4,)), gi.var("p", shape=(4,))
    called = gi.Function([p], gi.sum(p), gi.TensorType(()))
    call = gi.Call(gi.GlobalVar("f", stale), [x], type=gi.TensorType(()))
    mod = InferType()(gi.IRModule({"main": gi.Function([x], call), "f": called}))
    assert mod["main"].body.op.type == gi.FuncType([gi.TensorType((4,))], gi.TensorType(()))


def test_calls_of_closures_are_calls_of_the_typed_ones():
    x, p, f, y = gi.var("x", shape=(4,)), gi.var("p", shape=(4,)), gi.var("f"), gi.var("y", shape=(4,))
    closure = gi.Function([p], gi.tanh(gi.Call(gi.GlobalVar("g"), [p])))
    main = gi.Function([x], gi.Let(f, closure, gi.Call(f, [x])))
    mod = InferType()(gi.IRModule({"main": main, "g": gi.Function([y], y)}))
    let = mod["main"].body
    assert let.body.op is let.var and let.var.type == gi.FuncType([y.type], y.type)
    assert let.body.type == y.type


def test_calls_of_loops_get_typed_arguments_and_stay_the_same_where_nothing_is_missing():
    buffers = [Buffer(name, (4,)) for name in "ab"]
    loops = PrimFunc("loops", buffers, BufferStore(buffers[1], buffers[0][0], (0,)), {"num_outputs": 1})
    x, p = gi.var("x", shape=(4,)), gi.var("p", shape=(4,))
    call = gi.Call(gi.GlobalVar("loops"), [gi.Call(gi.GlobalVar("g"), [x])], type=x.type)
    mod = gi.IRModule({"main": gi.Function([x], call), "g": gi.Function([p], p), "loops": loops})
    typed = InferType()(mod)
    assert typed["main"].body.args[0].type == x.type
    assert InferType()(typed) is typed


def test_declared_types_of_calls_of_loops_are_those_of_their_signature():
    buffers = [Buffer(name, (4,)) for name in "ab"]
    loops = PrimFunc("loops", buffers, BufferStore(buffers[1], buffers[0][0], (0,)), {"num_outputs": 1})
    x = gi.var("x", shape=(4,))
    name = gi.GlobalVar("loops", gi.FuncType([x.type], x.type))
    for declared in (None, x.type):
        mod = gi.IRModule({"main": gi.Function([x], gi.Call(name, [x], type=declared)), "loops": loops})
        assert InferType()(mod)["main"].body.type == x.type
    wrong = gi.Call(name, [x], type=gi.TensorType((9,)))
    with pytest.raises(TypeInferenceError, match=r"is declared as .*\(9,\).*, but is .*\(4,\)"):
        InferType()(gi.IRModule({"main": gi.Function([x], wrong), "loops": loops}))


def test_a_declared_recursive_function_is_typed():
    f, n = gi.GlobalVar("f"), gi.var("n", shape=(), dtype="int64")
    body = gi.If(gi.greater(n, 0), gi.Call(f, [n - 1]), n)
    mod = InferType()(gi.IRModule({f: gi.Function([n], body, n.type)}))
    assert mod["f"].body.then_branch.type == n.type


def test_an_undeclared_recursive_function_is_an_error():
    f, n = gi.GlobalVar("f"), gi.var("n", shape=(), dtype="int64")
    with pytest.raises(TypeInferenceError, match="declare its result type"):
        InferType()(gi.IRModule({f: gi.Function([n], gi.Call(f, [n - 1]))}))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: x + gi.var("y"), "variable %y has no type"),
        (lambda x: gi.Call(gi.GlobalVar("g"), [x]), "no function @g"),
        (lambda x: gi.Call("tanh", [x], type=gi.TensorType((9,))), "declared as"),
        (lambda x: gi.Call(gi.GlobalVar("main"), [x, x], type=x.type), "expected 1 arguments, found 2"),
        (
            lambda x: gi.Call(gi.Function([x], x), [x], type=gi.TensorType((9,))),
            r"is declared as .*\(9,\).*, but is .*\(4,\)",
        ),
        (lambda x: gi.Call(gi.var("f"), [x]), "free variable %f has no type"),
    ],
)
def test_errors_name_what_is_wrong(body, message):
    x = gi.var("x", shape=(4,))
    with pytest.raises(TypeInferenceError, match=message):
        InferType()(gi.IRModule({"main": gi.Function([x], body(x))}))
