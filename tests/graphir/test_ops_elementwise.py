"""Operators that compute each element on its own, against NumPy in double precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.ops.common import ANY, FLOATS, INTEGERS, NUMBERS

N = ({"n": 2}, {"n": 3})


def positive(rng: Any, shape: Any, dtype: Any) -> Any:
    return (rng.random(shape) * 3 + 0.1).astype(np.float32).astype(dtype)


def unit(rng: Any, shape: Any, dtype: Any) -> Any:
    return (rng.random(shape) * 1.8 - 0.9).astype(np.float32).astype(dtype)


def above_one(rng: Any, shape: Any, dtype: Any) -> Any:
    return (rng.random(shape) * 3 + 1.1).astype(np.float32).astype(dtype)


def special(rng: Any, shape: Any, dtype: Any) -> Any:
    return rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], shape).astype(dtype)


erf = np.vectorize(math.erf, otypes=[float])

# name: (oracle, inputs)
FUNCTIONS: dict[str, Any] = {
    "exp": (np.exp, None),
    "exp2": (lambda x: 2.0**x, None),
    "expm1": (np.expm1, None),
    "log": (np.log, positive),
    "log2": (lambda x: np.log(x) / np.log(2), positive),
    "log10": (lambda x: np.log(x) / np.log(10), positive),
    "log1p": (np.log1p, positive),
    "sqrt": (lambda x: x**0.5, positive),
    "rsqrt": (lambda x: x**-0.5, positive),
    "reciprocal": (lambda x: 1 / x, positive),
    "sin": (np.sin, None),
    "cos": (np.cos, None),
    "tan": (lambda x: np.sin(x) / np.cos(x), unit),
    "asin": (np.arcsin, unit),
    "acos": (np.arccos, unit),
    "atan": (np.arctan, None),
    "sinh": (lambda x: (np.exp(x) - np.exp(-x)) / 2, None),
    "cosh": (lambda x: (np.exp(x) + np.exp(-x)) / 2, None),
    "tanh": (np.tanh, None),
    "asinh": (lambda x: np.log(x + np.sqrt(x * x + 1)), None),
    "acosh": (lambda x: np.log(x + np.sqrt(x * x - 1)), above_one),
    "atanh": (lambda x: np.log((1 + x) / (1 - x)) / 2, unit),
    "sigmoid": (lambda x: 0.5 * (1 + np.tanh(x / 2)), None),
    "erf": (erf, None),
    "floor": (np.floor, None),
    "ceil": (np.ceil, None),
    "trunc": (np.trunc, None),
    "round": (np.round, None),
    "isnan": (np.isnan, special),
    "isinf": (np.isinf, special),
    "isfinite": (np.isfinite, special),
    "nn.gelu": (lambda x: x * 0.5 * (1 + erf(x / 2**0.5)), None),
    "nn.silu": (lambda x: x * 0.5 * (1 + np.tanh(x / 2)), None),
    "nn.leaky_relu": (lambda x: np.where(x > 0, x, 0.01 * x), None),
}

ANY_NUMBER: dict[str, Any] = {
    "negative": lambda x: np.negative(x),
    "abs": lambda x: np.where(x < 0, np.negative(x), x),
    "sign": lambda x: np.where(x > 0, 1, np.where(x < 0, -1, 0)),
    "square": lambda x: x * x,
    "nn.relu": lambda x: np.where(x > 0, x, 0),
}

BINARY: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": lambda a, b: np.where(a > b, a, b),
    "minimum": lambda a, b: np.where(a > b, b, a),
    "floor_divide": lambda a, b: np.floor(a.astype(float) / np.where(b == 0, 1, b)) * (b != 0),
    "floor_mod": lambda a, b: (a - b * np.floor(a.astype(float) / np.where(b == 0, 1, b))) * (b != 0),
}

COMPARISONS: dict[str, Any] = {
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}

BITS: dict[str, Any] = {
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
}

LOGIC: dict[str, Any] = {
    "logical_and": lambda a, b: a & b,
    "logical_or": lambda a, b: a | b,
    "logical_xor": lambda a, b: a ^ b,
}


@together("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_floats_agrees_with_numpy(check: Any, name: str, dtype: str) -> None:
    oracle, values = FUNCTIONS[name]
    check(name, [(("n", 5), dtype)], {}, oracle, values, N)
    check(name, [((0, 5), dtype)], {}, oracle, values)


@together("dtype", NUMBERS)
@pytest.mark.parametrize("name", ANY_NUMBER)
def test_a_function_of_numbers_agrees_with_numpy(check: Any, name: str, dtype: str) -> None:
    check(name, [(("n", 5), dtype)], {}, ANY_NUMBER[name], None, N)
    check(name, [((), dtype)], {}, ANY_NUMBER[name])


@together("dtype", NUMBERS)
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_broadcasts_and_agrees_with_numpy(check: Any, name: str, dtype: str) -> None:
    check(name, [(("n", 1, 3), dtype), ((2, 1), dtype)], {}, BINARY[name], None, N)
    check(name, [((0, 3), dtype), ((3,), dtype)], {}, BINARY[name])


@together("dtype", FLOATS)
def test_divide_agrees_with_numpy(check: Any, dtype: str) -> None:
    check("divide", [((2, 3), dtype), ((3,), dtype)], {}, lambda a, b: a / b)


@together("dtype", ANY)
@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_agrees_with_numpy(check: Any, name: str, dtype: str) -> None:
    check(name, [(("n", 3), dtype), ((3,), dtype)], {}, COMPARISONS[name], None, N)


@together("dtype", ["bool", *INTEGERS])
@pytest.mark.parametrize("name", BITS)
def test_logic_on_bits_agrees_with_numpy(check: Any, name: str, dtype: str) -> None:
    check(name, [((4, 3), dtype), ((3,), dtype)], {}, BITS[name])
    check("bitwise_not", [((4, 3), dtype)], {}, lambda a: ~a)


@pytest.mark.parametrize("name", LOGIC)
def test_logic_on_bools_agrees_with_numpy(check: Any, name: str) -> None:
    check(name, [((4, 3), "bool"), ((3,), "bool")], {}, LOGIC[name])
    check("logical_not", [((4, 3), "bool")], {}, lambda a: ~a)


@together("dtype", INTEGERS)
def test_shifts_out_of_range_leave_nothing_but_the_sign(check: Any, dtype: str) -> None:
    bits = np.dtype(dtype).itemsize * 8
    least = 0 if dtype.startswith("u") else -3

    def values(rng: Any, shape: Any, dtype: Any) -> Any:
        return rng.choice([least, 0, 1, 3, 5, bits - 1, bits, bits + 1], shape).astype(dtype)

    def left(x: Any, shift: Any) -> Any:
        return (int(x) << int(shift)) % (1 << bits) if 0 <= shift < bits else 0

    def right(x: Any, shift: Any) -> Any:
        return (int(x) >> min(int(shift), bits) if shift >= 0 else -int(x < 0)) % (1 << bits)

    def wrapped(one: Any) -> Any:
        return lambda a, b: np.vectorize(one, otypes=[object])(a, b).astype(np.uint64).astype(a.dtype)

    check("left_shift", [((5, 9), dtype), ((5, 9), dtype)], {}, wrapped(left), values)
    check("right_shift", [((5, 9), dtype), ((5, 9), dtype)], {}, wrapped(right), values)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integer_division_by_zero_gives_zero_and_the_least_integer_over_minus_one_wraps(run: Any, dtype: str) -> None:
    least = np.iinfo(dtype).min
    a, b = gi.var("a", shape=(4,), dtype=dtype), gi.var("b", shape=(4,), dtype=dtype)
    arrays = [np.array([7, least, -7, least], dtype), np.array([0, -1, 2, 0], dtype)]
    assert run([a, b], a // b, arrays).tolist() == [0, least, -4, 0]
    assert run([a, b], a % b, arrays).tolist() == [0, 0, 1, 0]
    assert (a // b).op.reference(arrays, None).tolist() == [0, least, -4, 0]


def test_float_floor_division_of_special_values_is_that_of_numpy(run: Any) -> None:
    values = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 0.1, 1.0])
    x, y = [grid.ravel() for grid in np.meshgrid(values, values)]
    a, b = gi.var("a", shape=(81,), dtype="float64"), gi.var("b", shape=(81,), dtype="float64")
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run([a, b], a // b, [x, y]), x // y)
        np.testing.assert_array_equal(run([a, b], a % b, [x, y]), x % y)


@together("dtype", FLOATS)
def test_power_of_floats_agrees_with_numpy(check: Any, dtype: str) -> None:
    check("power", [((3, 4), dtype), ((4,), dtype)], {}, lambda a, b: a**b, positive)


@together("dtype", INTEGERS)
def test_power_of_integers_wraps_and_rounds_reciprocals_to_zero(check: Any, dtype: str) -> None:
    bits = np.dtype(dtype).itemsize * 8

    def one(a: Any, b: Any) -> int:
        a, b = int(a), int(b)
        exact = a**b if b >= 0 else {1: 1, -1: (-1) ** -b}.get(a, 0)
        return exact % (1 << bits)

    def oracle(a: Any, b: Any) -> Any:
        return np.array([[one(x, y) for x, y in zip(r, b, strict=True)] for r in a], np.uint64).astype(a.dtype)

    check("power", [((5, 6), dtype), ((6,), dtype)], {}, oracle)


def test_nan_and_infinity_pass_through_extremes(run: Any) -> None:
    a, b = gi.var("a", shape=(3,)), gi.var("b", shape=(3,))
    arrays = [np.array([np.nan, 1, -np.inf], np.float32), np.array([1, np.nan, 2], np.float32)]
    np.testing.assert_array_equal(run([a, b], gi.maximum(a, b), arrays), [np.nan, np.nan, 2])
    np.testing.assert_array_equal(run([a, b], gi.minimum(a, b), arrays), [np.nan, np.nan, -np.inf])
    np.testing.assert_array_equal(run([a], gi.nn.relu(a), arrays[:1]), [np.nan, 1, 0])
    np.testing.assert_array_equal(run([a], gi.clip(a, -1, 1), arrays[:1]), [np.nan, 1, -1])


@together("dtype", NUMBERS)
def test_clip_limits_on_either_side(check: Any, dtype: str) -> None:
    check("clip", [(("n", 5), dtype)], {"a_min": 0, "a_max": 2}, lambda x: np.clip(x, 0, 2), None, N)
    check("clip", [((5,), dtype)], {"a_min": None, "a_max": 2}, lambda x: np.minimum(x, x.dtype.type(2)))
    check("clip", [((5,), dtype)], {"a_min": 1, "a_max": None}, lambda x: np.maximum(x, x.dtype.type(1)))


@together("target", ANY)
@pytest.mark.parametrize("source", ANY)
def test_cast_converts_as_numpy(check: Any, source: str, target: str) -> None:
    def oracle(x: Any) -> Any:
        if target == "bool":
            return x != 0
        kind = gi.TensorType((), target).dtype.numpy
        return x.astype(kind) if kind.kind in "iu" else x

    def values(rng: Any, shape: Any, dtype: Any) -> Any:
        least = 0 if "u" in (dtype.kind, np.dtype(gi.TensorType((), target).dtype.numpy).kind) else -4
        return rng.integers(least, 5, shape).astype(dtype)

    check("cast", [(("n", 5), source)], {"dtype": target}, oracle, values, N)


def test_cast_of_a_float_truncates_toward_zero(run: Any) -> None:
    x = gi.var("x", shape=(4,))
    found = run([x], gi.cast(x, "int32"), [np.array([1.9, -1.9, 0.5, -0.5], np.float32)])
    assert found.tolist() == [1, -1, 0, 0]


@together("dtype", ANY)
@pytest.mark.parametrize("name", ["copy", "zeros_like", "ones_like"])
def test_copies_and_constants_keep_shape_and_type(check: Any, name: str, dtype: str) -> None:
    oracle = {"copy": lambda x: x, "zeros_like": lambda x: x ^ x if x.dtype == bool else x * 0}
    check(name, [(("n", 3), dtype)], {}, oracle.get(name, lambda x: np.ones(x.shape, x.dtype)), None, N)


def test_dropout_changes_nothing(check: Any) -> None:
    check("nn.dropout", [(("n", 3), "float32")], {"rate": 0.3}, lambda x: x, None, N)
    x = gi.var("x", shape=(2,))
    assert gi.nn.dropout.decompose([x], gi.nn.dropout.make_attrs({})) is x


def test_stop_gradient_changes_nothing(check: Any) -> None:
    check("stop_gradient", [(("n", 3), "float32")], {}, lambda x: x, None, N)
    x = gi.var("x", shape=(2,))
    assert gi.stop_gradient.decompose([x], gi.stop_gradient.make_attrs({})) is x


@together("dtype", FLOATS)
def test_gelu_by_tanh_agrees_with_its_formula(check: Any, dtype: str) -> None:
    def oracle(x: Any) -> Any:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    check("nn.gelu", [((4, 3), dtype)], {"approximate": True}, oracle)


@together("dtype", FLOATS)
def test_prelu_has_a_slope_for_each_channel(check: Any, dtype: str) -> None:
    def oracle(x: Any, a: Any) -> Any:
        return np.where(x > 0, x, x * a[None, :, None])

    check("nn.prelu", [(("n", 3, 2), dtype), ((3,), dtype)], {}, oracle, None, N)


@together("dtype", ANY)
def test_where_chooses_with_broadcasting(check: Any, dtype: str) -> None:
    check("where", [(("n", 1), "bool"), ((3,), dtype), ((), dtype)], {}, np.where, None, N)
