"""Patterns of small expressions, for tables of rewrite rules.

``Op("multiply", X, one)`` matches a call of ``multiply`` whose second argument matches ``one``; ``Bind("x")`` matches
anything and binds it. ``Op(lambda op: op.idempotent, X)`` matches a call of any operator that states the trait. A rule
is a pattern and a function from the match to the replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr
from tilewright.graphir.op import Operator
from tilewright.graphir.types import TensorType

#: The bindings of a pattern: expressions by name, and the attributes of calls by the name that the pattern gives them.
Match = dict[str, Any]


class Pattern:
    """Base of patterns."""

    def may_match(self, what: Operator | type) -> bool:
        """Return whether an expression may match that is a call of an operator, or of another class."""
        return True

    def match(self, node: Expr, found: Match) -> bool:
        """Check whether ``node`` matches under the bindings in ``found``, and add new bindings to it."""
        raise NotImplementedError


class Bind(Pattern):
    """Match anything; if the name is bound already, only that same expression."""

    def __init__(self, name: str) -> None:
        self.name = name

    def match(self, node: Expr, found: Match) -> bool:
        return found.setdefault(self.name, node) is node


#: So many operators that only repeat or move an element are looked through.
_MOST_MOVES = 4


def as_constant(node: Expr) -> Constant | None:
    """Return ``node`` if it is a constant; a constant of one element, without dimensions, if all elements of ``node``
    are equal to it, whatever the shape: ``ones_like(x)``, ``full(..)`` of symbolic shape. None: neither."""
    if type(node) is Constant:
        return node
    for _ in range(_MOST_MOVES):
        if type(node) is not Call or len(node.args) > 1 or not isinstance(node.op, Operator):
            return None
        op, args = node.op, node.args
        if not args or (op.ignores_elements and isinstance(args[0].type, TensorType)):
            value = op.uniform_value([np.zeros((), arg.dtype.numpy) for arg in args], node.attrs)
            return None if value is None else Constant(np.asarray(value))
        if not (op.keeps_order or op.moves_elements):
            return None
        (node,) = args
        if type(node) is Constant:
            return node if node.size == 1 else None
    return None


def _may_be_constant(what: Operator | type) -> bool:
    """Return whether :func:`as_constant` may find a constant in a call of an operator, or in a node of a class."""
    if not isinstance(what, Operator):
        return what is Constant
    return what.required == 0 or (
        what.required == 1 and (what.ignores_elements or what.keeps_order or what.moves_elements)
    )


def all_true(values: Any) -> bool:
    """Return ``np.all(values)``, without NumPy's Python code around it."""
    return bool(np.logical_and.reduce(values, axis=None))


class Splat(Pattern):
    """Match a constant, also one of :func:`as_constant`, for all of whose elements ``holds`` is true; bind it to
    ``name``, if given."""

    def __init__(self, holds: Callable[[np.ndarray[Any, Any]], Any], name: str | None = None) -> None:
        self.holds = holds
        self.name = name

    def may_match(self, what: Operator | type) -> bool:
        return _may_be_constant(what)

    def match(self, node: Expr, found: Match) -> bool:
        constant = as_constant(node)
        if constant is None or not all_true(self.holds(constant.data)):
            return False
        if self.name is not None:
            found[self.name] = constant
        return True


class AnyConstant(Pattern):
    """Match a constant, also one of :func:`as_constant`, and bind it to ``name`` without reading its elements (large
    ones may not be computed yet)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def may_match(self, what: Operator | type) -> bool:
        return _may_be_constant(what)

    def match(self, node: Expr, found: Match) -> bool:
        constant = as_constant(node)
        return constant is not None and found.setdefault(self.name, constant) is constant


class Op(Pattern):
    """Match a call of the operator of a given name, or of any operator with a trait.

    Args:
        which: the name, or a predicate on operators.
        args: patterns of the arguments, as many as the call has; none: a call with any arguments matches.
        attrs: the name that the call's attributes are bound to, if any.
        call: the name that operator and attributes are bound to, if any; where it is bound already, only a call of that
            operator with equal attributes matches.
    """

    def __init__(
        self,
        which: str | Callable[[Operator], bool],
        *args: Pattern,
        attrs: str | None = None,
        call: str | None = None,
    ) -> None:
        self.which = which
        self.args = args
        self.attrs = attrs
        self.call = call
        #: Answers of :meth:`takes`.
        self._taken: dict[object, bool] = {}
        # Calls first, what matches anything last: most arguments that do not match are found at once.
        self._order = sorted(enumerate(args), key=lambda each: (isinstance(each[1], Bind), not isinstance(each[1], Op)))

    def takes(self, op: Operator) -> bool:
        """Return whether calls of ``op`` may match."""
        found = self._taken.get(op)
        if found is None:
            found = self._taken[op] = self.which == op.name if isinstance(self.which, str) else bool(self.which(op))
        return found

    def may_match(self, what: Operator | type) -> bool:
        return isinstance(what, Operator) and self.takes(what)

    def match(self, node: Expr, found: Match) -> bool:
        if type(node) is not Call:
            return False
        takes = self._taken.get(node.op)  # most calls fail here; a function is never among the operators
        if takes is None:
            takes = isinstance(node.op, Operator) and self.takes(node.op)
        return takes and self.match_rest(node, found)

    def match_rest(self, node: Call, found: Match) -> bool:
        """Check whether a call of an operator that the pattern takes matches, and add bindings."""
        args = node.args
        if self.args and len(args) != len(self.args):
            return False
        for number, pattern in self._order:  # before what is bound: most calls fail here
            if not pattern.match(args[number], found):
                return False
        if self.attrs is not None:
            found[self.attrs] = node.attrs
        if self.call is not None:
            op, attrs = found.setdefault(self.call, (node.op, node.attrs))
            if op is not node.op or (attrs is not node.attrs and attrs != node.attrs):
                return False
        return True


class Rule:
    """A rewrite ``pattern -> build(match)``; ``build`` may return None if the rule does not apply after all."""

    def __init__(self, pattern: Op, build: Callable[[Match], Expr | None]) -> None:
        self.pattern = pattern
        self.build = build

    def apply(self, node: Call) -> Expr | None:
        """Rewrite ``node``, a call of an operator that the pattern takes, to an expression of the same type; None if
        the rule does not apply."""
        found: Match = {"self": node}
        if not self.pattern.match_rest(node, found):
            return None
        made = self.build(found)
        return made if made is not None and made is not node and made.type == node.type else None


def _may_match(pattern: Pattern, what: Operator | type) -> bool:
    return pattern.may_match(what)


#: So many arguments of a call tell which rules may match it.
_MOST_TOLD = 2


class Rules:
    """Rules in order, looked up by the operator of an expression."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._of_operator: dict[Operator, list[Rule]] = {}
        #: By an operator and what its first arguments are, the rules that may match.
        self._of_call: dict[tuple[Operator | type, ...], list[Rule]] = {}
        #: The places of rules for operators of a name, and of those for operators with a trait.
        self._named: dict[str, list[int]] = {}
        self._with_trait: dict[Callable[[Operator], bool], list[int]] = {}
        for place, rule in enumerate(self.rules):
            which = rule.pattern.which
            if isinstance(which, str):
                self._named.setdefault(which, []).append(place)
            else:
                self._with_trait.setdefault(which, []).append(place)

    def rules_for(self, op: Operator) -> list[Rule]:
        """Return the rules whose pattern has a call of ``op`` at its root."""
        found = self._of_operator.get(op)
        if found is None:
            places = list(self._named.get(op.name, ()))
            for has_trait, others in self._with_trait.items():
                if has_trait(op):
                    places += others
            # Whole when it is entered: another thread may look it up at once.
            found = self._of_operator[op] = [self.rules[place] for place in sorted(places)]
        return found

    def _rules_for_call(self, node: Call, op: Operator) -> list[Rule]:
        """Return the rules that may match a call of ``op``, as far as its first arguments tell."""
        key: tuple[Operator | type, ...] = (
            op,
            *[
                arg.op if type(arg) is Call and isinstance(arg.op, Operator) else type(arg)
                for arg in node.args[:_MOST_TOLD]
            ],
        )
        found = self._of_call.get(key)
        if found is None:
            found = self._of_call[key] = [
                rule for rule in self.rules_for(op) if all(map(_may_match, rule.pattern.args, key[1:]))
            ]
        return found

    def apply(self, node: Expr) -> Expr:
        """Apply rules at the root of ``node`` until none applies. Each rule must make an expression simpler.

        Nodes do not change, and the passes between two simplifications leave most as they are: each is tried once.
        """
        while type(node) is Call and isinstance(node.op, Operator):
            if getattr(node, "_unchanged_by", None) is self:
                break
            for rule in self._rules_for_call(node, node.op):
                made = rule.apply(node)
                if made is not None:
                    node = made
                    break
            else:
                object.__setattr__(node, "_unchanged_by", self)
        return node
