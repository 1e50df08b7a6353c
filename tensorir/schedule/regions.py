"""Questions about how loop variables map to indices: which box do they reach, and is the map injective?"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Sequence

from tilewright.tensorir.arith import Analyzer, region_of
from tilewright.tensorir.expr import BinaryOp, Expr, Var, as_expr, binary, compare
from tilewright.tensorir.functor import leaves, substitute
from tilewright.tensorir.schedule.indices import constant_value, structure
from tilewright.tensorir.schedule.questions import Questions
from tilewright.tensorir.stmt import Block, For

#: Least value and extent of a variable or an index.
Span = tuple[Expr, Expr]


def ranges_of(loops: Iterable[For]) -> dict[Var, Span]:
    """The ranges of loops' variables, in the form that the arithmetic takes."""
    return {loop.var: (loop.min, loop.extent) for loop in loops}


def box_of(block: Block, indices: Sequence[Expr], loops: Sequence[For], analyzer: Analyzer) -> list[Span | None]:
    """The box of ``indices``, which use the iteration variables of ``block``, while ``loops`` (outer ones first) run
    and all other loops stand still: it may be larger than what is touched, never smaller. None where a dimension has
    no bound."""
    values = {item.var: item.value for item in block.iters}
    return list(region_of([substitute(index, values) for index in indices], ranges_of(loops), analyzer))


@dataclasses.dataclass(frozen=True)
class _Digit:
    """``source // lower % extent`` (extent None: no remainder taken). A source is a variable, or the value of a sum
    of digits, known by its structure."""

    source: Hashable
    lower: Expr
    extent: Expr | None


class _Injectivity:
    """Solves for loop variables from the values of expressions; see :func:`is_injective`."""

    def __init__(self, loops: Sequence[For], analyzer: Analyzer | Questions) -> None:
        self.extents = {loop.var: loop.extent for loop in loops}
        self.starts_at_zero = {loop.var for loop in loops if constant_value(loop.min) == 0}
        self.analyzer = analyzer
        self.sums: dict[object, Expr] = {}

    def digits(self, expr: Expr) -> list[tuple[int, _Digit]] | None:
        """``expr`` as a sum of integer multiples of digits, but for a part without loop variables."""
        if leaves(expr).isdisjoint(self.extents):
            return []
        if isinstance(expr, Var):
            return [(1, _Digit(expr, as_expr(1), None))]
        if not isinstance(expr, BinaryOp):
            return None
        if expr.op in ("add", "sub"):
            a, b = self.digits(expr.a), self.digits(expr.b)
            if a is None or b is None:
                return None
            return a + (b if expr.op == "add" else [(-scale, digit) for scale, digit in b])
        if expr.op == "mul":
            factor = constant_value(expr.b)
            a = self.digits(expr.a)
            return None if factor is None or a is None else [(scale * factor, digit) for scale, digit in a]
        if expr.op in ("floordiv", "floormod") and leaves(expr.b).isdisjoint(self.extents):
            source = self._source(expr.a)
            if source is None:
                return None
            if expr.op == "floormod":
                return [(1, _Digit(source.source, source.lower, expr.b))]
            if source.extent is not None:
                return None
            return [(1, _Digit(source.source, binary("mul", source.lower, expr.b), None))]
        return None

    def _source(self, expr: Expr) -> _Digit | None:
        if isinstance(expr, Var) or (isinstance(expr, BinaryOp) and expr.op in ("floordiv", "floormod")):
            digits = self.digits(expr)
            if digits is None:
                return None
            if len(digits) == 1 and (digits[0][1].extent is None):
                return digits[0][1]
        key = structure(expr)
        self.sums[key] = expr
        return _Digit(key, as_expr(1), None)

    def span(self, digit: _Digit) -> int | None:
        """A constant that the digit is less than, if one is known."""
        extent = digit.extent
        if extent is None and isinstance(digit.source, Var):
            whole = self.extents[digit.source]
            if digit.source not in self.starts_at_zero and constant_value(digit.lower) != 1:
                whole = binary("add", whole, digit.lower)  # the range may begin between two multiples
            extent = binary("floordiv", binary("sub", binary("add", whole, digit.lower), 1), digit.lower)
        if extent is None:
            return None
        upper = self.analyzer.bounds(extent).upper
        return int(upper) if upper < 1 << 62 else None

    def separates(self, digits: Sequence[tuple[int, _Digit]]) -> bool:
        """Whether the sum determines each of its digits: every scale is greater than the sum of what is below."""
        reach = 0
        ordered = sorted(digits, key=lambda item: abs(item[0]))
        for number, (scale, digit) in enumerate(ordered, 1):
            if abs(scale) <= reach:
                return False
            if number < len(ordered):  # nothing is above the last one
                span = self.span(digit)
                reach = 1 << 62 if span is None else reach + abs(scale) * max(0, span - 1)
        return True

    def determined(self, source: object, digits: Iterable[_Digit]) -> bool:
        """Whether the digits together give the whole source: a chain of places without a gap."""
        reached: Expr = as_expr(1)
        pending = list(digits)
        while pending:
            step = next((digit for digit in pending if self._same(digit.lower, reached)), None)
            if step is None:
                break
            if step.extent is None:
                return True
            reached = binary("mul", reached, step.extent)
            pending.remove(step)
        return isinstance(source, Var) and self.analyzer.prove(compare("ge", reached, self.extents[source]))

    def _same(self, a: Expr, b: Expr) -> bool:
        return structure(a) == structure(b) or self.analyzer.prove(compare("eq", a, b))

    def solve(self, exprs: Sequence[Expr]) -> set[Var]:
        """The loop variables that the values of ``exprs`` determine."""
        known: dict[object, list[_Digit]] = {}
        solved: set[object] = set()
        pending = list(exprs)
        while pending:
            digits = self.digits(pending.pop())
            if digits is None or not self.separates(digits):
                continue
            for _, digit in digits:
                places = known.setdefault(digit.source, [])
                places.append(digit)
                if digit.source not in solved and self.determined(digit.source, places):
                    solved.add(digit.source)
                    if digit.source in self.sums:
                        pending.append(self.sums[digit.source])
        return {source for source in solved if isinstance(source, Var)}


def is_injective(exprs: Sequence[Expr], loops: Sequence[For], analyzer: Analyzer | Questions) -> bool:
    """Whether different iterations of ``loops`` always give different values of ``exprs``, all other variables being
    fixed; False if it could not be shown. Understands what split, fuse and reorder produce: sums of scaled variables,
    quotients and remainders of such sums. The analyzer knows the loops."""
    varying = [loop for loop in loops if constant_value(loop.extent) not in (0, 1)]
    return _Injectivity(varying, analyzer).solve(exprs) >= {loop.var for loop in varying}
