"""Analyze the map from loop variables to indices: the box that it reaches, and whether it is injective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.tensorir.arith import Analyzer, iter_solver, region_of
from tilewright.tensorir.arith.iter_map import constant_value
from tilewright.tensorir.arith.iter_solver import Prover, Span
from tilewright.tensorir.expr import Expr, Var
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.stmt import Block, For


def ranges_of(loops: Iterable[For]) -> dict[Var, Span]:
    """The ranges of loops' variables, in the form that the arithmetic takes."""
    return {loop.var: (loop.min, loop.extent) for loop in loops}


def box_of(block: Block, indices: Sequence[Expr], loops: Sequence[For], analyzer: Analyzer) -> list[Span | None]:
    """Return the box of ``indices``, which use the iteration variables of ``block``, over the iterations of ``loops``
    (outer ones first), all other loops being fixed. The box contains all touched elements and may be larger; None
    for a dimension without a bound."""
    values = {item.var: item.value for item in block.iters}
    return list(region_of([substitute(index, values) for index in indices], ranges_of(loops), analyzer))


def is_injective(exprs: Sequence[Expr], loops: Sequence[For], prover: Prover) -> bool:
    """Return whether different iterations of ``loops``, whose ranges ``prover`` knows, always give different values of
    ``exprs``, all other variables being fixed; False if it could not be shown."""
    varying = [loop for loop in loops if loop.var not in exprs and constant_value(loop.extent) not in (0, 1)]
    if not varying:  # each loop's variable is a value itself, as in schedules that have not split a loop yet
        return True
    others = [expr for expr in exprs if not isinstance(expr, Var)]
    return iter_solver.is_injective(others, ranges_of(varying), prover)
