"""Guard expressions: a value that is only computed where a condition holds.

The IR has no expression that skips its operands: both values of a ``select`` are evaluated, so that vectors need no
branches. What must not happen where a condition is false is said at the very places where it would: a load carries the
condition as its predicate, which every later stage keeps (a masked load in a vector, a branch around a scalar one), and
a divisor or a shift that may be none becomes one that is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.tensorir.conditions import OPPOSITES, conjunction, conjuncts
from tilewright.tensorir.errors import ArgumentTypeError
from tilewright.tensorir.expr import (
    BinaryOp,
    BufferLoad,
    Call,
    Compare,
    Expr,
    ExprLike,
    IntImm,
    Select,
    UnaryOp,
    all_of,
    as_expr,
    binary,
    const,
    match_operands,
    select,
)
from tilewright.tensorir.functor import INTEGER_DIVISIONS, LOADS, Mutator, walk_to
from tilewright.tensorir.intrinsics import ADDRESSING

#: What makes a second operand harmless, for operations that not every one is defined for.
_HARMLESS = {**dict.fromkeys(INTEGER_DIVISIONS, 1), "shl": 0, "shr": 0}


def if_then_else(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> Expr:
    """Return ``true_value`` where ``condition`` holds, else ``false_value``, of which only the one taken is read.

    Loads of the other value touch no memory, and its integer divisions and shifts have no effect, so that ``x[i - 1]``
    may stand where ``i`` is zero. What else it computes may be evaluated: there are no branches in vectors. The
    expression is a :func:`select` whose values are :func:`guarded`; a plain ``select`` reads both.

    Raises:
        TypeError: the condition is no scalar bool, the values have different types, or one of them has an effect.
    """
    condition = as_expr(condition)
    if not condition.dtype.is_bool or condition.dtype.lanes != 1:
        raise ArgumentTypeError(
            f"if_then_else: expected a scalar bool condition, found {condition.dtype!s}: {condition!s}"
        )
    a, b = match_operands(true_value, false_value)
    if a.dtype is not b.dtype:
        raise ArgumentTypeError(f"if_then_else: values have different types, {a.dtype!s} and {b.dtype!s}: {a!s}, {b!s}")
    if isinstance(condition, IntImm):
        return a if condition.value else b
    return select(condition, guarded(a, condition), guarded(b, negation(condition)))


def guarded(expr: Expr, condition: Expr) -> Expr:
    """Return ``expr`` in a form that can be evaluated anywhere, with its value where ``condition`` holds.

    Raises:
        TypeError: ``expr`` calls what has an effect.
    """
    if isinstance(condition, IntImm) and condition.value:
        return expr
    result: Expr = _Guard(condition).mutate(expr)
    return result


def negation(condition: Expr) -> Expr:
    """Return the condition that holds where ``condition`` does not."""
    if isinstance(condition, IntImm):
        return const(not condition.value, condition.dtype)
    if isinstance(condition, UnaryOp) and condition.op == "not":
        return condition.a
    if isinstance(condition, Compare) and (not condition.a.dtype.is_float or condition.op in ("eq", "ne")):
        return Compare(OPPOSITES[condition.op], condition.a, condition.b)
    return UnaryOp("not", condition)


class _Guard(Mutator):
    def __init__(self, condition: Expr) -> None:
        self.condition = condition
        #: What became of expressions, which are graphs with many paths to an operand. What the condition reads itself
        #: may be read anywhere.
        self._done: dict[Expr, Expr] = {
            found: found for found in walk_to(condition, LOADS) if isinstance(found, BufferLoad)
        }

    def mutate(self, node: Any) -> Any:
        found = self._done.get(node)
        if found is None:
            found = self._done[node] = super().mutate(node)
        return found

    def mutate_BufferLoad(self, load: BufferLoad) -> Expr:
        if load.predicate is None and _is_inside(load):
            return load
        predicate = self.condition if load.predicate is None else self._joined(self.mutate(load.predicate))
        return BufferLoad(load.buffer, self.mutate_all(load.indices), predicate)

    def mutate_BinaryOp(self, operation: BinaryOp) -> Expr:
        made: BinaryOp = self.generic_mutate(operation)
        if made.op not in _HARMLESS or not made.dtype.is_integer or isinstance(made.b, IntImm):
            return made
        harmless = const(_HARMLESS[made.op], made.b.dtype)
        return BinaryOp(made.op, made.a, select(self.condition, made.b, harmless))

    def mutate_Call(self, call: Call) -> Expr:
        if call.name in ADDRESSING and call.is_pure:
            return call  # it asks for a place, and touches no memory
        if not call.is_pure:
            raise ArgumentTypeError(f"{call.name} has an effect, which a condition cannot undo: write an if around it")
        made: Expr = self.generic_mutate(call)
        return made

    def _joined(self, predicate: Expr) -> Expr:
        """The condition together with a predicate that is there already."""
        known = conjuncts(self.condition)
        return all_of(self.condition, *[item for item in conjuncts(predicate) if item not in known])


class Decided(Mutator):
    """Simplifies what is computed only where conditions hold: choices that they decide, and predicates that repeat
    them, go away.

    Args:
        conditions: the conditions that hold; they have no ``and``.
        predicate: a condition under which all loads are to be, also those without a predicate.
    """

    def __init__(self, conditions: Iterable[Expr], predicate: Expr | None = None) -> None:
        self._conditions = frozenset(conditions)
        self._predicate = predicate

    def mutate_BufferLoad(self, load: BufferLoad) -> Expr:
        load = self.generic_mutate(load)
        others = [each for each in conjuncts(load.predicate) if each not in self._conditions]
        wanted = others if self._predicate is None else [self._predicate, *others]
        return BufferLoad(load.buffer, load.indices, conjunction(wanted))

    def mutate_Select(self, op: Select) -> Expr:
        for condition, value in (op.condition, op.true_value), (negation(op.condition), op.false_value):
            if self._conditions.issuperset(conjuncts(condition)):
                found: Expr = self.mutate(value)
                return found
        made: Expr = self.generic_mutate(op)
        return made


def _is_inside(load: BufferLoad) -> bool:
    """Return whether constants say that an element is one of its buffer, as that of a buffer with a single one is."""
    places = zip(load.indices, load.buffer.shape, strict=True)
    return all(isinstance(i, IntImm) and isinstance(n, IntImm) and 0 <= i.value < n.value for i, n in places)


def both(a: Expr, b: Expr) -> Expr:
    """Return ``a and b`` of which ``b`` is only read where ``a`` holds, as Python's ``and`` does."""
    return binary("and", a, guarded(b, a))


def either(a: Expr, b: Expr) -> Expr:
    """Return ``a or b`` of which ``b`` is only read where ``a`` does not hold, as Python's ``or`` does."""
    return binary("or", a, guarded(b, negation(a)))
