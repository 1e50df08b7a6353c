"""Take checks of data out of a functional graph, such as whether a matrix that is to be inverted is singular: what they
check becomes a result, and whoever calls the graph makes them behind the call.

A check in a graph of AOTAutograd is an operator with effects: it takes a token, and returns one, so that effects keep
their order. Here checks keep their order as they come last. Or it is an argument of an operator, ``check_errors``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

_EFFECTS = torch.ops.higher_order.with_effects
_CHECK = torch.ops.aten._linalg_check_errors.default
#: The argument by which an operator checks its own result of the other name: 0 where all is well.
_ARGUMENT, _RESULT = "check_errors", "info"

#: A check, and its arguments behind what it checks.
Check = tuple[Any, tuple[Any, ...], dict[str, Any]]


def take_checks(graph: fx.GraphModule) -> list[Check]:
    """Take the checks out of a graph, which gets what they check as further outputs; return them in order."""
    found = [(node, each) for node in graph.graph.nodes for each in _checks(node)]
    if not found:
        return []
    (output,) = graph.graph.find_nodes(op="output")
    for node, _ in found:
        if node.target is _EFFECTS:
            for user in list(node.users):  # these take the token: a check has no result
                user.replace_all_uses_with(node.args[0])
                graph.graph.erase_node(user)
            graph.graph.erase_node(node)
    output.args = ((*output.args[0], *(checked for _, (_, checked) in found)),)
    graph.recompile()
    return [check for _, (check, _) in found]


def _checks(node: fx.Node) -> Iterator[tuple[Check, fx.Node]]:
    """Yield the check of a node, if it has one, and what it checks; the node does not make it itself any more."""
    if node.target is _EFFECTS and node.args[1] is _CHECK:
        _, check, checked, *others = node.args
        yield (check, tuple(others), dict(node.kwargs)), checked
    schema = getattr(node.target, "_schema", None)
    if schema is None or not node.kwargs.get(_ARGUMENT):
        return
    node.kwargs = {**node.kwargs, _ARGUMENT: False}
    number = [result.name for result in schema.returns].index(_RESULT)
    name = schema.name.removeprefix("aten::").lstrip("_").replace("linalg_", "linalg.")
    yield (_CHECK, (name,), {"is_matrix": node.args[0].meta["val"].ndim == 2}), _result(node, number)


def _result(node: fx.Node, number: int) -> fx.Node:
    """Return the node of one result of an operator that has several."""
    for user in node.users:
        if user.target is operator.getitem and user.args[1] == number:
            return user
    with node.graph.inserting_after(node):
        made = node.graph.call_function(operator.getitem, (node, number))
    made.meta = {**node.meta, "val": node.meta["val"][number]}
    return made


def in_words(check: Check) -> str:
    """Return what a check expects and has found, with ``{number}`` for the number that is not 0."""
    _, (name, *_), _ = check
    if "cholesky" in name:
        found = "positive definite matrices, found one whose leading minor of order {number} is not positive"
    else:
        found = "invertible matrices, found one whose pivot {number} is 0"
    return f"{name.removeprefix('torch.')}: expected {found}"
