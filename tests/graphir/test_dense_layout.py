"""Dense layers whose weight lies in panels of outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.ops.layout_transform import change_layout
from tilewright.graphir.visitor import call_nodes, post_order
from tilewright.passes.graph import AlterOpLayout
from tilewright.tensorir.errors import TypeInferenceError

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("units", [1, 7, 8, 20])
def test_reference_in_panels_equals_the_plain_product(units: int) -> None:
    data, weight = RNG.standard_normal((3, 5)).astype("f4"), RNG.standard_normal((units, 5)).astype("f4")
    call = gi.nn.dense(gi.const(data), gi.const(change_layout(weight, "OI", "OI8o")), units=units, weight_layout="OI8o")
    assert call.shape == (3, units)
    found = call.op.reference([data, call.args[1].data], call.attrs)
    np.testing.assert_allclose(found, data.astype("f8") @ weight.T, rtol=1e-5, atol=1e-6)


def test_panels_need_the_number_of_outputs() -> None:
    with pytest.raises(TypeInferenceError, match="with units given"):
        gi.nn.dense(gi.var("x", shape=(2, 5)), gi.var("w", shape=(3, 5, 8)), weight_layout="OI8o")


def test_panels_must_hold_the_outputs() -> None:
    with pytest.raises(TypeInferenceError, match="units"):
        gi.nn.dense(gi.var("x", shape=(2, 5)), gi.var("w", shape=(3, 5, 8)), units=16, weight_layout="OI8o")


@pytest.mark.parametrize("units", [1, 7, 20])
def test_narrow_factors_of_two_types_are_summed_in_int32(units: int) -> None:
    data, weight = RNG.integers(0, 256, (3, 8)).astype("u1"), RNG.integers(-128, 128, (units, 8)).astype("i1")
    expected = data.astype("i4") @ weight.T.astype("i4")
    panels = gi.const(change_layout(weight, "OI", "OI16o4i"))
    dense = gi.nn.dense(gi.const(data), panels, units=units, weight_layout="OI16o4i", out_dtype="int32")
    product = gi.matmul(gi.const(data), gi.const(weight.T.copy()), out_dtype="int32")
    for call in (dense, product):
        assert str(call.dtype) == "int32"
        found = call.op.reference([arg.data for arg in call.args], call.attrs)
        np.testing.assert_array_equal(found, expected)


def test_type_of_the_sum_is_for_narrow_integers() -> None:
    x = gi.var("x", shape=(2, 5))
    with pytest.raises(TypeInferenceError, match="int8, uint8"):
        gi.matmul(x, gi.var("w", shape=(5, 3)), out_dtype="int32")
    with pytest.raises(TypeInferenceError, match="expected int32"):
        gi.matmul(x, gi.var("w", shape=(5, 3)), out_dtype="float64")


@pytest.mark.parametrize("units", [1, 10, 33, 70, 96, 100])
def test_constant_weight_is_packed_when_the_model_is_built(units: int) -> None:
    weight = RNG.standard_normal((units, 12)).astype("f4")
    x = gi.var("x", shape=("n", 12))
    with tw.PassContext(opt_level=2):
        model = tw.build(gi.Function([x], gi.nn.dense(x, gi.const(weight))))
    assert "weight_layout=" in model.ir("optimized")
    assert "layout_transform" not in model.ir("optimized")
    for rows in (0, 1, 5, 6, 50, 97):
        data = RNG.standard_normal((rows, 12)).astype("f4")
        np.testing.assert_allclose(model(data), data.astype("f8") @ weight.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("mcpu", "units", "inputs", "layout"),
    [
        ("x86-64-v4", 256, 32, "OI64o"),
        ("x86-64-v4", 96, 32, "OI48o"),
        ("x86-64-v4", 160, 32, "OI32o"),
        ("x86-64-v4", 70, 32, "OI80o"),
        ("x86-64-v4", 20, 32, "OI32o"),
        ("x86-64-v4", 3, 32, "OI16o"),
        ("x86-64-v4", 96, 1 << 16, "OI32o"),  # longer columns of more vectors do not fit the cache
        ("x86-64-v3", 32, 32, "OI16o"),
        ("x86-64-v3", 24, 32, "OI24o"),
    ],
)
def test_panels_leave_as_few_columns_empty_as_possible(mcpu: str, units: int, inputs: int, layout: str) -> None:
    x, weight = gi.var("x", shape=(4, inputs)), gi.const(np.zeros((units, inputs), "f4"))
    main = gi.Function([x], gi.nn.dense(x, weight))
    with tw.Target("llvm", mcpu=mcpu):
        found = AlterOpLayout()(gi.IRModule({"main": main}))
    (dense,) = [call for call in call_nodes(found["main"]) if call.op.name == "nn.dense"]
    assert dense.attrs.weight_layout == layout


@pytest.mark.parametrize("target", ["llvm", "numba"])
def test_panels_of_odd_widths_give_the_product(target: str) -> None:
    weight, data = RNG.standard_normal((77, 9)).astype("f4"), RNG.standard_normal((11, 9)).astype("f4")
    x = gi.var("x", shape=data.shape)
    model = tw.build(gi.Function([x], gi.nn.dense(x, gi.const(weight))), target=target)
    assert "weight_layout=" in model.ir("optimized")
    np.testing.assert_allclose(model(data), data.astype("f8") @ weight.T, rtol=1e-5, atol=1e-5)


def test_weight_that_is_an_input_keeps_its_layout() -> None:
    x, w = gi.var("x", shape=("n", 12)), gi.var("w", shape=(10, 12))
    with tw.PassContext(opt_level=2):
        model = tw.build(gi.Function([x, w], gi.nn.dense(x, w)))
    assert "weight_layout=" not in model.ir("optimized")
    data, weight = RNG.standard_normal((7, 12)).astype("f4"), RNG.standard_normal((10, 12)).astype("f4")
    np.testing.assert_allclose(model(data, weight), data.astype("f8") @ weight.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(12,), ("n", 12), (3, "n", 12), (2, 3, 5, 12)])
@pytest.mark.parametrize("columns", [0, 1, 10, 100])
def test_product_with_a_constant_matrix_is_a_dense_layer_in_panels(shape: tuple[int | str, ...], columns: int) -> None:
    weight = RNG.standard_normal((12, columns)).astype("f4")
    x = gi.var("x", shape=shape)
    with tw.PassContext(opt_level=2):
        model = tw.build(gi.Function([x], gi.matmul(x, gi.const(weight))))
    assert "weight_layout=" in model.ir("optimized")
    assert "layout_transform" not in model.ir("optimized")
    for rows in (0, 1, 5, 33):
        data = RNG.standard_normal([rows if size == "n" else size for size in shape]).astype("f4")
        np.testing.assert_allclose(model(data), data.astype("f8") @ weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("shape", "dtype"), [((12,), "f4"), ((2, 12, 5), "f4"), ((12, 5), "f2"), ((12, 5), "i4")])
def test_product_that_is_no_dense_layer_of_floats_stays(shape: tuple[int, ...], dtype: str) -> None:
    data, weight = (RNG.uniform(-9, 9, size).astype(dtype) for size in ((2, 3, 12), shape))
    x = gi.var("x", shape=data.shape, dtype=str(data.dtype))
    with tw.PassContext(opt_level=2):
        model = tw.build(gi.Function([x], gi.matmul(x, gi.const(weight))))
    assert "weight_layout=" not in model.ir("optimized")
    np.testing.assert_allclose(model(data), np.matmul(data.astype("f8"), weight), rtol=2e-3, atol=1e-5)


def run_loop(x: gi.Expr, weight: gi.Expr, step: Callable[[gi.Expr, gi.Expr], gi.Expr]) -> gi.Expr:
    """``x`` after four times ``x = tanh(step(x, weight))``."""
    i, state = gi.var("i", shape=(), dtype="int64"), gi.Var("state", x.type)
    body = gi.Function([i, state], gi.Tuple([gi.tanh(step(state, weight))]))
    return gi.TupleGetItem(gi.Loop(gi.const(4, "int64"), None, body, [x]), 0)


@pytest.mark.parametrize("step", [gi.nn.dense, gi.matmul])
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("size", [5, 48, 100])
def test_weight_that_stays_the_same_in_a_loop_is_packed_before_it(step: Any, rows: int, size: int) -> None:
    x, w = gi.var("x", shape=(rows, size)), gi.var("w", shape=(size, size))
    with tw.PassContext(opt_level=2):
        model = tw.build(gi.Function([x, w], run_loop(x, w, step)))
    optimized = gi.parse(model.ir("optimized"))["main"]
    (packed,) = [let.value for let in post_order(optimized) if isinstance(let, gi.Let)]
    assert [call.op.name for call in call_nodes(packed)] == ["layout_transform"]
    data, weight = RNG.standard_normal((rows, size)).astype("f4"), RNG.standard_normal((size, size)).astype("f4") / size
    expected = data.astype("f8")
    for _ in range(4):
        expected = np.tanh(expected @ (weight.T if step is gi.nn.dense else weight))
    np.testing.assert_allclose(model(data, weight), expected, rtol=1e-4, atol=1e-6)


def test_weight_that_changes_in_a_loop_keeps_its_layout() -> None:
    x, w = gi.var("x", shape=(8, 8)), gi.var("w", shape=(8, 8))
    with tw.PassContext(opt_level=2):
        model = tw.build(gi.Function([x, w], run_loop(x, w, lambda state, weight: gi.nn.dense(weight, state))))
    assert "layout_transform" not in model.ir("optimized")


def test_weight_that_took_a_scale_up_is_packed() -> None:
    x, scale = gi.var("x", shape=("n", 12)), RNG.uniform(0.5, 2, 12).astype("f4")
    weight = RNG.standard_normal((20, 12)).astype("f4")
    with tw.PassContext(opt_level=3):
        model = tw.build(gi.Function([x], gi.nn.dense(x * gi.const(scale), gi.const(weight))))
    assert "multiply" not in model.ir("optimized")
    assert "weight_layout=" in model.ir("optimized")
    data = RNG.standard_normal((7, 12)).astype("f4")
    np.testing.assert_allclose(model(data), (data.astype("f8") * scale) @ weight.T, rtol=1e-5, atol=1e-5)
