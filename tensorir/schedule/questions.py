"""Questions about index expressions, most of which need no analyzer.

Nearly every bound of a loop is a constant, and questions about constants are answered directly. An analyzer that knows
all loops around a place costs far more than one answer, so it is made when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tilewright.tensorir.arith import Analyzer, Interval
from tilewright.tensorir.arith.iter_map import constant_value, is_zero, multiples
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var
from tilewright.tensorir.functor import walk
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
        return expr if isinstance(expr, IntImm) else self.analyzer.simplify(expr)

    def prove(self, condition: Expr) -> bool:
        """See :meth:`tilewright.tensorir.arith.Analyzer.prove`."""
        return bool(condition.value) if isinstance(condition, IntImm) else self.analyzer.prove(condition)

    def bounds(self, expr: Expr) -> Interval:
        """See :meth:`tilewright.tensorir.arith.Analyzer.bounds`."""
        return Interval(expr.value, expr.value) if isinstance(expr, IntImm) else self.analyzer.bounds(expr)

    def shorter(self, expr: Expr) -> Expr:
        """Return ``expr`` simplified, if that makes it shorter. The canonical form of quotients and remainders may be
        longer, and hides splits and fusions of loops: ``(i * 32 + j) // 21`` becomes ``i + (i * 11 + j) // 21``."""
        if isinstance(expr, (Var, IntImm)):
            return expr
        size = _size(expr)
        canonical = self._canonical_size(expr)
        if canonical is not None and canonical >= size:
            return expr
        simple = self.analyzer.simplify(expr)
        return simple if _size(simple) < size else expr

    def _canonical_size(self, expr: Expr) -> int | None:
        """Return the number of nodes in the canonical form of a sum of positive multiples of loop variables; None for
        any other expression, and where a variable may have a single value."""
        found = multiples(expr, [loop.var for loop in self._loops])
        if found is None or not is_zero(found[1]):
            return None
        size = -1
        for var, factor in found[0].items():
            if factor < 1 or not self._takes_several(var):
                return None
            size += 2 if factor == 1 else 4
        return size

    def _takes_several(self, var: Var) -> bool:
        """Return whether a variable belongs to a loop that is not known to have a single iteration."""
        extent = next((loop.extent for loop in self._loops if loop.var is var), None)
        if extent is None or isinstance(extent, IntImm):
            return extent is not None and extent.value > 1
        # A positive extent gives no upper bound of a size if all extents grow with the sizes.
        bounded = {loop.var for loop in self._loops}
        return all(isinstance(loop.extent, IntImm) or _grows(loop.extent, bounded) for loop in self._loops)


def _grows(extent: Expr, bounded: Collection[Var]) -> bool:
    """Return whether an extent is built from positive numbers and variables, none of them ``bounded``, by operations
    whose result grows without limit as they grow."""
    if isinstance(extent, BinaryOp) and extent.op in ("add", "mul", "floordiv"):
        number = constant_value(extent.b)
        if (number is None and extent.op == "floordiv") or (number is not None and number <= 0):
            return False
        return _grows(extent.a, bounded) and (number is not None or _grows(extent.b, bounded))
    return isinstance(extent, Var) and extent not in bounded


def may_be_divided(extent: Expr, sizes: Collection[Var]) -> bool:
    """Return whether a number other than one may be known to divide an extent: not if it is a product of ``sizes``."""
    if isinstance(extent, BinaryOp) and extent.op == "mul":
        return may_be_divided(extent.a, sizes) or may_be_divided(extent.b, sizes)
    return extent not in sizes


def _size(expr: Expr) -> int:
    return sum(1 for _ in walk(expr))
