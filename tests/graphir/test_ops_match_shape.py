"""Test sizes that are declared equal: proved, or checked when a model is called."""

from __future__ import annotations

import numpy as np
import pytest
from both_targets import on_both_targets

import tilewright as tw
from tilewright import graphir as gi
from tilewright.tensorir.errors import InputError, TypeInferenceError

X, Y = gi.var("x", shape=("n", 3)), gi.var("y", shape=("m", 3))


def total(shape: tuple[object, ...]) -> gi.Expr:
    return gi.add(X, gi.get_operator("match_shape")(Y, shape=shape))


@on_both_targets
def test_sizes_are_checked_when_the_model_is_called(target: tw.Target) -> None:
    model = tw.build(gi.Function([X, Y], total(X.shape)), target=target)
    x, y = np.ones((5, 3), "f4"), np.full((5, 3), 2, "f4")
    np.testing.assert_array_equal(model(x, y), x + y)
    for rows in (4, 6, 1):
        with pytest.raises(
            InputError,
            match=rf"dimension 0 of .*: m is {rows}, but it must be n, which is 5 \(the sizes are n=5, m={rows}\)",
        ):
            model(x, np.ones((rows, 3), "f4"))


def test_the_reference_checks_as_well() -> None:
    function = gi.Function([X, Y], total(X.shape))
    with pytest.raises(InputError, match=r"expected shape \(5, 3\), found \(4, 3\)"):
        gi.evaluate(function, np.ones((5, 3), "f4"), np.ones((4, 3), "f4"))


def test_sizes_that_differ_are_refused_at_once() -> None:
    with pytest.raises(TypeInferenceError, match=r"match_shape: shape: expected the sizes of \(m, 3\), found \(n, 4\)"):
        total((X.shape[0], 4))
    with pytest.raises(TypeInferenceError, match="2 dimensions"):
        total((3,))
