"""Quantize floats to integers, or to floats of 8 and 4 bits, and back: ``float = (stored - zero point) * scale``.

The scheme is that of Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference", CVPR 2018. Values stored as floats have no zero point. Scale and zero point hold for the whole tensor, for
an index along one axis, or for a block of indices along one axis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import dim_equal, format_shape, shape_equal, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, axis_index, check_dtype, compute_type, normalize, widened
from tilewright.graphir.ops.storage_types import decoded, encoded, encoded_array, integer_bits
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import FLOAT32, INT32, STORAGE_DTYPES, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, call, cast, const, select
from tilewright.tensorir.tensor import Tensor

#: The type of unsigned powers of two, which holds scales.
_SCALE = "float8_e8m0fnu"
#: Types that floats are quantized to, and types that are dequantized.
QUANTIZED = ("int8", "uint8", "int16", "uint16", *(name for name in STORAGE_DTYPES if name != _SCALE))
DEQUANTIZED = (*QUANTIZED, "int32")


@dataclasses.dataclass(frozen=True)
class DequantizeAttrs:
    """The elements that share a scale.

    Attributes:
        axis: the axis of a vector of scales, or of blocks.
        block_size: the number of indices along the axis that share a scale; 0 if there are no blocks.
    """

    axis: int = 1
    block_size: int = 0

    def __post_init__(self) -> None:
        if type(self.block_size) is not int or self.block_size < 0:
            raise ArgumentValueError(f"block_size: expected a positive integer or 0, found {self.block_size!r}")


@dataclasses.dataclass(frozen=True)
class QuantizeAttrs(DequantizeAttrs):
    """As ``DequantizeAttrs``; ``dtype``: element type of the result; ``saturate``: whether values too large for a float
    type become its greatest value; if not, infinity or NaN."""

    dtype: DataType = dataclasses.field(default=DataType("uint8"))
    saturate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        normalize(self, dtype=as_dtype(self.dtype), saturate=bool(self.saturate))
        if str(self.dtype) not in QUANTIZED:
            raise ArgumentValueError(f"dtype: expected one of {', '.join(QUANTIZED)}, found {self.dtype!s}")


class _Scaled(Operator):
    """Base of both directions: assigns a scale to each element."""

    arguments = ("x", "scale", "zero_point?")
    kind = "broadcast"

    def in_layout(self, args: Sequence[Any], blocked: Sequence[Any], attrs: Any, plain: str, target: str) -> Any:
        """Decline a blocked layout: scales belong to an axis of the plain layout."""
        return None

    def check_scales(self, args: Sequence[TensorType], attrs: DequantizeAttrs, stored: DataType, of: str) -> None:
        """Check the types and shapes of scale and zero point; the zero point is of type ``stored``, as ``of`` is.

        Raises:
            TypeInferenceError: they do not fit x, or each other.
        """
        x, scale = args[:2]
        check_dtype(self, 1, scale, (*FLOATS, _SCALE))
        if len(args) > 2 and integer_bits(stored) is None:
            raise self.error(2, f"none for element type {stored!s}", args[2])
        if len(args) > 2 and args[2].dtype is not stored:
            raise self.error(2, f"element type {stored!s} as {of}", args[2])
        if attrs.block_size:
            axis = axis_index(self, attrs.axis, x.ndim)
            blocks = list(x.shape)
            blocks[axis] = simplify((x.shape[axis] + (attrs.block_size - 1)) // attrs.block_size)
            if not shape_equal(scale.shape, blocks):
                raise self.error(1, f"a scale for each block of {attrs.block_size}, {format_shape(blocks)}", scale)
        elif not _is_single(scale.shape):
            if scale.ndim != 1:
                raise self.error(1, "one scale, or a vector of them", scale)
            axis = axis_index(self, attrs.axis, x.ndim)
            if not dim_equal(scale.shape[0], x.shape[axis]):
                raise self.error(1, f"a scale for each index of axis {attrs.axis} of {x}", scale)
        if len(args) > 2 and not (
            shape_equal(scale.shape, args[2].shape) or (_is_single(scale.shape) and _is_single(args[2].shape))
        ):
            raise self.error(2, f"the shape of scale, {format_shape(scale.shape)}", args[2])

    def spread(self, parameter: np.ndarray[Any, Any], x: np.ndarray[Any, Any], attrs: DequantizeAttrs) -> Any:
        """Return a scale or zero point for each element of ``x`` (an array that broadcasts)."""
        if attrs.block_size:
            repeated = np.repeat(parameter, attrs.block_size, attrs.axis)
            return np.take(repeated, np.arange(x.shape[attrs.axis]), attrs.axis)
        if parameter.size == 1 and (parameter.ndim == 0 or x.ndim == 0 or x.shape[attrs.axis] != 0):
            return parameter.reshape(())
        shape = [1] * x.ndim
        shape[attrs.axis] = -1
        return parameter.reshape(shape)

    def at(self, parameter: Tensor, place: Sequence[Expr], attrs: DequantizeAttrs) -> Expr:
        """Return the scale or zero point of the element at ``place``, in a type that supports arithmetic."""
        if attrs.block_size:
            axis = attrs.axis % len(place)
            return decoded(parameter[tuple(i // attrs.block_size if n == axis else i for n, i in enumerate(place))])
        if parameter.ndim == 0:
            return decoded(parameter[()])
        is_one = getattr(parameter.shape[0], "value", None) == 1
        return decoded(parameter[0] if is_one else parameter[place[attrs.axis]])


def integer_limits(dtype: DataType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type, including those that are only stored."""
    bits = integer_bits(dtype)
    assert bits is not None
    return (0, (1 << bits) - 1) if str(dtype).startswith("u") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _is_single(shape: Sequence[Any]) -> bool:
    return len(shape) == 0 or (len(shape) == 1 and isinstance(shape[0], int) and shape[0] == 1)


@register_operator
class quantize(_Scaled):
    """Quantize: divide ``x`` by ``scale``, round (halves to the even integer), add ``zero_point``, and saturate to the
    range of ``dtype``; NaN gives its least integer. Half types and int32 are divided in float32.

    For a float ``dtype`` the quotient becomes the nearest value of that type (as with ``encode``), without a zero
    point. Scales may be of a float type or powers of two (``float8_e8m0fnu``).
    """

    name = "quantize"
    Attrs = QuantizeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: QuantizeAttrs) -> TensorType:
        check_dtype(self, 0, args[0], (*FLOATS, "int32"))
        self.check_scales(args, attrs, attrs.dtype, "the result")
        return TensorType(args[0].shape, attrs.dtype)

    def reference(self, args: Sequence[Any], attrs: QuantizeAttrs) -> Any:
        x = widened(args[0])
        x = x if x.dtype.kind == "f" else x.astype(np.float32)
        scale = self.spread(args[1], x, attrs).astype(x.dtype)
        with np.errstate(all="ignore"):
            quotient = np.asarray(x / scale)
            if integer_bits(attrs.dtype) is None:
                return encoded_array(quotient.astype(np.float32), attrs.dtype, attrs.saturate)
            zero = self.spread(args[2], x, attrs).astype(x.dtype) if len(args) > 2 else np.zeros((), x.dtype)
            rounded = np.rint(quotient) + zero
        least, greatest = integer_limits(attrs.dtype)
        return np.clip(np.where(np.isnan(rounded), least, rounded), least, greatest).astype(attrs.dtype.numpy)

    def compute(self, args: Sequence[Tensor], attrs: QuantizeAttrs, out: TensorType) -> Tensor:
        x, scale = args[:2]
        wide = compute_type(x.dtype) if x.dtype.is_float else FLOAT32

        def element(*place: Var) -> Expr:
            quotient = cast(wide, x[place]) / cast(wide, self.at(scale, place, attrs))
            if integer_bits(out.dtype) is None:
                return encoded(cast(FLOAT32, quotient), out.dtype, attrs.saturate)
            value: Expr = call("round", quotient)
            if len(args) > 2:
                value = value + cast(wide, self.at(args[2], place, attrs))
            low, high = integer_limits(out.dtype)
            least, greatest = const(low, wide), const(high, wide)
            value = select(value > least, value, least)  # a maximum would keep NaN
            value = select(value < greatest, value, greatest)
            if out.dtype.kind == "storage":
                return encoded(cast(INT32, value), out.dtype)
            return cast(out.dtype, value)

        return te.compute(out.shape, element, name="quantize")


@register_operator
class dequantize(_Scaled):
    """Dequantize: compute ``(x - zero_point) * scale`` in the type of ``scale`` (float32 for one that is a power of
    two, ``float8_e8m0fnu``); half types are multiplied in float32. Floats have no zero point."""

    name = "dequantize"
    Attrs = DequantizeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: DequantizeAttrs) -> TensorType:
        x, scale = args[:2]
        check_dtype(self, 0, x, DEQUANTIZED)
        self.check_scales(args, attrs, x.dtype, "x")
        return TensorType(x.shape, FLOAT32 if scale.dtype.kind == "storage" else scale.dtype)

    def reference(self, args: Sequence[Any], attrs: DequantizeAttrs) -> Any:
        scale = args[1].astype(np.float32) if args[1].dtype.name == _SCALE else args[1]
        factors = self.spread(widened(scale), args[0], attrs)
        x = args[0].astype(np.float32 if integer_bits(DataType(args[0].dtype.name)) is None else np.int32)
        if len(args) > 2:
            x = x - self.spread(args[2], x, attrs).astype(np.int32)
        with np.errstate(all="ignore"):
            return np.asarray(x.astype(factors.dtype) * factors).astype(scale.dtype)

    def compute(self, args: Sequence[Tensor], attrs: DequantizeAttrs, out: TensorType) -> Tensor:
        x, scale = args[:2]
        wide = compute_type(out.dtype)

        def element(*place: Var) -> Expr:
            value = decoded(x[place])
            if len(args) > 2:
                value = cast(INT32, value) - cast(INT32, self.at(args[2], place, attrs))
            return cast(out.dtype, cast(wide, value) * cast(wide, self.at(scale, place, attrs)))

        return te.compute(out.shape, element, name="dequantize")
