"""Define the control flow of graphs: conditionals (``If``) and counted loops (``Loop``).

They are names of ``expr.py``, too, as all node classes are.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.graphir.base import Expr, FrozenExpr, new_fields
from tilewright.graphir.node import child, children, node, note
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.tensorir.dtype import BOOL
from tilewright.tensorir.errors import TypeInferenceError


@node
class If(FrozenExpr):
    """A conditional: ``then_branch`` if the scalar bool ``condition`` holds, else ``else_branch``. Only the taken
    branch is computed."""

    condition: Expr = child()
    then_branch: Expr = child()
    else_branch: Expr = child()
    span: str | None = note(default=None)

    def __post_init__(self) -> None:
        expected, found = TensorType((), BOOL), self.condition.type
        if found is not None and found != expected:
            raise TypeInferenceError(f"if: condition: expected {expected}, found {found}")
        then_type, else_type = self.then_branch.type, self.else_branch.type
        if then_type is not None and else_type is not None and then_type != else_type:
            raise TypeInferenceError(f"if: branches differ: {then_type} and {else_type}")
        new_fields(self, type=then_type if else_type is not None else None)


@node
class Loop(FrozenExpr):
    """A counted loop that carries values: ``for i in range(trip_count): state = body(i, *state)``.

    The loop ends early once the optional scalar bool ``condition(i, *state)``, evaluated before each iteration, is
    false. The types of the state are the same in every iteration. The value is the tuple of the final state.

    The results of the body beyond the next state are collected: in iteration ``i`` they replace the rows
    ``collect[0][i]``, ``collect[1][i]`` and so on, and these tensors follow the state in the value. Rows of iterations
    that do not run keep their values.

    Args:
        trip_count: scalar int64, the greatest number of iterations.
        condition: a function of ``i`` and the state, or None.
        body: a function of ``i`` and the state that returns the tuple of the next state and the collected rows.
        initial: the state before the first iteration.
        collect: the tensors whose rows are replaced.

    Raises:
        TypeInferenceError: the types of state, condition and body do not fit.
    """

    trip_count: Expr = child()
    condition: Expr | None = child()
    body: Expr = child()
    initial: tuple[Expr, ...] = children()
    span: str | None = note(default=None)
    collect: tuple[Expr, ...] = children(default=(), kw_only=True)

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


def _row_type(found: Type | None) -> Type:
    """Return the type of one row of a tensor that a loop collects."""
    if not isinstance(found, TensorType) or not found.shape:
        raise TypeInferenceError(f"loop: collect: expected a tensor with rows, found {found}")
    return TensorType(found.shape[1:], found.dtype)
