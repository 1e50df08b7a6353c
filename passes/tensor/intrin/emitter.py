"""Helpers for expansions of intrinsics: bound values, polynomials, bits of floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tilewright.passes.tensor.vector_arith import any_lane, vector_cast, vector_select
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, INT32, INT64, DataType
from tilewright.tensorir.expr import (
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Expr,
    FloatImm,
    IntImm,
    Ramp,
    Var,
    binary,
    call,
    const,
)
from tilewright.tensorir.intrinsics import lowers
from tilewright.tensorir.stmt import Allocate, BufferStore, IfThenElse, LetStmt, Stmt, sequence

#: The pass that expands calls, as declarations of intrinsics name it.
EXPANDER = "LowerIntrin"

INFINITY = math.inf
NAN = math.nan

#: 1.5 * 2**23 (1.5 * 2**52): added to a number of moderate size, the sum has the nearest integer in its low bits.
_INTEGER_MAGIC = {FLOAT32: 12582912.0, FLOAT64: 6755399441055744.0}
_BITS = {FLOAT32: INT32, FLOAT64: INT64}
_MANTISSA = {FLOAT32: 23, FLOAT64: 52}

#: The bias of the exponent fields of floats.
EXPONENT_BIAS = {FLOAT32: 127, FLOAT64: 1023}


_Expansion = TypeVar("_Expansion", bound=Callable[..., Expr])


@dataclass(frozen=True)
class _Store:
    """A statement between the bindings, and the buffer that is to be allocated before it, if any."""

    stmt: Stmt
    buffer: Buffer | None = None


def expands(name: str) -> Callable[[_Expansion], _Expansion]:
    """Register a function as the expansion of the intrinsic of that name for float32: it takes an :class:`Emitter` and
    the arguments, and returns the value."""
    return lowers(EXPANDER, name)


class Emitter:
    """Collect the bindings and statements that compute a value; ``wrap`` puts them in front of its use.

    Args:
        has_fma: the target has an instruction for ``a * b + c``.
        is_fast: 4 units in the last place are enough where that saves work (optimization level 3).
    """

    def __init__(self, has_fma: bool = True, is_fast: bool = False) -> None:
        self.has_fma = has_fma
        self.is_fast = is_fast
        self.items: list[tuple[Var, Expr] | _Store] = []
        #: Calls that were expanded already, and their values.
        self.known: dict[Call, Expr] = {}

    def let(self, name: str, value: Expr) -> Expr:
        """Bind ``value`` to a variable, so that it is computed once for all uses of the result."""
        if isinstance(value, (Var, FloatImm, IntImm)) or constant_value(value) is not None:
            return value
        var = Var(name, value.dtype)
        self.items.append((var, value))
        return var

    def wrap(self, stmt: Stmt) -> Stmt:
        """Put ``stmt`` after all bindings and statements that it needs."""
        for item in reversed(self.items):
            if isinstance(item, _Store):
                stmt = sequence(item.stmt, stmt)
                if item.buffer is not None:
                    stmt = Allocate(item.buffer, stmt)
            else:
                stmt = LetStmt(item[0], item[1], stmt)
        return stmt

    def enclose(self, inner: Emitter, name: str, value: Expr) -> Expr:
        """Pass ``value``, computed by the emitter ``inner``, through a register buffer, which ends the scope of the
        bindings of ``inner``. So a statement with many calls does not become one deep chain of all their bindings."""
        buffer = _register(name, value)
        index = _all_lanes(value.dtype.lanes)
        self.items.append(_Store(inner.wrap(BufferStore(buffer, value, index)), buffer))
        return self.let(name, BufferLoad(buffer, index))

    # Arithmetic.

    def fma(self, a: Expr, b: Expr | float, c: Expr | float) -> Expr:
        """Build ``a * b + c``. In float32 it is rounded once if the target has such an instruction; the call is
        explicit, so that the result does not depend on whether the code generator contracts. In float64, which serves
        as a wider float32 here, the rounding of the product does not matter."""
        if not self.has_fma or a.dtype.element is FLOAT64:
            return a * b + c
        return call("fma", a, _like(b, a), _like(c, a))

    def polynomial(self, x: Expr, coefficients: Sequence[float]) -> Expr:
        """Evaluate the polynomial with these coefficients, the constant one first, by Horner's rule."""
        result = _like(coefficients[-1], x)
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return self.let("polynomial", result)

    def round(self, x: Expr) -> Expr:
        """Round to the nearest integer, as a float."""
        return self.let("nearest", call("round", x))

    def absolute(self, x: Expr) -> Expr:
        """``|x|``."""
        return self.let("absolute", call("abs", x))

    def copysign(self, magnitude: Expr, sign: Expr) -> Expr:
        """``magnitude`` with the sign of ``sign``."""
        return call("copysign", magnitude, sign)

    def select(self, condition: Expr, true_value: Expr | float, false_value: Expr | float) -> Expr:
        """Select per lane; at least one value must be an expression."""
        like = true_value if isinstance(true_value, Expr) else false_value
        assert isinstance(like, Expr)
        return vector_select(condition, _like(true_value, like), _like(false_value, like))

    def clamp(self, x: Expr, low: float, high: float) -> Expr:
        """Clamp ``x`` to bounds; NaN stays."""
        bounded = binary("min", binary("max", x, _like(low, x)), _like(high, x))
        return self.let("clamped", bounded)

    # Bits.

    def bits(self, x: Expr) -> Expr:
        """The bits of a float as a signed integer."""
        return Call("reinterpret", (x,), _BITS[x.dtype.element].with_lanes(x.dtype.lanes))

    def from_bits(self, bits: Expr, element: DataType) -> Expr:
        """The float with these bits."""
        return Call("reinterpret", (bits,), element.with_lanes(bits.dtype.lanes))

    def nearest(self, x: Expr, factor: float, bias: int = 0) -> tuple[Expr, Expr]:
        """Return ``n``, the integer nearest to ``x * factor`` as a float, and an integer whose low bits (22 for
        float32, 51 for float64) are ``n + bias``. A magic number is added instead of a conversion, so that nothing is
        undefined, not even for NaN."""
        magic = _INTEGER_MAGIC[x.dtype.element] + bias
        sum_ = self.let("magic_sum", x + magic if factor == 1.0 else self.fma(x, factor, magic))
        return self.let("nearest", sum_ - magic), self.let("integer", self.bits(sum_))

    def power_of_two(self, biased: Expr, element: DataType) -> Expr:
        """``2**k`` for ``k`` plus the bias of exponents in the low bits of ``biased``, in the normal range."""
        return self.from_bits(biased << _MANTISSA[element], element)

    def scale(self, p: Expr, integer: Expr) -> Expr:
        """``p * 2**n`` for ``n + 2 * 127`` in the low bits of ``integer`` (float32), rounded once: in two steps, so
        that neither factor leaves the normal range and results below and above it are right."""
        half = self.let("half", integer >> 1)
        first = self.power_of_two(half, FLOAT32)
        second = self.power_of_two(integer - half, FLOAT32)
        return p * first * second

    # Conversions.

    def widen(self, x: Expr) -> Expr:
        """``x`` in float64."""
        return self.let("wide", vector_cast(FLOAT64, x))

    def narrow(self, x: Expr) -> Expr:
        """``x`` in float32."""
        return vector_cast(FLOAT32, x)

    # Rare cases.

    def rarely(self, condition: Expr, usual: Sequence[Expr], rare: Emitter, values: Sequence[Expr]) -> list[Expr]:
        """``values`` (computed by the emitter ``rare``) in lanes where ``condition`` holds, ``usual`` elsewhere. Where
        it holds in no lane, the values are not computed."""
        buffers: list[Buffer] = []
        lanes = condition.dtype.lanes
        updates: list[Stmt] = []
        index = _all_lanes(lanes)
        for old, new in zip(usual, values, strict=True):
            made = _register("chosen", old)
            buffers.append(made)
            self.items.append(_Store(BufferStore(made, old, index), made))
            updates.append(BufferStore(made, vector_select(condition, new, BufferLoad(made, index)), index))
        self.items.append(_Store(IfThenElse(any_lane(condition), rare.wrap(sequence(*updates)))))
        return [self.let("chosen", BufferLoad(made, index)) for made in buffers]


def constant_value(value: Expr) -> float | None:
    """Return the value of a constant or of a broadcast constant; None for other expressions."""
    scalar = value.value if isinstance(value, Broadcast) else value
    return float(scalar.value) if isinstance(scalar, (FloatImm, IntImm)) else None


def _register(name: str, value: Expr) -> Buffer:
    """Create a register buffer for ``value``."""
    lanes = value.dtype.lanes
    return Buffer(name, (const(lanes, INT64),), value.dtype.element, "register", (), 64 if lanes > 1 else 0)


def _all_lanes(lanes: int) -> tuple[Expr, ...]:
    zero = const(0, INT64)
    return (zero,) if lanes == 1 else (Ramp(zero, const(1, INT64), lanes),)


def _like(value: Expr | float, like: Expr) -> Expr:
    return value if isinstance(value, Expr) else const(value, like.dtype)
