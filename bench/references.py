"""Compute the kernels in plain NumPy, as one writes them when speed matters; in the element type of their arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26: erf to 1.5e-7. NumPy has no erf of its own.
_ERF_P = 0.3275911
_ERF_COEFFICIENTS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)

_exact_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Array) -> Array:
    """Compute the error function, with an absolute error of 1.5e-7; intermediate results are overwritten in place."""
    size = np.abs(x)
    t = 1 / (1 + x.dtype.type(_ERF_P) * size)
    polynomial = np.full_like(x, _ERF_COEFFICIENTS[0])
    for coefficient in _ERF_COEFFICIENTS[1:]:
        polynomial *= t
        polynomial += x.dtype.type(coefficient)
    polynomial *= t
    np.multiply(size, size, out=size)
    np.negative(size, out=size)
    np.exp(size, out=size)
    polynomial *= size
    np.subtract(1, polynomial, out=polynomial)
    result: Array = np.copysign(polynomial, x, out=polynomial)
    return result


def gelu(x: Array) -> Array:
    """Compute ``x * (1 + erf(x / sqrt(2))) / 2``."""
    result = erf(x * x.dtype.type(math.sqrt(0.5)))
    result += 1
    result *= x
    result *= x.dtype.type(0.5)
    return result


def gelu_float64(x: Array) -> Array:
    """Compute ``gelu`` with the C library's erf, one element at a time: the oracle."""
    result: Array = 0.5 * x * (1 + _exact_erf(x / math.sqrt(2)))
    return result


def softmax(x: Array) -> Array:
    """Compute the softmax along the last axis."""
    result: Array = x - x.max(axis=-1, keepdims=True)
    np.exp(result, out=result)
    result /= result.sum(axis=-1, keepdims=True)
    return result


def layer_norm(x: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    """Normalize along the last axis."""
    result: Array = x - x.mean(axis=-1, keepdims=True)
    variance = np.einsum("ij,ij->i", result, result)[:, None] / x.dtype.type(x.shape[-1])
    result /= np.sqrt(variance + x.dtype.type(epsilon))
    result *= gamma
    result += beta
    return result


def conv2d(x: Array, weight: Array, stride: int = 1, groups: int = 1) -> Array:
    """Convolve with a border of zeros that keeps the size at stride 1: ``x [n, c, h, w]``, ``weight [o, c / groups, k,
    k]`` with odd ``k``; a matrix product of shifted images for each group."""
    n, c, h, w = x.shape
    filters, _, k, _ = weight.shape
    border = k // 2
    padded = np.zeros((n, c, h + 2 * border, w + 2 * border), x.dtype)
    padded[:, :, border : border + h, border : border + w] = x
    rows, columns = (h - 1) // stride + 1, (w - 1) // stride + 1
    patches = np.empty((n, c, k, k, rows, columns), x.dtype)
    for i in range(k):
        for j in range(k):
            patches[:, :, i, j] = padded[:, :, i : i + h : stride, j : j + w : stride]
    patches = patches.reshape(n, groups, c // groups * k * k, rows * columns)
    result: Array = weight.reshape(groups, filters // groups, -1) @ patches
    return result.reshape(n, filters, rows, columns)
