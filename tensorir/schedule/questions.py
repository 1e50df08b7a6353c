"""Questions about index expressions, most of which need no analyzer.

Nearly every bound of a loop is a constant, and questions about constants are answered directly. An analyzer that knows
all loops around a place costs far more than one answer, so it is made when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tilewright.tensorir.arith import Analyzer, Interval
from tilewright.tensorir.arith.iter_map import constant_value, is_zero
from tilewright.tensorir.arith.iter_solver import Span
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Compare, Expr, IntImm, Var, binary, const
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import For


class Questions:
    """Answers questions as an analyzer that knows ``loops`` does; ``make`` makes that analyzer."""

    def __init__(self, loops: Sequence[For], make: Callable[[], Analyzer]) -> None:
        self._loops = loops
        self._make = make
        self._made: Analyzer | None = None

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer that answers."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def simplify(self, expr: Expr) -> Expr:
        """See :meth:`tilewright.tensorir.arith.Analyzer.simplify`."""
        if isinstance(expr, IntImm):
            return expr
        term, number = expr, 1
        while type(term) is BinaryOp and term.op == "mul" and type(term.b) is IntImm and term.b.value > 0:
            number *= term.b.value
            term = term.a
        if type(term) is Var and term.dtype is INT64 and number < _MANY and self._least_count(term) > 1:
            return binary("mul", term, const(number, expr.dtype))
        return self.analyzer.simplify(expr)

    def prove(self, condition: Expr) -> bool:
        """See :meth:`tilewright.tensorir.arith.Analyzer.prove`."""
        if isinstance(condition, IntImm):
            return bool(condition.value)
        decided = self._decide(condition) if isinstance(condition, Compare) else None
        return self.analyzer.prove(condition) if decided is None else decided

    def _decide(self, condition: Compare) -> bool | None:
        """Return whether a comparison of sums of multiples of loops' variables always holds; None if it is something
        else, or some loop has no constant range."""
        if condition.op not in _ORDERS or condition.a.dtype is not INT64:
            return None
        terms: dict[Var, int] = {}
        a, b = _collect_sum(condition.a, 1, terms), _collect_sum(condition.b, -1, terms)
        if a is None or b is None:
            return None
        least = most = a + b
        for var, factor in terms.items():
            loop = self._loop_over(var)
            if loop is None or not isinstance(loop.min, IntImm) or not isinstance(loop.extent, IntImm):
                return None
            first = factor * loop.min.value
            last = first + factor * (loop.extent.value - 1)
            if loop.extent.value < 1:
                return None
            least += min(first, last)
            most += max(first, last)
        if least <= -_MANY or most >= _MANY:  # it may have wrapped
            return None
        if condition.op in ("lt", "le"):
            return most < 0 if condition.op == "lt" else most <= 0
        return least > 0 if condition.op == "gt" else least >= 0

    def bounds(self, expr: Expr) -> Interval:
        """See :meth:`tilewright.tensorir.arith.Analyzer.bounds`."""
        return Interval(expr.value, expr.value) if isinstance(expr, IntImm) else self.analyzer.bounds(expr)

    def span(self, index: Expr, ranges: Mapping[Var, Span]) -> Span | None:
        """Return the least value and the extent of ``index`` over ``ranges`` of variables, if it is a multiple of a
        variable that stays the same, or a number, plus multiples of others that range between numbers, as most are;
        None otherwise."""
        if index.dtype is not INT64:
            return None
        if type(index) is IntImm:
            return index, _ONE
        if type(index) is Var and index in ranges:
            low, extent = ranges[index]
            is_known = isinstance(low, IntImm) and isinstance(extent, IntImm) and 0 < extent.value < _MANY
            return (low, extent) if is_known else None
        terms: dict[Var, int] = {}
        least = _collect_sum(index, 1, terms)
        if least is None:
            return None
        fixed: Expr | None = None
        count = 1
        for var, factor in terms.items():
            span = ranges.get(var)
            if span is None:
                loop = self._loop_over(var)
                if loop is not None and isinstance(loop.extent, IntImm) and loop.extent.value == 1:
                    span = loop.min, loop.extent
            if not 0 < factor < _MANY or (span is None and fixed is not None):
                return None
            if span is None:
                fixed = binary("mul", var, const(factor, var.dtype))
                continue
            begin, extent = span
            if not (isinstance(begin, IntImm) and isinstance(extent, IntImm)) or extent.value < 1:
                return None
            least += factor * begin.value
            count += factor * (extent.value - 1)
        if least < 0 or least + count >= _MANY or (fixed is not None and least):
            return None
        return const(least, index.dtype) if fixed is None else fixed, const(count, index.dtype)

    def shorter(self, expr: Expr) -> Expr:
        """Return ``expr`` simplified, if that makes it shorter. The canonical form of quotients and remainders may be
        longer, and hides splits and fusions of loops: ``(i * 32 + j) // 21`` becomes ``i + (i * 11 + j) // 21``."""
        if isinstance(expr, (Var, IntImm)):
            return expr
        terms: dict[Var, tuple[Expr, int]] = {}
        if self._collect(expr, 1, terms):
            varying = [term for term in terms.values() if term[1]]
            if len(varying) < 2:
                term, factor = varying[0] if varying else (const(0, expr.dtype), 1)
                simple = binary("mul", term, factor)
                return simple if _size(simple) < _size(expr) else expr
            if len(varying) == len(terms) and _canonical_size(varying) >= _size(expr):
                return expr
        simple = self.analyzer.simplify(expr)
        return simple if _size(simple) < _size(expr) else expr

    def _collect(self, expr: Expr, factor: int, terms: dict[Var, tuple[Expr, int]]) -> bool:
        """Add the terms of ``factor`` times ``expr``, a sum of positive multiples of variables and of their quotients
        and remainders by numbers, to ``terms``: for each variable the term and its factor, 0 where the term is zero.
        Return False if ``expr`` is something else, a variable occurs twice, or may have too few values for the form
        of its term."""
        if isinstance(expr, Var):
            var, least = expr, 1
        elif not isinstance(expr, BinaryOp):
            return False
        elif expr.op == "add":
            return self._collect(expr.a, factor, terms) and self._collect(expr.b, factor, terms)
        else:
            number = constant_value(expr.b)
            if number is None or number < 1:
                return False
            if expr.op == "mul":
                return self._collect(expr.a, factor * number, terms)
            if expr.op not in ("floordiv", "floormod") or not isinstance(expr.a, Var):
                return False
            var, least = expr.a, number + 1
        count = self._least_count(var)
        if var in terms or count < least:
            return False
        terms[var] = expr, factor if count > 1 else 0
        return True

    def _least_count(self, var: Var) -> int:
        """Return a number of values that a variable takes at least, 1 if it is zero, and 0 if no number is known."""
        loop = self._loop_over(var)
        if loop is None:
            return _MANY
        if not isinstance(loop.extent, IntImm):
            return _MANY if are_unlimited(self._loops) else 0
        return loop.extent.value if is_zero(loop.min) else 0

    def _loop_over(self, var: Var) -> For | None:
        for loop in self._loops:
            if loop.var is var:
                return loop
        return None


#: The number of values of a variable that has no known range.
_MANY = 1 << 62

_ONE = const(1, "int64")

_ORDERS = ("lt", "le", "gt", "ge")


def _collect_sum(expr: Expr, factor: int, terms: dict[Var, int]) -> int | None:
    """Add the multiples of variables in ``factor`` times ``expr`` to ``terms``, and return the number that is added to
    them; None if it is no such sum."""
    if type(expr) is Var:
        terms[expr] = terms.get(expr, 0) + factor
        return 0
    if type(expr) is IntImm:
        return factor * expr.value
    if type(expr) is BinaryOp:
        if expr.op == "add" or expr.op == "sub":
            a = _collect_sum(expr.a, factor, terms)
            b = None if a is None else _collect_sum(expr.b, factor if expr.op == "add" else -factor, terms)
            return None if a is None or b is None else a + b
        if expr.op == "mul" and type(expr.b) is IntImm:
            return _collect_sum(expr.a, factor * expr.b.value, terms)
    return None


def _canonical_size(terms: Sequence[tuple[Expr, int]]) -> int:
    """Return the number of nodes in a sum of multiples of terms."""
    return sum([_size(term) + (1 if factor == 1 else 3) for term, factor in terms]) - 1


def are_unlimited(loops: Sequence[For]) -> bool:
    """Return whether the extents of ``loops`` that are not constant have no upper bound, even if all are positive: a
    positive extent gives no upper bound of a size if all extents grow with the sizes."""
    bounded = {loop.var for loop in loops}
    return all(isinstance(loop.extent, IntImm) or grows(loop.extent, bounded) for loop in loops)


def grows(extent: Expr, bounded: Collection[Var]) -> bool:
    """Return whether an extent is built from positive numbers and variables, none of them ``bounded``, by operations
    whose result grows without limit as they grow."""
    if isinstance(extent, BinaryOp) and extent.op in ("add", "mul", "floordiv"):
        number = constant_value(extent.b)
        if (number is None and extent.op == "floordiv") or (number is not None and number <= 0):
            return False
        return grows(extent.a, bounded) and (number is not None or grows(extent.b, bounded))
    return isinstance(extent, Var) and extent not in bounded


def may_be_divided(extent: Expr, number: int, sizes: Collection[Var]) -> bool:
    """Return whether ``number`` may be known to divide an extent: not if it is a product of ``sizes`` and of numbers
    whose product it does not divide."""
    parts = [extent]
    product = 1
    while parts:
        part = parts.pop()
        if isinstance(part, BinaryOp) and part.op == "mul":
            parts += part.a, part.b
        elif isinstance(part, IntImm):
            product *= part.value
        elif part not in sizes:
            return True
    return product % number == 0


def _size(expr: Node) -> int:
    return sum(map(_size, expr.parts()), 1)
