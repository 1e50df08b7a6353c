"""Convert PyTorch's higher-order operators of control flow, whose arguments are graphs: ``cond``, ``while_loop`` and
``scan``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx

from tilewright.graphir.expr import Expr, Function, If, Loop, Tuple, TupleGetItem, Var, const
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.node import shape_of, with_shape
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import reshape, take
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import UnsupportedOperatorError
from tilewright.tensorir.expr import Expr as Scalar

if TYPE_CHECKING:
    from tilewright.graphir.frontend.torch.importer import Importer

Scope = Mapping[fx.Node, Any]


def is_control_flow(node: fx.Node) -> bool:
    """Return whether a node calls an operator that this module converts."""
    return isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() in _CONVERTERS


def subgraphs(node: fx.Node) -> Iterator[fx.Graph]:
    """Yield the graphs that are arguments of a node."""
    for each in node.all_input_nodes:
        if each.op == "get_attr" and isinstance(found := attribute(each), fx.GraphModule):
            yield found.graph


def attribute(node: fx.Node) -> Any:
    """Return what a node reads from the module of its graph."""
    found: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found


def convert_control_flow(importer: Importer, node: fx.Node, scope: Scope) -> list[Expr]:
    """Convert a call of a higher-order operator to a conditional or a loop; return its results.

    Raises:
        UnsupportedOperatorError: a graph's results have other types than the operator's, or sizes that depend on data.
    """
    name = node.target.name()
    known = len(importer.bound)
    results = _CONVERTERS[name](importer, node, scope)
    if len(importer.bound) != known:
        raise UnsupportedOperatorError(f"{name}: sizes that depend on data in a branch or a loop are not supported")
    return results


def _branch(importer: Importer, node: fx.Node, scope: Scope) -> list[Expr]:
    """Convert ``cond(predicate, true_graph, false_graph, operands)``."""
    predicate, on_true, on_false, operands = node.args
    values = _values(importer, operands, scope)
    condition = importer.argument(predicate, scope)
    if isinstance(condition, bool):
        return _results(importer, on_true if condition else on_false, values, node.meta["val"])
    taken, other = (Tuple(_results(importer, graph, values, node.meta["val"])) for graph in (on_true, on_false))
    return _fields(If(_scalar(condition), taken, other), len(node.meta["val"]))


def _while(importer: Importer, node: fx.Node, scope: Scope) -> list[Expr]:
    """Convert ``while_loop(condition_graph, body_graph, state, more)``."""
    asked, body, carried, more = node.args
    state, rest = [*map(_tensor, _values(importer, carried, scope))], _values(importer, more, scope)
    made: list[Function] = []
    for graph in asked, body:
        params = [Var(f"state{number}", value.type) for number, value in enumerate(state)]
        results = importer.subgraph(graph, [*params, *rest])
        result = _scalar(results[0]) if graph is asked else Tuple(_like(map(_tensor, results), state, "while_loop"))
        made.append(Function([Var("i", TensorType((), INT64)), *params], result))
    endless = const(np.array(np.iinfo(np.int64).max))
    return _fields(Loop(endless, made[0], made[1], state), len(state))


def _scan(importer: Importer, node: fx.Node, scope: Scope) -> list[Expr]:
    """Convert ``scan(graph, state, sequences, more)``: the graph takes the state and one row of each sequence, and
    returns the next state and results that are stacked."""
    graph, carried, sequences, more = node.args
    state, rest = _values(importer, carried, scope), _values(importer, more, scope)
    scanned = _values(importer, sequences, scope)
    _check_tensors("scan", [*state, *scanned])
    if not scanned:
        raise UnsupportedOperatorError("scan: no sequence to scan is not supported")
    steps = shape_of(scanned[0])[0]
    i = Var("i", TensorType((), INT64))
    params = [Var(f"state{number}", value.type) for number, value in enumerate(state)]
    results = importer.subgraph(graph, [*params, *(take(value, i, axis=0) for value in scanned), *rest])
    after, rows = _like(results[: len(state)], state, "scan"), results[len(state) :]
    empty = []
    for row in rows:
        assert isinstance(row.type, TensorType)
        empty.append(get_operator("zeros")(shape=(steps, *row.type.shape), dtype=row.type.dtype))
    body = Function([i, *params], Tuple([*after, *rows]))
    return _fields(Loop(as_number(steps), None, body, state, collect=empty), len(results))


_CONVERTERS: dict[str, Callable[[Importer, fx.Node, Scope], list[Expr]]] = {
    "cond": _branch,
    "while_loop": _while,
    "scan": _scan,
}


def _values(importer: Importer, arguments: Any, scope: Scope) -> list[Any]:
    return [importer.argument(argument, scope) for argument in arguments]


def _results(importer: Importer, graph: Any, values: Sequence[Any], expected: Sequence[Any]) -> list[Expr]:
    """Return the results of a graph in the shapes that PyTorch gives the operator's."""
    made = importer.subgraph(graph, values)
    types = [importer.stored_type(value) for value in expected]
    return [_fitted(result, found, "cond") for result, found in zip(made, types, strict=True)]


def _tensor(value: Any) -> Any:
    """Return the state of a loop as a tensor: numbers are int64 scalars."""
    is_number = isinstance(value, (int, Scalar)) and not isinstance(value, bool)
    return as_number(value) if is_number else value


def _like(results: Iterable[Any], state: Sequence[Expr], name: str) -> list[Expr]:
    return [_fitted(result, value.type, name) for result, value in zip(results, state, strict=True)]


def _fitted(result: Any, expected: Any, name: str) -> Expr:
    """Return a result of a graph as the type that it must have, whose sizes a call checks where needed."""
    found = result.type if isinstance(result, Expr) else None
    if not isinstance(found, TensorType) or found.dtype is not expected.dtype or found.ndim != expected.ndim:
        raise UnsupportedOperatorError(f"{name}: expected a graph's result to be {expected}, found {found}")
    return with_shape(result, expected.shape)


def _check_tensors(name: str, values: Sequence[Any]) -> None:
    if not all(isinstance(value, Expr) for value in values):
        raise UnsupportedOperatorError(f"{name}: a state that is a number is not supported")


def _scalar(condition: Expr) -> Expr:
    return reshape(condition, newshape=()) if shape_of(condition) else condition


def _fields(made: Expr, count: int) -> list[Expr]:
    return [TupleGetItem(made, number) for number in range(count)]
