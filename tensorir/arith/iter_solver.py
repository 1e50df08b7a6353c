"""Solve iteration maps: find the variables that index expressions determine, and invert the expressions.

The value of a sum of splits (:mod:`.iter_map`) determines each of them if their scales are far enough apart, and splits
of one source that follow each other without a gap, ``s // 64`` and ``s % 64``, determine the source; if that is a sum
again, it is read in turn. After ``DetectIterMap`` and ``InverseAffineIterMap`` of Apache TVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tilewright.tensorir.arith.interval import Interval
from tilewright.tensorir.arith.iter_map import IterSplit, IterSum, constant_value, is_zero, iter_sum
from tilewright.tensorir.expr import Expr, Var, as_expr, binary, compare

#: Least value and extent of a variable.
Span = tuple[Expr, Expr]

#: More than the number of values of any index.
_UNLIMITED: Final = 1 << 62


class Prover(Protocol):
    """Answers questions about index expressions, as an analyzer does that knows the ranges of variables."""

    def prove(self, condition: Expr, /) -> bool:
        """Return whether ``condition`` always holds."""

    def bounds(self, expr: Expr, /) -> Interval:
        """Constant bounds of ``expr``."""


@dataclass(frozen=True)
class _Equation:
    """A sum, its value where values are wanted, and the number of the expression that it belongs to."""

    found: IterSum
    place: Expr | None
    number: int


@dataclass(frozen=True)
class _Digit:
    """A split without its scale, and its value where values are wanted."""

    split: IterSplit
    value: Expr | None


class IterSolver:
    """Solves for variables from the values of expressions.

    Args:
        ranges: the variables to solve for, with their ranges.
        prover: knows these ranges, and those of all other variables.

    Attributes:
        values: the solved variables, and the sums whose quotients and remainders were taken, with their values if
            places were given.
        is_onto: whether solved values that are all in range give the places back, provided that each place is a value
            of its own expression.
        unchecked: the numbers of the expressions whose value may differ from their place although the values of all
            variables are in range.
    """

    def __init__(self, ranges: Mapping[Var, Span], prover: Prover) -> None:
        self._ranges = ranges
        self._prover = prover
        self._digits: dict[Expr, list[_Digit]] = {}
        self.values: dict[Expr, Expr | None] = {}
        self.is_onto = True
        #: Whether the digits of the current sum always add up to its value.
        self._is_exact = True
        self.unchecked: set[int] = set()

    def solve(self, exprs: Sequence[Expr], places: Sequence[Expr] | None = None) -> bool:
        """Find the variables that the values of ``exprs`` determine, and their values if those values are ``places``.
        Return whether all variables are determined."""
        waiting: list[_Equation] = []
        for number, expr in enumerate(exprs):
            found = iter_sum(expr, self._ranges)
            if found is None:
                self.is_onto = False
                self.unchecked.add(number)
            else:
                waiting.append(_Equation(found, None if places is None else places[number], number))
        progress = True
        while progress and waiting:
            progress = False
            pending = sorted(waiting, key=self._unknowns)
            waiting = []
            for equation in pending:
                if self._read(equation, waiting):
                    progress = True
                else:
                    waiting.append(equation)
        self.unchecked.update([equation.number for equation in waiting])
        if waiting or any(source not in self.values for source in self._digits):
            self.is_onto = False
        for var, (low, extent) in self._ranges.items():
            if var not in self.values:
                if self._prover.bounds(extent).upper > 1:
                    return False
                self.values[var] = None if places is None else low
        return True

    def _unknowns(self, equation: _Equation) -> int:
        return sum([split.source not in self.values for split in equation.found.splits])

    def _read(self, equation: _Equation, waiting: list[_Equation]) -> bool:
        """Read the splits of a sum from its value, add the sums whose values become known to ``waiting``, and return
        whether that was possible."""
        found, place = equation.found, equation.place
        unknown: list[IterSplit] = []
        if place is not None:
            place = binary("sub", place, found.base)
        for split in found.splits:
            if split.source not in self.values:
                unknown.append(split)
                continue
            value = self.values[split.source]
            if place is not None and value is not None:
                place = binary("sub", place, split.value(value))
        self._is_exact = True
        digits = self._separate(unknown, place)
        if digits is None:
            return False
        if not unknown:
            self._is_exact = False
            self.is_onto = self.is_onto and not found.splits
        for digit in digits:
            self._is_exact = self._is_exact and digit.split.is_whole
            known = self._digits.setdefault(digit.split.source, [])
            known.append(digit)
            self._assemble(digit.split.source, known, waiting, equation.number)
        if not self._is_exact:
            self.unchecked.add(equation.number)
        return True

    # -- splits from a sum --------------------------------------------------------------------------------------------

    def _separate(self, splits: list[IterSplit], place: Expr | None) -> list[_Digit] | None:
        """Return the splits with their values, given the value of their sum; None if it does not determine them: every
        scale has to be greater than the largest sum of the splits with smaller scales."""
        factors: list[tuple[int, IterSplit]] = []
        for split in splits:
            factor = split.factor
            if factor is None or factor == 0:
                return None
            factors.append((factor, split))
        factors.sort(key=_magnitude)
        reach = 0
        for number, (factor, split) in enumerate(factors, 1):
            if abs(factor) <= reach:
                return None
            if number < len(factors):  # the last one has the largest scale
                span = self._span(split)
                reach = _UNLIMITED if span is None else reach + abs(factor) * max(0, span - 1)
        if place is None or not splits:
            return [_Digit(split, None) for split in splits]
        if len(factors) == 1:
            factor, split = factors[0]
            self._must(abs(factor) == 1)
            return [_Digit(split, place if factor == 1 else binary("floordiv", place, factor))]
        return self._read_digits(factors, place)

    def _read_digits(self, factors: list[tuple[int, IterSplit]], place: Expr) -> list[_Digit] | None:
        """Several splits, the least scale first, from the value of their sum."""
        lows: list[Expr] = []
        for factor, split in factors:
            low = self._ranges[split.source][0] if isinstance(split.source, Var) else as_expr(0, place.dtype)
            if factor < 0 or not (is_zero(low) or split.is_whole):
                return None
            lows.append(low)
            place = binary("sub", place, binary("mul", low, factor))
        self._must(factors[0][0] == 1)
        digits: list[_Digit] = []
        for number, (factor, split) in enumerate(factors):
            digit = place
            if number + 1 < len(factors):
                above = factors[number + 1][0]
                if above % factor:
                    digit = binary("floordiv", binary("floormod", digit, above), factor)
                    self._must(False)
                else:
                    digit = binary("floormod", binary("floordiv", digit, factor), above // factor)
                    # A digit that is too large for its split has to make the source too large as well.
                    self.is_onto = self.is_onto and (
                        split.extent is None or constant_value(split.extent) == above // factor
                    )
            else:
                digit = binary("floordiv", digit, factor)
            digits.append(_Digit(split, binary("add", digit, lows[number])))
        return digits

    def _must(self, holds: bool) -> None:
        """Record a condition under which the digits are those of a number without a gap."""
        if not holds:
            self.is_onto = self._is_exact = False

    def _span(self, split: IterSplit) -> int | None:
        """Return a constant upper bound of the number of values of the split without its scale, if one is known."""
        extent = split.extent
        if extent is None and isinstance(split.source, Var):
            low, whole = self._ranges[split.source]
            if not (is_zero(low) or split.is_whole):
                whole = binary("add", whole, split.lower)  # the range may begin between two multiples
            extent = binary("floordiv", binary("sub", binary("add", whole, split.lower), 1), split.lower)
        if extent is None:
            return None
        upper = self._prover.bounds(extent).upper
        return int(upper) if upper < _UNLIMITED else None

    # -- a source from its splits -------------------------------------------------------------------------------------

    def _assemble(self, source: Expr, digits: Sequence[_Digit], waiting: list[_Equation], number: int) -> None:
        """Put a source together once its splits follow each other without a gap."""
        if source in self.values:
            self._must(False)  # one split is redundant
            return
        left = list(digits)
        reached: Expr = as_expr(1, source.dtype)
        value: Expr | None = None
        ends = False
        while not ends:
            digit = self._next_digit(left, reached)
            if digit is None:
                break
            left.remove(digit)
            split = digit.split
            if digit.value is not None:
                part = binary("mul", digit.value, split.lower)
                value = part if value is None else binary("add", part, value)
            if split.extent is None:
                ends = True
            else:
                reached = binary("mul", reached, split.extent)
        if not ends and not self._takes_no_more(source, reached, value):
            return
        self.is_onto = self.is_onto and not left
        self.values[source] = value
        if not isinstance(source, Var):
            found = iter_sum(source, self._ranges)
            if found is None:
                self.is_onto = False
            else:
                waiting.append(_Equation(found, value, number))

    def _next_digit(self, digits: Iterable[_Digit], reached: Expr) -> _Digit | None:
        for digit in digits:
            lower = digit.split.lower
            if lower is reached or self._prover.prove(compare("eq", lower, reached)):
                return digit
        return None

    def _takes_no_more(self, source: Expr, reached: Expr, value: Expr | None) -> bool:
        """Return whether a variable takes no more than ``reached`` values, which are less than that if its value is
        wanted."""
        if not isinstance(source, Var) or constant_value(reached) == 1:
            return False
        low, extent = self._ranges[source]
        if value is not None and not is_zero(low):
            return False
        return self._prover.prove(compare("ge", reached, extent))


def _magnitude(item: tuple[int, IterSplit]) -> int:
    return abs(item[0])


def is_injective(exprs: Sequence[Expr], ranges: Mapping[Var, Span], prover: Prover) -> bool:
    """Return whether different values of the variables in ``ranges`` always give different values of ``exprs``, all
    other variables being fixed; False if it could not be shown."""
    return IterSolver(ranges, prover).solve(exprs)


def inverse(
    exprs: Sequence[Expr], places: Sequence[Expr], ranges: Mapping[Var, Span], prover: Prover
) -> dict[Var, Expr] | None:
    """Return the values of the variables of ``ranges`` for which ``exprs`` have the values ``places``; None if there is
    no closed form. Where each place is a value of its own expression, but no values of the variables give all places,
    some variable is out of its range."""
    solver = IterSolver(ranges, prover)
    if not solver.solve(exprs, places) or not solver.is_onto:
        return None
    found: dict[Var, Expr] = {}
    for var in ranges:
        value = solver.values[var]
        assert value is not None
        found[var] = value
    return found
