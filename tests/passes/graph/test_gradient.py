"""Gradient: a function that returns its value and the gradients by its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.gradient import GRADIENTS
from tilewright.passes import PassContext, get_pass
from tilewright.passes.graph import Gradient
from tilewright.passes.graph.scopes import Scope, find_scopes
from tilewright.tensorir import tensor as te

VECTOR = np.array([0.5, -1.0, 2.0], "float32")


def vector(name: str = "x", dtype: str = "float32") -> gi.Var:
    return gi.var(name, shape=(3,), dtype=dtype)


def gradients(function: gi.Function, *inputs: Any, **options: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = gi.evaluate(tw.grad(function, **options), *inputs)
    return found


def test_the_documented_program(rewrites: Any) -> None:
    rewrites(
        get_pass("Gradient"),
        "def @main(%x: Tensor[(4,), float32]) { %0 = multiply(%x, %x) %1 = sum(%0) %1 }",
        """def @main(%x: Tensor[(4,), float32]) {
          %0 = multiply(%x, %x)
          %1 = sum(%0)
          %2 = broadcast_to(float32(1.0), shape=(4,))
          %3 = multiply(%2, %x)
          %4 = multiply(%2, %x)
          %5 = add(%3, %4)
          %6 = (%1, %5)
          %6
        }""",
    )


# -- what is returned -------------------------------------------------------------------------------------------------


def test_a_function_gives_a_function_and_a_module_a_module() -> None:
    x = vector()
    function = gi.Function([x], gi.sum(x * 3.0), attrs={"kept": 1})
    found = tw.grad(function)
    assert isinstance(found, gi.Function) and found.params == (x,) and dict(found.attrs) == {"kept": 1}
    mod = tw.IRModule({"main": function, "other": gi.Function([x], x)})
    differentiated = tw.grad(mod)
    gi.verify(differentiated)
    assert "other" in differentiated and mod["main"] is function
    gi.assert_structural_equal(differentiated["main"], found)


def test_the_value_comes_first_then_the_gradients_by_the_named_parameters() -> None:
    x, y, z = vector("x"), vector("y"), vector("z")
    function = gi.Function([x, y, z], gi.sum(x * y + z))
    value, by_z, by_x = gradients(function, VECTOR, VECTOR * 2, VECTOR, wrt=["z", x])
    assert value == pytest.approx(2 * 5.25 + 1.5)
    np.testing.assert_array_equal(by_z, [1, 1, 1])
    np.testing.assert_array_equal(by_x, VECTOR * 2)
    assert len(gradients(function, VECTOR, VECTOR, VECTOR, wrt="y")) == 2


def test_integers_are_no_default_and_results_do_not_depend_on_them() -> None:
    x, index = vector(), gi.var("index", shape=(2,), dtype="int64")
    value, by_x = gradients(gi.Function([x, index], gi.sum(gi.take(x, index))), VECTOR, np.array([2, 2]))
    assert value == 4
    np.testing.assert_array_equal(by_x, [0, 0, 2])


def test_a_parameter_that_does_not_matter_has_gradient_zero() -> None:
    x, y = vector("x"), vector("y")
    function = gi.Function([x, y], gi.sum(x + gi.cast(y > 0.0, dtype="float32")))
    np.testing.assert_array_equal(gradients(function, VECTOR, VECTOR)[2], [0, 0, 0])


def test_further_results_are_returned_and_not_differentiated() -> None:
    x = vector()
    function = gi.Function([x], [gi.sum(x * 2.0), gi.exp(x), gi.argmax(x)])
    loss, powers, place, by_x = gradients(function, VECTOR)
    assert (loss, place) == (3, 2)
    np.testing.assert_allclose(powers, np.exp(VECTOR), rtol=1e-6)
    np.testing.assert_array_equal(by_x, [2, 2, 2])


def test_cotangents_are_parameters_behind_the_others() -> None:
    x, cotangent = vector(), vector("cotangent")
    function = tw.grad(gi.Function([x, cotangent], x * cotangent), wrt="x", cotangents=True)
    assert [param.name for param in function.params] == ["x", "cotangent", "cotangent_"]
    np.testing.assert_array_equal(gi.evaluate(function, VECTOR, VECTOR, VECTOR + 1)[1], VECTOR * (VECTOR + 1))
    several = tw.grad(gi.Function([x], [gi.argmax(x), x * 2.0, x * x]), cotangents=True)
    assert [param.name for param in several.params] == ["x", "cotangent_1", "cotangent_2"]
    np.testing.assert_allclose(
        gi.evaluate(several, VECTOR, VECTOR, VECTOR + 1)[-1], 2 * VECTOR + 2 * VECTOR * (VECTOR + 1)
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_gradients_have_the_types_of_their_parameters(dtype: str) -> None:
    x = vector(dtype=dtype)
    function = tw.grad(gi.Function([x], gi.sum(gi.nn.silu(x) * 2.0)))
    assert function.type.result.fields == (gi.TensorType((), dtype), x.type)


def test_the_gradient_of_a_gradient() -> None:
    x = vector()
    first = tw.grad(gi.Function([x], gi.sum(x * x * x)))
    slope = gi.Function([x], gi.sum(first.body.fields[1]))
    np.testing.assert_allclose(gradients(slope, VECTOR)[1], 6 * VECTOR)


# -- graphs -----------------------------------------------------------------------------------------------------------


def test_a_shared_expression_passes_on_the_sum_once() -> None:
    x = vector()
    shared = gi.tanh(x)
    found = tw.grad(gi.Function([x], gi.sum(shared * shared + gi.exp(shared))))
    names = [call.op.name for call in gi.call_nodes(found.body)]
    assert names.count("tanh") == 1 and names.count("subtract") == 1  # 1 - tanh(x) ** 2
    tanh = np.tanh(VECTOR)
    expected = (1 - tanh**2) * (2 * tanh + np.exp(tanh))
    np.testing.assert_allclose(gi.evaluate(found, VECTOR)[1], expected, rtol=1e-6)


def test_tuples_and_lets() -> None:
    x = vector()
    pair, held = gi.Tuple([x * 2.0, gi.Tuple([x, gi.argmax(x)])]), gi.var("held", shape=(3,))
    body = gi.Let(held, gi.exp(pair[1][0]), gi.sum(held * pair[0]))
    np.testing.assert_allclose(
        gradients(gi.Function([x], body), VECTOR)[1], 2 * np.exp(VECTOR) * (VECTOR + 1), rtol=1e-6
    )


def test_calls_of_functions_are_inlined() -> None:
    p, x = gi.var("p", shape=("n",)), vector()
    square = gi.Function([p], p * p)
    mod = tw.IRModule({"square": square})
    called = mod.get_global_var("square")
    nested = gi.Function([p], gi.exp(p))
    mod["main"] = gi.Function([x], gi.sum(called(called(x)) + nested(x)))
    np.testing.assert_allclose(gi.evaluate(tw.grad(mod), VECTOR)[1], 4 * VECTOR**3 + np.exp(VECTOR), rtol=1e-6)


def test_what_a_branch_computes_stays_in_branches() -> None:
    x, flag = vector(), gi.var("flag", shape=(), dtype="bool")
    body = gi.If(flag, gi.sum(gi.exp(x) * x), gi.sum(gi.sin(x)))
    whole = tw.grad(gi.Function([x, flag], body)).body
    top = Scope()
    scopes, _ = find_scopes(gi.post_order(whole), whole, top)
    inner = {node.op.name for node in scopes if isinstance(node, gi.Call) and scopes[node] is not top}
    outer = {node.op.name for node in scopes if isinstance(node, gi.Call) and scopes[node] is top}
    assert inner >= {"exp", "sin", "cos", "multiply"} and not outer


@pytest.mark.parametrize("taken", [True, False])
def test_only_the_branch_that_is_taken_is_computed(taken: bool) -> None:
    x, flag = vector(), gi.var("flag", shape=(), dtype="bool")
    shared = x * 2.0
    inner = gi.If(gi.sum(x) > 0.0, gi.sum(gi.sin(shared)), gi.sum(gi.cos(x)))
    body = gi.If(flag, gi.sum(gi.exp(shared) * shared), inner)
    function = tw.grad(gi.Function([x, flag], body * gi.sum(shared)))
    seen: list[str] = []

    def compute(call: gi.Call, args: Any, attrs: Any) -> Any:
        seen.append(call.op.name)
        return call.op.reference(args, attrs)

    value, by_x = gi.evaluate(function, VECTOR, np.array(taken), compute=compute)
    assert ("exp" in seen) is taken and ("sin" in seen) is not taken
    s, total = 2 * VECTOR, float(2 * VECTOR.sum())
    inside = (np.exp(s) * s).sum() if taken else np.sin(s).sum()
    slope = 2 * np.exp(s) * (s + 1) if taken else 2 * np.cos(s)
    assert value == pytest.approx(inside * total, rel=1e-5)
    np.testing.assert_allclose(by_x, slope * total + 2 * inside, rtol=1e-5)
    model = tw.build(function)
    np.testing.assert_allclose(model(VECTOR, np.array(taken))[1], by_x, rtol=1e-5)


def test_loops_of_known_length_are_unrolled() -> None:
    x, weight = vector(), vector("weight")
    i, state = gi.var("i", shape=(), dtype="int64"), vector("state")
    moved = state * weight
    body = gi.Function([i, state], gi.Tuple([moved, gi.sum(state * gi.cast(i, dtype="float32"))]))
    table = gi.var("table", shape=(4,))
    loop = gi.Loop(gi.const(3), None, body, [x], collect=[table])
    function = gi.Function([x, weight, table], gi.sum(loop[0]) + gi.sum(loop[1] * loop[1]))
    rows = np.array([9, 9, 9, 5], "float32")
    w = VECTOR + 2
    value, by_x, by_w, by_table = gradients(function, VECTOR, w, rows)
    # sum(x w^3) + (sum(x w))^2 + (2 sum(x w^2))^2 + 5^2
    first, second = float((VECTOR * w).sum()), float((VECTOR * w * w).sum())
    assert value == pytest.approx((VECTOR * w**3).sum() + first**2 + 4 * second**2 + 25, rel=1e-5)
    np.testing.assert_allclose(by_x, w**3 + 2 * first * w + 8 * second * w * w, rtol=1e-5)
    np.testing.assert_allclose(by_w, 3 * VECTOR * w * w + 2 * first * VECTOR + 16 * second * VECTOR * w, rtol=1e-5)
    np.testing.assert_array_equal(by_table, [0, 0, 0, 10])


def test_stop_gradient() -> None:
    x = vector()
    function = gi.Function([x], gi.sum(x * gi.stop_gradient(x)))
    np.testing.assert_array_equal(gradients(function, VECTOR)[1], VECTOR)
    np.testing.assert_array_equal(tw.build(tw.grad(function))(VECTOR)[1], VECTOR)


def test_long_chains_take_time_in_proportion() -> None:
    x = vector()
    body: gi.Expr = x
    for _ in range(5000):
        body = gi.sin(body)
    found = tw.grad(gi.Function([x], gi.sum(body)))
    assert len(gi.call_nodes(found.body)) == 3 * 5000 + 2


def test_expressions_made_for_a_call_have_its_place() -> None:
    x = vector()
    body = gi.sum(gi.Call("exp", [x], span="layer1/exp"))
    made = [call for call in gi.call_nodes(tw.grad(gi.Function([x], body)).body) if call.op.name == "multiply"]
    assert [call.span for call in made] == ["layer1/exp"]


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrt", "error", "message"),
    [
        ("weigth", ValueError, "no parameter 'weigth'; did you mean 'weight'? (the parameters: weight, index)"),
        (["weight", "weight"], ValueError, "parameter 'weight' is given twice"),
        ("index", TypeError, "parameter 'index': expected a tensor of floats, found Tensor[(2,), int64]"),
        (3, TypeError, "wrt: expected names of parameters or variables, found 3"),
        ([3], TypeError, "wrt: expected names of parameters or variables, found 3"),
    ],
)
def test_wrong_parameters(wrt: Any, error: type[Exception], message: str) -> None:
    weight, index = vector("weight"), gi.var("index", shape=(2,), dtype="int64")
    function = gi.Function([weight, index], gi.sum(gi.take(weight, index)))
    with pytest.raises(error, match=re.escape(message)):
        tw.grad(function, wrt)


def test_results_that_are_no_scalars() -> None:
    x = vector()
    with pytest.raises(tw.TilewrightError, match=r"expected a scalar of floats, found Tensor\[\(3,\), float32\]"):
        tw.grad(gi.Function([x], x * 2.0))
    with pytest.raises(tw.TilewrightError, match="result 0: expected a scalar of floats"):
        tw.grad(gi.Function([x], [gi.argmax(x), gi.sum(x)]))
    with pytest.raises(TypeError, match="expected a graph function or a module, found Call"):
        tw.grad(x * 2.0)  # type: ignore[call-overload]


def test_a_result_whose_size_depends_on_data_takes_no_cotangent() -> None:
    x = vector()
    places = gi.cast(gi.nonzero(x), dtype="float32")
    with pytest.raises(NotImplementedError, match="result 1: expected sizes that follow from those of the parameters"):
        tw.grad(gi.Function([x], [x * 2.0, places]), cotangents=True)
    assert len(gradients(gi.Function([x], [gi.sum(x), places]), VECTOR)) == 3


def test_all_operators_without_gradients_are_listed_with_their_places() -> None:
    x = gi.var("x", shape=(3, 3))
    count = gi.var("count", shape=(), dtype="int64")
    state = gi.var("state", shape=())
    step = gi.var("i", shape=(), dtype="int64")
    loop = gi.Loop(count, None, gi.Function([step, state], gi.Tuple([state * 2.0])), [gi.sum(x)], [])
    weight = gi.Call("nn.winograd_weight", [gi.reshape(x, newshape=(1, 1, 3, 3))], {"tile": 2}, span="head/weight")
    body = gi.sum(weight) + gi.sum(gi.layout_transform(x, "NC", "CN")) + loop[0]
    with pytest.raises(NotImplementedError) as failure:
        tw.grad(gi.Function([x, count], body))
    text = str(failure.value).splitlines()[0]
    assert text.startswith(
        "no gradient of nn.winograd_weight (in head/weight); layout_transform (in layout_transform(%x"
    )
    assert "a loop (in" in text


def test_what_does_not_depend_on_the_parameters_needs_no_gradient() -> None:
    x, y = gi.var("x", shape=(3, 3)), vector("y")
    function = gi.Function([x, y], [gi.det(x) * gi.sum(y), gi.layout_transform(x, "NC", "CN")])
    np.testing.assert_allclose(gradients(function, np.eye(3, dtype="float32") * 2, VECTOR, wrt="y")[2], [8, 8, 8])


def test_functions_that_call_themselves() -> None:
    x = vector()
    again = gi.GlobalVar("again", gi.FuncType([x.type], x.type))
    inner = vector("inner")
    body = gi.If(gi.sum(inner) > 1.0, again(inner * 0.5), inner)
    mod = tw.IRModule({"main": gi.Function([x], gi.sum(again(x))), "again": gi.Function([inner], body, x.type)})
    with pytest.raises(tw.TilewrightError, match="a call of @again"):
        tw.grad(mod)


# -- rules of users ---------------------------------------------------------------------------------------------------


@pytest.fixture
def cube() -> Iterator[Any]:
    class Cube(gi.ops.Unary):
        """``x`` to the third."""

        name = "test.cube"
        function = staticmethod(lambda x: x**3)

        def scalar(self, x: Any) -> Any:
            return x * x * x

    yield gi.register_operator(Cube)
    GRADIENTS.loaded.pop("test.cube", None)
    del gi.op.OPERATORS["test.cube"]


def test_a_rule_of_a_users_operator(cube: Any) -> None:
    @gi.register_gradient(cube)
    def rule(call: gi.Call, cotangent: gi.Expr) -> list[gi.Expr]:
        return [cotangent * call.args[0] * call.args[0] * 3.0]

    x = vector()
    np.testing.assert_allclose(gradients(gi.Function([x], gi.sum(cube(x))), VECTOR)[1], 3 * VECTOR**2)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda call, g: [], "gradient of test.cube: expected a cotangent or None for each of 1 arguments, found 0"),
        (lambda call, g: [gi.sum(g)], "gradient of test.cube: x: expected a cotangent of Tensor[(3,), float32], found"),
        (lambda call, g: [1.0], "expected a cotangent of Tensor[(3,), float32], found 1.0"),
    ],
)
def test_a_rule_that_returns_something_else(cube: Any, result: Any, message: str) -> None:
    gi.register_gradient(cube)(result)
    x = vector()
    with pytest.raises(tw.TilewrightError, match=re.escape(message)):
        tw.grad(gi.Function([x], gi.sum(cube(x))))


def test_a_rule_cannot_be_registered_twice_or_for_nothing() -> None:
    with pytest.raises(ValueError, match="operator 'exp' has a gradient already"):
        gi.register_gradient("exp")(lambda call, cotangent: [cotangent])
    with pytest.raises(TypeError, match="registered for operators or their names"):
        gi.register_gradient(3)  # type: ignore[arg-type]
    with pytest.raises(tw.TilewrightError, match="unknown operator 'epx'"):
        gi.register_gradient("epx")(lambda call, cotangent: [cotangent])


def test_remarks_name_the_parameters() -> None:
    x = vector()
    with PassContext() as ctx:
        Gradient("x")(tw.IRModule({"main": gi.Function([x], gi.sum(x))}))
    assert [str(remark) for remark in ctx.remarks] == ["Gradient @main: applied: differentiated by %x"]


def test_a_module_of_loops_has_no_gradient() -> None:
    source = te.placeholder((4,), "float32", "source")
    loops = te.create_prim_func("main", [source], [te.compute((4,), lambda i: source[i] + 1.0, name="next")])
    with pytest.raises(TypeError, match="expected a graph function"):
        tw.grad(tw.IRModule({"main": loops}))
