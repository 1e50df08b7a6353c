"""Groups of operators become loop-level functions that compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.graph.walk import as_group
from tilewright.passes.lower import LowerToTensorIR
from tilewright.passes.lower.primitive import lower_primitive
from tilewright.tensorir import PrimFunc, interpret
from tilewright.tensorir.errors import TypeInferenceError, UnsupportedOperatorError
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import Block


def kernels(mod: IRModule) -> list[PrimFunc]:
    return [function for function in mod.functions.values() if isinstance(function, PrimFunc)]


def test_each_operator_outside_a_group_becomes_a_kernel() -> None:
    x = gi.var("x", shape=("n", 4))
    lowered = LowerToTensorIR()(IRModule.from_expr(gi.Function([x], gi.tanh(gi.multiply(x, x)))))
    assert sorted(kernel.name for kernel in kernels(lowered)) == ["multiply", "tanh"]


def test_equal_groups_share_one_kernel() -> None:
    x, y = gi.var("x", shape=(3, 4)), gi.var("y", shape=(3, 4))
    body = gi.Tuple([gi.add(x, 1.0), gi.add(y, 1.0), gi.add(x, 2.0)])
    lowered = LowerToTensorIR()(IRModule.from_expr(gi.Function([x, y], body)))
    assert len(kernels(lowered)) == 2


def test_operand_given_twice_is_one_parameter() -> None:
    x = gi.var("x", shape=(3,))
    group, args = as_group(gi.multiply(x, x))
    kernel = lower_primitive(group, "k")
    assert args == [0]
    assert len(kernel.buffers) == 2
    out = np.zeros(3, "f4")
    interpret(kernel, np.array([1, 2, 3], "f4"), out)
    np.testing.assert_array_equal(out, [1, 4, 9])


def test_groups_of_equal_operators_and_types_are_told_apart() -> None:
    x = gi.var("x", shape=(3, 3))
    body = gi.Tuple([gi.cumsum(x, 0), gi.cumsum(x, 1), gi.cumsum(gi.exp(x), 0)])
    lowered = LowerToTensorIR()(IRModule.from_expr(gi.Function([x], body)))
    assert sorted(kernel.name for kernel in kernels(lowered)) == ["cumsum", "cumsum_1", "exp"]


def test_kernel_does_not_take_the_name_of_a_function() -> None:
    x, p = gi.var("x", shape=(3,)), gi.var("p", shape=(3,))
    mod = IRModule({"main": gi.Function([x], gi.tanh(x)), "tanh": gi.Function([p], p)})
    lowered = LowerToTensorIR()(mod)
    assert isinstance(lowered["tanh"], gi.Function)
    assert [kernel.name for kernel in kernels(lowered)] == ["tanh_1"]


@pytest.mark.parametrize(
    ("length", "name"), [(6, "relu_tanh_tanh_tanh_tanh_tanh"), (8, "relu_tanh_tanh_tanh_tanh_3_more")]
)
def test_name_of_a_kernel_tells_its_operators(length: int, name: str) -> None:
    p = gi.var("p", shape=(3,))
    body: gi.Expr = gi.nn.relu(p)
    for _ in range(length - 1):
        body = gi.tanh(body)
    group = gi.Function([p], body, attrs={"Primitive": True})
    x = gi.var("x", shape=(3,))
    (kernel,) = kernels(LowerToTensorIR()(IRModule.from_expr(gi.Function([x], gi.Call(group, [x])))))
    assert kernel.name == name


def test_group_without_operators_is_a_copy() -> None:
    p, x = gi.var("p", shape=(3,)), gi.var("x", shape=(3,))
    group = gi.Function([p], p, attrs={"Primitive": True})
    (kernel,) = kernels(LowerToTensorIR()(IRModule.from_expr(gi.Function([x], gi.Call(group, [x])))))
    assert kernel.name == "copy"


def test_function_that_is_no_group_keeps_its_calls() -> None:
    p, x = gi.var("p", shape=(3,)), gi.var("x", shape=(3,))
    inner = gi.Function([p], gi.exp(gi.tanh(p)))
    lowered = LowerToTensorIR()(IRModule.from_expr(gi.Function([x], gi.Call(inner, [x]))))
    assert sorted(kernel.name for kernel in kernels(lowered)) == ["exp", "tanh"]


def test_kernel_of_one_operator_is_of_its_kind() -> None:
    x = gi.var("x", shape=(3, 4))
    body = gi.Tuple([gi.tanh(x), gi.sum(x, axis=0), gi.matmul(x, gi.transpose(x))])
    lowered = LowerToTensorIR()(IRModule.from_expr(gi.Function([x], body)))
    kinds = {kernel.name: kernel.attrs["kind"] for kernel in kernels(lowered)}
    assert kinds == {"tanh": "elementwise", "sum": "reduction", "matmul": "contraction", "transpose": "injective"}


def test_fused_group_is_one_kernel_that_computes_the_same() -> None:
    p, q = gi.var("p", shape=("n", 5)), gi.var("q", shape=(5,))
    group = gi.Function([p, q], gi.nn.relu(gi.add(p, q)), attrs={"Primitive": True, "kind": "broadcast"})
    x, y = gi.var("x", shape=("n", 5)), gi.var("y", shape=(5,))
    lowered = LowerToTensorIR()(IRModule.from_expr(gi.Function([x, y], gi.Call(group, [x, y]))))
    (kernel,) = kernels(lowered)
    a, b = np.linspace(-2, 2, 15, dtype="f4").reshape(3, 5), np.linspace(1, -1, 5, dtype="f4")
    out = np.empty((3, 5), "f4")
    interpret(kernel, a, b, out, 3)
    np.testing.assert_array_equal(out, np.maximum(a + b, 0))


def test_decomposed_operator_computes_the_same() -> None:
    x = gi.var("x", shape=(2, 6))
    call = gi.nn.log_softmax(x)
    group, _ = as_group(call)
    values = np.linspace(-3, 3, 12, dtype="f4").reshape(2, 6)
    out = np.empty((2, 6), "f4")
    interpret(lower_primitive(group, "k"), values, out)
    exact = values.astype("f8")
    expected = exact - np.log(np.exp(exact).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_decomposition_into_operators_that_are_decomposed_computes_the_same() -> None:
    class Spread(gi.Operator):
        """Twice the standard deviation, which has no loop-level definition either."""

        name = "test.spread"
        arguments = ("x",)

        def infer_type(self, args: list[gi.TensorType], attrs: object) -> gi.TensorType:
            return gi.TensorType(args[0].shape[:1], args[0].dtype)

        def decompose(self, args: list[gi.Expr], attrs: object) -> gi.Expr:
            return gi.multiply(gi.std(args[0], axis=1), 2.0)

    assert gi.get_operator("std").compute is None
    group, _ = as_group(gi.Call(Spread(), [gi.var("x", shape=(2, 6))]))
    values = np.linspace(-3, 3, 12, dtype="f4").reshape(2, 6) ** 2
    out = np.empty(2, "f4")
    interpret(lower_primitive(group, "k"), values, out)
    np.testing.assert_allclose(out, 2 * values.astype("f8").std(axis=1), rtol=1e-5)


def test_group_may_take_a_field_of_a_tuple_apart() -> None:
    p = gi.var("p", gi.TupleType([gi.TensorType((4,), "float32"), gi.TensorType((4,), "float32")]))
    halves = gi.split(gi.subtract(p[0], p[1]), indices_or_sections=2)
    kernel = lower_primitive(gi.Function([p], gi.add(halves[0], gi.multiply(halves[1], 10.0))), "k")
    out = np.empty(2, "f4")
    interpret(kernel, np.array([5, 6, 7, 8], "f4"), np.array([4, 3, 2, 1], "f4"), out)
    np.testing.assert_array_equal(out, [1 + 50, 3 + 70])


def test_large_integer_constant_keeps_its_value() -> None:
    x = gi.var("x", shape=(2,), dtype="int64")
    large = 2**60 + 1  # no float64
    group, _ = as_group(gi.add(x, gi.const(large)))
    out = np.empty(2, "int64")
    interpret(lower_primitive(group, "k"), np.array([0, 1]), out)
    assert out.tolist() == [large, large + 1]


def test_scalar_constant_stands_in_the_formula() -> None:
    x = gi.var("x", shape=(2,))
    group, _ = as_group(gi.add(x, 0.1))
    kernel = lower_primitive(group, "k")
    assert len(kernel.buffers) == 2
    assert sum(isinstance(node, Block) for node in walk(kernel.body)) == 1


def test_group_that_returns_its_parameter_copies_it() -> None:
    p = gi.var("p", shape=(4,), dtype="int32")
    kernel = lower_primitive(gi.Function([p], gi.Tuple([p, p])), "same")
    values = np.arange(4, dtype="int32")
    first, second = np.zeros(4, "int32"), np.zeros(4, "int32")
    interpret(kernel, values, first, second)
    np.testing.assert_array_equal(first, values)
    np.testing.assert_array_equal(second, values)


def test_group_that_returns_one_value_twice_writes_both() -> None:
    p = gi.var("p", shape=(3,))
    doubled = gi.add(p, p)
    kernel = lower_primitive(gi.Function([p], gi.Tuple([doubled, doubled])), "twice")
    first, second = np.zeros(3, "f4"), np.zeros(3, "f4")
    interpret(kernel, np.array([1, 2, 3], "f4"), first, second)
    np.testing.assert_array_equal([first, second], [[2, 4, 6], [2, 4, 6]])


def test_parameter_without_type_is_an_error() -> None:
    p = gi.var("p")
    with pytest.raises(TypeInferenceError, match="parameter p of a fused group: expected a tensor, found None"):
        lower_primitive(gi.Function([p], gi.tanh(p)), "k")


def test_group_that_holds_a_branch_is_an_error() -> None:
    p, condition = gi.var("p", shape=(4,)), gi.var("condition", shape=(), dtype="bool")
    with pytest.raises(TypeInferenceError, match="holds calls of operators only, found If"):
        lower_primitive(gi.Function([p, condition], gi.If(condition, p, p)), "k")


def test_group_with_a_large_constant_is_an_error() -> None:
    p = gi.var("p", shape=(4,))
    with pytest.raises(TypeInferenceError, match=r"scalar constants only, found one of shape \(4,\)"):
        lower_primitive(gi.Function([p], gi.add(p, gi.const(np.ones(4, "f4")))), "k")


def test_operator_without_definition_is_named() -> None:
    class Opaque(gi.Operator):
        """An operator that states a type only."""

        name = "test.opaque"
        arguments = ("x",)

        def infer_type(self, args: object, attrs: object) -> object:
            return args[0]  # type: ignore[index]

    x = gi.var("x", shape=(2,))
    function = gi.Function([x], gi.Call(Opaque(), [x]))
    with pytest.raises(UnsupportedOperatorError, match=r"without a loop-level definition: test\.opaque"):
        LowerToTensorIR()(IRModule.from_expr(function))
