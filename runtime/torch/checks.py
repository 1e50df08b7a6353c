"""Take checks of data out of a functional graph, such as whether a matrix that is to be inverted is singular: what they
check becomes a result, and they are made in PyTorch after each call, where they raise PyTorch's own errors.

A check in a graph of AOTAutograd is an operator with effects: it takes a token, and returns one, so that effects keep
their order. Here checks keep their order as they come last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

_EFFECTS = torch.ops.higher_order.with_effects
#: The checks that depend on nothing but their arguments.
_CHECKS = frozenset((torch.ops.aten._linalg_check_errors.default,))


#: A check, and its arguments behind what it checks.
Check = tuple[Any, tuple[Any, ...], dict[str, Any]]


def take_checks(graph: fx.GraphModule) -> list[Check]:
    """Take the checks out of a graph, which gets what they check as further outputs; return them in order."""
    nodes = [node for node in graph.graph.nodes if node.target is _EFFECTS and node.args[1] in _CHECKS]
    (output,) = graph.graph.find_nodes(op="output")
    checked, checks = [], []
    for node in nodes:
        token, check, what, *others = node.args
        checks.append((check, tuple(others), dict(node.kwargs)))
        checked.append(what)
        for user in list(node.users):  # these take the token: a check has no result
            user.replace_all_uses_with(token)
            graph.graph.erase_node(user)
        graph.graph.erase_node(node)
    if nodes:
        output.args = ((*output.args[0], *checked),)
        graph.recompile()
    return checks


def with_checks_last(
    graph: fx.GraphModule, compiled: Callable[[fx.GraphModule], Callable[..., Any]]
) -> Callable[..., Any]:
    """Return a function of the sequence of a graph's inputs that computes its outputs, then makes its checks.

    Args:
        graph: the graph, which changes.
        compiled: compiles a graph without checks.
    """
    checks = take_checks(graph)
    return _Checked(compiled(graph), checks) if checks else compiled(graph)


class _Checked:
    """A compiled graph whose last results are checked, and not returned."""

    def __init__(self, call: Callable[..., Any], checks: Sequence[Check]) -> None:
        self._boxed_call = True  # states to PyTorch that the inputs come as one sequence
        self._call = call
        self._checks = tuple(checks)

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        results: Sequence[Any] = self._call(inputs)
        count = len(results) - len(self._checks)
        for (check, others, options), checked in zip(self._checks, results[count:], strict=True):
            check(checked, *others, **options)
        return results[:count]
