"""Return views as views: an output that looks at the memory of an input or of another tensor is made by PyTorch.

A function that returns ``x[n:]`` returns no copy of ``x``, and PyTorch takes the size, the strides and the offset of
such an output from the graph's. Two views of one tensor share its memory. And a view costs neither a kernel nor a copy.
So the views at the end of a graph are cut off, to a function that runs behind it, and so are numbers that follow from
sizes alone, which PyTorch may compute by functions that dimensions do not have::

    before: f(x): y = x * 2;  return [y[1:], y.t(), x.t()]
    after:  f(x): y = x * 2;  return [y]
            views(x, y):      return [y[1:], y.t(), x.t()]
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tilewright.graphir.frontend.torch.importer import output_nodes

#: Returns the outputs of a graph from its inputs, followed by the outputs of the graph without views.
Views = Callable[..., Sequence[Any]]


def cut_views(graph: fx.GraphModule) -> tuple[fx.GraphModule, Views | None]:
    """Return a graph that returns what its outputs are views of, and the function that makes the outputs of that; the
    graph itself and None if no output is a view, or a number that follows from sizes."""
    outputs = output_nodes(graph.graph)
    cut = _Cut([node for node in outputs if isinstance(node, fx.Node)])
    if not cut.views:
        return graph, None
    kept = [node for node in graph.graph.nodes if node in cut.needed and node.op != "placeholder"]
    head = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    head.graph_copy(graph.graph, copies)
    head.output([copies[node] for node in kept])
    head.eliminate_dead_code()
    return fx.GraphModule(graph, head), _function(graph.graph, cut, kept, outputs)


class _Cut:
    """Decides which nodes run behind a graph.

    Attributes:
        views: the nodes that are moved there: views, and the sizes that they need.
        needed: the values that are needed there: inputs, and nodes that stay in the graph.
    """

    def __init__(self, outputs: Sequence[fx.Node]) -> None:
        self.views: set[fx.Node] = set()
        self.needed: set[fx.Node] = set()
        for node in outputs:
            if _viewed(node) is not None or _is_size(node):
                self._move(node)
        self.needed |= {node for node in outputs if node not in self.views}

    def _move(self, last: fx.Node) -> None:
        waiting = [last]
        while waiting:
            node = waiting.pop()
            if _viewed(node) is None and not _is_size(node):
                self.needed.add(node)
            elif node not in self.views:
                self.views.add(node)
                waiting += node.all_input_nodes


def _viewed(node: fx.Node) -> fx.Node | None:
    """Return the argument whose memory a node looks at, or None."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
        return None
    if node.target is operator.getitem:
        return _viewed(node.args[0])
    schema = getattr(node.target, "_schema", None)
    if schema is None or len(schema.returns) != 1:
        return None
    alias = schema.returns[0].alias_info
    return None if alias is None or alias.is_write else node.args[0]


def _is_size(node: fx.Node) -> bool:
    """Return whether a node computes a number from sizes."""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat)):
        return False
    inputs = [each.meta.get("val") for each in node.all_input_nodes]
    if any(isinstance(value, torch.Tensor) for value in inputs):
        return "sym_" in str(node.target)
    return not any(isinstance(value, (list, tuple)) for value in inputs)  # a loop computes these


def _function(graph: fx.Graph, cut: _Cut, kept: Sequence[fx.Node], outputs: Sequence[Any]) -> Views:
    tail = fx.Graph()
    values = {node: tail.placeholder(node.name) for node in graph.nodes if node.op == "placeholder"}
    values.update({node: tail.placeholder(node.name) for node in kept})
    for node in graph.nodes:
        if node in cut.views:
            values[node] = tail.node_copy(node, values.__getitem__)
    tail.output([values[node] if isinstance(node, fx.Node) else node for node in outputs])
    return fx.GraphModule(torch.nn.Module(), tail).forward  # type: ignore[no-any-return]
