"""Read a model: from a file, from bytes, or as the onnx package's object."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from tilewright.graphir.dims import Dim, as_dim
from tilewright.graphir.expr import Constant, Expr, Tuple
from tilewright.graphir.frontend.onnx.tensors import numpy_dtype
from tilewright.graphir.frontend.onnx.weights import from_bytes, from_file
from tilewright.graphir.types import TensorType, TupleType
from tilewright.tensorir.aligned import Bytes
from tilewright.tensorir.dtype import as_dtype
from tilewright.tensorir.errors import InputError, UnsupportedOperatorError

#: An entry of the argument ``shapes``: a size, a name, or None to take the dimension from the model.
ShapeEntry = int | str | None

#: The value of ``shapes`` for one input: its shape, or that of each element of a sequence.
GivenShape = Sequence[ShapeEntry] | Sequence[Sequence[ShapeEntry]]


@dataclasses.dataclass(frozen=True)
class Read:
    """A model that has been read.

    Attributes:
        proto: the model as parsed by the protobuf package.
        folder: the folder of its file; None if it came as bytes or as an object.
        contents: the ``raw_data`` of initializers that was taken out of ``proto``, by their numbers.
    """

    proto: ModelProto
    folder: Path | None = None
    contents: Mapping[int, Bytes] = dataclasses.field(default_factory=dict)


def read_model(source: str | os.PathLike[str] | bytes | ModelProto) -> Read:
    """Read a model in any form that ``from_onnx`` accepts.

    Raises:
        InputError: there is no such file, or it contains no model.
    """
    if isinstance(source, ModelProto):
        return Read(source)
    folder = None
    if isinstance(source, (bytes, bytearray, memoryview)):
        (data, contents), where = from_bytes(bytes(source)), "the bytes"
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.is_file():
            raise InputError(f"there is no file {str(path)!r}")
        try:
            (data, contents), where, folder = from_file(path), str(path), path.parent
        except OSError as error:
            raise InputError(f"{str(path)!r} cannot be read: {error}") from None
    else:
        raise InputError(f"expected a path, bytes or a ModelProto, found a {type(source).__name__}")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise InputError(f"{where} contain no ONNX model: {error}") from None
    if not model.HasField("graph"):
        raise InputError(f"{where} contain no ONNX model: there is no graph")
    return Read(model, folder, contents)


def opsets_of(imports: Sequence[Any]) -> dict[str, int]:
    """Return the version of each operator set, by domain.

    Raises:
        InputError: a version is newer than the onnx package knows, or invalid.
    """
    found = {"" if each.domain == "ai.onnx" else each.domain: int(each.version) for each in imports}
    for domain, version in found.items():
        check_text(domain, "the domain of an opset")
        if version < 1:
            raise InputError(f"opset {version} of domain {domain!r}: versions are numbered from 1 on")
    newest = onnx.defs.onnx_opset_version()
    if found.get("", 1) > newest:
        raise InputError(f"the model needs opset {found['']}; the installed onnx package knows up to {newest}")
    return found


def check_names(node: NodeProto) -> None:
    """Check that the names in a node are text.

    Raises:
        InputError: one of them is not UTF-8; the protobuf package returns bytes for it.
    """
    for name in (node.op_type, node.name, node.domain, *node.input, *node.output, *(a.name for a in node.attribute)):
        check_text(name, "a name in a node")


def check_text(text: str | bytes, what: str) -> None:
    """Check that a value is text.

    Raises:
        InputError: it is not UTF-8; the protobuf package returns bytes for it.
    """
    if not isinstance(text, str):
        raise InputError(f"{what} is not UTF-8: {text!r}")


def why_undefined(name: str, nodes: Sequence[NodeProto]) -> str:
    """Explain why a value is not defined yet: a later one of ``nodes`` makes it, or it is in a cycle."""
    makers = {output: node for node in nodes for output in node.output if output}
    if name not in makers:
        return ""
    needed_by: dict[str, str] = {}  # values that this one depends on, and the value that uses each of them
    waiting = [name]
    while waiting and name not in needed_by:
        value = waiting.pop()
        for source in makers[value].input if value in makers else ():
            if source not in needed_by:
                needed_by[source] = value
                waiting.append(source)
    maker = label_of(makers[name])
    if name not in needed_by:
        return f"; {maker}, which makes it, comes later: nodes must be in topological order"
    cycle = [name]
    while needed_by[cycle[-1]] != name:
        cycle.append(needed_by[cycle[-1]])
    shown = " -> ".join(map(repr, [*cycle[:6], *(["..."] if len(cycle) > 6 else []), name]))
    return f"; {maker} makes it, but is in a cycle: {shown}"


def symbol_name(text: str) -> str:
    """Turn a name of the file into an identifier.

    Raises:
        InputError: it is not UTF-8.
    """
    check_text(text, "a name")
    name = re.sub(r"\W", "_", text, flags=re.ASCII) or "v"
    return f"_{name}" if name[0].isdigit() else name


def input_type(info: ValueInfoProto, given: GivenShape | None) -> TensorType | TupleType:
    """Return the type of a model's input; dimensions without a size are symbolic variables. A sequence becomes a tuple;
    an optional value is assumed to be present.

    Args:
        given: sizes and names that narrow it; for a sequence, the shape of each element.

    Raises:
        UnsupportedOperatorError: it is neither a tensor nor a sequence of tensors.
        InputError: its rank, or the length of a sequence, is unknown and not given, or ``given`` does not fit.
    """
    where = f"input {info.name!r}"
    kind = info.type
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if kind.HasField("sequence_type") and kind.sequence_type.elem_type.HasField("tensor_type"):
        if given is None:
            raise UnsupportedOperatorError(
                f"{where}: a sequence of unknown length is not supported; state the shape of each element, as in "
                f"shapes={{{info.name!r}: [(1, 3), (1, 'n')]}}"
            )
        if not all(isinstance(each, (tuple, list)) for each in given):
            raise InputError(f"shapes: {where}: expected the shape of each element of a sequence, found {given!r}")
        element = kind.sequence_type.elem_type.tensor_type
        return TupleType([_tensor_type(element, f"{info.name}_{n}", where, each) for n, each in enumerate(given)])  # type: ignore[arg-type]
    if not kind.HasField("tensor_type"):
        raise UnsupportedOperatorError(f"{where}: only tensors are supported, found {kind.WhichOneof('value')}")
    if given is not None and any(isinstance(each, (tuple, list)) for each in given):
        raise InputError(f"shapes: {where} is not a sequence, found {given!r}")
    return _tensor_type(kind.tensor_type, info.name, where, given)  # type: ignore[arg-type]


def _tensor_type(tensor: Any, name: str, where: str, given: Sequence[ShapeEntry] | None) -> TensorType:
    dtype = as_dtype(numpy_dtype(tensor.elem_type, where))
    if not tensor.HasField("shape"):
        if given is None:
            raise InputError(f"{where}: its rank is unknown; state its shape, as in shapes={{{name!r}: (1, 3, 'h')}}")
        declared: list[Dim | None] = [None] * len(given)
    else:
        declared = [_declared(dim) for dim in tensor.shape.dim]
    if given is not None and len(given) != len(declared):
        raise InputError(f"shapes: {where} has {len(declared)} dimensions, found {len(given)}: {tuple(given)!r}")
    shape: list[Dim] = []
    for axis, dim in enumerate(declared):
        wanted = None if given is None else given[axis]
        if wanted is not None:
            if isinstance(dim, int) and isinstance(wanted, int) and dim != wanted:
                raise InputError(f"shapes: {where}: dimension {axis} is {dim} in the model, found {wanted}")
            shape.append(dim if isinstance(dim, int) else as_dim(wanted))
        else:
            shape.append(as_dim(symbol_name(f"{name}_{axis}")) if dim is None else dim)
    return TensorType(shape, dtype)


def _declared(dim: Any) -> Dim | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    if kind != "dim_param":
        return None
    # Some exporters write "?" for every unknown dimension; that is not a name.
    name = symbol_name(dim.dim_param)
    return as_dim(name) if re.search(r"\w", dim.dim_param) else None


def label_of(node: NodeProto) -> str:
    """Return the name of a node in errors and profiles: its operator, and its name or that of its first result."""
    name = node.name or next((output for output in node.output if output), "")
    return f"{node.op_type} {name!r}" if name else node.op_type


def subgraphs_of(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def check_inputs(argument: str, given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Check that the names in an argument are inputs of the model.

    Raises:
        InputError: one is not.
    """
    for name in given:
        if name not in names:
            raise InputError(f"{argument}: the model has no input {name!r} (it has: {', '.join(names)})")


def known_input(name: str, value: Any, expected: TensorType | TupleType) -> Expr:
    """Return an input whose value is known as a constant; a sequence as one constant for each element.

    Raises:
        InputError: its type, or a size, differs.
    """
    if isinstance(expected, TupleType):
        if not isinstance(value, (list, tuple)) or len(value) != len(expected.fields):
            raise InputError(f"values: input {name!r}: expected a sequence of {len(expected.fields)} arrays")
        return Tuple([known_input(name, each, kind) for each, kind in zip(value, expected.fields, strict=True)])  # type: ignore[arg-type]
    array = np.asarray(value)
    sizes = zip(array.shape, expected.shape, strict=False)
    fits = array.ndim == expected.ndim and all(not isinstance(dim, int) or size == dim for size, dim in sizes)
    if not fits or array.dtype != expected.dtype.numpy:
        raise InputError(f"values: input {name!r}: expected {expected}, found {array.dtype} of shape {array.shape}")
    return Constant(array)
