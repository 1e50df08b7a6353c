"""torchvision's operators of detectors compute what torchvision does."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")
pytest.importorskip("torchvision", reason="torchvision is not installed: pip install torchvision")

from torchvision import ops  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

INFINITY, NAN = float("inf"), float("nan")


def compiled(function: Any, dynamic: bool = False) -> Any:
    return torch.compile(function, backend="tilewright", fullgraph=True, options={"fallback": False}, dynamic=dynamic)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def regions(count: int, images: int) -> torch.Tensor:
    corners = torch.rand(count, 4, generator=generator()) * 24 - 2
    corners[-1] = torch.tensor([9.0, 9.0, 4.0, 3.0])  # exchanged corners
    return torch.cat([torch.arange(count).remainder(images).float()[:, None], corners], dim=1)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
def test_regions_are_sampled(ratio: int, aligned: bool) -> None:
    def function(x: torch.Tensor, rois: torch.Tensor) -> Any:
        return ops.roi_align(x, rois, (3, 2), spatial_scale=0.5, sampling_ratio=ratio, aligned=aligned)

    model = compiled(function, dynamic=True)
    for count in (7, 5):
        given = torch.randn(2, 3, 13, 11, generator=generator()), regions(count, 2)
        torch.testing.assert_close(model(*given), function(*given), rtol=1e-4, atol=1e-5)


def test_the_gradient_of_sampled_regions_is_that_of_torchvision() -> None:
    rois = regions(6, 2)

    def function(x: torch.Tensor) -> Any:
        return ops.roi_align(x, rois, 3, sampling_ratio=2, aligned=True).square().sum()

    x = torch.randn(2, 3, 13, 11, generator=generator())
    found, expected = (x.clone().requires_grad_() for _ in range(2))
    compiled(function)(found).backward()
    function(expected).backward()
    torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-5)


def kept(boxes: torch.Tensor, scores: torch.Tensor) -> Any:
    return ops.nms(boxes, scores, 0.4)


@pytest.mark.parametrize("count", [0, 1, 60])
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_the_same_boxes_are_kept_in_the_same_order(count: int) -> None:
    low = torch.rand(count, 2, generator=generator()) * 20
    boxes = torch.cat([low, low + torch.rand(count, 2, generator=generator()) * 10], dim=1)
    scores = torch.rand(count, generator=generator()).mul(20).round()  # some are equal
    model = compiled(kept)
    for special in (False, True):
        if special and count > 9:
            boxes[4:9] = boxes[4:9, [2, 3, 0, 1]]  # exchanged corners: such boxes overlap none
            scores[::7], scores[1::7] = NAN, -INFINITY
        torch.testing.assert_close(model(boxes, scores), kept(boxes, scores), rtol=0, atol=0)


@pytest.mark.parametrize("use_mask", [False, True])
def test_deformed_convolution(use_mask: bool) -> None:
    x, weight, bias = (torch.randn(shape, generator=generator()) for shape in ((2, 4, 9, 8), (6, 2, 3, 2), (6,)))
    offset = torch.randn(2, 2 * 2 * 6, 5, 4, generator=generator())
    mask = torch.rand(2, 2 * 6, 5, 4, generator=generator()) if use_mask else None

    def function(x: torch.Tensor, offset: torch.Tensor) -> Any:
        return ops.deform_conv2d(x, offset, weight, bias, stride=2, padding=(1, 0), mask=mask)

    torch.testing.assert_close(compiled(function)(x, offset), function(x, offset), rtol=1e-4, atol=1e-4)
