"""Encode a compiled function as plain data and arrays, for another process to run.

Cached builds (``build_cache``) and artifacts (``artifact``) hold stored functions. Dimensions and types are encoded as
plain data, too; the symbolic dimensions in them are identified by their names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, symbol, symbols_of
from tilewright.graphir.origins import Origin
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.runtime.generated_code import ObjectCode
from tilewright.runtime.steps import Array
from tilewright.tensorir import expr as nodes
from tilewright.tensorir.dtype import as_dtype

#: The nodes of dimensions besides numbers and symbols.
_DIM_NODES = {node.__name__: node for node in (nodes.BinaryOp, nodes.UnaryOp, nodes.Compare, nodes.Select, nodes.Cast)}


@dataclasses.dataclass(frozen=True)
class KernelUse:
    """A call of a kernel in ``main``.

    Attributes:
        kernel: its name.
        origins: the operators of the graph that it computes.
    """

    kernel: str
    origins: tuple[Origin, ...]


@dataclasses.dataclass(frozen=True)
class StoredFunction:
    """A compiled function as data.

    Attributes:
        code: the code as object files.
        constants: the constants, in the order in which ``main`` takes them.
        arena_bytes: the memory for intermediate values.
        num_values: the number of values that ``main`` takes in total.
        kernels: the kernels that ``main`` calls, in order of its text.
    """

    code: ObjectCode
    constants: list[Array]
    arena_bytes: Dim
    num_values: int
    kernels: list[KernelUse]


class ArrayWriter:
    """Collect the arrays of a file, each once.

    Args:
        given: arrays that readers of the file have already.

    Attributes:
        arrays: the arrays of the file.
    """

    def __init__(self, given: Sequence[Array] = ()) -> None:
        self.arrays: list[Array] = []
        self._given = {id(array): place for place, array in enumerate(given)}
        #: The objects are kept with their numbers, so that no other object can get the ``id`` of one.
        self._places: dict[int, tuple[int, Any]] = {}

    def array(self, array: Array) -> Any:
        """Add an array; return a reference to it, as plain data."""
        given = self._given.get(id(array))
        if given is not None:
            return given
        if id(array) not in self._places:
            self._places[id(array)] = (len(self.arrays), array)
            self.arrays.append(array.astype(array.dtype.newbyteorder("="), copy=False))
        return [self._places[id(array)][0], str(as_dtype(array.dtype)), list(array.shape)]

    def bytes(self, content: bytes) -> int:
        """Add ``content``; return a reference to it, as plain data."""
        if id(content) not in self._places:
            self._places[id(content)] = (len(self.arrays), content)
            self.arrays.append(np.frombuffer(content, np.uint8))
        return self._places[id(content)][0]


class ArrayReader:
    """Return the arrays of a file by the references that :class:`ArrayWriter` made.

    Args:
        arrays: the arrays of the file, as bytes.
        given: the arrays that the writer was given.
    """

    def __init__(self, arrays: Sequence[Array], given: Sequence[Array] = ()) -> None:
        self._arrays, self._given = arrays, given
        self._made: dict[int, Array] = {}

    def array(self, data: Any) -> Array:
        """Return an array: the same object for the same reference."""
        if isinstance(data, int):
            return self._given[data]
        place, dtype, shape = data
        if place not in self._made:
            self._made[place] = self._arrays[place].view(as_dtype(dtype).numpy).reshape(shape)
        return self._made[place]

    def bytes(self, data: int) -> bytes:
        """Return a sequence of bytes."""
        return self._arrays[data].tobytes()


def encode_function(function: StoredFunction, arrays: ArrayWriter) -> dict[str, Any]:
    """Encode a compiled function as plain data; its arrays go to ``arrays``."""
    return {
        "objects": [arrays.bytes(content) for content in function.code.objects],
        "symbols": function.code.symbols,
        "constants": [arrays.array(constant) for constant in function.constants],
        "arena_bytes": encode_dim(function.arena_bytes),
        "num_values": function.num_values,
        "kernels": [
            [use.kernel, [[origin.operator, origin.label] for origin in use.origins]] for use in function.kernels
        ],
    }


def decode_function(data: Any, arrays: ArrayReader) -> StoredFunction:
    """Invert :func:`encode_function`."""
    return StoredFunction(
        ObjectCode([arrays.bytes(content) for content in data["objects"]], [tuple(each) for each in data["symbols"]]),
        [arrays.array(constant) for constant in data["constants"]],
        decode_dim(data["arena_bytes"]),
        data["num_values"],
        [KernelUse(name, tuple(Origin(*origin) for origin in origins)) for name, origins in data["kernels"]],
    )


def unnamed_symbols(dims: Iterable[Dim]) -> list[str]:
    """List the symbolic dimensions in ``dims`` that their names do not identify because they were made by hand, not by
    ``graphir.symbol``: they cannot be encoded."""
    return [var.name for var in symbols_of(dims) if not var.name.isidentifier() or symbol(var.name) is not var]


def encode_dim(dim: Any) -> Any:
    """Encode a dimension as plain data: a number, a name, or for other nodes the class and its fields."""
    if isinstance(dim, nodes.Var):
        return {"symbol": dim.name}
    if isinstance(dim, nodes.IntImm):
        return dim.value
    if isinstance(dim, nodes.Expr):
        return [type(dim).__name__, *(encode_dim(getattr(dim, name)) for name, _ in dim.node_fields)]
    return dim if isinstance(dim, int) else str(dim)


def decode_dim(data: Any) -> Any:
    """Invert :func:`encode_dim`."""
    if isinstance(data, dict):
        return symbol(data["symbol"])
    if isinstance(data, list):
        return _DIM_NODES[data[0]](*map(_operand, data[1:]))
    return data


def _operand(data: Any) -> Any:
    """Decode an operand, an operator or an element type."""
    return data if isinstance(data, str) else nodes.as_expr(decode_dim(data))


def encode_type(found: Type) -> Any:
    """Encode the type of a tensor, or of a tuple of tensors, as plain data."""
    if isinstance(found, TupleType):
        return [encode_type(field) for field in found.fields]
    assert isinstance(found, TensorType)
    return {"dtype": str(found.dtype), "shape": [encode_dim(dim) for dim in found.shape]}


def decode_type(data: Any) -> Type:
    """Invert :func:`encode_type`."""
    if isinstance(data, list):
        return TupleType([decode_type(field) for field in data])
    return TensorType([decode_dim(dim) for dim in data["shape"]], data["dtype"])
