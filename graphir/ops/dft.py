"""Compute discrete Fourier transforms.

Complex numbers are a last axis of two: real and imaginary part; for real numbers its extent is 1. A transform is one
product with a matrix of cosines and sines, which costs ``length ** 2`` for each signal.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, as_dim, dim_equal, product, simplify
from tilewright.graphir.expr import const
from tilewright.graphir.op import Operator, get_operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import FLOATS, axis_index, check_dtype, compute_type, normalize, same_dtype, widened
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import as_expr, maximum

#: The greatest number of elements of a matrix that is a constant of the model.
_LARGEST_CONSTANT = 1 << 24


@dataclasses.dataclass(frozen=True)
class DftAttrs:
    """The kind of transform.

    Attributes:
        length: the length of the transform; signals are cut, or padded with zeros. None: that of the signal; for the
            inverse of a one-sided spectrum of ``n`` frequencies ``2 * (n - 1)``.
        axis: the axis of the signal; not the last one.
        inverse: whether to transform frequencies to the signal; the result is divided by the length.
        onesided: whether to keep only the frequencies up to ``length // 2``, as the signal is real: the result then is
            such a spectrum, or, if ``inverse``, the real signal.
    """

    length: Any = None
    axis: int = -2
    inverse: bool = False
    onesided: bool = False

    def __post_init__(self) -> None:
        if self.length is not None:
            length = as_dim(self.length)
            if isinstance(length, int) and length < 1:
                raise ArgumentValueError(f"length: expected a positive integer, found {length}")
            normalize(self, length=length)


@register_operator
class dft(Operator):
    """Compute the discrete Fourier transform along an axis: ``out[k] = sum(x[n] * exp(-2j * pi * k * n / length))``."""

    name = "dft"
    arguments = ("x",)
    Attrs = DftAttrs

    def length(self, x: Sequence[Dim], attrs: DftAttrs) -> Dim:
        """Return the length of the transform of a tensor of shape ``x``."""
        if attrs.length is not None:
            found: Dim = attrs.length
            return found
        extent = x[attrs.axis]
        if not (attrs.inverse and attrs.onesided):
            return extent
        return simplify(maximum(as_expr((extent - 1) * 2), as_expr(0)))

    def infer_type(self, args: Sequence[TensorType], attrs: DftAttrs) -> TensorType:
        (x,) = args
        check_dtype(self, 0, x, FLOATS)
        if x.ndim < 2 or x.shape[-1] not in (1, 2):
            raise self.error(0, "a last axis of one (real) or two (real and imaginary part)", x)
        axis = axis_index(self, attrs.axis, x.ndim)
        if axis == x.ndim - 1:
            raise self.error("axis", "another axis than the last", attrs.axis)
        shape = list(x.shape)
        length = self.length(x.shape, attrs)
        if isinstance(length, int) and length < 1:
            raise self.error(0, "a signal that is not empty", x)
        to_spectrum = attrs.onesided and not attrs.inverse
        shape[axis] = simplify(length // 2 + 1) if to_spectrum else length
        shape[-1] = 1 if attrs.onesided and attrs.inverse else 2
        return TensorType(shape, x.dtype)

    # The decomposition multiplies by a matrix: time and memory grow with the square of the length.
    def reference(self, args: Sequence[Any], attrs: DftAttrs) -> Any:
        x = widened(args[0]).astype(np.float64)
        axis = attrs.axis % x.ndim
        length = int(self.length(x.shape, attrs))  # type: ignore[arg-type]  # arrays have sizes that are numbers
        values = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
        if attrs.inverse and attrs.onesided:
            result: Any = np.fft.irfft(values, length, axis)[..., None]
        else:
            made = (np.fft.ifft if attrs.inverse else np.fft.fft)(values, length, axis)
            if attrs.onesided:
                made = np.take(made, range(length // 2 + 1), axis)
            result = np.stack([made.real, made.imag], -1)
        return result.astype(args[0].dtype)

    def decompose(self, args: Sequence[GraphExpr], attrs: DftAttrs) -> GraphExpr:
        (x,) = args
        dtype = x.dtype
        out = self.infer_type([x.tensor_type], attrs)
        ndim = len(x.shape)
        axis = attrs.axis % ndim
        order = [n for n in range(ndim) if n != axis]
        order.insert(ndim - 2, axis)
        moved = x if order == list(range(ndim)) else calls.transpose(x, axes=tuple(order))
        wide = compute_type(dtype)
        moved = moved if dtype is wide else calls.cast(moved, dtype=wide)
        extents = (x.shape[axis], x.shape[-1], out.shape[axis], out.shape[-1])
        length = self.length(x.shape, attrs)
        # A large matrix is computed when the model runs: a formula takes no memory.
        sizes = [dim for dim in (*extents, length) if isinstance(dim, int)]
        if len(sizes) == 5 and math.prod(sizes[:-1]) <= _LARGEST_CONSTANT:
            matrix: GraphExpr = const(_matrix(extents, length, attrs), wide)
        else:
            matrix = _symbolic_matrix(extents, length, attrs, wide)
        outer = [x.shape[n] for n in order[:-2]]
        rows = calls.reshape(moved, newshape=(product(outer), product(extents[:2])))
        result = calls.reshape(calls.matmul(rows, matrix), newshape=(*outer, *extents[2:]))
        result = result if dtype is wide else calls.cast(result, dtype=dtype)
        back = tuple(order.index(n) for n in range(ndim))
        return result if back == tuple(range(ndim)) else calls.transpose(result, axes=back)

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: DftAttrs) -> GraphExpr:
        return self.decompose(args, attrs)


def _matrix(extents: Sequence[Any], length: Any, attrs: DftAttrs) -> np.ndarray[Any, Any]:
    """Return the matrix from (index, part) to (index, part), where a part is the real or the imaginary one.

    An imaginary part is a quarter turn ahead, so that each element is one cosine.
    """
    n, p, k, q = np.ogrid[tuple(slice(extent) for extent in extents)]
    turn = (2 if attrs.inverse else -2) * math.pi / length
    result = np.cos((n * k % length) * turn + (p - q) * (math.pi / 2))
    taken = n < length
    if attrs.inverse:
        result = result / length
        if attrs.onesided:  # the missing frequencies are conjugates of those present
            result = result * np.where((n == 0) | (2 * n == length), 1, 2)
            taken = n < length // 2 + 1
    return np.where(taken, result, 0).reshape(extents[0] * extents[1], extents[2] * extents[3])


def _symbolic_matrix(extents: Sequence[Dim], length: Dim, attrs: DftAttrs, dtype: DataType) -> GraphExpr:
    """Return :func:`_matrix` for sizes that are known when the program runs."""
    places = []
    for number, extent in enumerate(extents):
        axes = tuple(n for n in range(4) if n != number)
        places.append(calls.expand_dims(call_operator("arange", 0, extent), axis=axes))
    n, p, k, q = places
    size = calls.squeeze(call_operator("sizes", values=(length,)), axis=0)
    turn = const((2 if attrs.inverse else -2) * math.pi, "float64") / calls.cast(size, dtype="float64")
    angle = calls.cast(call_operator("floor_mod", n * k, size), dtype="float64") * turn
    quarter = calls.cast(p - q, dtype="float64") * const(math.pi / 2, "float64")
    result = call_operator("cos", angle + quarter)
    bound = size
    if attrs.inverse:
        result = result / calls.cast(size, dtype="float64")
        if attrs.onesided:
            once = call_operator("logical_or", call_operator("equal", n, 0), call_operator("equal", n * 2, size))
            result = result * calls.where(once, const(1.0, "float64"), const(2.0, "float64"))
            bound = calls.squeeze(call_operator("sizes", values=(simplify(length // 2 + 1),)), axis=0)
    if not dim_equal(extents[0], length):
        result = calls.where(call_operator("less", n, bound), result, const(0.0, "float64"))
    flat = calls.reshape(result, newshape=(product(extents[:2]), product(extents[2:])))
    return flat if str(dtype) == "float64" else calls.cast(flat, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class StftAttrs:
    """``frame_step``: the distance between frames; ``frame_length``: their length; ``onesided``: as in ``dft``."""

    frame_step: int
    frame_length: int
    onesided: bool = True

    def __post_init__(self) -> None:
        for name in ("frame_step", "frame_length"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ArgumentValueError(f"{name}: expected a positive integer, found {getattr(self, name)!r}")


@register_operator
class stft(Operator):
    """Compute the short-time Fourier transform: that of overlapping frames of the signals ``x``
    ``[batch, time, 1 or 2]``, each multiplied by ``window`` ``[frame_length]``. The result is
    ``[batch, frames, frequencies, 2]``."""

    name = "stft"
    arguments = ("x", "window?")
    Attrs = StftAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: StftAttrs) -> TensorType:
        x = args[0]
        same_dtype(self, args)
        check_dtype(self, 0, x, FLOATS)
        if x.ndim != 3 or x.shape[-1] not in (1, 2):
            raise self.error(0, "a shape (batch, time, 1 or 2)", x)
        if isinstance(x.shape[1], int) and x.shape[1] < attrs.frame_length:
            raise self.error(0, f"signals of at least {attrs.frame_length} samples", x)
        if len(args) > 1 and not (args[1].ndim == 1 and dim_equal(args[1].shape[0], attrs.frame_length)):
            raise self.error(1, f"a shape ({attrs.frame_length},)", args[1])
        frequencies = attrs.frame_length // 2 + 1 if attrs.onesided else attrs.frame_length
        return TensorType((x.shape[0], self._frames(x.shape[1], attrs), frequencies, 2), x.dtype)

    def _frames(self, time: Dim, attrs: StftAttrs) -> Dim:
        return simplify((time - attrs.frame_length) // attrs.frame_step + 1)

    # As in dft, frame by frame.
    def reference(self, args: Sequence[Any], attrs: StftAttrs) -> Any:
        x = widened(args[0])
        begins = np.arange((x.shape[1] - attrs.frame_length) // attrs.frame_step + 1) * attrs.frame_step
        framed = x[:, begins[:, None] + np.arange(attrs.frame_length)]
        if len(args) > 1:
            framed = framed * widened(args[1])[:, None]
        found: Any = get_operator("dft").reference([framed], DftAttrs(onesided=attrs.onesided))
        return found.astype(args[0].dtype)

    def decompose(self, args: Sequence[GraphExpr], attrs: StftAttrs) -> GraphExpr:
        x = args[0]
        dtype, wide = x.dtype, compute_type(x.dtype)
        x, *window = [arg if dtype is wide else calls.cast(arg, dtype=wide) for arg in args]
        begins = call_operator("arange", 0, self._frames(x.shape[1], attrs)) * attrs.frame_step
        within = call_operator("arange", 0, attrs.frame_length)
        framed = calls.take(x, calls.expand_dims(begins, axis=1) + within, axis=1)
        if window:
            framed = framed * calls.expand_dims(window[0], axis=1)
        decompose = get_operator("dft").decompose
        assert decompose is not None
        result: GraphExpr = decompose([framed], DftAttrs(onesided=attrs.onesided))
        return result if dtype is wide else calls.cast(result, dtype=dtype)

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: StftAttrs) -> GraphExpr:
        return self.decompose(args, attrs)
