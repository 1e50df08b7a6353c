"""Vector-Jacobian products of expressions, as converters of backward passes use them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.vjp import vjp
from tilewright.tensorir.errors import UnsupportedOperatorError

X = np.array([[0.5, 2.0], [3.0, 1.0]])


def test_shares_of_a_part_are_added() -> None:
    x, y, upper = (gi.var(name, shape=(2, 2), dtype="float64") for name in ("x", "y", "upper"))
    found = vjp(gi.exp(x) * x + y, [x, y], upper)
    by_x, by_y = gi.evaluate(gi.Function([x, y, upper], gi.Tuple(found)), X, X, X + 1)
    np.testing.assert_allclose(by_x, (X + 1) * np.exp(X) * (X + 1))
    np.testing.assert_allclose(by_y, X + 1)


def test_an_argument_that_an_operator_takes_twice_has_one_cotangent() -> None:
    x, upper = gi.var("x", shape=(2, 2), dtype="float64"), gi.var("upper", shape=(2, 2), dtype="float64")
    (found,) = vjp(gi.matmul(x, x), [x], upper)
    (value,) = gi.evaluate(gi.Function([x, upper], gi.Tuple([found])), X, np.eye(2))
    np.testing.assert_allclose(value, 2 * X.T)


def test_compositions_are_differentiated_through_their_parts() -> None:
    x, upper = gi.var("x", shape=(2, 2), dtype="float64"), gi.var("upper", shape=(), dtype="float64")
    (found,) = vjp(gi.det(x), [x], upper)
    (value,) = gi.evaluate(gi.Function([x, upper], gi.Tuple([found])), X, np.float64(2))
    np.testing.assert_allclose(value, 2 * np.linalg.det(X) * np.linalg.inv(X).T)


def test_an_operator_without_a_gradient_is_an_error() -> None:
    x = gi.var("x", shape=(2, 2))
    with pytest.raises(UnsupportedOperatorError, match="no gradient of layout_transform"):
        vjp(gi.layout_transform(x, "NC", "CN"), [x], x)


def test_what_does_not_depend_on_a_part_gives_it_zeros() -> None:
    x, y = gi.var("x", shape=(2, 2)), gi.var("y", shape=(3,))
    (found,) = vjp(gi.exp(x), [y], x)
    assert gi.evaluate(gi.Function([x, y], found), X.astype("f4"), np.ones(3, "f4")).tolist() == [0, 0, 0]
