"""Activation functions, and the elementwise operators and reductions that imported models need, against NumPy in double
precision."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.graphir.ops.common import FLOATS, INTEGERS, NUMBERS
from tilewright.tensorir.errors import TypeInferenceError

N = ({"n": 1}, {"n": 3})


def both_sides(rng: Any, shape: Any, dtype: Any) -> Any:
    return (rng.random(shape) * 10 - 5).astype(np.float32).astype(dtype)


def extremes(rng: Any, shape: Any, dtype: Any) -> Any:
    return rng.choice([np.nan, np.inf, -np.inf, 0.0, -80.0, 80.0], shape).astype(dtype)


def sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(x / 2))


def softplus(x: Any) -> Any:
    return np.log(1 + np.exp(x))


def between(x: Any, low: float, high: float) -> Any:
    return np.where(x < low, low, np.where(x > high, high, x))


ACTIVATIONS: list[tuple[str, dict[str, float], Any]] = [
    ("swish", {}, lambda x: x * sigmoid(x)),
    ("swish", {"beta": 1.7}, lambda x: x * sigmoid(1.7 * x)),
    ("elu", {}, lambda x: np.where(x > 0, x, np.exp(x) - 1)),
    ("elu", {"alpha": 2.0}, lambda x: np.where(x > 0, x, 2 * (np.exp(x) - 1))),
    ("celu", {"alpha": 2.0}, lambda x: np.maximum(x, 0) + np.minimum(0, 2 * (np.exp(x / 2) - 1))),
    ("selu", {}, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(x) - 1))),
    ("selu", {"alpha": 2.0, "gamma": 3.0}, lambda x: np.where(x > 0, 3 * x, 6 * (np.exp(x) - 1))),
    ("hard_sigmoid", {}, lambda x: between(0.2 * x + 0.5, 0, 1)),
    ("hard_sigmoid", {"alpha": 0.5, "beta": 0.25}, lambda x: between(0.5 * x + 0.25, 0, 1)),
    ("hard_swish", {}, lambda x: x * between(x + 3, 0, 6) / 6),
    ("softplus", {}, softplus),
    ("softsign", {}, lambda x: x / (1 + np.abs(x))),
    ("mish", {}, lambda x: x * np.tanh(softplus(x))),
    ("thresholded_relu", {"alpha": 2.0}, lambda x: np.where(x > 2, x, 0)),
    ("shrink", {"lambd": 1.5}, lambda x: np.where(np.abs(x) > 1.5, x, 0)),
    ("shrink", {"lambd": 1.5, "bias": 1.5}, lambda x: np.sign(x) * np.maximum(np.abs(x) - 1.5, 0)),
]


@together("dtype", FLOATS)
@pytest.mark.parametrize(("name", "attrs", "oracle"), ACTIVATIONS, ids=lambda value: str(value)[:24])
def test_activations_are_their_formulas(check: Any, name: str, attrs: Any, oracle: Any, dtype: str) -> None:
    check(f"nn.{name}", [(("n", 7), dtype)], attrs, oracle, both_sides, N, 4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hard_swish_is_exact_outside_of_its_curve(dtype: str) -> None:
    x = gi.var("x", shape=(6,), dtype=dtype)
    values = np.array([-3e38, -7, -3, 3, 7, 3e38], dtype)
    for level in (0, 3):
        with tw.PassContext(opt_level=level):
            found = tw.build(IRModule.from_expr(gi.Function([x], gi.nn.hard_swish(x))))(values)
        np.testing.assert_array_equal(found, np.maximum(values, 0) * (values >= 3))


#: What each function tends to, is at NaN, and is far from 0: by NaN, inf, -inf, 0, -80 and 80.
LIMITS = {
    "elu": (math.nan, math.inf, -1, 0, -1, 80),
    "softplus": (math.nan, math.inf, 0, math.log(2), 0, 80),
    "mish": (math.nan, math.inf, math.nan, 0, 0, 80),
    "hard_sigmoid": (math.nan, 1, 0, 0.5, 0, 1),
    "thresholded_relu": (0, math.inf, 0, 0, 0, 80),
}


@pytest.mark.parametrize("name", LIMITS)
def test_activations_have_their_limits(check: Any, name: str) -> None:
    table = dict(zip((math.inf, -math.inf, 0.0, -80.0, 80.0), LIMITS[name][1:], strict=True))

    def oracle(x: Any) -> Any:
        return np.array([LIMITS[name][0] if math.isnan(value) else table[value] for value in x])

    check(f"nn.{name}", [((17,), "float32")], {}, oracle, extremes)


def truncated(x: Any, y: Any) -> Any:
    quotients = [
        0 if b == 0 else abs(int(a)) // abs(int(b)) * (-1 if (a < 0) != (b < 0) else 1)
        for a, b in zip(x.ravel(), y.ravel(), strict=True)
    ]
    return np.array(quotients).reshape(x.shape).astype(x.dtype)


def any_integers(rng: Any, shape: Any, dtype: Any) -> Any:
    limits = np.iinfo(dtype)
    small = rng.integers(0 if limits.min == 0 else -4, 5, shape)
    large = rng.choice(np.array([limits.min, limits.max, 0, 1], dtype), shape)
    return np.where(rng.integers(0, 4, shape) == 0, large, small.astype(dtype)).astype(dtype)


@together("dtype", INTEGERS)
def test_integers_divide_toward_zero(check: Any, dtype: str) -> None:
    types = [((9, 11), dtype)] * 2
    check("trunc_divide", types, {}, truncated, any_integers)
    check("trunc_mod", types, {}, lambda x, y: np.where(y == 0, 0, x - truncated(x, y) * y).astype(dtype), any_integers)


@together("dtype", FLOATS)
def test_remainders_of_floats_have_the_sign_of_the_dividend(check: Any, dtype: str) -> None:
    def oracle(x: Any, y: Any) -> Any:
        return np.vectorize(math.fmod)(x, y)

    check("trunc_mod", [(("n", 5), dtype)] * 2, {}, oracle, both_sides, N)
    check("trunc_divide", [(("n", 5), dtype)] * 2, {}, lambda x, y: np.trunc(x / y), both_sides, N)


@together("dtype", FLOATS)
def test_infinities_of_one_sign_are_found(check: Any, dtype: str) -> None:
    check("isposinf", [((13,), dtype)], {}, lambda x: x > 1e300, extremes)
    check("isneginf", [((13,), dtype)], {}, lambda x: x < -1e300, extremes)


PAIRS = [("float32", "int32"), ("int64", "float64"), ("float16", "uint16"), ("bfloat16", "int16"), ("int8", "uint8")]


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [*((*pair, "llvm") for pair in PAIRS), *((half, "int16", "numba") for half in ("float16", "bfloat16"))],
)
def test_bits_stay_as_they_are(source: str, target: str, kind: str) -> None:
    x = gi.var("x", shape=("n", 5), dtype=source)
    model = tw.build(gi.Function([x], gi.get_operator("bitcast")(x, dtype=target)), target=kind)
    value = np.arange(-7, 8).reshape(3, 5).astype(x.dtype.numpy)
    found = model(value)
    assert found.dtype == gi.var("y", shape=(1,), dtype=target).dtype.numpy
    assert found.tobytes() == value.tobytes()


def test_bits_of_another_width_are_refused() -> None:
    with pytest.raises(TypeInferenceError, match="a type of 32 bits"):
        gi.get_operator("bitcast")(gi.var("x", shape=(2,)), dtype="int64")


WHERE = [{}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}, {"axis": ()}]


@pytest.mark.parametrize(
    ("dtype", "attrs"), [(d, {"axis": -1}) for d in NUMBERS] + [("int32", a) for a in WHERE], ids=str
)
def test_norms_agree_with_numpy(check: Any, dtype: str, attrs: dict[str, Any]) -> None:
    over = {"axis": attrs.get("axis"), "keepdims": attrs.get("keepdims", False)}
    types = [(("n", 3, 2), dtype)]
    result = np.dtype(dtype) if dtype in INTEGERS else np.float64
    check("norm", types, {"ord": 1, **attrs}, lambda x: np.abs(x).sum(**over).astype(result), None, N, 4)
    check("norm", types, attrs, lambda x: np.sqrt((x * x).astype(float).sum(**over)).astype(result), None, N, 4)
    check("sum_squares", types, attrs, lambda x: (x * x).sum(**over).astype(result), None, N, 4)


@together("dtype", ["float32", "float16", "int32", "uint8"])
def test_extremes_start_from_an_initial_value(check: Any, dtype: str) -> None:
    types = [(("n", 3), dtype)]
    check("max", types, {"axis": 1, "initial": 2}, lambda x: np.maximum(x.max(1), 2).astype(x.dtype), None, N)
    check("min", types, {"axis": 1, "initial": 1}, lambda x: np.minimum(x.min(1), 1).astype(x.dtype), None, N)
    check("max", [((2, 0), dtype)], {"axis": 1, "initial": 5}, lambda x: np.full(2, 5, x.dtype))


def test_an_initial_value_has_the_type_of_the_elements() -> None:
    with pytest.raises(TypeInferenceError, match="initial: expected an integer"):
        gi.max(gi.var("x", shape=(2,), dtype="int32"), initial=0.5)


def test_the_logarithm_of_no_exponentials_is_minus_infinity(check: Any) -> None:
    check("logsumexp", [((3, 0), "float32")], {"axis": 1}, lambda x: np.full(3, -np.inf))


def leibniz(x: Any) -> Any:
    """The sum over permutations that defines a determinant."""
    size = x.shape[-1]
    total = np.zeros(x.shape[:-2])
    for order in itertools.permutations(range(size)):
        inversions = sum(order[i] > order[j] for i in range(size) for j in range(i + 1, size))
        total += (-1) ** inversions * np.prod([x[..., i, j] for i, j in enumerate(order)], axis=0)
    return total


def small_integers(rng: Any, shape: Any, dtype: Any) -> Any:
    return rng.integers(-2, 3, shape).astype(dtype)


@together("dtype", FLOATS)
@pytest.mark.parametrize("shape", [("n", "n"), (2, 3, "n", "n"), (5, 4, 4)], ids=str)
def test_determinants_are_sums_over_permutations(check: Any, shape: Any, dtype: str) -> None:
    check("det", [(shape, dtype)], {}, leibniz, small_integers, N if "n" in shape else ({},), 8)


def test_a_matrix_with_a_pivot_of_zero_has_none_whatever_the_others_are() -> None:
    x = gi.var("x", shape=(4, 2, 2))
    inf, nan = np.inf, np.nan
    matrices = [[[0, 2], [0, -inf]], [[0, 2], [0, 3]], [[0, nan], [0, 3]], [[-inf, 0], [0, 0]]]
    for target in ("llvm", "numba"):
        model = tw.build(gi.Function([x], gi.det(x)), target=target)
        np.testing.assert_array_equal(model(np.array(matrices, np.float32)), np.zeros(4, np.float32))


def test_only_square_matrices_have_determinants() -> None:
    with pytest.raises(TypeInferenceError, match="det: x: expected square matrices"):
        gi.get_operator("det")(gi.var("x", shape=(2, 3)))
