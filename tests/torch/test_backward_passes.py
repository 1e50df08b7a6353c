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
    ],
)
def test_resizing(name: str) -> None:
    backward = getattr(torch.ops.aten, f"{name}_backward").default
    options = [] if "nearest" in name else [False]
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
