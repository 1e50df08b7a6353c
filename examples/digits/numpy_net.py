"""Compute the digits network in plain NumPy: the reference for the results and the speed of the compiled model.

    images [n, 1, 8, 8]
    conv 3x3 1 -> 16,  batch norm, relu        [n, 16, 8, 8]
    conv 3x3 16 -> 32, batch norm, relu        [n, 32, 8, 8]
    max pool 2x2                               [n, 32, 4, 4]
    conv 3x3 32 -> 64, batch norm, relu        [n, 64, 4, 4]
    global average pool                        [n, 64]
    dense 64 -> 10, softmax                    [n, 10]

Each layer is written as one does in NumPy when speed matters: convolution as im2col and one matrix product,
batch norm as one multiplication and one addition per element.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

EPSILON = 1e-5
CONVOLUTIONS = 3  # each with its batch norm: conv1/bn1, conv2/bn2, conv3/bn3
POOL_AFTER = 2  # the max pool follows the second convolution

FloatArray = npt.NDArray[np.float32]


def im2col(x: FloatArray, kernel: int, padding: int) -> FloatArray:
    """Return the ``kernel x kernel`` window around every pixel of ``x [n, c, h, w]``: ``[n, c * kernel * kernel, h' *
    w']``.

    Copies one shifted image for each kernel position; faster here than reshaping a sliding window view, whose copy
    strides through memory element by element.
    """
    n, c, h, w = x.shape
    padded = np.zeros((n, c, h + 2 * padding, w + 2 * padding), x.dtype)
    padded[:, :, padding : padding + h, padding : padding + w] = x
    h, w = h + 2 * padding - kernel + 1, w + 2 * padding - kernel + 1
    columns = np.empty((n, c, kernel, kernel, h, w), x.dtype)
    for i in range(kernel):
        for j in range(kernel):
            columns[:, :, i, j] = padded[:, :, i : i + h, j : j + w]
    return columns.reshape(n, c * kernel * kernel, h * w)


def conv2d(x: FloatArray, weight: FloatArray, padding: int = 1) -> FloatArray:
    """Convolve with stride 1: ``x [n, c, h, w]``, ``weight [o, c, k, k]``, result ``[n, o, h', w']``."""
    o, _, k, _ = weight.shape
    n, _, h, w = x.shape
    products: FloatArray = weight.reshape(o, -1) @ im2col(x, k, padding)
    return products.reshape(n, o, h + 2 * padding - k + 1, w + 2 * padding - k + 1)


def batch_norm(x: FloatArray, gamma: FloatArray, beta: FloatArray, mean: FloatArray, var: FloatArray) -> FloatArray:
    """Normalize each channel (axis 1) of ``x [n, c, h, w]`` with given statistics ``[c]``."""
    scale = gamma / np.sqrt(var + np.float32(EPSILON))
    shift = beta - mean * scale
    y: FloatArray = x * scale[:, None, None] + shift[:, None, None]
    return y


def relu(x: FloatArray) -> FloatArray:
    """Compute ``max(x, 0)`` for each element."""
    y: FloatArray = np.maximum(x, np.float32(0))
    return y


def max_pool2x2(x: FloatArray) -> FloatArray:
    """Return the largest of each 2x2 block: ``[n, c, h, w]`` to ``[n, c, h / 2, w / 2]``; h and w are even."""
    rows = np.maximum(x[:, :, 0::2], x[:, :, 1::2])
    y: FloatArray = np.maximum(rows[..., 0::2], rows[..., 1::2])
    return y


def softmax(x: FloatArray) -> FloatArray:
    """Return probabilities along the last axis; the maximum is subtracted first, so that no exponential overflows."""
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    probabilities: FloatArray = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities


def forward(weights: Mapping[str, FloatArray], images: FloatArray) -> FloatArray:
    """Return class probabilities ``[n, 10]`` of ``images [n, 1, 8, 8]`` (float32, ink from 0 to 1)."""
    x = images
    for i in range(1, CONVOLUTIONS + 1):
        x = conv2d(x, weights[f"conv{i}.weight"])
        bn = f"bn{i}"
        x = batch_norm(
            x, weights[f"{bn}.gamma"], weights[f"{bn}.beta"], weights[f"{bn}.mean"], weights[f"{bn}.variance"]
        )
        x = relu(x)
        if i == POOL_AFTER:
            x = max_pool2x2(x)
    features = x.mean(axis=(2, 3))
    return softmax(features @ weights["dense.weight"].T + weights["dense.bias"])
