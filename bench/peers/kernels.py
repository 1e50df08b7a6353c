"""Write single operators and small networks of the suite as ONNX models, with their expected results in double
precision.

A maker returns a :class:`Model`: the ONNX model, its inputs, and for most the expected results. Weights are random.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx_writer import Writer
from references import gelu_float64, layer_norm, softmax

Array = np.ndarray[Any, Any]

EPSILON = 1e-5
#: The rows of the element-wise chain to compare: its reference takes a microsecond for each element.
CHECKED_ROWS = 16


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of the suite.

    Attributes:
        onnx: the model, or the path of its file.
        inputs: its inputs by name, in the model's order.
        expected: computes the expected results, or their first rows; without it ONNX Runtime's are the reference.
        real: its name in ``real_models``, if it comes from there.
        reference: what computes the expected results.
    """

    onnx: onnx.ModelProto | str
    inputs: dict[str, Array]
    expected: Callable[[], list[Array]] | None = None
    real: str = ""
    reference: str = "NumPy, float64"


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """Return normally distributed float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(scale)


def wide(*arrays: Array) -> list[Array]:
    """Convert the arrays to double precision."""
    return [array.astype(np.float64) for array in arrays]


def _single(inputs: dict[str, Array], shape: tuple[int, ...], formula: Callable[[Writer], str]) -> onnx.ModelProto:
    o = Writer()
    o.named(formula(o), "y")
    return o.model(inputs, {"y": shape})


def matmul(size: int, constant: bool) -> Model:
    """Write a product of square matrices, the second a constant or an input."""
    a, b = normal(size, size), normal(size, size, seed=1)
    inputs = {"a": a} if constant else {"a": a, "b": b}

    def expected() -> list[Array]:
        left, right = wide(a, b)
        return [left @ right]

    model = _single(inputs, (size, size), lambda o: o("MatMul", "a", o.constant(b, "b") if constant else "b"))
    return Model(model, inputs, expected)


def convolution(kernel: int, stride: int, channels: int, filters: int, size: int, groups: int = 1) -> Model:
    """Write a convolution with a bias, of an image of ``size`` x ``size``, padded to keep its size."""
    return convolution_nd((kernel,) * 2, channels, filters, (size,) * 2, stride=stride, groups=groups)


def _bias(filters: int, rank: int) -> tuple[Array, Array]:
    """Return a bias, and its shape for adding it to a result."""
    bias = normal(filters, seed=2)
    return bias, bias.astype(np.float64).reshape(1, filters, *[1] * rank)


def convolution_nd(
    window: tuple[int, ...],
    channels: int,
    filters: int,
    size: tuple[int, ...],
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
) -> Model:
    """Write a convolution with a bias over any dimensions, padded to keep their sizes where the stride is 1."""
    x, of = normal(1, channels, *size), channels // groups
    weight = normal(filters, of, *window, seed=1, scale=(of * math.prod(window)) ** -0.5)
    bias, added = _bias(filters, len(size))
    pads = [dilation * (extent // 2) for extent in window]
    out = [-(-extent // stride) for extent in size]

    def formula(o: Writer) -> str:
        rank = len(size)
        at = {"kernel_shape": window, "strides": [stride] * rank, "pads": pads * 2, "group": groups}
        return o("Conv", "x", o.constant(weight, "weight"), o.constant(bias, "bias"), dilations=[dilation] * rank, **at)

    def expected() -> list[Array]:
        image, factors = wide(x[0], weight)
        image = np.pad(image, ((0, 0), *[(pad, pad) for pad in pads]))
        result = np.zeros((groups, filters // groups, math.prod(out)))
        for place in np.ndindex(*window):
            taken = [
                slice(k * dilation, k * dilation + stride * (count - 1) + 1, stride)
                for k, count in zip(place, out, strict=True)
            ]
            part = image[(slice(None), *taken)].reshape(groups, of, -1)
            result += factors[(slice(None), slice(None), *place)].reshape(groups, -1, of) @ part
        return [result.reshape(1, filters, *out) + added]

    return Model(_single({"x": x}, (1, filters, *out), formula), {"x": x}, expected)


def transposed(window: int, stride: int, cut: int, channels: int, filters: int, size: int) -> Model:
    """Write a transposed convolution with a bias, of an image of ``size`` x ``size``, cropped by ``cut`` on each
    side."""
    x, full = normal(1, channels, size, size), (size - 1) * stride + window
    weight = normal(channels, filters, window, window, seed=1, scale=channels**-0.5 * stride / window)
    bias, added = _bias(filters, 2)

    def formula(o: Writer) -> str:
        at = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [cut] * 4}
        return o("ConvTranspose", "x", o.constant(weight, "weight"), o.constant(bias, "bias"), **at)

    def expected() -> list[Array]:
        image, factors = wide(x[0], weight)
        result = np.zeros((filters, full, full))
        for i, j in np.ndindex(window, window):
            rows, columns = (slice(k, k + (size - 1) * stride + 1, stride) for k in (i, j))
            result[:, rows, columns] += np.tensordot(factors[:, :, i, j].T, image, 1)
        return [result[None, :, cut : full - cut, cut : full - cut] + added]

    return Model(_single({"x": x}, (1, filters, full - 2 * cut, full - 2 * cut), formula), {"x": x}, expected)


def gelu_chain(rows: int = 4096, columns: int = 4096) -> Model:
    """Write ``gelu(x * a + b) + y`` with scalars a and b."""
    x, y = normal(rows, columns), normal(rows, columns, seed=1)
    a, b = np.float32(0.75), np.float32(0.125)

    def formula(o: Writer) -> str:
        inner = o("Add", o("Mul", "x", o.constant(a, "a")), o.constant(b, "b"))
        return o("Add", o("Gelu", inner), "y0")

    def expected() -> list[Array]:
        part, added = wide(x[:CHECKED_ROWS], y[:CHECKED_ROWS])
        return [gelu_float64(part * 0.75 + 0.125) + added]

    inputs = {"x": x, "y0": y}
    return Model(_single(inputs, x.shape, formula), inputs, expected)


def softmax_rows() -> Model:
    x = normal(4096, 1024)
    model = _single({"x": x}, x.shape, lambda o: o("Softmax", "x", axis=-1))
    return Model(model, {"x": x}, lambda: [softmax(x.astype(np.float64))])


def layer_norm_rows() -> Model:
    x, gamma, beta = normal(4096, 1024), normal(1024, seed=1), normal(1024, seed=2)
    weights = {"norm.weight": gamma, "norm.bias": beta}

    def formula(o: Writer) -> str:
        o.weights = weights
        return o.norm("x", "norm", EPSILON)

    return Model(_single({"x": x}, x.shape, formula), {"x": x}, lambda: [layer_norm(*wide(x, gamma, beta), EPSILON)])


def mlp(*widths: int) -> Model:
    """Write dense layers with ReLU between them, batch 1."""
    o, x = Writer(), normal(1, widths[0])
    value, layers = "x", list(itertools.pairwise(widths))
    arrays: list[tuple[Array, Array]] = []
    for number, (of, to) in enumerate(layers):
        weight, bias = normal(of, to, seed=2 * number, scale=of**-0.5), normal(to, seed=2 * number + 1)
        arrays.append((weight, bias))
        product = o("MatMul", value, o.constant(weight, f"weight{number}"))
        value = o("Add", product, o.constant(bias, f"bias{number}"))
        value = o("Relu", value) if number + 1 < len(layers) else o.named(value, "y")

    def expected() -> list[Array]:
        result = x.astype(np.float64)
        for number, (weight, bias) in enumerate(arrays):
            result = result @ weight.astype(np.float64) + bias
            result = np.maximum(result, 0) if number + 1 < len(arrays) else result
        return [result]

    return Model(o.model({"x": x}, {"y": (1, widths[-1])}), {"x": x}, expected)


def lstm(layers: int, width: int, steps: int) -> Model:
    """Write layers of LSTM over a sequence, batch 1; every step of the last one is a result."""
    o, x = Writer(), normal(steps, 1, width)
    value = "x"
    for number in range(layers):
        names = [
            o.constant(normal(1, 4 * width, width, seed=3 * number, scale=width**-0.5), f"input{number}"),
            o.constant(normal(1, 4 * width, width, seed=3 * number + 1, scale=width**-0.5), f"hidden{number}"),
            o.constant(normal(1, 8 * width, seed=3 * number + 2, scale=0.1), f"bias{number}"),
        ]
        every = o("LSTM", value, *names, hidden_size=width)
        value = o("Squeeze", every, o.integers(1))
    o.named(value, "y")
    return Model(o.model({"x": x}, {"y": (steps, 1, width)}), {"x": x})


def tiny() -> Model:
    """Write one operator on four numbers: only the overhead of a call counts."""
    x = normal(4)
    return Model(
        _single({"x": x}, (4,), lambda o: o("Add", "x", o.constant(np.float32(1)))), {"x": x}, lambda: [x + 1.0]
    )
