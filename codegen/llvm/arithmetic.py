"""Emit the arithmetic of the loop IR as LLVM instructions: exact for every type and every value.

Nothing traps and nothing is undefined: a division by zero gives zero, as in NumPy, the quotient of the least integer
and -1 wraps, shifts by the width or more give zero (or the sign), and a float that does not fit an integer saturates
(NaN gives zero). Operations on float16 and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from tilewright.codegen.llvm.text import Builder, constant, integer_type, suffix, value_type
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, DataType
from tilewright.tensorir.folding import INTEGER_DIVISIONS

HALF_TYPES = ("float16", "bfloat16")


class Operand(NamedTuple):
    """An operand and the known facts about it.

    Attributes:
        text: the LLVM operand.
        value: its value if it is a constant (the same in all lanes).
        lower, upper: bounds of an integer; infinite where unknown.
    """

    text: str
    value: float | int | None = None
    lower: float = float("-inf")
    upper: float = float("inf")


def is_half(dtype: DataType) -> bool:
    """Return whether values of ``dtype`` are stored in 16 bits and computed in float32."""
    return dtype.element in HALF_TYPES


def like(dtype: DataType, element: DataType) -> DataType:
    """Return ``element`` with the lanes of ``dtype``."""
    return element.with_lanes(dtype.lanes)


# Conversions between floating-point types.


def widen(b: Builder, dtype: DataType, x: str) -> str:
    """Convert a float16 or bfloat16 value to float32 (exact); leave other types as they are."""
    if dtype.element == "float16":
        if not b.module.converts_halves:
            return _widen_by_integers(b, dtype, x)
        return b.pure(f"fpext {value_type(dtype)} {x} to {value_type(like(dtype, FLOAT32))}")
    if dtype.element == "bfloat16":
        wide = integer_type(32, dtype.lanes)
        bits = b.pure(f"zext {value_type(dtype)} {x} to {wide}")
        bits = b.pure(f"shl {wide} {bits}, {_integers(16, 32, dtype.lanes)}")
        return b.pure(f"bitcast {wide} {bits} to {value_type(like(dtype, FLOAT32))}")
    return x


def narrow(b: Builder, dtype: DataType, x: str) -> str:
    """Round a float32 value to ``dtype``, to nearest, ties to even; NaN stays NaN and denormals stay."""
    single = value_type(like(dtype, FLOAT32))
    if dtype.element == "float16":
        if not b.module.converts_halves:
            return _narrow_by_integers(b, dtype, x)
        return b.pure(f"fptrunc {single} {x} to {value_type(dtype)}")
    if dtype.element != "bfloat16":
        return x
    lanes = dtype.lanes
    wide = integer_type(32, lanes)

    def number(value: int) -> str:
        return _integers(value, 32, lanes)

    bits = b.pure(f"bitcast {single} {x} to {wide}")
    high = b.pure(f"lshr {wide} {bits}, {number(16)}")
    odd = b.pure(f"and {wide} {high}, {number(1)}")
    bias = b.pure(f"add {wide} {odd}, {number(0x7FFF)}")
    rounded = b.pure(f"add {wide} {bits}, {bias}")
    rounded = b.pure(f"lshr {wide} {rounded}, {number(16)}")
    quiet = b.pure(f"or {wide} {high}, {number(0x40)}")
    is_nan = b.pure(f"fcmp uno {single} {x}, {x}")
    chosen = b.pure(f"select {integer_type(1, lanes)} {is_nan}, {wide} {quiet}, {wide} {rounded}")
    return b.pure(f"trunc {wide} {chosen} to {value_type(dtype)}")


def _widen_by_integers(b: Builder, dtype: DataType, x: str) -> str:
    """Convert float16 to float32 without a conversion instruction: a multiplication rebases the exponent, which also
    normalizes denormals; infinity and NaN get the greatest exponent (F. Giesen, "half_to_float_fast")."""
    lanes, single_type = dtype.lanes, like(dtype, FLOAT32)
    wide, single = integer_type(32, lanes), value_type(single_type)

    def number(value: int) -> str:
        return _integers(value, 32, lanes)

    bits = b.pure(f"bitcast {value_type(dtype)} {x} to {integer_type(16, lanes)}")
    bits = b.pure(f"zext {integer_type(16, lanes)} {bits} to {wide}")
    magnitude = b.pure(f"and {wide} {bits}, {number(0x7FFF)}")
    shifted = b.pure(f"shl {wide} {magnitude}, {number(13)}")
    small = b.pure(f"bitcast {wide} {shifted} to {single}")
    scaled = b.pure(f"fmul {single} {small}, {constant(2.0**112, single_type)}")
    scaled = b.pure(f"bitcast {single} {scaled} to {wide}")
    special = b.pure(f"or {wide} {scaled}, {number(0x7F800000)}")
    is_special = b.pure(f"icmp ugt {wide} {magnitude}, {number(0x7BFF)}")
    result = b.pure(f"select {integer_type(1, lanes)} {is_special}, {wide} {special}, {wide} {scaled}")
    sign = b.pure(f"shl {wide} {b.pure(f'xor {wide} {bits}, {magnitude}')}, {number(16)}")
    return b.pure(f"bitcast {wide} {b.pure(f'or {wide} {result}, {sign}')} to {single}")


def _narrow_by_integers(b: Builder, dtype: DataType, x: str) -> str:
    """Round float32 to float16 without a conversion instruction: an addition that shifts the digits out rounds results
    that become denormal, integer arithmetic rounds the others (F. Giesen, "float_to_half_fast3_rtne")."""
    lanes, single_type = dtype.lanes, like(dtype, FLOAT32)
    wide, single, condition = integer_type(32, lanes), value_type(single_type), integer_type(1, lanes)

    def number(value: int) -> str:
        return _integers(value, 32, lanes)

    bits = b.pure(f"bitcast {single} {x} to {wide}")
    magnitude = b.pure(f"and {wide} {bits}, {number(0x7FFFFFFF)}")
    sign = b.pure(f"lshr {wide} {b.pure(f'xor {wide} {bits}, {magnitude}')}, {number(16)}")
    small = b.pure(f"fadd {single} {b.pure(f'bitcast {wide} {magnitude} to {single}')}, {constant(0.5, single_type)}")
    small = b.pure(f"sub {wide} {b.pure(f'bitcast {single} {small} to {wide}')}, {number(126 << 23)}")
    odd = b.pure(f"and {wide} {b.pure(f'lshr {wide} {magnitude}, {number(13)}')}, {number(1)}")
    rounded = b.pure(f"add {wide} {magnitude}, {number(((15 - 127) << 23) + 0xFFF)}")
    rounded = b.pure(f"lshr {wide} {b.pure(f'add {wide} {rounded}, {odd}')}, {number(13)}")
    is_small = b.pure(f"icmp ult {wide} {magnitude}, {number(113 << 23)}")
    result = b.pure(f"select {condition} {is_small}, {wide} {small}, {wide} {rounded}")
    is_nan = b.pure(f"icmp ugt {wide} {magnitude}, {number(0x7F800000)}")
    special = b.pure(f"select {condition} {is_nan}, {wide} {number(0x7E00)}, {wide} {number(0x7C00)}")
    is_large = b.pure(f"icmp ugt {wide} {magnitude}, {number((143 << 23) - 1)}")
    result = b.pure(f"select {condition} {is_large}, {wide} {special}, {wide} {result}")
    result = b.pure(f"trunc {wide} {b.pure(f'or {wide} {result}, {sign}')} to {integer_type(16, lanes)}")
    return b.pure(f"bitcast {integer_type(16, lanes)} {result} to {value_type(dtype)}")


def _round_to_odd(b: Builder, lanes: int, x: str) -> str:
    """Round float64 to float32 to odd: the last bit is set if the result is inexact, so that rounding again, to a type
    with two bits less, equals rounding once (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums")."""
    single_type, double_type = FLOAT32.with_lanes(lanes), FLOAT64.with_lanes(lanes)
    single, double, wide = value_type(single_type), value_type(double_type), integer_type(32, lanes)
    condition = integer_type(1, lanes)
    nearest = b.pure(f"fptrunc {double} {x} to {single}")
    back = b.pure(f"fpext {single} {nearest} to {double}")
    bits = b.pure(f"bitcast {single} {nearest} to {wide}")
    magnitude = b.call(f"llvm.fabs.{suffix(double_type)}", double_type, [(double, x)])
    back_magnitude = b.call(f"llvm.fabs.{suffix(double_type)}", double_type, [(double, back)])
    beyond = b.pure(f"fcmp ogt {double} {back_magnitude}, {magnitude}")
    less = b.pure(f"sub {wide} {bits}, {_integers(1, 32, lanes)}")
    truncated = b.pure(f"select {condition} {beyond}, {wide} {less}, {wide} {bits}")
    odd = b.pure(f"or {wide} {truncated}, {_integers(1, 32, lanes)}")
    inexact = b.pure(f"fcmp one {double} {back}, {x}")
    chosen = b.pure(f"select {condition} {inexact}, {wide} {odd}, {wide} {bits}")
    return b.pure(f"bitcast {wide} {chosen} to {single}")


def from_double(b: Builder, dtype: DataType, x: str) -> str:
    """Round a float64 value to ``dtype``; to bfloat16 through float32, as ml_dtypes does."""
    if dtype.element == "float64":
        return x
    if dtype.element == "float16":
        return narrow(b, dtype, _round_to_odd(b, dtype.lanes, x))
    double, single = like(dtype, FLOAT64), like(dtype, FLOAT32)
    return narrow(b, dtype, b.pure(f"fptrunc {value_type(double)} {x} to {value_type(single)}"))


def to_double(b: Builder, dtype: DataType, x: str) -> str:
    """Convert a value of any floating-point type to float64 (exact)."""
    if dtype.element == "float64":
        return x
    x = widen(b, dtype, x)
    return b.pure(f"fpext {value_type(like(dtype, FLOAT32))} {x} to {value_type(like(dtype, FLOAT64))}")


def _integers(value: int, bits: int, lanes: int) -> str:
    return constant(value, DataType(f"int{bits}").with_lanes(lanes))


# Casts.


def cast(b: Builder, source: DataType, target: DataType, x: str) -> str:
    """Convert ``x`` from ``source`` to ``target``, which has as many lanes."""
    if source is target:
        return x
    if target.is_bool:
        return _to_bool(b, source, x)
    if source.is_float and target.is_float:
        return _float_to_float(b, source, target, x)
    if source.is_float:
        wide = widen(b, source, x)
        source = like(source, FLOAT32) if is_half(source) else source
        return _saturate(b, source, target, wide)
    if target.is_float:
        return _integer_to_float(b, source, target, x)
    return _resize_integer(b, source, target, x)


def _saturate(b: Builder, source: DataType, target: DataType, x: str) -> str:
    """Convert float32 or float64 to an integer, saturating. LLVM's own ``fptosi.sat`` scalarizes vectors (9 times
    slower on AVX-512); ``freeze`` gives lanes out of range some value, which the selects replace."""
    kind, result, condition = value_type(source), value_type(target), integer_type(1, source.lanes)
    low, high = (-(1 << (target.bits - 1)), 1 << (target.bits - 1)) if target.is_int else (0, 1 << target.bits)
    converted = b.pure(f"fpto{'s' if target.is_int else 'u'}i {kind} {x} to {result}")
    converted = b.pure(f"freeze {result} {converted}")
    below = b.pure(f"fcmp ule {kind} {x}, {constant(low, source)}")  # and NaN
    above = b.pure(f"fcmp oge {kind} {x}, {constant(high, source)}")
    converted = b.pure(f"select {condition} {below}, {result} {constant(low, target)}, {result} {converted}")
    converted = b.pure(f"select {condition} {above}, {result} {constant(high - 1, target)}, {result} {converted}")
    if target.is_uint:
        return converted
    is_nan = b.pure(f"fcmp uno {kind} {x}, {x}")
    return b.pure(f"select {condition} {is_nan}, {result} {constant(0, target)}, {result} {converted}")


def _to_bool(b: Builder, source: DataType, x: str) -> str:
    if source.is_float:
        wide_type = like(source, FLOAT32) if is_half(source) else source
        return b.pure(f"fcmp une {value_type(wide_type)} {widen(b, source, x)}, {constant(0.0, wide_type)}")
    return b.pure(f"icmp ne {value_type(source)} {x}, {constant(0, source)}")


def _float_to_float(b: Builder, source: DataType, target: DataType, x: str) -> str:
    if source.element == "float64":
        return from_double(b, target, x)
    wide = widen(b, source, x)
    return to_double(b, like(source, FLOAT32), wide) if target.element == "float64" else narrow(b, target, wide)


def _integer_to_float(b: Builder, source: DataType, target: DataType, x: str) -> str:
    convert = "sitofp" if source.is_int else "uitofp"
    if not is_half(target):
        return b.pure(f"{convert} {value_type(source)} {x} to {value_type(target)}")
    if source.bits <= 16 or target.element == "bfloat16":
        single = like(target, FLOAT32)
        return narrow(b, target, b.pure(f"{convert} {value_type(source)} {x} to {value_type(single)}"))
    double = like(target, FLOAT64)
    return from_double(b, target, b.pure(f"{convert} {value_type(source)} {x} to {value_type(double)}"))


def _resize_integer(b: Builder, source: DataType, target: DataType, x: str) -> str:
    source_bits = 1 if source.is_bool else source.bits
    if source_bits == target.bits:
        return x
    convert = "trunc" if source_bits > target.bits else "sext" if source.is_int else "zext"
    return b.pure(f"{convert} {value_type(source)} {x} to {value_type(target)}")


# Comparisons, minima and maxima.

_FLOAT_CONDITIONS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def compare(b: Builder, op: str, dtype: DataType, x: str, y: str) -> str:
    """Compare two values of ``dtype``; ordered comparisons with NaN are false."""
    if dtype.is_float:
        x, y = widen(b, dtype, x), widen(b, dtype, y)
        kind = value_type(like(dtype, FLOAT32) if is_half(dtype) else dtype)
        return b.pure(f"fcmp {_FLOAT_CONDITIONS[op]} {kind} {x}, {y}")
    sign = "" if op in ("eq", "ne") else "s" if dtype.is_int else "u"
    return b.pure(f"icmp {sign}{op} {value_type(dtype)} {x}, {y}")


def extremum(b: Builder, op: str, dtype: DataType, x: Operand, y: Operand) -> str:
    """Return ``min`` or ``max`` of two values; NaN if either is NaN.

    One comparison and one select become a single ``maxps`` on x86, which returns its second operand if the comparison
    fails: so constants go first, operands that may be NaN second. Two unknown operands need one more select.
    """
    if dtype.is_bool:
        return b.pure(f"{'and' if op == 'min' else 'or'} {value_type(dtype)} {x.text}, {y.text}")
    if not dtype.is_float:
        name = f"llvm.{'s' if dtype.is_int else 'u'}{op}.{suffix(dtype)}"
        return b.call(name, dtype, [(value_type(dtype), x.text), (value_type(dtype), y.text)])
    if is_half(dtype):
        wide = like(dtype, FLOAT32)
        a, c = (Operand(widen(b, dtype, operand.text), operand.value) for operand in (x, y))
        return narrow(b, dtype, extremum(b, op, wide, a, c))
    if _known_number(y):
        x, y = y, x
    kind = value_type(dtype)
    condition = b.pure(f"fcmp {'olt' if op == 'min' else 'ogt'} {kind} {x.text}, {y.text}")
    chosen = b.select(condition, dtype, x.text, y.text)
    if _known_number(x):
        return chosen
    is_nan = b.pure(f"fcmp uno {kind} {x.text}, {x.text}")
    return b.select(is_nan, dtype, x.text, chosen)


def _known_number(operand: Operand) -> bool:
    return operand.value is not None and operand.value == operand.value


# Binary operations.

_FLOAT_OPS = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv"}
_BIT_OPS = {"bitand": "and", "bitor": "or", "bitxor": "xor", "and": "and", "or": "or"}


def binary(b: Builder, op: str, dtype: DataType, x: Operand, y: Operand, no_wrap: bool = False) -> str:
    """Emit ``x op y`` on values of ``dtype``.

    Args:
        no_wrap: the integer operation is known not to overflow (index arithmetic).
    """
    if op in ("min", "max"):
        return extremum(b, op, dtype, x, y)
    if op in ("shl", "shr"):
        return _shift(b, op, dtype, x, y)
    if op in INTEGER_DIVISIONS:
        return _divide(b, op, dtype, x, y)
    return plain_binary(b, op, dtype, x.text, y.text, no_wrap)


#: The operations of :func:`plain_binary`.
PLAIN_OPS = frozenset({*_FLOAT_OPS, *_BIT_OPS})


@functools.cache
def plain_instruction(op: str, dtype: DataType) -> str | None:
    """Return the opcode and type of the instruction of :func:`plain_binary`; None if it needs several instructions, or
    facts about the operands."""
    if op in _BIT_OPS:
        return f"{_BIT_OPS[op]} {value_type(dtype)}"
    return (
        f"{_FLOAT_OPS[op]} {value_type(dtype)}" if op in _FLOAT_OPS and dtype.is_float and not is_half(dtype) else None
    )


def plain_binary(b: Builder, op: str, dtype: DataType, x: str, y: str, no_wrap: bool = False) -> str:
    """Emit :func:`binary` for operations whose code depends on no facts about the operands."""
    start = plain_instruction(op, dtype)
    if start is not None:
        return b.pure(f"{start} {x}, {y}")
    if dtype.is_float:
        wide = value_type(like(dtype, FLOAT32))
        # Without "contract": the product must be rounded to the half type before it is added to something.
        name = _FLOAT_OPS[op].split()[0]
        result = b.pure(f"{name} {wide} {widen(b, dtype, x)}, {widen(b, dtype, y)}")
        return narrow(b, dtype, result)
    wrap = " nsw" if no_wrap and dtype.is_int else ""
    return b.pure(f"{op}{wrap} {value_type(dtype)} {x}, {y}")


def negate(b: Builder, dtype: DataType, x: str) -> str:
    """Emit ``-x``; the sign of a zero and of NaN changes too."""
    kind = value_type(dtype)
    if dtype.element == "bfloat16":
        return b.pure(f"xor {kind} {x}, {_integers(-0x8000, 16, dtype.lanes)}")
    if dtype.is_float:
        return b.pure(f"fneg {kind} {x}")
    return b.pure(f"sub {kind} {constant(0, dtype)}, {x}")


def _shift(b: Builder, op: str, dtype: DataType, x: Operand, y: Operand) -> str:
    kind, bits = value_type(dtype), dtype.bits
    name = "shl" if op == "shl" else "ashr" if dtype.is_int else "lshr"
    if y.lower >= 0 and y.upper < bits:
        return b.pure(f"{name} {kind} {x.text}, {y.text}")
    last = constant(bits - 1, dtype)
    clamped = b.call(f"llvm.umin.{suffix(dtype)}", dtype, [(kind, y.text), (kind, last)])
    shifted = b.pure(f"{name} {kind} {x.text}, {clamped}")
    if name == "ashr":
        return shifted
    inside = b.pure(f"icmp ule {kind} {y.text}, {last}")
    return b.select(inside, dtype, shifted, constant(0, dtype))


# Integer division.


def _divide(b: Builder, op: str, dtype: DataType, x: Operand, y: Operand) -> str:
    kind, zero = value_type(dtype), constant(0, dtype)
    quotient = op.endswith("div")
    unsigned = dtype.is_uint or (x.lower >= 0 and y.lower >= 0)
    if y.value is not None and y.value != 0:
        if y.value == -1 and dtype.is_int:
            return negate(b, dtype, x.text) if quotient else zero
        return _divide_safely(b, op, dtype, x, y, unsigned)
    if y.lower >= 1:
        return _divide_safely(b, op, dtype, x, y, unsigned)
    one = constant(1, dtype)
    by_zero = b.pure(f"icmp eq {kind} {y.text}, {zero}")
    unsafe = by_zero
    if not unsigned:  # the least integer divided by -1 traps on x86 too
        shifted = b.pure(f"add {kind} {y.text}, {one}")
        unsafe = b.pure(f"icmp ult {kind} {shifted}, {constant(2, dtype)}")
    safe = y._replace(text=b.select(unsafe, dtype, one, y.text))
    result = _divide_safely(b, op, dtype, x, safe, unsigned)
    if unsigned:
        return b.select(by_zero, dtype, zero, result)
    special = zero
    if quotient:
        special = b.select(by_zero, dtype, zero, negate(b, dtype, x.text))
    return b.select(unsafe, dtype, special, result)


def _divide_safely(b: Builder, op: str, dtype: DataType, x: Operand, y: Operand, unsigned: bool) -> str:
    """Emit a division whose divisor is neither zero nor -1."""
    kind = value_type(dtype)
    sign = "u" if unsigned else "s"
    power = isinstance(y.value, int) and y.value > 0 and y.value & (y.value - 1) == 0
    if op == "truncdiv" or (op == "floordiv" and unsigned):
        return b.pure(f"{sign}div {kind} {x.text}, {y.text}")
    if op == "truncmod" or (op == "floormod" and unsigned):
        return b.pure(f"{sign}rem {kind} {x.text}, {y.text}")
    if power and op == "floordiv":
        return b.pure(f"ashr {kind} {x.text}, {constant(int(y.value or 1).bit_length() - 1, dtype)}")
    if power:
        return b.pure(f"and {kind} {x.text}, {constant(int(y.value or 1) - 1, dtype)}")
    zero = constant(0, dtype)
    remainder = b.pure(f"srem {kind} {x.text}, {y.text}")
    signs = b.pure(f"xor {kind} {remainder}, {y.text}")
    differ = b.pure(f"icmp slt {kind} {signs}, {zero}")
    inexact = b.pure(f"icmp ne {kind} {remainder}, {zero}")
    wrong = b.pure(f"and {integer_type(1, dtype.lanes)} {differ}, {inexact}")
    if op == "floormod":
        correction = b.select(wrong, dtype, y.text, zero)
        return b.pure(f"add {kind} {remainder}, {correction}")
    truncated = b.pure(f"sdiv {kind} {x.text}, {y.text}")
    correction = b.pure(f"sext {integer_type(1, dtype.lanes)} {wrong} to {kind}")
    return b.pure(f"add {kind} {truncated}, {correction}")


# Across lanes.


def reduce_lanes(b: Builder, dtype: DataType, x: str, combine: Callable[[DataType, str, str], str]) -> str:
    """Combine all lanes of ``x`` in pairs, halves first: a tree whose depth is the logarithm of the lanes."""
    lanes, left_over = dtype.lanes, []
    while lanes > 1:
        half = lanes // 2
        if lanes % 2:
            left_over.append(b.element(x, dtype.with_lanes(lanes), lanes - 1))
        current, part = dtype.with_lanes(lanes), dtype.with_lanes(half)
        if half == 1:
            x = combine(part, b.element(x, current, 0), b.element(x, current, 1))
        else:
            low = b.shuffle(x, current, range(half))
            high = b.shuffle(x, current, range(half, 2 * half))
            x = combine(part, low, high)
        lanes = half
    for element in left_over:
        x = combine(dtype.element, x, element)
    return x
