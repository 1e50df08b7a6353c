"""Attributes of a module about its results: those that are checks, and the orders of axes in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.expr import Function, Tuple, Var
from tilewright.graphir.keys import CHECKS, ORDERS
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


def ordered(order: tuple[int, ...], number: int = 1) -> Function:
    """Return a matrix, and twice the matrix with its axes in some order in memory."""
    x = Var("x", TensorType((2, 3), INT64))
    return Function([x], Tuple([x, gi.add(x, x)])).with_attr(ORDERS, ((number, order),))


def test_a_result_has_the_order_of_axes_in_memory_that_the_module_asks_for(tmp_path: Path) -> None:
    model = tw.build(ordered((1, 0)))
    model.export(tmp_path / "ordered.tw", graph=True)
    loaded = tw.load(tmp_path / "ordered.tw")
    assert str(loaded.signature) == str(model.signature)
    x = np.arange(6).reshape(2, 3)
    for each in (model, loaded, tw.build(gi.parse(model.ir("graph")))):
        assert each.at_addresses is None
        same, double = each(x)
        np.testing.assert_array_equal(same, x)
        np.testing.assert_array_equal(double, x * 2)
        assert same.flags.c_contiguous and double.flags.f_contiguous


@pytest.mark.parametrize(("order", "number"), [((1, 0), 2), ((0, 0), 1), ((0, 1, 2), 1)])
def test_an_order_that_does_not_fit_is_refused(order: tuple[int, ...], number: int) -> None:
    with pytest.raises(TypeInferenceError, match="expected a tensor with the axes"):
        tw.build(ordered(order, number))
