"""Provide mutators that know, at each place of a program, the ranges of variables and the conditions that hold."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

from tilewright.passes.tensor.findings import findings
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.facts import Findings, Scope
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, UnaryOp, Var
from tilewright.tensorir.functor import Mutator
from tilewright.tensorir.stmt import For, IfThenElse, LetStmt, PrimFunc, Stmt, positive_sizes

S = TypeVar("S", bound=Expr)


def _has_range(value: Expr) -> bool:
    """Return whether analyzers track ranges of such values."""
    return value.dtype.is_integer and value.dtype.lanes == 1


def _define_range(var: Var, low: Expr, extent: Expr, analyzer: Analyzer) -> None:
    analyzer.bind(var, low, extent)


def _enter_loop(var: Var, low: Expr, extent: Expr, analyzer: Analyzer) -> None:
    analyzer.bind(var, low, extent)
    analyzer.assume(extent > 0)  # the body runs, so the range is not empty


def _define(var: Var, value: Expr, analyzer: Analyzer) -> None:
    bind_value(analyzer, var, value)


def bind_value(analyzer: Analyzer, var: Var, value: Expr) -> None:
    """Bind a let variable to its range (not its value, by which the analyzer would replace the variable)."""
    if _has_range(value):
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
    """A mutator with an analyzer that learns loops, conditions and lets top-down.

    A subclass that overrides the handling of loops calls ``mutate_in_loop`` for the body. The analyzer learns the facts
    at a place with the first query there: most passes query few branches of a large function, and learning a condition
    costs more than the rest of a pass at that place.
    """

    def __init__(self, func: PrimFunc | None = None, *, fast: bool = False) -> None:
        self._function = func
        self._is_fast = fast
        self._findings = Findings() if func is None else findings(func)
        self._analyzer: Analyzer | None = None
        #: The pending facts of enclosing places, outermost first, and the analyzer's scopes around the facts it knows.
        self._to_learn: list[Callable[[Analyzer], None]] = []
        self._left: list[Scope] = []
        #: The pending definitions of enclosing variables for the analyzer of ranges, outermost first.
        self._to_define: list[Callable[[Analyzer], None]] = []
        self._ranges: Analyzer | None = None
        #: The innermost variable that is defined around this place.
        self._around: Var | None = None if func is None or not func.variables else func.variables[-1]

    def _with_sizes(self, analyzer: Analyzer) -> Analyzer:
        """Return ``analyzer``, which knows from now on what the function says of its sizes."""
        if self._function is not None:
            positive = positive_sizes(self._function)
            for var in self._function.variables:
                if not var.dtype.is_integer:
                    continue
                if var in positive:
                    analyzer.bind(var, 1)
                else:
                    analyzer.bind_nonnegative(var)
        return analyzer

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer, which knows the facts that hold at this place. (Get it anew inside of another statement.)"""
        analyzer = self._analyzer
        if analyzer is None:
            analyzer = self._analyzer = self._with_sizes(Analyzer(self._findings, fast=self._is_fast))
        if self._to_learn:
            for learn in self._to_learn:
                self._left.append(analyzer.open_scope())
                learn(analyzer)
            self._to_learn.clear()
        return analyzer

    @property
    def range_analyzer(self) -> Analyzer:
        """An analyzer that knows the ranges of enclosing variables, but no conditions.

        Variables are defined once, and a range holds wherever its variable is defined, so that nothing has to be
        forgotten: derived facts stay known for the rest of the function. Query this analyzer first where ranges are
        likely to decide.
        """
        ranges = self._ranges
        if ranges is None:
            ranges = self._ranges = self._with_sizes(Analyzer(Findings(self._findings.order)))
        if self._to_define:
            for define in self._to_define:
                define(ranges)
            self._to_define.clear()
        return ranges

    @contextlib.contextmanager
    def where(
        self, learn: Callable[[Analyzer], None], define: Callable[[Analyzer], None] | None = None
    ) -> Iterator[None]:
        """Open a ``with`` block in which the analyzer knows the facts of ``learn``, and the analyzer of ranges those of
        ``define`` about a variable that is only used in the block."""
        self._to_learn.append(learn)
        if define is not None:
            self._to_define.append(define)
        try:
            yield
        finally:
            self._forget(define is not None)

    def _forget(self, defined: bool) -> None:
        """Leave the innermost scope, which defined a variable for the analyzer of ranges if ``defined``."""
        if self._to_learn:  # no query came
            self._to_learn.pop()
        elif self._analyzer is not None:
            self._analyzer.close_scope(self._left.pop())
        if defined and self._to_define:
            self._to_define.pop()

    def simplify(self, expr: Expr) -> Expr:
        """Return ``expr`` in canonical form."""
        return self.analyzer.simplify(expr)

    def mutate_in_loop(self, var: Var, low: Expr, extent: Expr, body: Stmt) -> Stmt:
        """Mutate ``body`` under ``low <= var < low + extent``."""
        around, self._around = self._around, var
        self._findings.order.place(var, around)
        learn = define = functools.partial(_define_range, var, low, extent)
        if type(extent) is not IntImm:
            learn = functools.partial(_enter_loop, var, low, extent)
        try:
            return self.mutate_where(learn, body, define)
        finally:
            self._around = around

    def mutate_let_body(self, var: Var, value: Expr, body: Stmt) -> Stmt:
        """Mutate ``body`` under ``var == value``."""
        if not _has_range(value):
            result: Stmt = self.mutate(body)
            return result
        around, self._around = self._around, var
        self._findings.order.place(var, around)
        define = functools.partial(_define, var, value)
        try:
            return self.mutate_where(define, body, define)
        finally:
            self._around = around

    def mutate_where(
        self, learn: Callable[[Analyzer], None], body: Stmt, define: Callable[[Analyzer], None] | None = None
    ) -> Stmt:
        """Mutate ``body`` where the analyzer knows the facts of ``learn``; see :meth:`where`."""
        self._to_learn.append(learn)
        if define is not None:
            self._to_define.append(define)
        try:
            result: Stmt = self.mutate(body)
            return result
        finally:
            self._forget(define is not None)

    def mutate_For(self, loop: For) -> Stmt:
        low, extent = loop.min, loop.extent
        if self._rewrites_expressions:
            low, extent = self.mutate(low), self.mutate(extent)
        body = self.mutate_in_loop(loop.var, low, extent, loop.body)
        if low is loop.min and extent is loop.extent:
            return loop.with_body(body)
        return For(loop.var, low, extent, loop.kind, body, loop.annotations)

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        return self.mutate_branches(op, self.mutate(op.condition))

    def mutate_branches(self, op: IfThenElse, condition: Expr) -> Stmt:
        """Mutate the branches of ``op`` where ``condition``, its new condition, holds or does not."""
        then_body = self.mutate_where(lambda analyzer: analyzer.assume(condition), op.then_body)
        else_body = op.else_body
        if else_body is not None:
            else_body = self.mutate_where(lambda analyzer: analyzer.assume(UnaryOp("not", condition)), else_body)
        if condition is op.condition and then_body is op.then_body and else_body is op.else_body:
            return op
        return IfThenElse(condition, then_body, else_body)

    def mutate_LetStmt(self, op: LetStmt) -> Stmt:
        value = self.mutate(op.value)
        # Nests of lets of numbers are deep: use no more stack frames for each than necessary.
        body = self.mutate_let_body(op.var, value, op.body) if _has_range(value) else self.mutate(op.body)
        return op if value is op.value and body is op.body else LetStmt(op.var, value, body)
