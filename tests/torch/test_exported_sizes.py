"""Exported programs whose sizes PyTorch knows more about than their formulas say: equal, divisible, never negative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from torch.nn import functional as F  # noqa: E402, N812 - everybody calls it so

import tilewright as tw  # noqa: E402
from tests.torch import programs  # noqa: E402
from tilewright.tensorir.errors import InputError  # noqa: E402

Shape = tuple[int, ...]


def built(function: Callable[[Any], Any], shape: Shape, axes: tuple[int, ...]) -> tw.Executable:
    """Export a function for any extents of these axes, and build it."""
    dynamic = ((dict.fromkeys(axes, torch.export.Dim.AUTO),),)
    return tw.build(tw.from_exported(programs.exported(programs.Program(function), [values(shape)], dynamic)))


def values(shape: Shape) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape)))


def assert_equal(model: tw.Executable, function: Callable[[Any], Any], x: torch.Tensor) -> None:
    expected, found = function(x), model(x)
    both = zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]
    for one, other in both:
        np.testing.assert_allclose(other, one.numpy(), rtol=1e-5, atol=1e-5)


def powers(x: torch.Tensor) -> torch.Tensor:
    small = F.avg_pool2d(x, 3)
    return small @ small


def products(x: torch.Tensor) -> torch.Tensor:
    small = F.avg_pool2d(x, 3)
    return torch.einsum("bcij,bcjk->bcik", small, small)


@pytest.mark.parametrize(
    ("function", "shape", "axes", "other", "wrong"),
    [
        (lambda x: F.glu(x, 0), (16, 4), (0,), (6, 4), (7, 4)),
        (powers, (2, 4, 16, 16), (2, 3), (2, 4, 9, 10), (2, 4, 9, 12)),
        (products, (2, 4, 16, 16), (2, 3), (2, 4, 9, 10), (2, 4, 9, 12)),
        (lambda x: F.group_norm(x, 2), (2, 4, 6), (0, 1), (1, 6, 6), (1, 5, 6)),
        (lambda x: F.channel_shuffle(x, 2), (2, 4, 6), (0, 1, 2), (1, 6, 5), (1, 5, 6)),
        (lambda x: F.pixel_shuffle(x, 2), (2, 4, 3, 5), (1, 2, 3), (2, 8, 4, 3), (2, 6, 4, 3)),
    ],
)
def test_sizes_that_must_be_equal_are_checked_by_a_call(
    function: Callable[[Any], Any], shape: Shape, axes: tuple[int, ...], other: Shape, wrong: Shape
) -> None:
    model = built(function, shape, axes)
    assert_equal(model, function, values(other))
    with pytest.raises(InputError):
        model(values(wrong))


@pytest.mark.parametrize(
    ("function", "shape", "axes", "other"),
    [
        (lambda x: x.unfold(1, 3, 2), (12, 12), (0, 1), (3, 5)),
        (torch.combinations, (12,), (0,), (5,)),
        (torch.diag, (5, 1), (0,), (7, 1)),
        (lambda x: torch.diag(x, 1), (5, 4), (0, 1), (7, 3)),
        (torch.trace, (5, 9), (0, 1), (12, 7)),
        (F.instance_norm, (2, 8, 8), (0, 1, 2), (3, 5, 5)),
        (lambda x: F.group_norm(x, 1), (2, 4, 6), (0, 1), (1, 7, 6)),
    ],
)
def test_programs_of_sizes_whose_formulas_say_too_little(
    function: Callable[[Any], Any], shape: Shape, axes: tuple[int, ...], other: Shape
) -> None:
    model = built(function, shape, axes)
    assert_equal(model, function, values(shape))
    assert_equal(model, function, values(other))


@pytest.mark.parametrize("size", [(1, 1), (7, 7), (5, 2)])
def test_windows_of_different_sizes_tile_images_of_any_size(size: Shape) -> None:
    def function(x: torch.Tensor) -> Any:
        return F.adaptive_avg_pool2d(x, size), *F.adaptive_max_pool2d(x, size, return_indices=True)

    model = built(function, (2, 3, 13, 17), (0, 2, 3))
    for shape in ((3, 3, 7, 5), (1, 3, 20, 21), (1, 3, 3, 4)):
        assert_equal(model, function, values(shape))


def test_means_of_windows_of_different_sizes_are_differentiated_for_images_of_any_size() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool2d(x * 2, (5, 2))

    compiled = torch.compile(function, backend="tilewright", dynamic=True, options={"fallback": False})
    for shape in ((2, 3, 13, 17), (1, 4, 7, 5)):
        x, y = values(shape).requires_grad_(), values(shape).requires_grad_()
        weights = torch.randn(*shape[:2], 5, 2)
        (compiled(x) * weights).sum().backward()
        (function(y) * weights).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
