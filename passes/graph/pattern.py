"""Patterns of small expressions, for tables of rewrite rules.

``Op("multiply", X, one)`` matches a call of ``multiply`` whose second argument matches ``one``; ``Bind("x")`` matches
anything and remembers it. A rule is a pattern and a function from what matched to what takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr
from tilewright.graphir.op import Operator

#: What a pattern has bound: expressions by name, and the attributes of its calls by ``name of operator + number``.
Match = dict[str, Any]


class Pattern:
    """Base of patterns."""

    def match(self, node: Expr, found: Match) -> bool:
        """Whether ``node`` matches, given what is bound in ``found``; binds more."""
        raise NotImplementedError


class Bind(Pattern):
    """Matches anything; where the name is bound already, only that very expression."""

    def __init__(self, name: str) -> None:
        self.name = name

    def match(self, node: Expr, found: Match) -> bool:
        return found.setdefault(self.name, node) is node


class Splat(Pattern):
    """Matches a constant (bound to ``name``, if given) for whose elements ``holds`` is true, all at once."""

    def __init__(self, holds: Callable[[np.ndarray[Any, Any]], Any], name: str | None = None) -> None:
        self.holds = holds
        self.name = name

    def match(self, node: Expr, found: Match) -> bool:
        if type(node) is not Constant or not bool(np.all(self.holds(node.data))):
            return False
        if self.name is not None:
            found[self.name] = node
        return True


class Op(Pattern):
    """Matches a call of an operator (of one of several names); its attributes are bound to ``attrs``, if given."""

    def __init__(self, names: str | Iterable[str], *args: Pattern, attrs: str | None = None) -> None:
        self.names = frozenset((names,) if isinstance(names, str) else names)
        self.args = args
        self.attrs = attrs

    def match(self, node: Expr, found: Match) -> bool:
        if type(node) is not Call or not isinstance(node.op, Operator) or node.op.name not in self.names:
            return False
        if len(node.args) != len(self.args):
            return False
        if self.attrs is not None:
            found[self.attrs] = node.attrs
        return all(pattern.match(arg, found) for pattern, arg in zip(self.args, node.args, strict=True))


class Rule:
    """``pattern -> build(match)``, where ``build`` may give None: the rule does not apply after all."""

    def __init__(self, pattern: Op, build: Callable[[Match], Expr | None]) -> None:
        self.pattern = pattern
        self.build = build

    def apply(self, node: Call) -> Expr | None:
        """What takes the place of ``node``, an expression of the same type; None if the rule does not apply."""
        found: Match = {"self": node}
        if not self.pattern.match(node, found):
            return None
        made = self.build(found)
        return made if made is not None and made is not node and made.type == node.type else None


RuleTable = dict[str, list[Rule]]


def rule_table(*groups: Iterable[Rule]) -> RuleTable:
    """The rules by the operators that they begin with, in order."""
    table: RuleTable = {}
    for rules in groups:
        for rule in rules:
            for name in rule.pattern.names:
                table.setdefault(name, []).append(rule)
    return table


def apply_rules(node: Expr, table: RuleTable) -> Expr:
    """``node`` with rules applied at its top until none applies. Each rule must make an expression simpler."""
    while type(node) is Call and isinstance(node.op, Operator):
        for rule in table.get(node.op.name, ()):
            made = rule.apply(node)
            if made is not None:
                node = made
                break
        else:
            return node
    return node
