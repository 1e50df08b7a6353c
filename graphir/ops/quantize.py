"""Integers that stand for floats: ``float = (integer - zero point) * scale``.

The scheme is that of Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference", CVPR 2018. Scale and zero point hold for the whole tensor, for an index along one axis, or for a block of
indices along one axis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import dim_equal, format_shape, shape_equal, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, axis_index, check_dtype, compute_type, normalize, widened
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import FLOAT32, INT32, DataType, as_dtype
from tilewright.tensorir.expr import Expr, Var, call, cast, const, select
from tilewright.tensorir.tensor import Tensor, highest, lowest

#: What floats are quantized to, and what is made floats of.
QUANTIZED = ("int8", "uint8", "int16", "uint16")
DEQUANTIZED = (*QUANTIZED, "int32")


@dataclasses.dataclass(frozen=True)
class DequantizeAttrs:
    """Which elements a scale is for.

    Attributes:
        axis: the axis that a vector of scales goes along, or that has blocks.
        block_size: how many indices along the axis share a scale; 0 where there are no blocks.
    """

    axis: int = 1
    block_size: int = 0

    def __post_init__(self) -> None:
        if type(self.block_size) is not int or self.block_size < 0:
            raise ValueError(f"block_size: expected a positive integer or 0, found {self.block_size!r}")


@dataclasses.dataclass(frozen=True)
class QuantizeAttrs(DequantizeAttrs):
    """As ``DequantizeAttrs``; ``dtype``: element type of the result."""

    dtype: DataType = dataclasses.field(default=DataType("uint8"))

    def __post_init__(self) -> None:
        super().__post_init__()
        normalize(self, dtype=as_dtype(self.dtype))
        if str(self.dtype) not in QUANTIZED:
            raise ValueError(f"dtype: expected one of {', '.join(QUANTIZED)}, found {self.dtype!s}")


class _Scaled(Operator):
    """What both directions share: which scale an element has."""

    arguments = ("x", "scale", "zero_point?")
    kind = "broadcast"

    def in_layout(self, args: Sequence[Any], blocked: Sequence[Any], attrs: Any, plain: str, target: str) -> Any:
        """Scales go with an axis of the plain layout."""
        return None

    def check_scales(self, args: Sequence[TensorType], attrs: DequantizeAttrs) -> None:
        """Check the shapes of scale and zero point.

        Raises:
            TypeInferenceError: they do not fit x, or each other.
        """
        x, scale = args[:2]
        check_dtype(self, 1, scale, FLOATS)
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
        """A scale or zero point for each element of ``x`` (an array that broadcasts)."""
        if attrs.block_size:
            repeated = np.repeat(parameter, attrs.block_size, attrs.axis)
            return np.take(repeated, np.arange(x.shape[attrs.axis]), attrs.axis)
        if parameter.size == 1 and (parameter.ndim == 0 or x.ndim == 0 or x.shape[attrs.axis] != 0):
            return parameter.reshape(())
        shape = [1] * x.ndim
        shape[attrs.axis] = -1
        return parameter.reshape(shape)

    def at(self, parameter: Tensor, place: Sequence[Expr], attrs: DequantizeAttrs) -> Expr:
        """The scale or zero point of the element at ``place``."""
        if attrs.block_size:
            axis = attrs.axis % len(place)
            return parameter[tuple(i // attrs.block_size if n == axis else i for n, i in enumerate(place))]
        if parameter.ndim == 0:
            return parameter[()]
        return parameter[0] if getattr(parameter.shape[0], "value", None) == 1 else parameter[place[attrs.axis]]


def _is_single(shape: Sequence[Any]) -> bool:
    return len(shape) == 0 or (len(shape) == 1 and isinstance(shape[0], int) and shape[0] == 1)


@register_operator
class quantize(_Scaled):
    """``x / scale``, rounded (halves to the even integer), plus ``zero_point``, limited to what ``dtype`` holds; NaN
    gives its least integer. Half types and int32 are divided in float32."""

    name = "quantize"
    Attrs = QuantizeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: QuantizeAttrs) -> TensorType:
        check_dtype(self, 0, args[0], (*FLOATS, "int32"))
        if len(args) > 2 and args[2].dtype is not attrs.dtype:
            raise self.error(2, f"element type {attrs.dtype!s} as the result", args[2])
        self.check_scales(args, attrs)
        return TensorType(args[0].shape, attrs.dtype)

    def reference(self, args: Sequence[Any], attrs: QuantizeAttrs) -> Any:
        x = widened(args[0])
        x = x if x.dtype.kind == "f" else x.astype(np.float32)
        scale = self.spread(args[1], x, attrs).astype(x.dtype)
        zero = self.spread(args[2], x, attrs).astype(x.dtype) if len(args) > 2 else np.zeros((), x.dtype)
        with np.errstate(all="ignore"):
            rounded = np.rint(x / scale) + zero
        least, greatest = lowest(attrs.dtype), highest(attrs.dtype)
        return np.clip(np.where(np.isnan(rounded), least, rounded), least, greatest).astype(attrs.dtype.numpy)

    def compute(self, args: Sequence[Tensor], attrs: QuantizeAttrs, out: TensorType) -> Tensor:
        x, scale = args[:2]
        wide = compute_type(x.dtype) if x.dtype.is_float else FLOAT32
        least, greatest = const(lowest(out.dtype), wide), const(highest(out.dtype), wide)

        def element(*place: Var) -> Expr:
            value: Expr = call("round", cast(wide, x[place]) / cast(wide, self.at(scale, place, attrs)))
            if len(args) > 2:
                value = value + cast(wide, self.at(args[2], place, attrs))
            value = select(value > least, value, least)  # not a maximum, which would keep NaN
            return cast(out.dtype, select(value < greatest, value, greatest))

        return te.compute(out.shape, element, name="quantize")


@register_operator
class dequantize(_Scaled):
    """``(x - zero_point) * scale`` in the type of ``scale``; half types are multiplied in float32."""

    name = "dequantize"
    Attrs = DequantizeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: DequantizeAttrs) -> TensorType:
        check_dtype(self, 0, args[0], DEQUANTIZED)
        if len(args) > 2 and args[2].dtype is not args[0].dtype:
            raise self.error(2, f"element type {args[0].dtype!s} as x", args[2])
        self.check_scales(args, attrs)
        return TensorType(args[0].shape, args[1].dtype)

    def reference(self, args: Sequence[Any], attrs: DequantizeAttrs) -> Any:
        x, scale = args[0].astype(np.int32), self.spread(widened(args[1]), args[0], attrs)
        if len(args) > 2:
            x = x - self.spread(args[2], x, attrs).astype(np.int32)
        return np.asarray(x.astype(scale.dtype) * scale).astype(args[1].dtype)

    def compute(self, args: Sequence[Tensor], attrs: DequantizeAttrs, out: TensorType) -> Tensor:
        x, scale = args[:2]
        wide = compute_type(out.dtype)

        def element(*place: Var) -> Expr:
            value = cast(INT32, x[place])
            if len(args) > 2:
                value = value - cast(INT32, self.at(args[2], place, attrs))
            return cast(out.dtype, cast(wide, value) * cast(wide, self.at(scale, place, attrs)))

        return te.compute(out.shape, element, name="dequantize")
