"""Define the helper functions of generated Python source; only those in use stand at its top."""

from __future__ import annotations

import re

_SATURATE = '''\
@numba.njit
def to_{name}(x):
    """Convert a float to {name}, toward zero; saturate values out of range; NaN becomes 0."""
    if x != x:
        return np.{name}(0)
    if x <= {low!r}:
        return np.{name}({lowest})
    if x >= {high!r}:
        return np.{name}({highest})
    return np.{name}(x)
'''


def _saturating(name: str) -> str:
    bits = int(re.sub(r"\D", "", name))
    lowest, highest = (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return _SATURATE.format(name=name, low=float(lowest), lowest=lowest, high=float(highest), highest=highest)


#: Source of each helper by its name.
HELPERS = {
    "float16_to_float32": '''\
@numba.njit
def float16_to_float32(bits):
    """Return the value of the 16 bits of a half-precision float."""
    bits = np.int64(bits)
    exponent, fraction = (bits >> 10) & 31, bits & 1023
    if exponent == 31:
        magnitude = np.inf if fraction == 0 else np.nan
    elif exponent == 0:
        magnitude = fraction * 2.0**-24
    else:
        magnitude = (fraction + 1024) * 2.0 ** (exponent - 25)
    return np.float32(-magnitude if bits & 0x8000 else magnitude)
''',
    "to_float16_bits": '''\
@numba.njit
def to_float16_bits(x):
    """Round a float to half precision (to nearest, ties to even); return its 16 bits."""
    bits = np.float64(x).view(np.int64)
    sign = 0x8000 if bits < 0 else 0
    magnitude = bits & 0x7FFFFFFFFFFFFFFF
    if magnitude > 0x7FF0000000000000:
        return np.uint16(sign | 0x7E00)
    if abs(x) >= 65536.0:
        return np.uint16(sign | 0x7C00)
    if abs(x) < 2.0**-14:
        return np.uint16(sign | np.int64(np.rint(abs(np.float64(x)) * 2.0**24)))
    rounded = magnitude + ((1 << 41) - 1) + ((magnitude >> 42) & 1)
    return np.uint16(sign | ((rounded - (1008 << 52)) >> 42))
''',
    "bfloat16_to_float32": '''\
@numba.njit
def bfloat16_to_float32(bits):
    """Return the value of the 16 bits of a bfloat16."""
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)
''',
    "to_bfloat16_bits": '''\
@numba.njit
def to_bfloat16_bits(x):
    """Round a float to bfloat16 (to nearest, ties to even); return its 16 bits."""
    bits = np.int64(np.float32(x).view(np.uint32))
    if x != x:
        return np.uint16((bits >> 16) | 0x40)
    return np.uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
''',
    "floor_div": '''\
@numba.njit
def floor_div(a, b):
    """Return the quotient rounded down; 0 for a division by zero."""
    if b == 0:
        return a - a
    if b == -1:
        return -a
    return a // b
''',
    "floor_mod": '''\
@numba.njit
def floor_mod(a, b):
    """Return the remainder with the sign of the divisor; 0 for a division by zero."""
    if b == 0 or b == -1:
        return a - a
    return a % b
''',
    "trunc_div": '''\
@numba.njit
def trunc_div(a, b):
    """Return the quotient rounded toward zero; 0 for a division by zero."""
    if b == 0:
        return a - a
    if b == -1:
        return -a
    quotient = a // b
    return quotient + 1 if quotient < 0 and quotient * b != a else quotient
''',
    "trunc_mod": '''\
@numba.njit
def trunc_mod(a, b):
    """Return the remainder with the sign of the dividend; 0 for a division by zero."""
    if b == 0 or b == -1:
        return a - a
    remainder = a % b
    return remainder - b if remainder != 0 and (remainder < 0) != (a < 0) else remainder
''',
    "unsigned_div": '''\
@numba.njit
def unsigned_div(a, b):
    """Return the quotient of unsigned integers; 0 for a division by zero."""
    return a // b if b != 0 else a - a
''',
    "unsigned_mod": '''\
@numba.njit
def unsigned_mod(a, b):
    """Return the remainder of unsigned integers; 0 for a division by zero."""
    return a % b if b != 0 else a - a
''',
    "shift_left": '''\
@numba.njit
def shift_left(a, b, bits):
    """Return ``a << b``; 0 if ``b`` is negative or not below the width of the type."""
    return a << b if 0 <= b < bits else a - a
''',
    "shift_right": '''\
@numba.njit
def shift_right(a, b, bits):
    """Return ``a >> b``; 0 (-1 for negative ``a``) if ``b`` is negative or not below the width of the type."""
    if 0 <= b < bits:
        return a >> b
    return a - a - 1 if a < 0 else a - a
''',
    "shift_right_unsigned": '''\
@numba.njit
def shift_right_unsigned(a, b, bits):
    """Return ``a >> b``; 0 if ``b`` is not below the width of the type."""
    return a >> b if b < bits else a - a
''',
    "popcount": '''\
@numba.njit
def popcount(a, bits):
    """Count the set bits among the lowest ``bits`` bits of ``a``."""
    count = 0
    for bit in range(bits):
        count += (np.int64(a) >> bit) & 1
    return count
''',
    "count_leading_zeros": '''\
@numba.njit
def count_leading_zeros(a, bits):
    """Count the zeros above the highest set bit among the lowest ``bits`` bits of ``a``."""
    for bit in range(bits):
        if (np.int64(a) >> (bits - 1 - bit)) & 1:
            return bit
    return bits
''',
    "reduce_add": '''\
@numba.njit
def reduce_add(lanes):
    """Sum the lanes in pairs (a tree); overwrites them."""
    size, rest = len(lanes), lanes[:0].copy()
    while size > 1:
        half = size // 2
        if size % 2:
            rest = np.append(rest, lanes[size - 1])
        for lane in range(half):
            lanes[lane] = lanes[lane] + lanes[lane + half]
        size = half
    for value in rest:
        lanes[0] = lanes[0] + value
    return lanes[0]
''',
    "reduce_mul": '''\
@numba.njit
def reduce_mul(lanes):
    """Multiply the lanes in pairs (a tree); overwrites them."""
    size, rest = len(lanes), lanes[:0].copy()
    while size > 1:
        half = size // 2
        if size % 2:
            rest = np.append(rest, lanes[size - 1])
        for lane in range(half):
            lanes[lane] = lanes[lane] * lanes[lane + half]
        size = half
    for value in rest:
        lanes[0] = lanes[0] * value
    return lanes[0]
''',
    "reduce_min": '''\
@numba.njit
def reduce_min(lanes):
    """Return the least of the lanes; NaN if one is NaN."""
    result = lanes[0]
    for value in lanes:
        if value < result or value != value:
            result = value
    return result
''',
    "reduce_max": '''\
@numba.njit
def reduce_max(lanes):
    """Return the largest of the lanes; NaN if one is NaN."""
    result = lanes[0]
    for value in lanes:
        if value > result or value != value:
            result = value
    return result
''',
}
# Python runs these: numba has no clock.
HELPERS["profile_begin"] = '''\
import time


def profile_begin(records, call):
    """Record the time at which a kernel's call begins."""
    records[0, call] = time.perf_counter_ns()
'''
HELPERS["profile_end"] = '''\
import time


def profile_end(records, call):
    """Record the end of a kernel's call: add it to the count, and its duration to the sum."""
    records[1, call] = time.perf_counter_ns()
    records[2, call] += 1
    records[3, call] += records[1, call] - records[0, call]
'''
HELPERS["check_index"] = '''\
from tilewright.codegen.llvm.bounds import report_function

report_index = report_function()


@numba.njit
def check_index(index, extent, happens, access):
    """Return whether an access takes place: it happens and its index is inside. Report it if it is outside."""
    if happens and not 0 <= index < extent:
        report_index(access, index, extent)
        return False
    return happens
'''
HELPERS |= {
    f"to_{name}": _saturating(name) for name in [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
}

HEADER = '''\
"""Loops generated by Tilewright. Plain Python: run it with NUMBA_DISABLE_JIT=1 to step through it."""

import math

import numba
import numpy as np
'''
