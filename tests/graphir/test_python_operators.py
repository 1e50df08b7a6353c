"""Python's operators on graph expressions compute what they compute on NumPy arrays, from either side."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi

FLOATS = np.array([-2.5, -1.0, 0.5, 3.0], np.float32)
INTEGERS = np.array([1, 2, 5, 7], np.int32)
FLAGS = np.array([True, False, True, False])

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge]
BITWISE = [operator.and_, operator.or_, operator.xor]
SHIFTS = [operator.lshift, operator.rshift]


def computed(function: Callable[..., Any], values: np.ndarray[Any, Any]) -> Any:
    x = gi.var("x", shape=values.shape, dtype=values.dtype)
    return gi.evaluate(gi.Function([x], function(x)), values)


@pytest.mark.parametrize(
    ("op", "values", "other"),
    [
        *((op, FLOATS, 1.5) for op in (*ARITHMETIC, *COMPARISONS, operator.truediv)),
        *((op, INTEGERS, 3) for op in (*ARITHMETIC, *COMPARISONS, *BITWISE, *SHIFTS, operator.pow)),
        *((op, FLAGS, True) for op in BITWISE),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_operators_of_two_values(op: Callable[[Any, Any], Any], values: np.ndarray[Any, Any], other: Any) -> None:
    other = values.dtype.type(other)
    np.testing.assert_array_equal(computed(lambda x: op(x, other.item()), values), op(values, other))
    np.testing.assert_array_equal(computed(lambda x: op(other.item(), x), values), op(other, values))


@pytest.mark.parametrize(
    ("op", "values"),
    [(operator.neg, FLOATS), (abs, FLOATS), (operator.invert, INTEGERS), (operator.invert, FLAGS)],
)
def test_operators_of_one_value(op: Callable[[Any], Any], values: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(computed(op, values), op(values))


def test_elements_are_compared_by_methods_and_nodes_by_operators() -> None:
    x = gi.var("x", shape=(4,))
    assert x == x and x != gi.var("x", shape=(4,))
    np.testing.assert_array_equal(computed(lambda x: x.equal(0.5), FLOATS), FLOATS == 0.5)
    np.testing.assert_array_equal(computed(lambda x: x.not_equal(0.5), FLOATS), FLOATS != 0.5)


def test_products_of_matrices_from_either_side() -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(computed(lambda x: x @ gi.const(matrix), FLOATS), FLOATS @ matrix)
    np.testing.assert_array_equal(computed(lambda x: matrix.T @ x, FLOATS), matrix.T @ FLOATS)


MATRIX = np.array([[3.0, -1.0, 4.0], [1.0, 5.0, -9.0]], np.float32)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "argmax", "argmin"])
@pytest.mark.parametrize(("axis", "keepdims"), [(None, False), (1, False), (0, True)])
def test_methods_that_reduce(name: str, axis: int | None, keepdims: bool) -> None:
    found = computed(lambda x: getattr(x, name)(axis, keepdims), MATRIX)
    np.testing.assert_allclose(found, getattr(np, name)(MATRIX, axis=axis, keepdims=keepdims), rtol=1e-6)


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_methods_that_reduce_flags(name: str, axis: int | None) -> None:
    flags = MATRIX > 0
    np.testing.assert_array_equal(computed(lambda x: getattr(x, name)(axis), flags), getattr(flags, name)(axis))


@pytest.mark.parametrize(
    "method",
    [
        lambda x: x.T,
        lambda x: x.reshape(3, 2),
        lambda x: x.reshape((6,)),
        lambda x: x.transpose(1, 0),
        lambda x: x.transpose((1, 0)),
        lambda x: x.transpose(),
        lambda x: x.clip(-1, 2),
        lambda x: x.astype("int32"),
        lambda x: x.reshape(1, 2, 3).squeeze(0),
        lambda x: x.reshape(1, 2, 3).squeeze(),
    ],
)
def test_methods_are_those_of_arrays(method: Callable[[Any], Any]) -> None:
    expected = method(MATRIX)
    found = computed(method, MATRIX)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
