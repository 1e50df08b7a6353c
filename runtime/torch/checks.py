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


def with_checks_last(
    graph: fx.GraphModule, compiled: Callable[[fx.GraphModule], Callable[..., Any]]
) -> Callable[..., Any]:
    """Return a function of the sequence of a graph's inputs that computes its outputs, then makes its checks.

    Args:
        graph: the graph, which changes.
        compiled: compiles a graph without checks.
    """
    nodes = [node for node in graph.graph.nodes if node.target is _EFFECTS and node.args[1] in _CHECKS]
    if not nodes:
        return compiled(graph)
    (output,) = graph.graph.find_nodes(op="output")
    kept = list(output.args[0])
    checks: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    for node in nodes:
        token, check, checked, *others = node.args
        checks.append((check, tuple(others), dict(node.kwargs)))
        kept.append(checked)
        for user in list(node.users):  # these take the token: a check has no result
            user.replace_all_uses_with(token)
            graph.graph.erase_node(user)
            kept = [token if each is user else each for each in kept]
        graph.graph.erase_node(node)
    output.args = (tuple(kept),)
    graph.recompile()
    return _Checked(compiled(graph), len(kept) - len(checks), checks)


class _Checked:
    """A compiled graph whose last results are checked, and not returned."""

    def __init__(
        self, call: Callable[..., Any], count: int, checks: Sequence[tuple[Any, tuple[Any, ...], dict[str, Any]]]
    ) -> None:
        self._boxed_call = True  # states to PyTorch that the inputs come as one sequence
        self._call = call
        self._count = count
        self._checks = tuple(checks)

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        results: Sequence[Any] = self._call(inputs)
        for (check, others, options), checked in zip(self._checks, results[self._count :], strict=True):
            check(checked, *others, **options)
        return results[: self._count]
