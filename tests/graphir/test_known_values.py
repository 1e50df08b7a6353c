"""Test integers that are known before a model runs: the results of shape computations."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.dims import bind_dims, symbol
from tilewright.graphir.known_values import known_values

N, M = symbol("n"), symbol("m")
X = gi.var("x", shape=("n", "m", 4))
SIZES = {N: 6, M: 35}


def shape_of(x: gi.Expr) -> gi.Expr:
    return gi.get_operator("sizes")(values=x.shape)


SHAPE = shape_of(X)

FORMULAS = {
    "sizes": SHAPE,
    "take": gi.take(SHAPE, gi.const(np.array([2, -3])), axis=0),
    "one": gi.take(SHAPE, gi.const(np.array(1)), axis=0),
    "slice": SHAPE[1:],
    "backwards": SHAPE[::-1],
    "concatenate": gi.concatenate([SHAPE[:1], gi.const(np.array([-1]))], axis=0),
    "arithmetic": SHAPE * 2 + SHAPE - gi.const(np.array([1, 2, 3])),
    "floor division": gi.floor_divide(SHAPE + 1, gi.const(np.array(2))),
    "division toward zero": gi.get_operator("trunc_divide")(SHAPE - 5, gi.const(np.array(2))),
    "remainder": gi.floor_mod(SHAPE + 1, gi.const(np.array(4))),
    "bounds": gi.minimum(gi.maximum(SHAPE, gi.const(np.array(5))), gi.const(np.array(20))),
    "product": gi.prod(SHAPE),
    "cast": gi.cast(SHAPE, dtype="int32"),
    "where": gi.where(gi.const(np.array([True, False, True])), SHAPE, gi.const(np.array([7, 8, 9]))),
    "minus one stands for": gi.where(gi.equal(SHAPE - SHAPE - 1, SHAPE), gi.const(np.array([1, 1, 1])), SHAPE),
    "which is larger": gi.where(gi.less(SHAPE, gi.const(np.array([9, 9, 9]))), SHAPE * 2, SHAPE + 1),
    "comparison as a number": gi.cast(gi.less(SHAPE, gi.const(np.array([9, 9, 9]))), dtype="int64") * 2,
    "rank": gi.squeeze(gi.expand_dims(SHAPE, axis=0), axis=(0,)),
    "copy": gi.copy(SHAPE) + 1,
    "tile": gi.tile(SHAPE, reps=(2,)),
    "stack": gi.reshape(gi.stack([SHAPE, SHAPE], axis=0), newshape=(6,)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_known_values_are_what_the_graph_computes(name: str) -> None:
    formula = FORMULAS[name]
    known = known_values(formula)
    assert known is not None
    with_sizes = np.array([bind_dims(value, SIZES) for value in known.reshape(-1).tolist()]).reshape(known.shape)
    x = np.zeros((6, 35, 4), "f4")
    np.testing.assert_array_equal(with_sizes, gi.evaluate(gi.Function([X], formula), x))


def test_constants_are_computed() -> None:
    found = known_values(gi.cast(gi.const(np.array([1.5, -2.5])) * 2.0, dtype="int64"))
    assert found is not None
    np.testing.assert_array_equal(found, [3, -5])


def test_data_are_not_known() -> None:
    y = gi.var("y", shape=(3,), dtype="int64")
    assert known_values(SHAPE + y) is None
    assert known_values(gi.floor_divide(SHAPE, y)) is None


def test_large_tensors_are_not_followed() -> None:
    assert known_values(gi.const(np.zeros(5000)) + 1.0) is None


def test_deep_computations_are_followed_without_recursion() -> None:
    value = SHAPE
    for _ in range(3000):
        value = value + gi.const(np.array(1))
    found = known_values(value)
    assert found is not None
    assert bind_dims(found[0], SIZES) == 3006


def test_dims_are_data_of_a_model() -> None:
    function = gi.Function([X], gi.get_operator("sizes")(values=(N * M, 3, N - 7)))
    x = np.zeros((6, 35, 4), "f4")
    for target in ("llvm", "numba"):
        found = tw.build(function, target=target)(x)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, [210, 3, -1])


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("equal", -1, False),
        ("not_equal", -1, True),
        ("less", 0, False),
        ("greater_equal", 0, True),
        ("greater", -1, True),
    ],
)
def test_comparisons_that_hold_for_all_sizes_are_known(name: str, number: int, expected: bool) -> None:
    found = known_values(gi.get_operator(name)(SHAPE, gi.const(np.array(number))))
    assert found is not None and found.dtype == bool
    assert found.tolist() == [expected] * 3


def test_comparison_that_depends_on_sizes_is_an_expression() -> None:
    found = known_values(gi.equal(SHAPE, gi.const(np.array(4))))
    assert found is not None and found.dtype == object
    assert [value if isinstance(value, bool) else str(value) for value in found] == ["n == 4", "m == 4", True]
