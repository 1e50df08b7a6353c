"""Gradients of operators whose backward passes have converters of their own, through ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812 - everybody calls it so

from tilewright.graphir.frontend.torch.graphs import from_graph  # noqa: E402
from tilewright.graphir.visitor import call_nodes  # noqa: E402

IMAGES = (2, 3, 7, 9)
VOLUME = (2, 3, 5, 6, 7)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def agree(function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    """Assert that compiled gradients, without fallback, are those of PyTorch in double precision."""
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    options = {"fallback": False}
    result = torch.compile(function, backend="tilewright", fullgraph=True, options=options)(*inputs)
    weight = torch.randn_like(result)
    found = torch.autograd.grad((result * weight).sum(), inputs)
    exact = torch.autograd.grad((function(*wide) * weight.double()).sum(), wide)
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (3, 2), "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
        {"kernel_size": 2, "divisor_override": 3},
    ],
)
def test_average_pooling(options: dict[str, Any]) -> None:
    agree(lambda x: F.avg_pool2d(x, **options), IMAGES)


def test_average_pooling_in_three_dimensions() -> None:
    agree(lambda x: F.avg_pool3d(x, 2, padding=1, ceil_mode=True), VOLUME)


@pytest.mark.parametrize("pool", ["adaptive_avg_pool2d", "adaptive_max_pool2d"])
def test_pooling_to_a_size(pool: str) -> None:
    agree(lambda x: getattr(F, pool)(x, (3, 4)), IMAGES)


@pytest.mark.parametrize("options", [{"padding": 1}, {"padding": 2, "stride": 2, "dilation": 2}], ids=str)
def test_convolution(options: dict[str, Any]) -> None:
    agree(lambda x, w: F.conv2d(x, w, **options), (2, 4, 9, 8), (6, 4, 3, 3))


def test_no_gradients_of_padding_are_computed() -> None:
    x, weight, grad = torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 3), torch.randn(2, 6, 9, 8)

    def of_data(grad: Any, x: Any, weight: Any) -> Any:
        backward = torch.ops.aten.convolution_backward
        return backward(grad, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, (True, False, False))[0]

    made = from_graph(make_fx(of_data)(grad, x, weight).graph, {}).module
    assert made is not None
    (spread,) = [call for call in call_nodes(made["main"].body) if call.op.name == "nn.conv_transpose"]
    assert spread.shape == x.shape


@pytest.mark.parametrize("groups", [1, 3])
def test_transposed_convolution(groups: int) -> None:
    agree(
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=groups),
        IMAGES,
        (3, 2, 3, 3),
    )


def test_convolution_in_three_dimensions() -> None:
    agree(lambda x, w: F.conv3d(x, w, stride=(1, 2, 1), padding=1), VOLUME, (4, 3, 3, 2, 3))


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(is_causal: bool) -> None:
    shape = (2, 4, 6, 8)
    agree(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal), shape, shape, shape)


@pytest.mark.parametrize(
    "name",
    [
        "upsample_nearest2d",
        "_upsample_nearest_exact2d",
        "upsample_bilinear2d",
        "upsample_bicubic2d",
        "_upsample_bilinear2d_aa",
    ],
)
def test_resizing(name: str) -> None:
    backward = getattr(torch.ops.aten, f"{name}_backward").default
    options = [] if "nearest" in name else [name.endswith("aa")]
    grad = torch.randn(2, 3, 5, 12)

    def resized_back(x: Any) -> Any:
        return backward(x, [5, 12], [2, 3, 7, 9], *options)

    compiled = torch.compile(resized_back, backend="tilewright", fullgraph=True, options={"fallback": False})
    torch.testing.assert_close(compiled(grad), resized_back(grad.double()).float(), rtol=1e-4, atol=1e-4)


def test_padding_by_the_edges() -> None:
    agree(lambda x: F.pad(x, (2, 1, -1, 3), mode="replicate"), IMAGES)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5, float("inf")])
def test_distances_between_points(p: float) -> None:
    agree(lambda x, y: torch.cdist(x, y, p=p), (2, 5, 3), (2, 4, 3))


def test_masked_scatter() -> None:
    mask = torch.arange(20).reshape(4, 5) % 3 == 0
    agree(lambda x, source: x.masked_scatter(mask, source), (4, 5), (3, 6))


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, float("inf")])
def test_distances_of_points_among_each_other(p: float) -> None:
    agree(lambda x: F.pdist(x.reshape(5, 3), p=p), (3, 5))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode: str) -> None:
    indices, offsets = torch.tensor([1, 2, 2, 0, 4, 1, 3, 2]), torch.tensor([0, 3, 3, 6])
    agree(lambda table: F.embedding_bag(indices, table, offsets, mode=mode, padding_idx=4), (5, 3))


def test_rows_of_a_bag_are_scaled_by_how_often_they_occur() -> None:
    indices, offsets = torch.tensor([1, 2, 2, 0, 4, 1, 3, 2]), torch.tensor([0, 3, 3, 6])
    table, weight = torch.randn(5, 3, requires_grad=True), torch.randn(4, 3)

    def total(table: Any, scaled: bool) -> Any:
        bags = F.embedding_bag(indices, table, offsets, mode="sum", scale_grad_by_freq=scaled)
        return (bags * weight).sum()

    options = {"fallback": False}
    compiled = torch.compile(total, backend="tilewright", fullgraph=True, options=options)
    (found,) = torch.autograd.grad(compiled(table, True), table)
    (unscaled,) = torch.autograd.grad(total(table, False), table)  # PyTorch takes the counts of other rows
    torch.testing.assert_close(found, unscaled / torch.bincount(indices)[:, None])


def test_weighted_bags_of_embeddings() -> None:
    indices, offsets = torch.tensor([1, 2, 2, 0, 4, 1]), torch.tensor([0, 3, 3, 6])
    agree(
        lambda table, factors: F.embedding_bag(
            indices, table, offsets, mode="sum", per_sample_weights=factors, include_last_offset=True
        ),
        (5, 3),
        (6,),
    )


@pytest.mark.parametrize(("mode", "border"), [("bilinear", "zeros"), ("bicubic", "reflection"), ("nearest", "border")])
def test_samples_of_an_image(mode: str, border: str) -> None:
    agree(lambda x, grid: F.grid_sample(x, grid, mode, border, align_corners=False), IMAGES, (2, 4, 5, 2))


def test_samples_of_a_volume_at_places_that_are_not_differentiated() -> None:
    grid = torch.rand(2, 3, 2, 4, 3) * 2 - 1
    agree(lambda x: F.grid_sample(x, grid.to(x.dtype), align_corners=True), VOLUME)


def test_fourier_transforms() -> None:
    def filtered(x: Any, response: Any) -> Any:
        return torch.fft.irfft2(torch.fft.rfft2(x) * response, s=(6, 9))

    agree(filtered, (2, 7, 9), (2, 7, 5))


def test_directions_of_complex_numbers() -> None:
    def turned(x: Any, y: Any) -> Any:
        number = torch.complex(x, y)
        return (torch.polar(x.abs(), y) * number.sgn()).abs() + number.angle()

    agree(turned, (4, 5), (4, 5))
