"""Results of a model that are checks: a call does not return them, but raises an error."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.expr import Function, Tuple, Var
from tilewright.graphir.keys import CHECKS
from tilewright.graphir.types import TensorType
from tilewright.runtime.model_interface import signature_of
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import LinearAlgebraError, TypeInferenceError

TEXT = "halves: expected even numbers, found one with the remainder {number}"


def halves(number: int = 1) -> Function:
    """Return half of each number, and as a check, the remainders."""
    x = Var("x", TensorType((2, 2), INT64))
    return Function(
        [x], Tuple([gi.floor_divide(x, 2), gi.subtract(x, gi.multiply(gi.floor_divide(x, 2), 2))])
    ).with_attr(CHECKS, ((number, TEXT),))


def test_a_check_is_no_result_and_an_element_that_is_not_0_an_error_that_says_where() -> None:
    model = tw.build(halves())
    assert str(model.signature.result) == "Tensor[(2, 2), int64]"
    assert model.at_addresses is None
    x = np.array([[2, 4], [6, 8]])
    np.testing.assert_array_equal(model(x), x // 2)
    x[1, 0] = 7
    with pytest.raises(LinearAlgebraError, match=r"^halves: .* with the remainder 1 \(matrix 1, 0\)$"):
        model(x)


@pytest.mark.parametrize("number", [2, -1])
def test_a_check_that_is_no_result_is_refused(number: int) -> None:
    with pytest.raises(TypeInferenceError, match=f"expected a tuple of tensors with the checks {number}"):
        signature_of(halves(number))
