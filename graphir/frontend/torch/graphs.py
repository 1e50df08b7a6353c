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
from tilewright.graphir.frontend.torch.sizes import find_roots
from tilewright.graphir.frontend.torch.strides import Box, dense_order, enclosing_box, memory_order
from tilewright.graphir.frontend.torch.tensors import stored_type
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import slice as slice_
from tilewright.graphir.runtime_sizes import fresh_symbol, with_bound_sizes
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import INT64

#: What PyTorch knows of a value that is a number, and no tensor.
_NUMBERS = (torch.SymBool, torch.SymFloat)


@dataclasses.dataclass(frozen=True)
class Output:
    """Where an output of a graph comes from.

    Attributes:
        kind: an ``input`` that is passed on, a ``result`` of the module, a result that is a ``number``, or a
            ``constant``, such as None.
        number: the number of the input or of the result.
        value: the constant.
        order: the order of the axes of a result in memory, which is that of the module's result; None: as they are.
    """

    kind: Literal["input", "result", "number", "constant"]
    number: int = 0
    value: Any = None
    order: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class ImportedGraph:
    """A graph as a module.

    Attributes:
        module: its ``main`` computes the graph's results; None if there are none to compute.
        inputs: the numbers of the graph's inputs that ``main`` takes, in order.
        outputs: where the graph's outputs come from.
        dtypes: the element types of the graph's inputs that are tensors, by their numbers; others are sizes.
        orders: the orders of the axes of inputs in memory, slowest first, by their numbers, where those are not
            row-major, as of a transposed matrix: ``main`` takes such an input with its axes in that order.
        boxes: the boxes of inputs that have gaps in memory, by their numbers: ``main`` takes the whole box.
    """

    module: IRModule | None
    inputs: tuple[int, ...]
    outputs: tuple[Output, ...]
    dtypes: Mapping[int, torch.dtype]
    orders: Mapping[int, tuple[int, ...]]
    boxes: Mapping[int, Box]


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
    # Sizes first: dimensions of tensors may be formulas of them.
    for number, node in sorted(
        enumerate(placeholders), key=lambda each: isinstance(each[1].meta.get("val"), torch.Tensor)
    ):
        values[node] = importer.constant(known[number]) if number in known else taken.value(number, node)
    nodes = output_nodes(graph)
    made = importer.convert(graph, values)
    outputs: list[Output] = []
    results: dict[Expr, int] = {}
    for node, value in zip(nodes, made if isinstance(made, (list, tuple)) else [made], strict=True):
        if isinstance(node, fx.Node) and node in numbers:
            outputs.append(Output("input", numbers[node]))
        elif isinstance(value, Expr) and isinstance(node, fx.Node) and isinstance(node.meta.get("val"), _NUMBERS):
            outputs.append(Output("number", results.setdefault(value, len(results))))
        elif isinstance(value, Expr):
            order = memory_order(node.meta["val"]) if isinstance(node, fx.Node) else None
            ordered = value if order is None else _ordered(value, order)
            outputs.append(Output("result", results.setdefault(ordered, len(results)), order=order))
        elif isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.SymInt):
            outputs.append(Output("number", results.setdefault(as_number(value), len(results))))
        else:
            outputs.append(Output("constant", value=value))
    if not results:
        return ImportedGraph(None, (), tuple(outputs), {}, {}, {})
    bodies = with_bound_sizes(list(results), importer.bound, taken.params)
    module = IRModule.from_expr(Function(taken.params, Tuple(bodies)))
    known_values = {number: node.meta.get("val") for number, node in enumerate(placeholders)}
    dtypes = {number: value.dtype for number, value in known_values.items() if isinstance(value, torch.Tensor)}
    return ImportedGraph(module, tuple(taken.numbers), tuple(outputs), dtypes, taken.orders, taken.boxes)


def _ordered(value: Expr, order: Sequence[int]) -> Expr:
    """Return a value with its axes in that order; the axis of the parts of complex numbers stays the last."""
    assert isinstance(value.type, TensorType)
    found = get_operator("transpose")(value, axes=(*order, *range(len(order), value.type.ndim)))
    object.__setattr__(found, "span", value.span)
    return found


def _part(whole: Expr, box: Box) -> Expr:
    """Return the part of a box that is the tensor."""
    ends = [start + box.sizes[axis] for start, axis in zip(box.starts, box.order, strict=True)]
    return _ordered(slice_(whole, begin=box.starts, end=ends), _inverse(box.order))


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


class _Inputs:
    """The parameters of ``main``: tensors, and sizes that are no dimension of a tensor."""

    def __init__(self, importer: Importer, placeholders: Sequence[fx.Node]) -> None:
        self.importer = importer
        self.params: list[Var] = []
        self.numbers: list[int] = []
        self.orders: dict[int, tuple[int, ...]] = {}
        self.boxes: dict[int, Box] = {}
        used = [node.meta.get("val") for node in placeholders if _is_used(node)]
        shapes = [value.shape for value in used if isinstance(value, torch.Tensor)]
        formulas = [formula for shape in shapes for size in shape if (formula := _formula(size)) is not None]
        self.alone = {formula for formula in formulas if isinstance(formula, sympy.Symbol)}
        every = [node.meta.get("val") for node in placeholders]
        numbers = [value.node.expr for value in every if isinstance(value, torch.SymInt)]
        known = self.alone.union(number for number in numbers if isinstance(number, sympy.Symbol))
        #: The symbols of dimensions, and of numbers, with a formula from which a symbol follows.
        self.roots = find_roots(importer.sizes, [*formulas, *numbers], known)
        self.of_tensors = set(formulas)

    def value(self, number: int, node: fx.Node) -> Expr | None:
        """Return the value of an input, which becomes a parameter if the graph needs it."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            formula = value.node.expr
            if isinstance(formula, sympy.Symbol) and formula not in self.alone:
                param = self._param(number, node, TensorType((), INT64))
                self.importer.bind_number(value, param)
            elif formula in self.roots and formula not in self.of_tensors:
                self.importer.bound[self.roots[formula]] = self._param(number, node, TensorType((), INT64))
            return None
        if not isinstance(value, torch.Tensor) or not _is_used(node):
            return None
        claimed = [self.importer.sizes.dim(size) for size in value.shape]
        shape: list[Dim] = [
            dim
            if isinstance(_formula(size), (sympy.Symbol, type(None)))
            else self.roots.get(_formula(size), fresh_symbol())
            for size, dim in zip(value.shape, claimed, strict=True)
        ]
        order, box = dense_order(value), enclosing_box(value)
        if box is not None:
            self.boxes[number] = box
            found: Expr = _part(self._param(number, node, stored_type(value, box.shape)), box)
        elif order is not None:
            self.orders[number] = order
            param = self._param(number, node, stored_type(value, [shape[axis] for axis in order]))
            found = _ordered(param, _inverse(order))
        else:
            found = self._param(number, node, stored_type(value, shape))
        return with_shape(found, stored_type(value, claimed).shape)

    def _param(self, number: int, node: fx.Node, found: TensorType) -> Var:
        param = Var(node.name, found)
        self.params.append(param)
        self.numbers.append(number)
        return param


def _is_used(node: fx.Node) -> bool:
    """Return whether something is computed from an input, which may also be an output as it is."""
    return any(user.op != "output" for user in node.users)


def _formula(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else None
