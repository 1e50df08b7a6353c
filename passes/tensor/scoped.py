"""Mutators that know, at each place of a program, the ranges of the variables and the conditions that hold there."""

from __future__ import annotations

from typing import TypeVar

from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Expr, UnaryOp, Var
from tilewright.tensorir.functor import Mutator
from tilewright.tensorir.stmt import For, IfThenElse, LetStmt, PrimFunc, Stmt

S = TypeVar("S", bound=Expr)


def bind_value(analyzer: Analyzer, var: Var, value: Expr) -> None:
    """Tell the analyzer the range (not the value, which would be put back in place of the variable) of a let."""
    if value.dtype.is_integer and value.dtype.lanes == 1:
        extent = analyzer.division_extent(value) if isinstance(value, BinaryOp) and value.dtype is INT64 else None
        if extent is not None:
            analyzer.bind(var, 0, extent)
            return
        bounds = analyzer.bounds(value)
        if bounds.is_finite:
            low = int(bounds.lower)
            analyzer.bind(var, low, int(bounds.upper) - low + 1)
        elif bounds.lower >= 0:
            analyzer.bind_nonnegative(var)


class ScopedMutator(Mutator):
    """A mutator with an analyzer that is told of loops, conditions and lets on the way down.

    A subclass that overrides the handling of loops calls ``mutate_in_loop`` for the body.
    """

    def __init__(self, func: PrimFunc | None = None, *, fast: bool = False) -> None:
        self.analyzer = Analyzer(fast=fast)
        if func is not None:
            for var in func.variables:
                if var.dtype.is_integer:
                    self.analyzer.bind_nonnegative(var)

    def simplify(self, expr: Expr) -> Expr:
        """``expr`` in canonical form."""
        return self.analyzer.simplify(expr)

    def mutate_in_loop(self, var: Var, low: Expr, extent: Expr, body: Stmt) -> Stmt:
        """``body`` mutated where ``low <= var < low + extent``."""
        with self.analyzer.scope():
            self.analyzer.bind(var, low, extent)
            # The body runs, so the range is not empty.
            self.analyzer.assume(extent > 0)
            result: Stmt = self.mutate(body)
            return result

    def mutate_For(self, loop: For) -> Stmt:
        low, extent = self.mutate(loop.min), self.mutate(loop.extent)
        body = self.mutate_in_loop(loop.var, low, extent, loop.body)
        if low is loop.min and extent is loop.extent and body is loop.body:
            return loop
        return For(loop.var, low, extent, loop.kind, body, loop.annotations)

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        condition = self.mutate(op.condition)
        with self.analyzer.assuming(condition):
            then_body = self.mutate(op.then_body)
        else_body = op.else_body
        if else_body is not None:
            with self.analyzer.assuming(UnaryOp("not", condition)):
                else_body = self.mutate(else_body)
        if condition is op.condition and then_body is op.then_body and else_body is op.else_body:
            return op
        return IfThenElse(condition, then_body, else_body)

    def mutate_LetStmt(self, op: LetStmt) -> Stmt:
        value = self.mutate(op.value)
        with self.analyzer.scope():
            bind_value(self.analyzer, op.var, value)
            body = self.mutate(op.body)
        return op if value is op.value and body is op.body else LetStmt(op.var, value, body)
