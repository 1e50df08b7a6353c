"""Iteration maps: index expressions as sums of splits of variables.

Splitting, fusing and reordering loops, and blocking layouts, give indices that are sums of *splits* plus a base::

    source // lower % extent * scale + ... + base

where a source is a variable, or another such sum whose quotients and remainders were taken. Indices whose splits are
known can be solved for their variables: see :mod:`.iter_solver`.

The theory is that of Apache TVM's ``src/arith/iter_affine_map.cc`` (``DetectIterMap``, ``InverseAffineIterMap``);
see also Feng et al., "TensorIR: An Abstraction for Automatic Tensorized Program Optimization" (ASPLOS 2023), on
quasi-affine iterator bindings. Divisors are extents, and positive wherever an expression is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var, binary, const
from tilewright.tensorir.functor import DIVISIONS, kinds, leaves
from tilewright.tensorir.node import Node


@dataclass(frozen=True)
class IterSplit:
    """``source // lower % extent * scale``.

    Attributes:
        source: a variable, or an expression of variables.
        lower: the positive number of values of the source that share one of the split.
        extent: the number of values; None where no remainder is taken.
        scale: the factor.
    """

    source: Expr
    lower: Expr
    extent: Expr | None
    scale: Expr

    @classmethod
    def of(cls, source: Expr) -> IterSplit:
        """The split that is the whole source."""
        one = const(1, source.dtype)
        return cls(source, one, None, one)

    @property
    def is_whole(self) -> bool:
        """Whether it is a multiple of the source itself."""
        return self.extent is None and isinstance(self.lower, IntImm) and self.lower.value == 1

    @property
    def factor(self) -> int | None:
        """The scale, if it is a constant."""
        return self.scale.value if isinstance(self.scale, IntImm) else None

    def times(self, factor: Expr) -> IterSplit:
        """The split multiplied by a number."""
        scale = factor if self.factor == 1 else binary("mul", self.scale, factor)
        return IterSplit(self.source, self.lower, self.extent, scale)

    def value(self, of: Expr) -> Expr:
        """Return the value of the split for the value ``of`` of its source."""
        found = binary("floordiv", of, self.lower)
        if self.extent is not None:
            found = binary("floormod", found, self.extent)
        return binary("mul", found, self.scale)


@dataclass(frozen=True)
class IterSum:
    """A sum of splits, and a base in which none of their variables occurs."""

    splits: tuple[IterSplit, ...]
    base: Expr


def constant_value(expr: Expr) -> int | None:
    """The value of an integer constant; None for any other expression."""
    return expr.value if isinstance(expr, IntImm) else None


def is_zero(expr: Expr) -> bool:
    """Return whether an expression is the constant zero."""
    return isinstance(expr, IntImm) and expr.value == 0


def iter_sum(expr: Expr, variables: Collection[Node]) -> IterSum | None:
    """Return an integer as a sum of splits of expressions in which ``variables`` occur; None if it is no such sum."""
    if isinstance(expr, Var) and expr in variables:
        return _just(IterSplit.of(expr))
    if isinstance(expr, IntImm) or leaves(expr).isdisjoint(variables):
        return IterSum((), expr)
    if not isinstance(expr, BinaryOp) or expr.dtype.lanes != 1:
        return None
    if expr.op in ("add", "sub", "mul"):
        a, b = iter_sum(expr.a, variables), iter_sum(expr.b, variables)
        return None if a is None or b is None else _combined(expr.op, a, b)
    if expr.op in ("floordiv", "floormod") and leaves(expr.b).isdisjoint(variables):
        return _divided(expr, variables)
    return None


def _just(split: IterSplit) -> IterSum:
    return IterSum((split,), const(0, split.source.dtype))


def _combined(op: str, a: IterSum, b: IterSum) -> IterSum | None:
    if op == "mul":
        if a.splits and b.splits:
            return None
        varying, factor = (a, b.base) if a.splits else (b, a.base)
        base = varying.base if is_zero(varying.base) else binary("mul", varying.base, factor)
        return IterSum(_scaled(varying.splits, factor), base)
    added = b.splits if op == "add" else _scaled(b.splits, const(-1, b.base.dtype))
    return IterSum(a.splits + added, a.base if is_zero(b.base) else binary(op, a.base, b.base))


def _scaled(splits: tuple[IterSplit, ...], factor: Expr) -> tuple[IterSplit, ...]:
    return tuple([split.times(factor) for split in splits])


def _divided(expr: BinaryOp, variables: Collection[Node]) -> IterSum | None:
    divisor = constant_value(expr.b)
    if divisor is not None and divisor <= 0:
        return None
    inner = IterSplit.of(expr.a)
    if isinstance(expr.a, BinaryOp) and expr.a.op in ("floordiv", "floormod"):
        found = iter_sum(expr.a, variables)
        if found is None:
            return None
        (split,) = found.splits
        count = None if split.extent is None else constant_value(split.extent)
        if split.extent is None or (count is not None and divisor is not None and count % divisor == 0):
            inner = split
    if expr.op == "floormod":
        return _just(IterSplit(inner.source, inner.lower, expr.b, inner.scale))
    extent = None if inner.extent is None else binary("floordiv", inner.extent, expr.b)
    return _just(IterSplit(inner.source, binary("mul", inner.lower, expr.b), extent, inner.scale))


def affine(expr: Expr, variables: Collection[Node]) -> IterSum | None:
    """Return an integer as a sum of multiples of ``variables``; None if it is no such sum, as where it has quotients of
    them."""
    found = iter_sum(expr, variables)
    if found is not None:
        for split in found.splits:
            if not split.is_whole or not isinstance(split.source, Var):
                return None
    return found


def multiples(expr: Expr, variables: Collection[Node]) -> tuple[dict[Var, int], Expr] | None:
    """Return an integer as a sum of constant multiples of those of ``variables`` that occur in it: the factor of each,
    and the rest, in which none occurs; None if it is no such sum."""
    found = affine(expr, variables)
    if found is None:
        return None
    factors: dict[Var, int] = {}
    for split in found.splits:
        var, factor = split.source, split.factor
        if factor is None:
            return None
        assert isinstance(var, Var)
        factors[var] = factors.get(var, 0) + factor
    return factors, found.base


def coefficient(expr: Expr, var: Var) -> int | None:
    """The factor of ``var`` in an index expression: 0 where it does not occur, None if it is not a constant."""
    found = multiples(expr, (var,))
    return None if found is None else found[0].get(var, 0)


def only_split(expr: Expr, var: Var) -> IterSplit | None:
    """The split of an index expression in which ``var`` occurs once; None for others."""
    found = iter_sum(expr, (var,))
    if found is None or len(found.splits) != 1:
        return None
    (split,) = found.splits
    return split if split.source is var else None


def runs(expr: Node, var: Var) -> list[Expr]:
    """Return for each split of ``var`` in ``expr`` the number of consecutive values of ``var``, from a multiple of that
    number on, that give one value: ``n`` for ``var // n``, 1 for what is no such split."""
    if not isinstance(expr, Expr) or var not in leaves(expr):
        return []
    found = iter_sum(expr, (var,))
    if found is None:  # what is made of such sums
        return [run for part in expr.parts() for run in runs(part, var)]
    one = const(1, var.dtype)
    return [split.lower if split.source is var else one for split in found.splits]


def run_length(expr: Node, var: Var) -> int | None:
    """Return the number of consecutive values of ``var``, from a multiple of that number on, that give one value of
    ``expr``: None if all of them do, ``n`` if ``var`` only occurs as ``var // n``, else 1."""
    if not kinds(expr) & DIVISIONS:
        return 1 if var in leaves(expr) else None
    found = [constant_value(run) or 1 for run in runs(expr, var)]
    return math.gcd(*found) if found else None
