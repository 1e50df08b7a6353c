"""What a compiled model takes, gives, and refuses."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.tensorir.errors import InputError, UnsupportedOperatorError, VerifyError


def doubled() -> tw.Executable:
    x = gi.var("x", shape=("n", 3))
    return tw.build(gi.Function([x], gi.add(x, x)))


@pytest.fixture(scope="module")
def model() -> tw.Executable:
    return doubled()


@pytest.fixture(scope="module")
def pair() -> tw.Executable:
    a, b = gi.var("a", shape=("n", 2)), gi.var("b", shape=("n",), dtype="int32")
    return tw.build(gi.Function([a, b], gi.Tuple([gi.multiply(a, 2.0), gi.Tuple([gi.add(b, 1)])])))


class Foreign:
    """An array of another library: it speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **keywords: object) -> object:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> object:
        return self.array.__dlpack_device__()


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


def test_dlpack_array_is_read(model: tw.Executable) -> None:
    np.testing.assert_array_equal(model(Foreign(np.ones((2, 3), "f4"))), np.full((2, 3), 2, "f4"))


def test_results_have_the_structure_of_the_function(pair: tw.Executable) -> None:
    first, (second,) = pair(np.ones((2, 2), "f4"), np.arange(2, dtype="i4"))
    np.testing.assert_array_equal(first, np.full((2, 2), 2, "f4"))
    np.testing.assert_array_equal(second, [1, 2])


def test_inputs_by_name_are_those_by_position(pair: tw.Executable) -> None:
    a, b = np.ones((2, 2), "f4"), np.arange(2, dtype="i4")
    np.testing.assert_array_equal(pair(b=b, a=a)[0], pair(a, b)[0])


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ([], {}, r"missing input 'a', 'b'"),
        (["a"], {}, r"missing input 'b'"),
        (["a", "b", "b"], {}, r"expected 2 inputs, found 3"),
        (["a"], {"c": "b"}, r"there is no input 'c'"),
        (["a", "b"], {"a": "a"}, r"input 'a' is given twice"),
    ],
)
def test_wrong_inputs_are_named_with_the_signature(
    pair: tw.Executable, args: list[str], named: dict[str, str], message: str
) -> None:
    arrays = {"a": np.ones((2, 2), "f4"), "b": np.zeros(2, "i4")}
    with pytest.raises(InputError, match=message) as caught:
        pair(*[arrays[arg] for arg in args], **{name: arrays[arg] for name, arg in named.items()})
    assert "Tensor[(n, 2), float32]" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones((2, 3)), r"input 'x': expected float32 of shape \(n, 3\), found element type float64"),
        (np.ones((2, 4), "f4"), r"found shape \(2, 4\); dimension 1 must be 3"),
        (np.ones(3, "f4"), r"found 1 dimensions, shape \(3,\)"),
        (np.ones((1, 2, 3), "f4"), r"found 3 dimensions"),
        ([[1.0, 2.0, 3.0]], r"found a list; give an array"),
        (None, r"found a NoneType"),
        (np.array([["a", "b", "c"]]), r"element type"),
        (np.ones((2, 3), "c8"), r"element type complex64"),
    ],
)
def test_input_that_does_not_fit_is_refused(model: tw.Executable, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        model(value)


def test_input_error_is_a_type_error_and_a_value_error(model: tw.Executable) -> None:
    with pytest.raises(TypeError):
        model(None)
    with pytest.raises(ValueError):
        model(None)


def test_dimension_bound_to_two_sizes_names_both(pair: tw.Executable) -> None:
    with pytest.raises(InputError, match=r"dimension 'n' is 2 in input 'a' but 3 here"):
        pair(np.ones((2, 2), "f4"), np.zeros(3, "i4"))


def test_dimension_that_follows_from_another_is_checked() -> None:
    n = gi.symbol("n")
    x, y = gi.var("x", shape=(n,)), gi.var("y", shape=(n * 2 + 1,))
    model = tw.build(gi.Function([x, y], gi.Tuple([gi.sum(x), gi.sum(y)])))
    model(np.zeros(3, "f4"), np.zeros(7, "f4"))
    with pytest.raises(InputError, match="must be 7"):
        model(np.zeros(3, "f4"), np.zeros(6, "f4"))


def test_other_types_are_converted_when_asked(model: tw.Executable) -> None:
    np.testing.assert_array_equal(model([[1, 2, 3]], convert=True), [[2, 4, 6]])
    np.testing.assert_array_equal(model(np.ones((1, 3)), convert=True), [[2, 2, 2]])


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2],
        lambda a: a[::-1],
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[:1], (4, 3)),
        lambda a: np.concatenate([a, a], axis=1)[:, 1:4],
        lambda a: np.frombuffer(b"\0" + a.tobytes(), "u1")[1:].view("f4").reshape(a.shape),
    ],
    ids=["step", "reversed", "fortran", "broadcast", "columns", "misaligned"],
)
def test_any_view_of_memory_works(model: tw.Executable, view: object) -> None:
    values = view(np.arange(12, dtype="f4").reshape(4, 3))  # type: ignore[operator]
    np.testing.assert_array_equal(model(values), np.asarray(values) * 2)


def test_read_only_input_works_and_stays(model: tw.Executable) -> None:
    values = np.ones((2, 3), "f4")
    values.flags.writeable = False
    np.testing.assert_array_equal(model(values), np.full((2, 3), 2, "f4"))


def test_nan_and_infinity_pass_through() -> None:
    x = gi.var("x", shape=("n",))
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40] * 7, "f4")
    for opt_level in range(4):
        with tw.PassContext(opt_level=opt_level):
            model = tw.build(gi.Function([x], gi.nn.relu(gi.add(x, 0.0))))
        np.testing.assert_array_equal(model(values), np.maximum(values, 0))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"],
)
def test_every_element_type_goes_in_and_out(dtype: str) -> None:
    x = gi.var("x", shape=("n",), dtype=dtype)
    model = tw.build(gi.Function([x], gi.concatenate([x, x], axis=0)))
    values = np.arange(37).astype(dtype)
    found = model(values)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, np.concatenate([values, values]))


def test_bfloat16_goes_in_and_out() -> None:
    x = gi.var("x", shape=("n",), dtype="bfloat16")
    values = np.linspace(-3, 3, 37).astype(ml_dtypes.bfloat16)
    found = tw.build(gi.Function([x], gi.add(x, x)))(values)
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found.astype("f4"), (values + values).astype("f4"))


def test_scalars_and_empty_tensors_work() -> None:
    x, y = gi.var("x", shape=()), gi.var("y", shape=(0, 5))
    model = tw.build(gi.Function([x, y], gi.Tuple([gi.tanh(x), gi.add(y, x), gi.sum(y, axis=0)])))
    first, second, third = model(np.float32(0.5), np.empty((0, 5), "f4"))
    np.testing.assert_allclose(first, np.tanh(np.float32(0.5)), rtol=1e-6)
    assert second.shape == (0, 5)
    np.testing.assert_array_equal(third, np.zeros(5))


def test_results_that_are_inputs_or_constants_are_copies() -> None:
    x = gi.var("x", shape=("n",))
    model = tw.build(gi.Function([x], gi.Tuple([x, gi.const(np.arange(3, dtype="f4")), x])))
    values = np.arange(5, dtype="f4")
    first, constant, second = model(values)
    first[:] = -1
    constant[:] = -1
    np.testing.assert_array_equal(second, np.arange(5))
    np.testing.assert_array_equal(values, np.arange(5))
    np.testing.assert_array_equal(model(values)[1], np.arange(3))


def test_threads_call_one_model_at_once() -> None:
    x, w = gi.var("x", shape=("n", 32)), gi.const(np.random.default_rng(0).standard_normal((64, 32)).astype("f4"))
    with tw.PassContext(opt_level=3):
        model = tw.build(gi.Function([x], gi.nn.softmax(gi.tanh(gi.nn.dense(x, w)))))
    inputs = [np.random.default_rng(n).standard_normal((n % 50 + 1, 32)).astype("f4") for n in range(200)]
    alone = [model(values) for values in inputs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(model, inputs))
    for expected, found in zip(alone, together, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_model_works_after_a_refused_call(model: tw.Executable) -> None:
    with pytest.raises(InputError):
        model(np.ones((2, 4), "f4"))
    np.testing.assert_array_equal(model(np.ones((1, 3), "f4")), [[2, 2, 2]])


def test_memory_does_not_grow_with_calls() -> None:
    x = gi.var("x", shape=("n", 64))
    with tw.PassContext(opt_level=0):
        model = tw.build(gi.Function([x], gi.tanh(gi.exp(gi.tanh(x)))))
    for rows in (100, 3, 50, 100):
        model(np.zeros((rows, 64), "f4"))
    assert len(model._arenas._free) == 1
    assert model._arenas._free[0][1].size >= model.arena_bytes(n=100)
    before = sys.getallocatedblocks()
    for _ in range(200):
        model(np.zeros((100, 64), "f4"))
    assert sys.getallocatedblocks() - before < 100


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
