"""Groups of operators become loop-level functions that compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.lower import LowerToTensorIR
from tilewright.passes.lower.primitive import as_group, lower_primitive
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
