"""Gradients that ``tw.grad`` makes, compiled, against PyTorch's automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")
F = torch.nn.functional

#: Ours, PyTorch's, and the shapes of their arguments; ``n`` and ``m`` are symbolic.
Case = tuple[Callable[..., Any], Callable[..., Any], list[tuple[Any, ...]]]
SIZES = {"n": 3, "m": 11}

CASES: dict[str, Case] = {
    "convolution": (
        lambda x, w: gi.nn.conv2d(x, w, padding=1, strides=2),
        lambda x, w: F.conv2d(x, w, padding=1, stride=2),
        [("n", 4, "m", 9), (8, 4, 3, 3)],
    ),
    "dilated convolution in groups": (
        lambda x, w: gi.nn.conv2d(x, w, padding=(2, 1), dilation=2, groups=4),
        lambda x, w: F.conv2d(x, w, padding=(2, 1), dilation=2, groups=4),
        [(2, 4, 10, 9), (8, 1, 3, 2)],
    ),
    "convolution of rows": (
        lambda x, w: gi.nn.conv1d(x, w, padding=2),
        lambda x, w: F.conv1d(x, w, padding=2),
        [("n", 3, 12), (5, 3, 5)],
    ),
    "transposed convolution": (
        lambda x, w: gi.nn.conv_transpose(x, w, strides=2, padding=1, output_padding=1),
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        [("n", 3, 5, 4), (3, 6, 3, 3)],
    ),
    "max pool": (
        lambda x: gi.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
        lambda x: F.max_pool2d(x, 3, stride=2, padding=1),
        [("n", 3, 8, 9)],
    ),
    "max pool without overlap": (
        lambda x: gi.nn.max_pool2d(gi.nn.relu(x), pool_size=(2, 2)),
        lambda x: F.max_pool2d(F.relu(x), 2),
        [("n", 3, 8, "m")],
    ),
    "average pool": (
        lambda x: gi.nn.avg_pool2d(x, pool_size=(3, 2), strides=(2, 2), padding=(1, 0)),
        lambda x: F.avg_pool2d(x, (3, 2), stride=2, padding=(1, 0), count_include_pad=False),
        [("n", 3, 8, 8)],
    ),
    "samples of an image": (
        lambda x, g: gi.nn.grid_sample(x, g, method="cubic", padding_mode="reflection"),
        lambda x, g: F.grid_sample(x, g, "bicubic", "reflection", align_corners=False),
        [("n", 2, 6, 7), ("n", 3, 4, 2)],
    ),
    "running products": (
        lambda x: gi.cumprod(x, axis=1),
        lambda x: torch.cumprod(x, 1),
        [("n", 5, 6)],
    ),
    "determinants": (
        lambda x: gi.det(x),
        lambda x: torch.linalg.det(x),
        [("n", 2, 4, 4)],
    ),
    "columns that are added": (
        lambda x: gi.nn.col2im(x, image_shape=(7, 8), block_shape=(3, 2), strides=(2, 3), padding=(1, 0, 1, 0)),
        lambda x: F.fold(x, (7, 8), (3, 2), stride=(2, 3), padding=(1, 0)),
        [("n", 18, 12)],
    ),
    "layer norm": (
        lambda x, g, b: gi.nn.layer_norm(x, g, b),
        lambda x, g, b: F.layer_norm(x, (10,), g, b),
        [("n", 7, 10), (10,), (10,)],
    ),
    "group norm": (
        lambda x, g, b: gi.nn.group_norm(x, g, b, num_groups=2),
        lambda x, g, b: F.group_norm(x, 2, g, b),
        [("n", 4, 5, 6), (4,), (4,)],
    ),
    "batch norm in training": (
        lambda x, g, b: gi.nn.batch_norm_training(x, g, b, np.zeros(4, "float32"), np.ones(4, "float32"))[0],
        lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True),
        [("n", 4, 5, 6), (4,), (4,)],
    ),
    "attention": (
        lambda q, k, v: gi.nn.attention(q, k, v, causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [("n", 2, 6, 8), ("n", 2, 6, 8), ("n", 2, 6, 8)],
    ),
    "dense layers": (
        lambda x, w, v: gi.nn.log_softmax(gi.nn.dense(gi.nn.gelu(gi.nn.dense(x, w)), v)),
        lambda x, w, v: F.log_softmax(F.linear(F.gelu(F.linear(x, w)), v), -1),
        [("n", "m", 6), (9, 6), (4, 9)],
    ),
    "embedding": (
        lambda w: gi.take(w, gi.const([[1, 3, 1], [0, 1, 4]])) * 2.0,
        lambda w: F.embedding(torch.tensor([[1, 3, 1], [0, 1, 4]]), w) * 2,
        [(6, 5)],
    ),
    "resize": (
        lambda x: gi.nn.resize(x, scale=(2, 2), method="linear"),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        [(2, 3, 4, 5)],
    ),
    "reductions": (
        lambda x: gi.std(x, axis=1) + gi.logsumexp(x, axis=1) + gi.max(x, axis=1) + gi.prod(x, axis=1),
        lambda x: torch.std(x, 1, correction=0) + torch.logsumexp(x, 1) + torch.amax(x, 1) + torch.prod(x, 1),
        [("n", 6)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_compiled_gradients_agree_with_pytorch(case: str) -> None:
    ours, theirs, shapes = CASES[case]
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal([SIZES.get(dim, dim) for dim in shape]).astype("float32") for shape in shapes]
    tensors = [torch.from_numpy(array).double().requires_grad_() for array in arrays]
    expected = theirs(*tensors)
    weights = rng.standard_normal(tuple(expected.shape)).astype("float32")
    expected.backward(torch.from_numpy(weights).double())
    variables = [gi.var(f"x{number}", shape=shape) for number, shape in enumerate(shapes)]
    model = tw.build(tw.grad(gi.Function(variables, ours(*variables)), cotangents=True))
    result, *gradients = model(*arrays, weights)
    np.testing.assert_allclose(result, expected.detach().numpy(), rtol=1e-4, atol=1e-4)
    for found, tensor in zip(gradients, tensors, strict=True):
        np.testing.assert_allclose(found, tensor.grad.numpy(), rtol=2e-4, atol=2e-4)
