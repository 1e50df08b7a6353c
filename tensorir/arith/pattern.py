"""Patterns of expressions, for algebra rules that read as they are written on paper.

``Rule(x + 0, x)`` replaces a sum with zero by its other operand. A pattern is built with Python operators from
variables (``x``), constant variables (``c``, which match any constant) and numbers; the replacement from the same
variables. Each rule becomes a matcher once, when its table is made.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Select,
    UnaryOp,
    binary,
    compare,
    const,
    select,
)

Bindings = dict[str, Expr]
PatternLike = Union["Pattern", int, float, bool]


class Pattern:
    """Base of patterns."""

    def __add__(self, other: PatternLike) -> Pattern:
        return Node("add", (self, pattern(other)))

    def __radd__(self, other: PatternLike) -> Pattern:
        return Node("add", (pattern(other), self))

    def __sub__(self, other: PatternLike) -> Pattern:
        return Node("sub", (self, pattern(other)))

    def __rsub__(self, other: PatternLike) -> Pattern:
        return Node("sub", (pattern(other), self))

    def __mul__(self, other: PatternLike) -> Pattern:
        return Node("mul", (self, pattern(other)))

    def __rmul__(self, other: PatternLike) -> Pattern:
        return Node("mul", (pattern(other), self))

    def __truediv__(self, other: PatternLike) -> Pattern:
        return Node("div", (self, pattern(other)))

    def __rtruediv__(self, other: PatternLike) -> Pattern:
        return Node("div", (pattern(other), self))

    def __floordiv__(self, other: PatternLike) -> Pattern:
        return Node("floordiv", (self, pattern(other)))

    def __mod__(self, other: PatternLike) -> Pattern:
        return Node("floormod", (self, pattern(other)))

    def __and__(self, other: PatternLike) -> Pattern:
        return Node("bitand", (self, pattern(other)))

    def __or__(self, other: PatternLike) -> Pattern:
        return Node("bitor", (self, pattern(other)))

    def __xor__(self, other: PatternLike) -> Pattern:
        return Node("bitxor", (self, pattern(other)))

    def __lshift__(self, other: PatternLike) -> Pattern:
        return Node("shl", (self, pattern(other)))

    def __rshift__(self, other: PatternLike) -> Pattern:
        return Node("shr", (self, pattern(other)))

    def __lt__(self, other: PatternLike) -> Pattern:
        return Node("lt", (self, pattern(other)))

    def __le__(self, other: PatternLike) -> Pattern:
        return Node("le", (self, pattern(other)))

    def __gt__(self, other: PatternLike) -> Pattern:
        return Node("gt", (self, pattern(other)))

    def __ge__(self, other: PatternLike) -> Pattern:
        return Node("ge", (self, pattern(other)))

    def __neg__(self) -> Pattern:
        return Node("neg", (self,))

    def __invert__(self) -> Pattern:
        return Node("bitnot", (self,))


@dataclasses.dataclass(frozen=True)
class Variable(Pattern):
    """Matches any expression (or, if ``constant``, any constant); two uses of a name match equal expressions."""

    name: str
    constant: bool = False


@dataclasses.dataclass(frozen=True)
class Number(Pattern):
    """Matches this number, of whatever type; of floats the same sign of zero."""

    value: int | float


@dataclasses.dataclass(frozen=True)
class Node(Pattern):
    """Matches an operation (or, with ``@`` before its name, a call of an intrinsic) on operands that match."""

    name: str
    operands: tuple[Pattern, ...]


def pattern(value: PatternLike) -> Pattern:
    """A pattern, or the pattern of a number."""
    return value if isinstance(value, Pattern) else Number(value)


def operation(name: str, *operands: PatternLike) -> Pattern:
    """A pattern of an operation that Python has no operator for: ``operation("min", x, y)``."""
    return Node(name, tuple(pattern(o) for o in operands))


def intrinsic(name: str, *operands: PatternLike) -> Pattern:
    """A pattern of a call of an intrinsic."""
    return Node("@" + name, tuple(pattern(o) for o in operands))


@dataclasses.dataclass(frozen=True)
class Rule:
    """``before`` may be replaced by ``after`` wherever ``condition`` (on the bindings) holds."""

    before: Pattern
    after: Pattern
    condition: Callable[[Mapping[str, Expr]], bool] | None = None


def head(expr: Expr) -> tuple[str, tuple[Expr, ...]] | None:
    """Name and operands of an operation that patterns can match."""
    if isinstance(expr, (BinaryOp, Compare)):
        return expr.op, (expr.a, expr.b)
    if isinstance(expr, UnaryOp):
        return expr.op, (expr.a,)
    if isinstance(expr, Select):
        return "select", (expr.condition, expr.true_value, expr.false_value)
    if isinstance(expr, Call) and not expr.name.startswith("@"):
        return "@" + expr.name, expr.args
    return None


def constant_of(expr: Expr) -> int | float | None:
    """The value of a constant, or of a vector of one constant."""
    if isinstance(expr, Broadcast):
        expr = expr.value
    return expr.value if isinstance(expr, (IntImm, FloatImm)) else None


#: Tells whether an expression matches a pattern, and fills in the bindings.
_Matcher = Callable[[Expr, Bindings], bool]


def _matcher(pattern: Pattern) -> _Matcher:
    """Return the function that matches ``pattern``. The pattern is read once, here, because the function is called on
    every expression for every rule."""
    if isinstance(pattern, Variable):
        name = pattern.name
        if pattern.constant:
            return lambda expr, bound: constant_of(expr) is not None and bound.setdefault(name, expr) is expr
        return lambda expr, bound: bound.setdefault(name, expr) is expr
    if isinstance(pattern, Number):
        return _number_matcher(pattern.value)
    assert isinstance(pattern, Node)
    name, operands = pattern.name, [_matcher(operand) for operand in pattern.operands]
    if len(operands) != 2 or name.startswith("@"):
        return lambda expr, bound: (
            (found := head(expr)) is not None
            and found[0] == name
            and all(match(part, bound) for match, part in zip(operands, found[1], strict=True))
        )
    left, right = operands

    def match_both(expr: Expr, bound: Bindings) -> bool:
        if not isinstance(expr, (BinaryOp, Compare)) or expr.op != name:
            return False
        return left(expr.a, bound) and right(expr.b, bound)

    return match_both


def _number_matcher(wanted: int | float) -> _Matcher:
    def match_number(expr: Expr, bound: Bindings) -> bool:
        value = constant_of(expr)
        return value is not None and value == wanted and math.copysign(1, value) == _sign(wanted, expr)

    return match_number


def _sign(value: int | float, expr: Expr) -> float:
    return math.copysign(1, value) if expr.dtype.is_float else (1 if value >= 0 else -1)


def build(pattern: Pattern, bound: Mapping[str, Expr], dtype: DataType, name: str = "") -> Expr:
    """The expression of a replacement. ``dtype`` is the type of the value; comparisons take that of their operands."""
    if isinstance(pattern, Variable):
        return bound[pattern.name]
    if isinstance(pattern, Number):
        return const(pattern.value, dtype)
    assert isinstance(pattern, Node)
    name, parts = pattern.name, pattern.operands
    inner = next(iter(bound.values())).dtype if name in _COMPARES else dtype
    operands = [build(p, bound, _BOOL if name == "select" and i == 0 else inner) for i, p in enumerate(parts)]
    if name.startswith("@"):
        return Call(name[1:], tuple(operands), dtype)
    if name == "select":
        return select(*operands)
    if name in ("neg", "not", "bitnot"):
        return UnaryOp(name, operands[0])
    return compare(name, *operands) if name in _COMPARES else binary(name, *operands)


_BOOL = DataType("bool")
_COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")


_CONSTANT = "constant"


def _shape(expr: Expr) -> str:
    """Return the kind of the root of ``expr``, as far as patterns tell it: a constant, or the name of an operation."""
    if type(expr) is BinaryOp or type(expr) is Compare:
        return expr.op
    if type(expr) is BufferLoad:
        return ""
    if constant_of(expr) is not None:
        return _CONSTANT
    found = head(expr)
    return "" if found is None else found[0]


def _fits(wanted: Pattern, shape: str) -> bool:
    """Return whether an expression of this shape may match; not whether it does."""
    if isinstance(wanted, Node):
        return wanted.name == shape
    return shape == _CONSTANT or (isinstance(wanted, Variable) and not wanted.constant)


class RuleTable:
    """Rules by the operation at their top; the first that matches applies."""

    def __init__(self, rules: Iterable[Rule | tuple[Any, ...]]) -> None:
        self.rules = tuple(r if isinstance(r, Rule) else Rule(pattern(r[0]), pattern(r[1]), *r[2:]) for r in rules)
        self._by_head: dict[str, list[tuple[_Matcher, Rule]]] = {}
        #: The rules that may match, which are few, by the name of an operation and the kinds of its operands.
        self._by_shape: dict[tuple[str, ...], list[tuple[_Matcher, Rule]]] = {}
        for rule in self.rules:
            assert isinstance(rule.before, Node)
            self._by_head.setdefault(rule.before.name, []).append((_matcher(rule.before), rule))

    def __add__(self, other: RuleTable) -> RuleTable:
        return RuleTable(self.rules + other.rules)

    def _candidates(self, shapes: tuple[str, ...]) -> list[tuple[_Matcher, Rule]]:
        found = self._by_shape.get(shapes)
        if found is None:
            found = self._by_shape[shapes] = [
                (match, rule)
                for match, rule in self._by_head[shapes[0]]
                if all(map(_fits, rule.before.operands, shapes[1:]))  # type: ignore[attr-defined]
            ]
        return found

    def apply(self, expr: Expr) -> Expr | None:
        """``expr`` by the first rule that matches, or None."""
        shapes: tuple[str, ...]
        if type(expr) is BinaryOp or type(expr) is Compare:  # most are
            if expr.op not in self._by_head:
                return None
            shapes = expr.op, _shape(expr.a), _shape(expr.b)
        else:
            found = head(expr)
            if found is None or found[0] not in self._by_head:
                return None
            shapes = (found[0], *[_shape(operand) for operand in found[1]])
        for match, rule in self._candidates(shapes):
            bound: Bindings = {}
            if match(expr, bound) and (rule.condition is None or rule.condition(bound)):
                return build(rule.after, bound, expr.dtype)
        return None
