"""Make the checks of a functional graph, such as whether a matrix that is to be inverted is singular, in PyTorch after
each call, where they raise PyTorch's own errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from tilewright.graphir.frontend.torch.checks import Check, take_checks


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
