"""Define the expressions that decide what is computed, and how often: ``If`` and ``Loop``.

They are names of ``expr.py``, too, as all node classes are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.graphir.base import Expr, FrozenExpr, new_fields
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.tensorir.dtype import BOOL
from tilewright.tensorir.errors import TypeInferenceError


class If(FrozenExpr):
    """``then_branch`` if the scalar bool ``condition`` holds, else ``else_branch``; only the taken one is computed."""

    __slots__ = ("condition", "else_branch", "then_branch")

    condition: Expr
    then_branch: Expr
    else_branch: Expr

    def __init__(self, condition: Expr, then_branch: Expr, else_branch: Expr, span: str | None = None) -> None:
        expected = TensorType((), BOOL)
        if condition.type is not None and condition.type != expected:
            raise TypeInferenceError(f"if: condition: expected {expected}, found {condition.type}")
        then_type, else_type = then_branch.type, else_branch.type
        if then_type is not None and else_type is not None and then_type != else_type:
            raise TypeInferenceError(f"if: branches differ: {then_type} and {else_type}")
        found = then_type if else_type is not None else None
        new_fields(self, condition=condition, then_branch=then_branch, else_branch=else_branch, type=found, span=span)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.condition, self.then_branch, self.else_branch)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return If(children[0], children[1], children[2], self.span)


class Loop(FrozenExpr):
    """A counted loop that carries values: ``for i in range(trip_count): state = body(i, *state)``.

    The loop ends early once the optional scalar bool that ``condition(i, *state)`` gives is false; it is asked before
    each iteration. The state's types are the same in every iteration. The value is the tuple of the final state.

    What the body gives beyond the next state is collected: in iteration ``i`` it takes the place of ``collect[0][i]``,
    ``collect[1][i]`` and so on, and the value goes on with these tensors. Rows of iterations that do not run stay.

    Args:
        trip_count: scalar int64, the greatest number of iterations.
        condition: a function of ``i`` and the state, or None.
        body: a function of ``i`` and the state that gives the tuple of the next state, and of what is collected.
        initial: the state before the first iteration.
        collect: the tensors whose rows are replaced.

    Raises:
        TypeInferenceError: the types of state, condition and body do not fit.
    """

    __slots__ = ("body", "collect", "condition", "initial", "trip_count")

    trip_count: Expr
    condition: Expr | None
    body: Expr
    initial: tuple[Expr, ...]
    collect: tuple[Expr, ...]

    def __init__(
        self,
        trip_count: Expr,
        condition: Expr | None,
        body: Expr,
        initial: Iterable[Expr],
        span: str | None = None,
        *,
        collect: Iterable[Expr] = (),
    ) -> None:
        initial, collect = tuple(initial), tuple(collect)
        counter = TensorType((), "int64")
        if trip_count.type is not None and trip_count.type != counter:
            raise TypeInferenceError(f"loop: trip_count: expected {counter}, found {trip_count.type}")
        types = [value.type for value in initial]
        collected = [value.type for value in collect]
        found: Type | None = None
        if None not in types and None not in collected:
            found = TupleType([*types, *collected])  # type: ignore[list-item]
            params = (counter, *types)
            given = TupleType([*types, *map(_row_type, collected)])  # type: ignore[list-item]
            for name, function, result in (("body", body, given), ("condition", condition, TensorType((), BOOL))):
                expected = FuncType(params, result)  # type: ignore[arg-type]
                if function is not None and function.type is not None and function.type != expected:
                    raise TypeInferenceError(f"loop: {name}: expected {expected}, found {function.type}")
        new_fields(
            self,
            trip_count=trip_count,
            condition=condition,
            body=body,
            initial=initial,
            collect=collect,
            type=found,
            span=span,
        )

    @property
    def children(self) -> tuple[Expr, ...]:
        functions = (self.body,) if self.condition is None else (self.condition, self.body)
        return (self.trip_count, *functions, *self.initial, *self.collect)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        trip_count, *rest = children
        condition = None if self.condition is None else rest.pop(0)
        body, *values = rest
        count = len(self.initial)
        return Loop(trip_count, condition, body, values[:count], self.span, collect=values[count:])


def _row_type(found: Type | None) -> Type:
    """The type of one row of a tensor that a loop collects."""
    if not isinstance(found, TensorType) or not found.shape:
        raise TypeInferenceError(f"loop: collect: expected a tensor with rows, found {found}")
    return TensorType(found.shape[1:], found.dtype)
