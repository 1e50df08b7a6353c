"""Convert an ONNX model to a module: walk the nodes and call the converters."""

from __future__ import annotations

import functools
import os
from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import Any

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.graphir.frontend.onnx.model import (
    GivenShape,
    Read,
    check_inputs,
    check_names,
    known_input,
    label_of,
    opsets_of,
    read_model,
    subgraphs_of,
    symbol_name,
    why_undefined,
)
from tilewright.graphir.frontend.onnx.narrowing import input_types
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import find_converter, normalized_domain
from tilewright.graphir.frontend.onnx.schema import STANDARD_DOMAINS, check_node, schema_of
from tilewright.graphir.frontend.onnx.sizes import with_equal_sizes
from tilewright.graphir.frontend.onnx.tensors import Array, onnx_type, to_array
from tilewright.graphir.frontend.runtime_sizes import RuntimeSizes
from tilewright.graphir.keys import RESULTS
from tilewright.graphir.module import IRModule
from tilewright.graphir.runtime_sizes import bind_size, bound_at, with_bound_sizes
from tilewright.graphir.types import TensorType, TupleType
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.aligned import Bytes
from tilewright.tensorir.errors import InputError, TilewrightError, UnsupportedOperatorError, add_note
from tilewright.tensorir.expr import Var as Symbol
from tilewright.tensorir.lazy import import_all

#: Values by name; the empty name stands for an omitted value.
Scope = MutableMapping[str, Expr]

#: The greatest depth to which functions and subgraphs may nest.
_MAX_DEPTH = 32

#: The greatest number of nodes in calls of functions and iterations of loops, not counting those of the graph itself: a
#: file of a few lines can ask for more than any memory holds.
MOST_EXPANDED = 1 << 16


def from_onnx(
    source: str | os.PathLike[str] | bytes | ModelProto,
    shapes: Mapping[str, GivenShape | int | str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> IRModule:
    """Convert an ONNX model to a module whose ``main`` takes the model's inputs and returns its outputs.

    Constants of an object share its memory; large ones of a file or of bytes are read once to their final place; data
    in external files are mapped into memory. The attribute ``results`` of ``main`` lists the model's names of its
    outputs. Dimensions without a size are symbolic: those of one name are one variable.

    Args:
        source: a path, the bytes of a file, or the onnx package's object.
        shapes: sizes and names that narrow inputs, as in ``{"x": (1, 3, 480, "w")}``; None leaves a dimension as it is.
            For a sequence, which is a tuple, the shape of each element. A dimension that is narrowed in one input is so
            in all; its own name narrows it too, as in ``{"batch": 8}``.
        values: arrays for inputs that are known now; they become constants, and the model takes the others. Inputs that
            determine the rank of other tensors, such as the axes of a reduction, must be among them.

    Raises:
        InputError: the source is no model, or an invalid one: an undefined value, data that do not fit.
        UnsupportedOperatorError: some operators have no converter; the message lists all of them, with their nodes.
        TypeInferenceError: an operator's inputs do not fit together; the message names the node.
    """
    return _Importer(read_model(source)).module(shapes or {}, values or {})


def unsupported_operators(read: Read) -> dict[str, list[str]]:
    """Return the operators of a model that no converter converts, each with the names of its nodes."""
    return _Importer(read).unsupported(read.proto.graph)


@functools.cache
def _load_converters() -> None:
    """Import every module of converters, so that adding one touches one file."""
    import_all("tilewright.graphir.frontend.onnx.converters")


class _Importer:
    """Converts one model."""

    def __init__(self, read: Read) -> None:
        _load_converters()
        self.model = model = read.proto
        self.folder = read.folder
        self.contents = read.contents
        self.opsets = opsets_of(model.opset_import)
        self.functions = {(normalized_domain(f.domain), f.name): f for f in model.functions}
        self.placed: set[Expr] = set()  # expressions that have a source span already
        self.depth = 0
        self.runtime_sizes = RuntimeSizes()
        self.sizes: dict[Symbol, Expr] = {}  # the symbolic dimensions that are bound, each to a number
        self.expanded = 0

    def module(self, shapes: Mapping[str, GivenShape | int | str], values: Mapping[str, Any]) -> IRModule:
        graph = self.model.graph
        self.check_operators(graph)
        initializers = {tensor.name for tensor in graph.initializer}
        inputs = [info for info in graph.input if info.name not in initializers]
        if len({info.name for info in inputs}) != len(inputs):
            raise InputError(f"two inputs have one name among {_few([info.name for info in inputs])}")
        check_inputs("values", values, [info.name for info in inputs])
        scope: Scope = {}
        params = []
        types = input_types(inputs, shapes)
        named = zip(inputs, types, _distinct([symbol_name(info.name) for info in inputs]), strict=True)
        for info, found, name in named:
            if info.name in values:
                scope[info.name] = known_input(info.name, values[info.name], found)
            else:
                scope[info.name] = param = Var(name, found)
                params.append(param)
        outputs = with_bound_sizes(self.graph(graph, scope, self.opsets, self.contents), self.sizes, params)
        attrs = {RESULTS: tuple(output.name for output in graph.output)}
        return IRModule.from_expr(Function(params, outputs[0] if len(outputs) == 1 else Tuple(outputs), attrs=attrs))

    # Unsupported operators are found before any conversion, so that one error lists all of them.

    def unsupported(self, graph: GraphProto) -> dict[str, list[str]]:
        missing: dict[str, list[str]] = {}
        self._collect(graph.node, self.opsets, missing, set(), 0)
        return missing

    def check_operators(self, graph: GraphProto) -> None:
        missing = self.unsupported(graph)
        if missing:
            lines = [f"{operator} (nodes: {_few(nodes)})" for operator, nodes in sorted(missing.items())]
            raise UnsupportedOperatorError(f"no converter for {'; '.join(lines)}")

    def _collect(
        self,
        nodes: Sequence[NodeProto],
        opsets: Mapping[str, int],
        missing: dict[str, list[str]],
        entered: set[tuple[str, str]],
        depth: int,
    ) -> None:
        if depth > _MAX_DEPTH:
            raise InputError(f"subgraphs and functions are nested more than {_MAX_DEPTH} deep")
        for node in nodes:
            check_names(node)
            domain = normalized_domain(node.domain)
            for graph in subgraphs_of(node):
                self._collect(graph.node, opsets, missing, entered, depth + 1)
            function = self.functions.get((domain, node.op_type))
            if function is not None:
                if (domain, node.op_type) not in entered:
                    entered.add((domain, node.op_type))
                    self._collect(function.node, _opsets_in(function, opsets), missing, entered, depth + 1)
            elif not _is_known(node, _opset(domain, opsets, label_of(node))):
                name = f"{domain}.{node.op_type}" if domain else node.op_type
                missing.setdefault(name, []).append(node.name or next(iter(node.output), ""))

    # Conversion.

    def graph(
        self,
        graph: GraphProto,
        scope: Scope,
        opsets: Mapping[str, int],
        contents: Mapping[int, Bytes] = MappingProxyType({}),
    ) -> list[Expr]:
        """Return the outputs of ``graph``, whose inputs are in ``scope``; the values of its nodes are added there.
        ``contents``: the bytes of initializers, by their numbers, whose bytes were taken out of the proto."""
        if graph.sparse_initializer:
            raise UnsupportedOperatorError("sparse initializers are not supported")
        own = scope.maps[0] if isinstance(scope, ChainMap) else scope
        named = set()
        for number, tensor in enumerate(graph.initializer):
            if tensor.name in named:
                raise InputError(f"graph {graph.name!r} has two constants {tensor.name!r}")
            named.add(tensor.name)
            if tensor.name not in own:
                own[tensor.name] = Constant(to_array(tensor, self.folder, contents.get(number)))
        self.nodes(graph.node, scope, opsets)
        return [self._value(scope, output.name, "the graph's outputs") for output in graph.output]

    def nodes(self, nodes: Sequence[NodeProto], scope: Scope, opsets: Mapping[str, int]) -> None:
        if self.depth:
            self.expanded += len(nodes)
            if self.expanded > MOST_EXPANDED:
                raise InputError(f"functions and loops come to more than {MOST_EXPANDED} nodes")
        own = scope.maps[0] if isinstance(scope, ChainMap) else scope
        for node in nodes:
            label = label_of(node)
            try:
                inputs = [self._value(scope, name, label, nodes) if name else None for name in node.input]
                for name in node.output:
                    if name and name in own:
                        raise InputError(f"{label}: value {name!r} is already defined")
                results = self.convert(node, inputs, scope, opsets, label)
            except TilewrightError as error:
                add_note(error, f"in node {label}")
                raise
            self.place([value for value in results if value is not None], label)
            for name, value in zip(node.output, results, strict=False):
                if name and value is not None:
                    scope[name] = value

    def convert(
        self, node: NodeProto, inputs: list[Expr | None], scope: Scope, opsets: Mapping[str, int], label: str
    ) -> list[Expr | None]:
        domain = normalized_domain(node.domain)
        function = self.functions.get((domain, node.op_type))
        if function is None:
            opset = _opset(domain, opsets, label)
            check_node(node, opset, domain, inputs, label)
            inputs = with_equal_sizes(node, inputs)
            converter = find_converter(domain, node.op_type, opset)
            if converter is not None:

                def subgraph(graph: GraphProto, values: Sequence[Expr]) -> list[Expr]:
                    return self.subgraph(graph, values, scope, opsets, label)

                seen = Node(node, opset, label, inputs, self.array, subgraph, self.runtime_sizes)
                results = _results(converter(seen), len(node.output))
                return [None if value is None else _bound_sizes(value, seen) for value in results]
            function = _standard_body(node, opset, inputs)
            if function is None:
                raise UnsupportedOperatorError(f"no converter for {node.op_type} of these types")
        return self.function(function, node, inputs, opsets)

    def enter(self, what: str) -> None:
        """Enter a function or a subgraph, one level deeper."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise InputError(f"{what} calls itself, or is nested more than {_MAX_DEPTH} deep")

    def subgraph(
        self, graph: GraphProto, values: Sequence[Expr], scope: Scope, opsets: Mapping[str, int], label: str
    ) -> list[Expr]:
        """Return the outputs of a graph in an attribute, for these values of its inputs; it sees the values of the
        enclosing graph."""
        if len(graph.input) != len(values):
            raise InputError(f"{label}: graph {graph.name!r} has {len(graph.input)} inputs, expected {len(values)}")
        self.enter(f"graph {graph.name!r}")
        inner = {info.name: value for info, value in zip(graph.input, values, strict=True)}
        outputs = self.graph(graph, ChainMap(inner, scope), opsets)
        self.depth -= 1
        return outputs

    def function(
        self, function: FunctionProto, node: NodeProto, inputs: list[Expr | None], opsets: Mapping[str, int]
    ) -> list[Expr | None]:
        """Return the results of a function of nodes; it sees only its own inputs."""
        self.enter(f"function {function.name}")
        if len(inputs) > len(function.input):
            raise InputError(f"function {function.name} has {len(function.input)} inputs, found {len(inputs)}")
        scope: Scope = {name: value for name, value in zip(function.input, inputs, strict=False) if value is not None}
        left_out = {name for name in function.input if name not in scope}
        attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        attributes |= {attribute.name: attribute for attribute in node.attribute}
        body = [_bound(inner, attributes, left_out) for inner in function.node]
        self.nodes(body, scope, _opsets_in(function, opsets))
        # A body may omit a result that the node does not use.
        results = [scope.get(name) for name in function.output]
        self.depth -= 1
        return results

    def place(self, results: Sequence[Expr], label: str) -> None:
        """Record the source of the new expressions."""
        for expr in post_order(*results, known=self.placed):
            self.placed.add(expr)
            bound = bound_at(expr)
            if bound is not None:
                self.sizes.setdefault(*bound)
            if expr.span is None and not isinstance(expr, (Var, Constant)):
                object.__setattr__(expr, "span", label)

    def array(self, tensor: TensorProto) -> Array:
        return to_array(tensor, self.folder)

    @staticmethod
    def _value(scope: Scope, name: str, user: str, nodes: Sequence[NodeProto] = ()) -> Expr:
        found = scope.get(name)
        if found is None:
            raise InputError(f"{user}: value {name!r} is not defined before it{why_undefined(name, nodes)}")
        return found


def _bound_sizes(value: Expr, node: Node) -> Expr:
    """Bind the sizes that ``node`` computes from data, in one of its results."""
    for dim, size in node.bound_sizes.items():
        value = bind_size(value, size, dim)
    return value


def _opset(domain: str, opsets: Mapping[str, int], label: str) -> int:
    """Return the version of the operators of ``domain``; a model must state that of the standard's."""
    found = opsets.get(domain)
    if found is None and not domain:
        raise InputError(f"{label}: the model does not state the opset of its operators (opset_import)")
    return 1 if found is None else found


def _opsets_in(function: FunctionProto, opsets: Mapping[str, int]) -> dict[str, int]:
    return {**opsets, **opsets_of(function.opset_import)}


def _results(made: Expr | Sequence[Expr], count: int) -> list[Expr | None]:
    """Return the results of a converter as a list: a call that returns a tuple is split if the node has several
    results."""
    if not isinstance(made, Expr):
        return list(made)
    if isinstance(made.type, TupleType):
        return [TupleGetItem(made, number) for number in range(min(count, len(made.type.fields)))]
    return [made]


def _bound(node: NodeProto, attributes: Mapping[str, onnx.AttributeProto], left_out: set[str]) -> NodeProto:
    """Return a node of a function's body with the caller's attributes and without the inputs that the caller omits."""
    result = NodeProto()
    result.CopyFrom(node)
    del result.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copied = result.attribute.add()
            copied.CopyFrom(attribute)
            if copied.HasField("g"):
                inner = [_bound(each, attributes, left_out) for each in copied.g.node]
                del copied.g.node[:]
                copied.g.node.extend(inner)
        elif attribute.ref_attr_name in attributes:
            copied = result.attribute.add()
            copied.CopyFrom(attributes[attribute.ref_attr_name])
            copied.name = attribute.name
    for number, name in enumerate(result.input):
        if name in left_out:
            result.input[number] = ""
    return result


def _is_known(node: NodeProto, opset: int) -> bool:
    """Return whether an operator of this opset has a converter, or a function body in the standard."""
    domain = normalized_domain(node.domain)
    schema = schema_of(node.op_type, opset, domain)
    if find_converter(domain, node.op_type, opset) is not None:
        return schema is not None or domain not in STANDARD_DOMAINS
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _standard_body(node: NodeProto, opset: int, inputs: Sequence[Expr | None]) -> FunctionProto | None:
    """Return the function by which the standard defines a node's operator, if it does."""
    schema = schema_of(node.op_type, opset, normalized_domain(node.domain))
    if schema is None:
        return None
    if schema.has_function:
        data = schema.get_function_with_opset_version(opset)
    elif schema.has_context_dependent_function:
        if any(value is not None and not isinstance(value.type, TensorType) for value in inputs):
            return None  # the package ends the process if an input that should be a tensor is none
        types = [_type_proto(value).SerializeToString() for value in inputs]
        data = schema.get_context_dependent_function_with_opset_version(opset, node.SerializeToString(), types)
    else:
        return None
    if not data:
        return None
    function = FunctionProto()
    function.ParseFromString(data)
    defaults = (attribute.default_value for attribute in schema.attributes.values() if not attribute.required)
    function.attribute_proto.extend(default for default in defaults if default.name)
    return function


def _type_proto(value: Expr | None) -> TypeProto:
    proto = TypeProto()
    if value is not None and isinstance(value.type, TensorType):
        proto.tensor_type.elem_type = onnx_type(value.type.dtype.numpy)
        for dim in value.type.shape:
            _add_dim(proto, dim)
    return proto


def _add_dim(proto: TypeProto, dim: Dim) -> None:
    added = proto.tensor_type.shape.dim.add()
    if isinstance(dim, int):
        added.dim_value = dim
    else:
        added.dim_param = str(dim)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _distinct(names: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    result = []
    for name in names:
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}_{number}"
        taken.add(free)
        result.append(free)
    return result
