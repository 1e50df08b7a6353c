"""Encode and decode element types for storage without arithmetic: floats of 8 and 4 bits, integers of 4 and 2.

Values are encoded from float32 or int32 and decoded to float32, int8 or uint8. Quantization encodes and decodes as
well; every other operator that takes such tensors only moves their elements. The formats are those of P. Micikevicius
et al., "FP8 Formats for Deep Learning" (2022), and of the Open Compute Project's "Microscaling Formats (MX)
Specification" (2023), as ml_dtypes has them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import check_dtype, normalize
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import FLOAT32, INT32, STORAGE_DTYPES, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, call, cast, const, select
from tilewright.tensorir.tensor import Tensor

_UINT8 = DataType("uint8")
#: The bits of a float32: where its exponent starts, and those of infinity.
_MANTISSA, _INFINITY = 23, 0x7F800000
_ROUNDINGS = ("up", "down", "nearest")

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class FloatFormat:
    """A float format of a sign, an exponent and a mantissa in at most 8 bits.

    Attributes:
        mantissa: the number of bits of the mantissa.
        bias: the bias of the exponent.
        sign: the bit of the sign.
        greatest: the bits of the greatest finite value; greater ones have no value, or an infinite one.
        infinite: the bits of infinity, None if there is none.
        nan, overflow: the bits that NaN, and values that are too large, become: with positive and with negative sign.
        signed_zero: whether zero has a sign.
    """

    mantissa: int
    bias: int
    sign: int
    greatest: int
    infinite: int | None
    nan: tuple[int, int]
    overflow: tuple[int, int]
    signed_zero: bool


def _limits(dtype: DataType) -> Any:
    # Any: ml_dtypes states no types of its functions.
    return ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]


def _bits(value: float, dtype: DataType) -> int:
    with np.errstate(all="ignore"):
        return int(np.array(value, np.float32).astype(dtype.numpy).view(np.uint8))


@functools.cache
def float_format(dtype: DataType) -> FloatFormat:
    """Return the format of a float type, from the facts in ml_dtypes."""
    info = _limits(dtype)
    width, mantissa = int(info.bits), int(info.nmant)
    sign, greatest = 1 << (width - 1), _bits(float(info.max), dtype)
    above = np.array((greatest + 1) % (1 << width), np.uint8).view(dtype.numpy)
    return FloatFormat(
        mantissa,
        1 - int(np.log2(float(info.smallest_normal))),
        sign,
        greatest,
        greatest + 1 if np.isinf(float(above)) else None,
        (_bits(np.nan, dtype), _bits(-np.nan, dtype)),
        (_bits(np.inf, dtype), _bits(-np.inf, dtype)),
        _bits(-0.0, dtype) != 0,
    )


def _is_scale(dtype: DataType) -> bool:
    """Return whether the type is an unsigned power of two (the scale of a block of numbers)."""
    return str(dtype) == "float8_e8m0fnu"


def integer_bits(dtype: DataType) -> int | None:
    """Return the number of bits of an integer type, None for a float."""
    return int(str(dtype).lstrip("uint")) if "int" in str(dtype) else None


def _bits_of(x: Expr, dtype: str = "int32") -> Expr:
    return call("reinterpret", x, dtype=DataType(dtype))


def _float_of(bits: Expr) -> Expr:
    return call("reinterpret", bits, dtype=FLOAT32)


def encode_float(x: Expr, kind: FloatFormat, saturate: bool) -> Expr:
    """Return the bits (int32) of a float32 in a format: of the nearest value, of two equally near ones that with an
    even mantissa.

    Values that are too large become the greatest value (``saturate``), or infinity or NaN.
    """
    bits = _bits_of(x)
    negative, magnitude = bits < 0, bits & 0x7FFFFFFF
    shift = _MANTISSA - kind.mantissa
    even = (magnitude >> shift) & 1
    normal = ((magnitude + ((1 << (shift - 1)) - 1) + even) >> shift) - ((127 - kind.bias) << kind.mantissa)
    least_normal = const(2.0 ** (1 - kind.bias), FLOAT32)
    absolute = _float_of(magnitude)
    is_small = absolute < least_normal
    units = select(is_small, absolute, const(0.0, FLOAT32)) * const(2.0 ** (kind.bias - 1 + kind.mantissa), FLOAT32)
    code = select(is_small, cast(INT32, call("round", units)), normal)

    def of_sign(pair: tuple[int, int]) -> Expr:
        return select(negative, const(pair[1], INT32), const(pair[0], INT32))

    signed = negative if kind.signed_zero else negative & (code > 0)
    greatest = (kind.greatest, kind.greatest | kind.sign)
    result = select(signed, code | kind.sign, code)
    result = select(code > kind.greatest, of_sign(greatest if saturate else kind.overflow), result)
    return select(magnitude > _INFINITY, of_sign(kind.nan), result)


def decode_float(bits: Expr, kind: FloatFormat) -> Expr:
    """Return the float32 that the bits (int32) of a format represent."""
    magnitude = bits & (kind.sign - 1)
    value = _float_of(magnitude << (_MANTISSA - kind.mantissa)) * const(2.0 ** (127 - kind.bias), FLOAT32)
    nan = const(float("nan"), FLOAT32)
    if kind.infinite is not None:
        value = select(magnitude.equal(kind.infinite), const(float("inf"), FLOAT32), value)
    if kind.greatest + (kind.infinite is not None) < kind.sign - 1:
        value = select(magnitude > (kind.infinite or kind.greatest), nan, value)
    value = select((bits & kind.sign) > 0, -value, value)
    return value if kind.signed_zero else select(bits.equal(kind.sign), nan, value)


def encode_scale(x: Expr, saturate: bool, rounding: str) -> Expr:
    """Return the exponent of a float32, whose sign is dropped, in a format without mantissa."""
    bits = _bits_of(x)
    exponent, rest = (bits >> _MANTISSA) & 0xFF, bits & 0x7FFFFF
    if rounding == "down":
        return exponent
    above = rest > 0
    if rounding == "nearest":
        half = 1 << (_MANTISSA - 1)
        above = (rest > half) | (rest.equal(half) & (exponent > 0))
    return select(above & (exponent < (0xFE if saturate else 0xFF)), exponent + 1, exponent)


def decode_scale(bits: Expr) -> Expr:
    """Return two to the power of an exponent; 2**-127 is below the normal numbers of float32."""
    value = _float_of(select(bits.equal(0), const(1 << (_MANTISSA - 1), INT32), bits << _MANTISSA))
    return select(bits.equal(0xFF), const(float("nan"), FLOAT32), value)


def encoded(value: Expr, dtype: DataType, saturate: bool = True, rounding: str = "up") -> Expr:
    """Encode ``value``, a float32 or an int32, as an element of a type that is only stored; see :class:`encode`."""
    bits = integer_bits(dtype)
    if bits is not None:
        code = value & ((1 << bits) - 1)
    elif _is_scale(dtype):
        code = encode_scale(value, saturate, rounding)
    else:
        code = encode_float(value, float_format(dtype), saturate)
    return call("reinterpret", cast(_UINT8, code), dtype=dtype)


def decoded(x: Expr) -> Expr:
    """Decode an element of a type that is only stored to float32 or int32; return any other unchanged."""
    if x.dtype.kind != "storage":
        return x
    bits, width = cast(INT32, _bits_of(x, "uint8")), integer_bits(x.dtype)
    if width is None:
        return decode_scale(bits) if _is_scale(x.dtype) else decode_float(bits, float_format(x.dtype))
    value = bits & ((1 << width) - 1)
    if str(x.dtype).startswith("u"):
        return value
    top = 1 << (width - 1)
    return (value ^ top) - top


def encoded_array(x: Array, dtype: DataType, saturate: bool = True, rounding: str = "up") -> Array:
    """Encode an array as :func:`encoded` does an expression."""
    kind, bits = dtype.numpy, integer_bits(dtype)
    if bits is not None:
        return (x & ((1 << bits) - 1)).astype(np.uint8).view(kind)
    if _is_scale(dtype):
        exponent, rest = np.divmod(np.abs(x).view(np.int32), 1 << _MANTISSA)
        half = 1 << (_MANTISSA - 1)
        above = {"down": rest < 0, "up": rest > 0}.get(rounding, (rest > half) | ((rest == half) & (exponent > 0)))
        code: Array = exponent + (above & (exponent < 0xFF - saturate))
        return code.astype(np.uint8).view(kind)
    greatest = np.float32(_limits(dtype).max)
    with np.errstate(all="ignore"):
        return (np.clip(x, -greatest, greatest) if saturate else x).astype(kind)


@dataclasses.dataclass(frozen=True)
class EncodeAttrs:
    """The target of an encoding.

    Attributes:
        dtype: the element type of the result.
        saturate: whether floats that are too large become the greatest value; if not, infinity or NaN.
        rounding: for types without a mantissa: ``up``, ``down`` or ``nearest``.
    """

    dtype: DataType
    saturate: bool = True
    rounding: str = "up"

    def __post_init__(self) -> None:
        normalize(self, dtype=as_dtype(self.dtype), saturate=bool(self.saturate))
        if str(self.dtype) not in STORAGE_DTYPES:
            raise ArgumentValueError(f"dtype: expected one of {', '.join(STORAGE_DTYPES)}, found {self.dtype!s}")
        if self.rounding not in _ROUNDINGS:
            raise ArgumentValueError(f"rounding: expected one of {', '.join(_ROUNDINGS)}, found {self.rounding!r}")


@register_operator
class encode(Operator):
    """Encode ``x`` in a type that tensors are only stored in: float32 as the nearest float, int32 as its lowest
    bits."""

    name = "encode"
    arguments = ("x",)
    kind = "elementwise"
    reads_bits = True
    Attrs = EncodeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: EncodeAttrs) -> TensorType:
        check_dtype(self, 0, args[0], ("float32" if integer_bits(attrs.dtype) is None else "int32",))
        return TensorType(args[0].shape, attrs.dtype)

    def reference(self, args: Sequence[Any], attrs: EncodeAttrs) -> Any:
        return encoded_array(args[0], attrs.dtype, attrs.saturate, attrs.rounding)

    def compute(self, args: Sequence[Tensor], attrs: EncodeAttrs, out: TensorType) -> Tensor:
        (x,) = args

        def element(*place: Var) -> Expr:
            return encoded(x[place], out.dtype, attrs.saturate, attrs.rounding)

        return te.compute(out.shape, element, name="encode")


@register_operator
class decode(Operator):
    """Decode a tensor of a type that is only stored: to float32, int8 or uint8, exactly."""

    name = "decode"
    arguments = ("x",)
    kind = "elementwise"

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        (x,) = args
        check_dtype(self, 0, x, STORAGE_DTYPES)
        if integer_bits(x.dtype) is None:
            return TensorType(x.shape, "float32")
        return TensorType(x.shape, "uint8" if str(x.dtype).startswith("u") else "int8")

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        (x,) = args
        return x.astype(self.infer_type([TensorType(x.shape, x.dtype)], attrs).dtype.numpy)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        (x,) = args
        return te.compute(out.shape, lambda *place: cast(out.dtype, decoded(x[place])), name="decode")
