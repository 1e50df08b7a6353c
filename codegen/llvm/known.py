"""Track variables whose values are known during emission: those of unrolled loops, which are no values of the machine.

An unrolled loop is emitted once for each value of its variable; nothing is copied. Uses of the variable become
constants during emission: addresses are split once into the part that all copies share and a sum of multiples
(:meth:`KnownIntegers.linear`), which costs each copy a few products of Python integers; other index expressions are
folded once for each combination of the values that they depend on (:meth:`KnownIntegers.fold`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tilewright.codegen.llvm.addresses import split_constant
from tilewright.tensorir.arith.folds import FOLDS, is_false, is_true
from tilewright.tensorir.arith.iter_map import multiples
from tilewright.tensorir.expr import BinaryOp, Broadcast, Buffer, Cast, Expr, IntImm, Var, binary, const
from tilewright.tensorir.functor import Mutator, leaves


class Linear(NamedTuple):
    """An integer as a variable part (None if there is none) plus ``fixed`` plus multiples of known variables."""

    variable: Expr | None
    fixed: int
    terms: dict[Var, int]

    def at(self, values: Mapping[Var, int]) -> int:
        """Return the constant part for these values of the known variables."""
        total = self.fixed
        for var, factor in self.terms.items():
            total += factor * values[var]
        return total


class KnownIntegers:
    """The known variables of one function; replaces them by their values in expressions.

    Attributes:
        values: the value of each.
        names: a number that identifies the set of known variables.
    """

    def __init__(self, values: dict[Var, int] | None = None) -> None:
        self.values: dict[Var, int] = dict(values or {})
        self._sets: dict[frozenset[Var], int] = {}
        self.names = self._number()
        self._folded: dict[tuple[Expr, tuple[int, ...], int], Expr] = {}
        self._linear: dict[tuple[Expr, int], Linear | None] = {}

    def copy(self) -> KnownIntegers:
        """Return the same variables, for a function that is emitted while they are known."""
        return KnownIntegers(self.values)

    def bind(self, var: Var, value: int) -> None:
        """Bind ``var`` to ``value`` from here on."""
        new = var not in self.values
        self.values[var] = value
        if new:
            self.names = self._number()

    def forget(self, var: Var) -> None:
        """Remove ``var``, whose value is no longer known."""
        del self.values[var]
        self.names = self._number()

    def _number(self) -> int:
        return self._sets.setdefault(frozenset(self.values), len(self._sets))

    def occur_in(self, expr: Expr) -> bool:
        """Return whether a known variable occurs in ``expr``."""
        return not leaves(expr).isdisjoint(self.values)

    def fold(self, expr: Expr) -> Expr:
        """Replace known variables in ``expr`` and fold constants; equal values yield one object."""
        found = leaves(expr)
        relevant = tuple([value for var, value in self.values.items() if var in found])
        if not relevant:
            return expr
        key = (expr, relevant, self.names)
        folded = self._folded.get(key)
        if folded is None:
            folded = self._folded[key] = _Folder(self).compute(expr)
        return folded

    def fold_index(self, expr: Expr) -> Expr:
        """Apply :meth:`fold` to integers, conditions and conversions that read no memory; reduce others only where a
        constant decides them (a product with zero)."""
        dtype = expr.dtype
        if not (dtype.is_integer or dtype.is_bool or type(expr) is Cast) or not self.occur_in(expr):
            return expr
        if not any(isinstance(leaf, Buffer) for leaf in leaves(expr)):
            return self.fold(expr)
        if type(expr) is not BinaryOp or dtype.is_bool or dtype.lanes != 1:
            return expr
        a, b = self.fold_index(expr.a), self.fold_index(expr.b)
        made = binary(expr.op, a, b)
        return made if type(made) is not BinaryOp else expr

    def linear(self, expr: Expr) -> Linear | None:
        """Return an int64 as a sum that holds for all values of the known variables; None if there is no such sum."""
        key = (expr, self.names)
        if key not in self._linear:
            found = multiples(expr, self.values)
            self._linear[key] = None if found is None else Linear(*split_constant(found[1], {}), found[0])
        return self._linear[key]


class _Folder(Mutator):
    """Replaces the known variables of one expression; subexpressions shared with others are folded once for all of
    them."""

    def __init__(self, known: KnownIntegers) -> None:
        self.known = known

    def mutate(self, node: Any) -> Any:
        return self.known.fold(node)

    def compute(self, expr: Expr) -> Expr:
        """Return ``expr``, in which known variables occur, with their values in place of them."""
        if isinstance(expr, Var):
            return const(self.known.values[expr], expr.dtype)
        return _computed(expr.rebuild(self))


def _computed(expr: Expr) -> Expr:
    """Fold ``expr``, whose operands are folded."""
    if isinstance(expr, BinaryOp) and expr.dtype.lanes == 1:
        if expr.op in ("and", "or"):
            decides = is_false if expr.op == "and" else is_true
            for one, other in ((expr.a, expr.b), (expr.b, expr.a)):
                if isinstance(one, IntImm):
                    return one if decides(one) else other
        return binary(expr.op, expr.a, expr.b)
    fold = FOLDS.get(type(expr))
    made = expr if fold is None else fold(expr)
    if made is not expr and isinstance(made, Broadcast):
        return Broadcast(_computed(made.value), made.lanes)
    return made
