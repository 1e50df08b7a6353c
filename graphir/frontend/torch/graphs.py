"""Convert a functional graph that ``torch.compile`` made to a module, and state how its values go in and out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import sympy
import torch
from torch import fx

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr, Function, Tuple, Var
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.importer import Importer, output_nodes
from tilewright.graphir.frontend.torch.node import with_shape
from tilewright.graphir.frontend.torch.tensors import stored_type
from tilewright.graphir.module import IRModule
from tilewright.graphir.runtime_sizes import fresh_symbol, with_bound_sizes
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import INT64


@dataclasses.dataclass(frozen=True)
class Output:
    """Where an output of a graph comes from.

    Attributes:
        kind: an ``input`` that is passed on, a ``result`` of the module, a result that is a ``number``, or a
            ``constant``, such as None.
        number: the number of the input or of the result.
        value: the constant.
    """

    kind: Literal["input", "result", "number", "constant"]
    number: int = 0
    value: Any = None


@dataclasses.dataclass(frozen=True)
class ImportedGraph:
    """A graph as a module.

    Attributes:
        module: its ``main`` computes the graph's results; None if there are none to compute.
        inputs: the numbers of the graph's inputs that ``main`` takes, in order.
        outputs: where the graph's outputs come from.
    """

    module: IRModule | None
    inputs: tuple[int, ...]
    outputs: tuple[Output, ...]


def from_graph(graph: fx.Graph, known: Mapping[int, torch.Tensor] | None = None) -> ImportedGraph:
    """Convert a graph of ATen overloads whose nodes state what PyTorch knows of their values (``meta["val"]``).

    Args:
        graph: the graph; it changes none of its inputs.
        known: tensors for some of its inputs, by their numbers: they become constants that share their memory.

    Raises:
        UnsupportedOperatorError: something in the graph is not supported.
    """
    importer = Importer()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    numbers = {node: number for number, node in enumerate(placeholders)}
    known = known or {}
    taken = _Inputs(importer, [node for number, node in enumerate(placeholders) if number not in known])
    values: dict[fx.Node, Any] = {}
    for number, node in enumerate(placeholders):
        values[node] = importer.constant(known[number]) if number in known else taken.value(number, node)
    nodes = output_nodes(graph)
    made = importer.convert(graph, values)
    outputs: list[Output] = []
    results: dict[Expr, int] = {}
    for node, value in zip(nodes, made if isinstance(made, (list, tuple)) else [made], strict=True):
        if isinstance(node, fx.Node) and node in numbers:
            outputs.append(Output("input", numbers[node]))
        elif isinstance(value, Expr):
            outputs.append(Output("result", results.setdefault(value, len(results))))
        elif isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.SymInt):
            outputs.append(Output("number", results.setdefault(as_number(value), len(results))))
        else:
            outputs.append(Output("constant", value=value))
    if not results:
        return ImportedGraph(None, (), tuple(outputs))
    bodies = with_bound_sizes(list(results), importer.bound, taken.params)
    return ImportedGraph(
        IRModule.from_expr(Function(taken.params, Tuple(bodies))), tuple(taken.numbers), tuple(outputs)
    )


class _Inputs:
    """The parameters of ``main``: tensors, and sizes that are no dimension of a tensor."""

    def __init__(self, importer: Importer, placeholders: Sequence[fx.Node]) -> None:
        self.importer = importer
        self.params: list[Var] = []
        self.numbers: list[int] = []
        shapes = [node.meta["val"].shape for node in placeholders if isinstance(node.meta.get("val"), torch.Tensor)]
        self.alone = {_formula(size) for shape in shapes for size in shape}

    def value(self, number: int, node: fx.Node) -> Expr | None:
        """Return the value of an input, which becomes a parameter if the graph needs it."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            formula = value.node.expr
            if isinstance(formula, sympy.Symbol) and formula not in self.alone:
                param = self._param(number, node, TensorType((), INT64))
                self.importer.bind_number(str(formula), param)
            return None
        if not isinstance(value, torch.Tensor) or not node.users:
            return None
        claimed = [self.importer.sizes.dim(size) for size in value.shape]
        shape: list[Dim] = [
            dim if isinstance(_formula(size), (sympy.Symbol, type(None))) else fresh_symbol()
            for size, dim in zip(value.shape, claimed, strict=True)
        ]
        param = self._param(number, node, stored_type(value, shape))
        return with_shape(param, stored_type(value, claimed).shape)

    def _param(self, number: int, node: fx.Node, found: TensorType) -> Var:
        param = Var(node.name, found)
        self.params.append(param)
        self.numbers.append(number)
        return param


def _formula(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else None
