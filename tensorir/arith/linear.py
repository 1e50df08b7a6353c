"""Sums of integer multiples of terms plus a constant: the canonical form of index expressions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tilewright.tensorir.expr import Expr

_LIMIT: Final = 1 << 63
#: Compiled code compares numbers between these limits, as most are, as machine words; ``_LIMIT`` itself is none.
_SHORT: Final = 1 << 60
_LEAST: Final = -(1 << 60)


def wrap64(value: int) -> int:
    """``value`` as an int64 holds it."""
    if _LEAST <= value <= _SHORT or -_LIMIT <= value < _LIMIT:
        return value
    return (value + _LIMIT) % (2 * _LIMIT) - _LIMIT


class Linear:
    """``sum(coefficient * term) + const``. Terms are expressions that are no sums or constants themselves;
    no coefficient is zero. Instances are immutable values."""

    __slots__ = ("const", "terms", "written")

    def __init__(self, terms: dict[Expr, int], const: int) -> None:
        self.terms = terms
        self.const = const
        #: The sum that was made of it: the one to use while :attr:`TermOrder.sums` has it.
        self.written: Expr | None = None

    @property
    def key(self) -> tuple[object, int]:
        """A hashable value that is equal for equal forms. Few forms are asked for it, and hardly any twice."""
        items = self.terms.items()
        return tuple(items) if len(items) < 2 else frozenset(items), self.const

    @property
    def is_const(self) -> bool:
        """Whether there are no terms."""
        return not self.terms

    def single(self) -> Expr | None:
        """The term ``t`` if the form is exactly ``1 * t + 0``."""
        if self.const == 0 and len(self.terms) == 1:
            ((term, coefficient),) = self.terms.items()
            if coefficient == 1:
                return term
        return None

    def combine(self, other: Linear, factor: int) -> Linear:
        """``self + factor * other``."""
        added = other.terms
        if not added:
            return self.shift(factor * other.const)
        if factor == 1 and not self.terms:
            return other.shift(self.const)
        const = self.const + factor * other.const
        if not _LEAST <= const <= _SHORT:
            const = wrap64(const)
        terms = self.terms.copy()
        for term, coefficient in added.items():
            total = terms.get(term, 0) + factor * coefficient
            if not _LEAST <= total <= _SHORT:
                total = wrap64(total)
            if total:
                terms[term] = total
            else:
                terms.pop(term, None)
        return Linear(terms, const)

    def __add__(self, other: Linear) -> Linear:
        return self.combine(other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return self.combine(other, -1)

    def __neg__(self) -> Linear:
        return self.scale(-1)

    def __invert__(self) -> Linear:
        """``-1 - self``, which is negative where ``self`` is not."""
        return self.scale(-1).shift(-1)

    def equals(self, other: Linear) -> bool:
        """Return whether the two forms are the same; their keys cost more where nothing else asks for them."""
        return self is other or (self.const == other.const and self.terms == other.terms)

    def shift(self, amount: int) -> Linear:
        """``self + amount``."""
        if not amount:
            return self
        const = self.const + amount
        if not _LEAST <= const <= _SHORT:
            const = wrap64(const)
        return Linear(self.terms, const)

    def scale(self, factor: int) -> Linear:
        """``self * factor``."""
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        terms: dict[Expr, int] = {}
        for term, coefficient in self.terms.items():
            scaled = coefficient * factor
            if not _LEAST <= scaled <= _SHORT:
                scaled = wrap64(scaled)
                if not scaled:
                    continue
            terms[term] = scaled
        const = self.const * factor
        if not _LEAST <= const <= _SHORT:
            const = wrap64(const)
        return Linear(terms, const)

    def without(self, term: Expr) -> Linear:
        """The form without its multiple of ``term``."""
        terms = self.terms.copy()
        terms.pop(term, None)
        return Linear(terms, self.const)

    def gcd(self) -> int:
        """Greatest common divisor of the coefficients (0 without terms)."""
        return math.gcd(*self.terms.values()) if self.terms else 0


ZERO = Linear({}, 0)


def constant(value: int) -> Linear:
    """The form that is a constant."""
    return Linear({}, wrap64(value))


@dataclass(frozen=True)
class Division:
    """A form divided by a positive constant: ``divisor * (whole + rest // small) + (unit * (rest % small) + low)``.
    ``rest`` None: no such part."""

    whole: Linear
    rest: Linear | None
    small: int
    unit: int
    low: Linear
