"""Convert a graph of ATen overloads (``torch.fx``) to expressions: walk the nodes and call the converters."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from tilewright.graphir.dims import Dim, simplify
from tilewright.graphir.expr import Constant, Expr, TupleGetItem, Var, const
from tilewright.graphir.frontend.runtime_sizes import RuntimeSizes
from tilewright.graphir.frontend.torch.control_flow import (
    attribute,
    convert_control_flow,
    is_control_flow,
    subgraphs,
)
from tilewright.graphir.frontend.torch.node import Node, is_complex, shape_of, with_shape
from tilewright.graphir.frontend.torch.registry import Converter, find_converter
from tilewright.graphir.frontend.torch.sizes import Sizes
from tilewright.graphir.frontend.torch.tensors import as_array, element_type, stored_type
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import subtract
from tilewright.graphir.runtime_sizes import bound_at
from tilewright.graphir.types import TensorType, TupleType
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.errors import TilewrightError, UnsupportedOperatorError, VerifyError, add_note
from tilewright.tensorir.expr import Var as Symbol
from tilewright.tensorir.lazy import import_all

#: The value of a node: a tensor, several, or None.
Value = Any

#: Overloads without a result: they assert what the sizes are, which PyTorch has used already.
_ASSERTIONS = frozenset(
    (
        "aten._assert_async.msg",
        "aten._assert_scalar.default",
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    )
)
#: Overloads whose result is a number that sizes are computed from.
NUMBERS = frozenset(("aten._local_scalar_dense.default", "aten.item.default"))


@functools.cache
def load_converters() -> None:
    """Import every module of converters, so that adding one touches one file."""
    import_all("tilewright.graphir.frontend.torch.converters")


def overload_name(target: Any) -> str:
    """Return the name of what a node calls, such as ``aten.add.Tensor``."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return getattr(target, "__name__", str(target))


def place_of(node: fx.Node) -> str:
    """Return the line of the program that a node comes from: the innermost one outside of PyTorch; empty if unknown."""
    line = _own_line(node)
    return "" if line is None else f"{line[0]}, line {line[1]}: {line[2].strip()}"


def span_of(node: fx.Node) -> str:
    """Return what remarks, profiles and errors of calls say of where an expression comes from: the node, and the file
    and the line of the program."""
    line = _own_line(node)
    return label_of(node) if line is None else f"{label_of(node)} at {line[0]}:{line[1]}"


def _own_line(node: fx.Node) -> tuple[str, str, str] | None:
    lines = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n?([^\n]*)', node.meta.get("stack_trace") or "")
    # PyTorch generates the code of graphs that are arguments of operators: <eval_with_key>.
    own = [line for line in lines if "site-packages/torch/" not in line[0].replace("\\", "/") and line[0][0] != "<"]
    return own[-1] if own else None


def output_nodes(graph: fx.Graph) -> Sequence[Any]:
    """Return the outputs of a functional graph: nodes, and constants such as None."""
    (output,) = (node for node in graph.nodes if node.op == "output")
    return output.args[0] if isinstance(output.args[0], (list, tuple)) else output.args


def label_of(node: fx.Node) -> str:
    """Return the name of a node in errors and profiles: its overload, and its own name."""
    return f"{overload_name(node.target)} {node.name!r}"


def is_supported(node: fx.Node) -> bool:
    """Return whether there is a converter for what a node calls, or none is needed; graphs that are arguments of the
    node count apart."""
    if overload_name(node.target) == "aten.sym_storage_offset.default":
        # Of a slice that begins where data say, PyTorch knows the place as a symbol of its own, without a formula.
        return not free_unbacked_symbols(node.meta.get("val"))
    if node.op != "call_function" or node.target is operator.getitem or not _has_tensor(node.meta.get("val")):
        return bool(node.op != "call_module")
    if is_control_flow(node):
        return True
    return find_converter(overload_name(node.target), has_complex(node)) is not None


def has_complex(node: fx.Node) -> bool:
    """Return whether an argument or the result of a node is a tensor of complex numbers."""
    return any(is_complex(each.meta.get("val")) for each in (node, *node.all_input_nodes))


def _has_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_tensor, value))
    return isinstance(value, torch.Tensor)


def check_overloads(graph: fx.Graph) -> None:
    """Check that each overload has a converter.

    Raises:
        UnsupportedOperatorError: some have none; the message names all, with their nodes and lines.
    """
    load_converters()
    missing: dict[str, list[fx.Node]] = {}
    waiting = [graph]
    while waiting:
        for node in waiting.pop().nodes:
            if not is_supported(node):
                missing.setdefault(overload_name(node.target), []).append(node)
            elif is_control_flow(node):
                waiting += subgraphs(node)
    if missing:
        raise UnsupportedOperatorError(f"no converter for {'; '.join(lines_of(missing))}")


def lines_of(missing: Mapping[str, Sequence[fx.Node]], reasons: Mapping[fx.Node, str] | None = None) -> list[str]:
    """Return for each overload its name, its nodes, the first line that it comes from, and why it is missing: the first
    of the ``reasons``; no reason stands for one without a converter."""
    lines = []
    for name, nodes in sorted(missing.items()):
        shown = ", ".join(repr(node.name) for node in nodes[:5])
        more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        place = next(filter(None, map(place_of, nodes)), "")
        reason = next((reasons[node] for node in nodes if node in reasons), "") if reasons else ""
        told = "; ".join(filter(None, (f"nodes: {shown}{more}", place, reason)))
        lines.append(f"{name} ({told})")
    return lines


class Importer:
    """Converts graphs that share sizes.

    Attributes:
        sizes: the meaning of PyTorch's symbols.
        bound: the symbolic dimensions that are bound to numbers of the graph.
    """

    def __init__(self, sizes: Sizes | None = None) -> None:
        load_converters()
        self.sizes = Sizes(self._dim_of) if sizes is None else sizes
        self.bound: dict[Symbol, Expr] = {}
        self._runtime_sizes = RuntimeSizes()
        self._placed: set[Expr] = set()
        self._constants: dict[tuple[Any, ...], Constant] = {}

    def constant(self, tensor: torch.Tensor) -> Constant:
        """Return a tensor as a constant that shares its memory; the same one for the same memory, as of tied weights.

        Raises:
            UnsupportedOperatorError: the tensor is sparse, quantized, of an unsupported type, or on another device.
        """
        with unset_fake_temporarily():  # PyTorch compiles in a mode that refuses tensors with elements
            array = as_array(tensor)
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if array.size == 0:
            return Constant(array)
        return self._constants.setdefault(key, Constant(array))

    def convert(self, graph: fx.Graph, values: Mapping[fx.Node, Value]) -> Any:
        """Convert a graph for these values of its placeholders and attributes; return the values of its outputs, in
        the structure of the output node.

        Raises:
            UnsupportedOperatorError: an overload, or a use of one, is not supported.
            TypeInferenceError: an operator's arguments do not fit together.
        """
        scope: dict[fx.Node, Value] = dict(values)
        for node in graph.nodes:
            if node.op == "output":
                return self.argument(node.args[0], scope)
            if node in scope or node.op == "placeholder":
                continue
            scope[node] = self.convert_node(node, scope)
        raise VerifyError("the graph has no output")

    def convert_node(self, node: fx.Node, scope: Mapping[fx.Node, Value]) -> Value:
        """Convert one node, whose arguments are in ``scope``.

        Raises:
            UnsupportedOperatorError, TypeInferenceError: as :meth:`convert`, with the node and its line.
        """
        try:
            return self._attribute(node) if node.op == "get_attr" else self._call(node, scope)
        except TilewrightError as error:
            place = place_of(node)
            add_note(error, f"in node {label_of(node)}" + (f" ({place})" if place else ""))
            raise

    def _attribute(self, node: fx.Node) -> Value:
        found = attribute(node)
        return self.constant(found) if isinstance(found, torch.Tensor) else found

    def _call(self, node: fx.Node, scope: Mapping[fx.Node, Value]) -> Value:
        value = node.meta.get("val")
        name = overload_name(node.target)
        if name in _ASSERTIONS:
            return None
        if name in NUMBERS:
            return self._number(node, scope)
        if node.target is operator.getitem and _has_tensor(value):
            sequence, index = node.args
            assert isinstance(sequence, fx.Node)
            return scope[sequence][index]
        if not _has_tensor(value):
            return None  # a number that is computed from sizes: its users read its formula
        if is_control_flow(node):
            return self._settle(node, convert_control_flow(self, node, scope), value)
        of_complex = has_complex(node)
        converter = find_converter(name, of_complex)
        if converter is None:
            raise UnsupportedOperatorError(f"no converter for {name}{' of complex numbers' if of_complex else ''}")
        arguments = (argument.meta.get("val") if isinstance(argument, fx.Node) else None for argument in node.args)
        seen = Node(label_of(node), value, self.sizes, self._runtime_sizes, [*arguments])
        given = self._arguments(node, scope)
        if (
            torch.Tag.pointwise in getattr(node.target, "tags", ())
            and isinstance(value, torch.Tensor)
            and not of_complex
        ):
            given = [self._aligned(each, value) for each in given]
        return self.apply(node, converter, seen, given)

    def _aligned(self, argument: Any, value: torch.Tensor) -> Any:
        """Return an argument of an overload that computes each element ``value`` apart, with the sizes of the result:
        PyTorch knows of formulas that they are equal, from guards, where nothing proves it. A call checks them."""
        found = argument.type if isinstance(argument, Expr) else None
        if not isinstance(found, TensorType) or found.ndim > value.ndim:
            return argument
        result = self.stored_type(value).shape[value.ndim - found.ndim :]
        wanted = [dim if isinstance(dim, int) else size for dim, size in zip(found.shape, result, strict=True)]
        return with_shape(argument, wanted)

    def apply(self, node: fx.Node, converter: Converter, seen: Node, arguments: Sequence[Any]) -> Value:
        """Call a converter; return its result, or its results, with the types that PyTorch gives them."""
        made = converter(seen, *arguments)
        results = _parts(made) if isinstance(seen.value, (list, tuple)) else [made]
        if isinstance(made, Expr) and len(results) == 1:
            results = [made]
        return self._settle(node, results, seen.value)

    def subgraph(self, node: fx.Node, values: Sequence[Value]) -> list[Value]:
        """Convert a graph that is an argument of a node, for these values of its inputs; return its results."""
        graph = attribute(node).graph
        placeholders = [each for each in graph.nodes if each.op == "placeholder"]
        for placeholder, value in zip(placeholders, values, strict=True):
            number = placeholder.meta.get("val")
            if isinstance(number, torch.SymInt) and isinstance(value, Expr):
                self.sizes.bind_state(str(number.node.expr), value)
        made = self.convert(graph, dict(zip(placeholders, values, strict=True)))
        return list(made) if isinstance(made, (list, tuple)) else [made]

    def stored_type(self, value: torch.Tensor) -> TensorType:
        """Return the type of a tensor of which PyTorch knows ``value``."""
        return stored_type(value, [self.sizes.dim(size) for size in value.shape])

    def _settle(self, node: fx.Node, results: Sequence[Any], value: Any) -> Value:
        """Return results in the shapes that PyTorch gives them, with the place that they come from."""
        self._learn(node, results)
        values = value if isinstance(value, (list, tuple)) else [value]
        label = label_of(node)
        settled = [self._settled(label, part, each) for part, each in zip(results, values, strict=False)]
        self._place([part for part in settled if part is not None], span_of(node))
        return settled if isinstance(value, (list, tuple)) else settled[0]

    def _settled(self, label: str, made: Any, value: Any) -> Value:
        """Return a result in the shape that PyTorch gives it, which a call checks where it cannot be proved."""
        if isinstance(value, torch.SymInt) and isinstance(made, Expr):
            self.bind_number(value, made)  # the last state of a loop, from which sizes may be computed
        if made is None or not isinstance(value, torch.Tensor):
            return None
        found, expected = made.type, self.stored_type(value)
        assert isinstance(found, TensorType)
        dtype, wanted = expected.dtype, expected.shape
        if found.dtype is not dtype or found.ndim != len(wanted) or any(map(_differ, found.shape, wanted)):
            raise VerifyError(f"{label}: expected {expected}, the converter made {found}")
        return with_shape(made, wanted)

    def _learn(self, node: fx.Node, results: Sequence[Any]) -> None:
        """Bind the symbols that stand for sizes of a result that depend on data."""
        renamed = _renamings(node.meta.get("val"))
        for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
            symbol = renamed.get(symbol, symbol)
            number = path[0].idx if len(path) == 2 and hasattr(path[0], "idx") else 0
            place = getattr(path[-1], "idx", None)
            if place is not None and isinstance(results[number], Expr) and shape_of(results[number]):
                self.sizes.bind(str(symbol), shape_of(results[number])[place])

        values = node.meta.get("val")
        for value, result in zip(values if isinstance(values, (list, tuple)) else [values], results, strict=False):
            if isinstance(value, torch.Tensor) and isinstance(result, Expr):
                self._learn_sizes(value.shape, shape_of(result))

    def _learn_sizes(self, claimed: Sequence[Any], found: Sequence[Dim]) -> None:
        """Bind the symbols among sizes that depend on data, where the graph of a part of a program no longer tells
        which node they come from."""
        for size, dim in zip(claimed, found, strict=False):
            formula = size.node.expr if isinstance(size, torch.SymInt) else None
            if isinstance(formula, sympy.Symbol) and not self.sizes.knows(formula.name) and free_unbacked_symbols(size):
                self.sizes.bind(formula.name, dim)

    def _number(self, node: fx.Node, scope: Mapping[fx.Node, Value]) -> Value:
        """Convert a node that reads a number of the graph: an integer may become a size."""
        (tensor,) = self._arguments(node, scope)[:1]
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            self.bind_number(value, tensor)
        return tensor

    def bind_number(self, value: torch.SymInt, number: Expr) -> None:
        """State that a symbol is a number of the graph: an int64 scalar."""
        self.sizes.bind(str(value.node.expr), self._dim_of(number, _may_be_negative(value)))

    def _dim_of(self, number: Expr, may_be_negative: bool) -> Dim:
        """Return a number of the graph as a dimension."""
        if not may_be_negative:
            return self._bound(number)
        zero = const(np.array(0, np.int64))  # a size is not negative: the number is the difference of two sizes
        maximum = get_operator("maximum")
        above, below = maximum(number, zero), maximum(subtract(zero, number), zero)
        return simplify(self._bound(above) - self._bound(below))

    def _bound(self, number: Expr) -> Symbol:
        """Return a symbolic dimension that is a number of the graph, which is not negative."""
        dim, scalar = self._runtime_sizes.dim(number)
        self.bound[dim] = scalar
        return dim

    # Arguments.

    def _arguments(self, node: fx.Node, scope: Mapping[fx.Node, Value]) -> list[Any]:
        """Return the arguments of a node in the order of its schema, with defaults."""
        given = [self.argument(argument, scope) for argument in node.args]
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return [*given, *(self.argument(argument, scope) for argument in node.kwargs.values())]
        for argument, value in zip(schema.arguments, node.args, strict=False):
            number = value.meta.get("val") if isinstance(value, fx.Node) else value
            if isinstance(number, torch.SymInt) and self.sizes.has_state(number) and str(argument.type) != "Tensor":
                raise UnsupportedOperatorError(
                    f"a number that is computed in a loop as {argument.name} is not supported"
                )
        for argument in schema.arguments[len(given) :]:
            if argument.name in node.kwargs:
                given.append(self.argument(node.kwargs[argument.name], scope))
            else:
                given.append(self.argument(argument.default_value, scope) if argument.has_default_value() else None)
        return given

    def argument(self, argument: Any, scope: Mapping[fx.Node, Value]) -> Any:
        """Return an argument of a node: an expression for a tensor, a dimension for a size, plain data as it is.

        Raises:
            UnsupportedOperatorError: its type, or its formula, is not supported.
        """
        if isinstance(argument, fx.Node):
            value = argument.meta.get("val")
            if isinstance(scope.get(argument), Expr) and not isinstance(value, (torch.SymInt, int)):
                return scope[argument]
            return scope.get(argument) if _has_tensor(value) or value is None else self.argument(value, scope)
        if isinstance(argument, (list, tuple)):
            return [self.argument(item, scope) for item in argument]
        if isinstance(argument, torch.SymInt):
            return self.sizes.scalar(argument) if self.sizes.has_state(argument) else self.sizes.dim(argument)
        if isinstance(argument, torch.SymFloat):
            return self.sizes.number(argument)
        if isinstance(argument, torch.dtype):
            return argument if argument.is_complex else element_type(argument)
        if isinstance(argument, torch.Tensor):
            return self.constant(argument)
        if isinstance(argument, torch.SymBool):
            return self.sizes.condition(argument)
        return argument

    def _place(self, results: Sequence[Expr], label: str) -> None:
        """Record the source of the new expressions."""
        for expr in post_order(*results, known=self._placed):
            self._placed.add(expr)
            bound = bound_at(expr)
            if bound is not None:
                self.bound.setdefault(*bound)
            if expr.span is None and not isinstance(expr, (Var, Constant)):
                object.__setattr__(expr, "span", label)


def _may_be_negative(value: torch.SymInt) -> bool:
    """Return whether nothing that PyTorch found out excludes that a number is negative."""
    found = value.node.shape_env.var_to_range.get(value.node.expr)
    return found is None or bool(found.lower < 0)


def _renamings(value: Any) -> Mapping[Any, Any]:
    """Return the names under which PyTorch knows the sizes of a value that it found again, tracing a second time."""
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_renamings, value)), {})
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    environments = (size.node.shape_env for size in sizes if isinstance(size, torch.SymInt))
    return next((environment.unbacked_renamings for environment in environments), {})


def _differ(found: Any, wanted: Any) -> bool:
    return isinstance(found, int) and isinstance(wanted, int) and found != wanted


def _parts(made: Any) -> list[Any]:
    if isinstance(made, Expr) and isinstance(made.type, TupleType):
        return [TupleGetItem(made, number) for number in range(len(made.type.fields))]
    return [made] if isinstance(made, Expr) else list(made)
