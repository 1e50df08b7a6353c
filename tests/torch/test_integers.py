"""Operators of integers alone, and of bools, which the database of operators has no samples of in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

import tilewright as tw  # noqa: E402
from tests.torch import programs  # noqa: E402
from tilewright import graphir as gi  # noqa: E402
from tilewright.tensorir.errors import ExecutionError  # noqa: E402

TYPES = ("int64", "int32", "int8", "uint8")


def numbers(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix and a row of numbers small and great, zeros among them."""
    limits, rng = np.iinfo(dtype), np.random.default_rng(0)
    low, high = max(limits.min + 1, -200), min(limits.max, 200)
    x, y = (rng.integers(low, high, shape, dtype) for shape in ((6, 50), (50,)))
    x[2], y[3], x[1, 7], y[7] = 0, 0, limits.max, limits.max - 1
    return torch.from_numpy(x), torch.from_numpy(y)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "function",
    [torch.gcd, torch.lcm, lambda x, y: x >> (y & 3), lambda x, y: x << (y & 3)],
    ids=["gcd", "lcm", "right_shift", "left_shift"],
)
def test_integers_agree(function: Callable[..., Any], dtype: str) -> None:
    args = numbers(dtype)
    found = gi.evaluate(tw.from_exported(programs.exported(programs.Program(function), args)), *map(np.asarray, args))
    np.testing.assert_array_equal(found, function(*args).numpy())


def test_the_greatest_divisor_of_the_least_number_is_that_of_pytorch() -> None:
    x, y = torch.tensor([-(2**63), -(2**63), 0, 12]), torch.tensor([103, 0, -(2**63), -(2**63)])
    model = tw.build(tw.from_exported(programs.exported(programs.Program(torch.gcd), (x, y))))
    np.testing.assert_array_equal(model(x, y), torch.gcd(x, y).numpy())


@pytest.mark.parametrize("function", [torch.clamp_min, torch.clamp_max, torch.fmin, torch.fmax, torch.clamp])
def test_bounds_of_bools_are_logical(function: Callable[..., Any]) -> None:
    x, y = torch.tensor([[False], [True]]), torch.tensor([False, True])
    found = gi.evaluate(tw.from_exported(programs.exported(programs.Program(function), (x, y))), x.numpy(), y.numpy())
    assert found.dtype == bool
    np.testing.assert_array_equal(found, function(x, y).numpy())


@pytest.mark.parametrize("function", [torch.tril_indices, torch.triu_indices])
@pytest.mark.parametrize(("rows", "columns", "offset"), [(5, 7, 0), (5, 3, -1), (4, 6, 2), (0, 3, 0)])
def test_the_places_of_a_triangle_agree(function: Callable[..., Any], rows: int, columns: int, offset: int) -> None:
    program = programs.Program(lambda x: function(rows, columns, offset, dtype=torch.int32) + x)
    found = gi.evaluate(tw.from_exported(programs.exported(program, [torch.tensor(1)])), np.asarray(1))
    np.testing.assert_array_equal(found, program(torch.tensor(1)).numpy())


@pytest.mark.parametrize("minlength", [0, 9])
@pytest.mark.parametrize("weights", [None, "float32", "int32"])
def test_numbers_are_counted_to_the_greatest(minlength: int, weights: str | None) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.bincount(x, None if weights is None else w, minlength=minlength) * 2

    w = torch.arange(6).to(getattr(torch, weights or "float32"))
    model = tw.build(tw.from_exported(programs.exported(programs.Program(function), (torch.arange(6), w))))
    for x in (torch.tensor([1, 4, 1, 0, 4, 4]), torch.tensor([12, 0, 0, 3, 12, 1])):
        np.testing.assert_array_equal(model(x, w), function(x, w).numpy())


def test_no_numbers_have_no_counts() -> None:
    for least in (0, 3):
        program = programs.Program(lambda x, least=least: torch.bincount(x, minlength=least))
        model = tw.build(tw.from_exported(programs.exported(program, [torch.zeros(0, dtype=torch.int64)])))
        assert model(np.zeros(0, np.int64)).tolist() == [0] * least


def test_a_negative_number_is_not_counted() -> None:
    program = programs.Program(lambda x: torch.bincount(x, minlength=4))
    model = tw.build(tw.from_exported(programs.exported(program, [torch.tensor([2, 0])])))
    with pytest.raises(ExecutionError, match=r"computed -5 for the size bincount_"):
        model(np.array([2, -5]))
    assert model(np.array([2, 0])).tolist() == [1, 0, 1, 0]
