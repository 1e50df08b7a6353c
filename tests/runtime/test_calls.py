"""Test calls of compiled models: inputs, results, and errors."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.runtime.steps import _REMEMBERED_SIZES
from tilewright.tensorir.errors import UnsupportedOperatorError, VerifyError


@pytest.fixture(scope="module")
def model(target: tw.Target) -> tw.Executable:
    x = gi.var("x", shape=("n", 3))
    return tw.build(gi.Function([x], gi.add(x, x)), target=target)


@pytest.fixture(scope="module")
def pair(target: tw.Target) -> tw.Executable:
    a, b = gi.var("a", shape=("n", 2)), gi.var("b", shape=("n",), dtype="int32")
    return tw.build(gi.Function([a, b], gi.Tuple([gi.multiply(a, 2.0), gi.Tuple([gi.add(b, 1)])])), target=target)


def test_one_build_serves_every_batch(model: tw.Executable) -> None:
    for rows in (1, 1000, 0, 7):
        values = np.random.default_rng(rows).standard_normal((rows, 3)).astype("f4")
        np.testing.assert_array_equal(model(values), values * 2)


def test_result_is_a_fresh_numpy_array(model: tw.Executable) -> None:
    values = np.ones((2, 3), "f4")
    first, second = model(values), model(values)
    first[:] = 0
    assert type(first) is np.ndarray
    np.testing.assert_array_equal(second, values * 2)


def test_results_have_the_structure_of_the_function(pair: tw.Executable) -> None:
    first, (second,) = pair(np.ones((2, 2), "f4"), np.arange(2, dtype="i4"))
    np.testing.assert_array_equal(first, np.full((2, 2), 2, "f4"))
    np.testing.assert_array_equal(second, [1, 2])


def test_nan_and_infinity_pass_through(target: tw.Target) -> None:
    x = gi.var("x", shape=("n",))
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40] * 7, "f4")
    for opt_level in range(4):
        with tw.PassContext(opt_level=opt_level):
            model = tw.build(gi.Function([x], gi.nn.relu(gi.add(x, 0.0))), target=target)
        np.testing.assert_array_equal(model(values), np.maximum(values, 0))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"],
)
def test_every_element_type_goes_in_and_out(target: tw.Target, dtype: str) -> None:
    x = gi.var("x", shape=("n",), dtype=dtype)
    model = tw.build(gi.Function([x], gi.concatenate([x, x], axis=0)), target=target)
    values = np.arange(37).astype(dtype)
    found = model(values)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, np.concatenate([values, values]))


def test_bfloat16_goes_in_and_out(target: tw.Target) -> None:
    x = gi.var("x", shape=("n",), dtype="bfloat16")
    values = np.linspace(-3, 3, 37).astype(ml_dtypes.bfloat16)
    found = tw.build(gi.Function([x], gi.add(x, x)), target=target)(values)
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found.astype("f4"), (values + values).astype("f4"))


def test_scalars_and_empty_tensors_work(target: tw.Target) -> None:
    x, y = gi.var("x", shape=()), gi.var("y", shape=(0, 5))
    model = tw.build(gi.Function([x, y], gi.Tuple([gi.tanh(x), gi.add(y, x), gi.sum(y, axis=0)])), target=target)
    first, second, third = model(np.float32(0.5), np.empty((0, 5), "f4"))
    np.testing.assert_allclose(first, np.tanh(np.float32(0.5)), rtol=1e-6)
    assert second.shape == (0, 5)
    np.testing.assert_array_equal(third, np.zeros(5))


def test_results_that_are_inputs_or_constants_are_copies(target: tw.Target) -> None:
    x = gi.var("x", shape=("n",))
    model = tw.build(gi.Function([x], gi.Tuple([x, gi.const(np.arange(3, dtype="f4")), x])), target=target)
    values = np.arange(5, dtype="f4")
    first, constant, second = model(values)
    first[:] = -1
    constant[:] = -1
    np.testing.assert_array_equal(second, np.arange(5))
    np.testing.assert_array_equal(values, np.arange(5))
    np.testing.assert_array_equal(model(values)[1], np.arange(3))


def test_threads_call_one_model_at_once(kind: str) -> None:
    x, w = gi.var("x", shape=("n", 32)), gi.const(np.random.default_rng(0).standard_normal((64, 32)).astype("f4"))
    with tw.PassContext(opt_level=3):
        model = tw.build(gi.Function([x], gi.nn.softmax(gi.tanh(gi.nn.dense(x, w)))), target=kind)
    inputs = [np.random.default_rng(n).standard_normal((n % 50 + 1, 32)).astype("f4") for n in range(200)]
    alone = [model(values) for values in inputs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(model, inputs))
    for expected, found in zip(alone, together, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_calls_need_no_more_memory_once_the_largest_size_was_seen(target: tw.Target) -> None:
    x = gi.var("x", shape=("n", 1024))
    with tw.PassContext(opt_level=0):  # nothing is fused: two intermediate tensors
        model = tw.build(gi.Function([x], gi.sum(gi.tanh(gi.exp(gi.tanh(x))), axis=1)), target=target)
    assert model.arena_bytes(n=256) >= 1 << 20
    arrays = [np.zeros((rows, 1024), "f4") for rows in (256, 3, 100, 256)]
    for array in arrays:
        model(array)
    tracemalloc.start()  # NumPy reports its memory to it
    try:
        for array in arrays:
            model(array)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(50):
            for array in arrays:
                model(array)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 64 << 10  # no intermediate tensor among it
    assert after - before < 4 << 10


def test_more_sizes_than_are_remembered_in_several_threads(model: tw.Executable) -> None:
    sizes = np.random.default_rng(0).integers(0, 2 * _REMEMBERED_SIZES, 4000)
    memory = np.arange(3 * sizes.max(), dtype="f4").reshape(-1, 3)

    def right(size: int) -> bool:
        found = model(memory[:size])
        return found.shape == (size, 3) and bool((found == 2 * memory[:size]).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, sizes.tolist()))
    assert len(model._step._shapes) <= _REMEMBERED_SIZES


def test_unknown_operator_is_named_with_the_nearest() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"unknown operator 'nn\.conv2'.*nn\.conv2d"):
        gi.Call("nn.conv2", [gi.var("x", shape=(1,))])


def test_graph_with_a_cycle_is_refused() -> None:
    x = gi.var("x", shape=(2,))
    first = gi.tanh(x)
    second = gi.exp(first)
    object.__setattr__(first, "args", (second,))
    with pytest.raises(VerifyError, match="cycle"):
        tw.build(gi.Function([x], second))
