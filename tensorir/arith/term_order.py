"""The order of terms in canonical forms: by place, so that it depends on the program, not on the order of queries.

Terms of outer loops stand before those of inner ones, and sizes before all: the first terms of an address are then
invariant in the innermost loops. :meth:`TermOrder.place` says where a variable is defined.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, Final

from tilewright.tensorir.arith.linear import Linear
from tilewright.tensorir.expr import Buffer, Expr, Var
from tilewright.tensorir.functor import leaves
from tilewright.tensorir.node import Node

#: Label of the first variable without a place: such variables are inside of all others, in order of first use.
_UNPLACED: Final = float(1 << 40)
#: Label of expressions without variables: after all others.
_CONSTANT: Final = 2 * _UNPLACED

#: The structure of an expression: its size, its class, its fields.
Structure = tuple[int, str, tuple[object, ...]]
#: Sort key of a term: the label of its innermost variable, the labels of all its variables, and its structure.
Key = tuple[float, tuple[float, ...], Structure]


class TermOrder:
    """An order of expressions.

    A variable's label is a number between the labels of the variables defined around it and those defined inside (the
    order-maintenance problem: Dietz and Sleator, *Two algorithms for maintaining order in a list*, 1987).

    Args:
        variables: those that have a place from the beginning, the outer ones first.
    """

    def __init__(self, variables: Sequence[Node] = ()) -> None:
        self._labels: dict[Node, float] = {var: float(number) for number, var in enumerate(dict.fromkeys(variables))}
        #: The labels of variables that have a place, in order.
        self._sorted: list[float] = list(self._labels.values())
        self._unplaced = 0
        self._innermost: dict[Expr, float] = {}
        self._keys: dict[Expr, Key] = {}
        self._structures: dict[Expr, Structure] = {}
        #: The sums that were made of forms in this order, and the forms.
        self.sums: dict[Expr, Linear] = {}

    def place(self, var: Node, around: Node | None) -> None:
        """Place ``var`` right inside ``around`` (None: outside of all others). A variable that has a place keeps it, so
        that forms found before are found again."""
        if self._labels.get(var, _UNPLACED) < _UNPLACED:
            return
        labels, in_order = self._labels, self._sorted
        if var in labels:  # it was compared before it was placed
            self._forget()
        outer = -1.0 if around is None else labels.get(around, _UNPLACED)
        if outer >= _UNPLACED:
            outer = in_order[-1] if in_order else -1.0
        at = bisect.bisect_right(in_order, outer)
        if at < len(in_order) and not outer < (outer + in_order[at]) / 2 < in_order[at]:
            self._spread()  # no number is left between the two
            outer, in_order = at - 1.0, self._sorted
        label = outer + 1 if at == len(in_order) else (outer + in_order[at]) / 2
        in_order.insert(at, label)
        labels[var] = label

    def _spread(self) -> None:
        """Label the variables that have a place anew, at equal distances."""
        new = {label: float(number) for number, label in enumerate(self._sorted)}
        for var, label in self._labels.items():
            if label in new:
                self._labels[var] = new[label]
        self._sorted = list(new.values())
        self._forget()

    def _forget(self) -> None:
        """Drop what was computed from the old labels."""
        self._innermost.clear()
        self._keys.clear()
        self._structures.clear()
        self.sums.clear()

    def _label(self, var: Node) -> float:
        found = self._labels.get(var)
        if found is None:
            found = self._labels[var] = _UNPLACED + self._unplaced
            self._unplaced += 1
        return found

    def innermost(self, expr: Expr) -> float:
        """The place of the innermost variable of ``expr``, which decides most comparisons."""
        found = self._innermost.get(expr)
        if found is None:
            found = max([self._label(leaf) for leaf in leaves(expr) if isinstance(leaf, Var)], default=_CONSTANT)
            self._innermost[expr] = found
        return found

    def key(self, expr: Expr) -> Key:
        """Return the sort key of ``expr``."""
        found = self._keys.get(expr)
        if found is None:
            places = sorted([self._label(leaf) for leaf in leaves(expr) if isinstance(leaf, Var)], reverse=True)
            found = self._keys[expr] = self.innermost(expr), tuple(places), self._structure(expr)
        return found

    def sort(self, exprs: Sequence[Expr]) -> list[Expr]:
        """The expressions in order."""
        places = [self.innermost(expr) for expr in exprs]
        if len(set(places)) < len(places):
            return sorted(exprs, key=self.key)
        return [exprs[number] for number in sorted(range(len(places)), key=places.__getitem__)]

    def sort_terms(self, terms: dict[Expr, int]) -> list[tuple[Expr, int]]:
        """Terms and coefficients: positive terms before negative ones, large coefficients first."""
        items = list(terms.items())
        if len(items) < 2:
            return items
        innermost = self.innermost
        keyed = [(n < 0, -abs(n), innermost(term)) for term, n in items]
        if len(set(keyed)) < len(items):
            items.sort(key=lambda item: (item[1] < 0, -abs(item[1]), self.key(item[0])))
            return items
        return [items[number] for number in sorted(range(len(items)), key=keyed.__getitem__)]

    def _structure(self, expr: Expr) -> Structure:
        """Return nested tuples that can be compared and are equal only for equal expressions; small ones first."""
        if isinstance(expr, Var):
            return 1, "", (expr.name, self._label(expr))
        found = self._structures.get(expr)
        if found is None:
            fields = tuple([self._compared(getattr(expr, name)) for name, _ in expr.node_fields])
            size = 1 + sum([self._structure(part)[0] for part in expr.parts() if isinstance(part, Expr)])
            found = self._structures[expr] = size, type(expr).__name__, fields
        return found

    def _compared(self, value: Any) -> tuple[object, ...]:
        """A field's value, to be compared with that of another expression of the same class."""
        if isinstance(value, Expr):
            return self._structure(value)
        if isinstance(value, tuple):
            return tuple([self._compared(part) for part in value])
        if isinstance(value, Buffer):
            return value.name, self._label(value)
        if isinstance(value, (bool, int, float)):
            return (value,)
        return () if value is None else (str(value),)
