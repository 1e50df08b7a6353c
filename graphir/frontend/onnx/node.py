"""Present a node to converters: its inputs as expressions, its attributes as Python values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto

from tilewright.graphir.dims import Dim, format_shape
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.tensors import numpy_dtype
from tilewright.graphir.frontend.runtime_sizes import RuntimeSizes, elements_of
from tilewright.graphir.known_values import known_values
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import free_vars
from tilewright.tensorir.dtype import DataType, as_dtype
from tilewright.tensorir.errors import InputError, UnsupportedOperatorError
from tilewright.tensorir.expr import Var

Array = np.ndarray[Any, Any]

T = TypeVar("T")

#: Converts a subgraph for these values of its inputs; returns its outputs.
Subgraph = Callable[[GraphProto, Sequence[Expr]], list[Expr]]


class Node:
    """A node to convert.

    Attributes:
        op_type: the operator's name.
        opset: the opset of the operator's domain.
        label: the node's name in errors.
        inputs: the inputs; None for an omitted one (its name is empty). Omitted trailing ones are missing.
        num_outputs: the number of results that the node names; trailing ones may be omitted.
        outputs_used: whether it has a name, for each of them.
    """

    def __init__(
        self,
        proto: NodeProto,
        opset: int,
        label: str,
        inputs: Sequence[Expr | None],
        tensor: Callable[[Any], Array],
        subgraph: Subgraph,
        runtime_sizes: RuntimeSizes,
    ) -> None:
        self.op_type: str = proto.op_type
        self.opset = opset
        self.label = label
        self.inputs = list(inputs)
        self.num_outputs = len(proto.output)
        self.outputs_used = [bool(name) for name in proto.output]
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}
        self._tensor = tensor
        self._subgraph = subgraph
        self._runtime_sizes = runtime_sizes
        #: The symbolic dimensions that this node binds to numbers of the graph.
        self.bound_sizes: dict[Var, Expr] = {}

    # Inputs.

    def __getitem__(self, number: int) -> Expr:
        """Return input ``number``, which must be present.

        Raises:
            InputError: it is omitted.
        """
        found = self.optional(number)
        if found is None:
            raise InputError(f"{self.label}: input {number} is missing")
        return found

    def optional(self, number: int) -> Expr | None:
        """Return input ``number``, or None if it is omitted."""
        return self.inputs[number] if number < len(self.inputs) else None

    def type(self, number: int = 0) -> TensorType:
        """Return the type of input ``number``.

        Raises:
            UnsupportedOperatorError: it is not a tensor (but a sequence or an optional).
        """
        found = self[number].type
        if not isinstance(found, TensorType):
            raise UnsupportedOperatorError(f"{self.label}: input {number}: expected a tensor, found {found}")
        return found

    def shape(self, number: int = 0, rank: int | None = None) -> tuple[Dim, ...]:
        """Return the shape of input ``number``, which must have ``rank`` dimensions if that is given.

        Raises:
            InputError: it has more or fewer.
        """
        found = tuple(self.type(number).shape)
        if rank is not None and len(found) != rank:
            raise self.wrong(f"input {number}: expected {rank} dimensions, found shape {format_shape(found)}")
        return found

    def constant(self, number: int) -> Array:
        """Return the elements of input ``number``, all of which must be known at import.

        Raises:
            UnsupportedOperatorError: they depend on the model's inputs.
        """
        found = known_values(self[number])
        if found is None or found.dtype == object:
            raise UnsupportedOperatorError(
                f"{self.label}: input {number} must be known when the model is imported{self.asks_for(number)}"
            )
        return found

    def asks_for(self, number: int) -> str:
        """Return the end of an error that says how to give the inputs of the model that input ``number`` depends on."""
        names = [var.name for var in free_vars(self[number])]
        said = ", ".join(f"{name!r}: ..." for name in names)
        return f"; give the values that it depends on: values={{{said}}} (--value NAME=VALUE)" if names else ""

    def _whole(self, number: int, found: Array) -> Array:
        """Convert numbers of a floating-point type, which some operators allow for sizes, to integers."""
        wide = found.astype(np.float64)
        if not np.all(np.abs(wide) < 1 << 53) or np.any(wide != np.floor(wide)):
            raise self.wrong(f"input {number}: expected integers, found {wide.reshape(-1)[:8].tolist()}")
        return wide.astype(np.int64)

    def optional_constant(self, number: int) -> Array | None:
        """Return :meth:`constant`, or None if the input is omitted."""
        return None if self.optional(number) is None else self.constant(number)

    def integers(self, number: int) -> tuple[int, ...]:
        """Return the elements of input ``number`` (a vector or a scalar) as integers known at import.

        Raises:
            InputError: they are not integers.
        """
        found = self.constant(number)
        if found.dtype.kind not in "iub":
            raise self.wrong(f"input {number}: expected integers, found {found.dtype}")
        return tuple(int(value) for value in found.reshape(-1))

    def integer(self, number: int) -> int:
        """Return the single element of input ``number`` as an integer known at import.

        Raises:
            InputError: it is not an integer, or not a single element.
        """
        return self._one(number, self.integers(number))

    def dim(self, number: int) -> Dim:
        """Return the single element of input ``number`` as a size.

        Raises:
            InputError: it is not a single element.
        """
        return self._one(number, self.dims(number))

    def _one(self, number: int, found: Sequence[T]) -> T:
        if len(found) != 1:
            raise self.wrong(f"input {number}: expected one element, found {len(found)}")
        return found[0]

    def dims(self, number: int) -> tuple[Dim, ...]:
        """Return the elements of input ``number`` as sizes: integers, or integer expressions over symbolic dimensions;
        a size that depends on data becomes a symbolic dimension, bound when the model runs.

        Raises:
            UnsupportedOperatorError: the number of elements is unknown.
        """
        return tuple(self.size(element) for element in self.elements(number))

    def elements(self, number: int) -> list[Dim | Expr]:
        """Return the elements of input ``number``: integers and integer expressions where they are known, scalars of
        the graph otherwise.

        Raises:
            UnsupportedOperatorError: their number is unknown.
            InputError: they are not integers.
        """
        numbers = known_values(self[number])
        if numbers is not None and numbers.dtype.kind not in "iubO":
            return [int(value) for value in self._whole(number, numbers).reshape(-1)]
        found = elements_of(self[number])
        if found is None:
            raise UnsupportedOperatorError(f"{self.label}: input {number}: the rank of a tensor depends on data")
        return found

    def size(self, element: Dim | Expr) -> Dim:
        """Return a size as a dimension: a scalar of the graph becomes a symbolic dimension that is bound when the model
        runs, and must not be negative then."""
        if not isinstance(element, Expr):
            return element
        known = elements_of(element)
        if known is not None and len(known) == 1 and not isinstance(known[0], Expr):
            return known[0]
        dim, number = self._runtime_sizes.dim(element)
        self.bound_sizes[dim] = number
        return dim

    # Attributes.

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value: lists are tuples, tensors are arrays, graphs stay as they are. A
        default that is a float is rounded to float32, as attributes are.

        Raises:
            InputError: no operator has an attribute of this kind.
        """
        found = self._attributes.get(name)
        if found is None:
            return float(np.float32(default)) if isinstance(default, float) else default
        kind = AttributeProto
        if found.type == kind.INT:
            return int(found.i)
        if found.type == kind.FLOAT:
            return float(found.f)
        if found.type == kind.STRING:
            return self._text(name, found.s)
        if found.type == kind.TENSOR:
            return self._tensor(found.t)
        if found.type == kind.GRAPH:
            return found.g
        if found.type == kind.INTS:
            return tuple(int(value) for value in found.ints)
        if found.type == kind.FLOATS:
            return tuple(float(value) for value in found.floats)
        if found.type == kind.STRINGS:
            return tuple(self._text(name, value) for value in found.strings)
        raise InputError(f"{self.label}: attribute {name!r} is of a kind that is not supported")

    def _text(self, name: str, value: bytes) -> str:
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong(f"attribute {name!r} is not UTF-8: {value!r}") from None

    def required(self, name: str) -> Any:
        """Return an attribute that must be present.

        Raises:
            InputError: it is missing.
        """
        found = self.attribute(name)
        if found is None:
            raise InputError(f"{self.label}: attribute {name!r} is missing")
        return found

    def has(self, name: str) -> bool:
        """Return whether the node states the attribute."""
        return name in self._attributes

    def axis(self, name: str, default: int, rank: int | None = None, last: bool = False) -> int:
        """Return an attribute that is an axis of the first input (or of a tensor of ``rank``), counted from the front.

        Args:
            last: whether the position after the last axis is valid, too.

        Raises:
            InputError: there is no such axis.
        """
        rank = len(self.shape()) if rank is None else rank
        return self.checked_axis(self.attribute(name, default), rank, f"attribute {name!r}", last)

    def checked_axis(self, axis: int, rank: int, what: str, last: bool = False) -> int:
        """Check ``axis`` of a tensor of ``rank``; return it counted from the front.

        Raises:
            InputError: there is no such axis.
        """
        if not -rank <= axis < rank + last:
            raise self.wrong(f"{what}: expected an axis of a tensor with {rank} dimensions, found {axis}")
        return axis + rank if axis < 0 else axis

    def wrong(self, what: str) -> InputError:
        """Return an error about something invalid in the node."""
        return InputError(f"{self.label}: {what}")

    def dtype(self, name: str, default: Any = None) -> DataType:
        """Return the element type that an integer attribute encodes.

        Raises:
            InputError: it is not supported.
        """
        found = self.attribute(name)
        if found is None:
            if default is None:
                raise InputError(f"{self.label}: attribute {name!r} is missing")
            return as_dtype(default)
        return as_dtype(numpy_dtype(found, self.label))

    def subgraph(self, name: str, inputs: Sequence[Expr] = ()) -> list[Expr]:
        """Return the outputs of the graph in attribute ``name`` for these inputs; it sees the values of the enclosing
        graph."""
        return self._subgraph(self.required(name), inputs)

    def unsupported(self, what: str, hint: str = "") -> UnsupportedOperatorError:
        """Return an error about something unsupported in the operator."""
        return UnsupportedOperatorError(f"{self.label}: {what} is not supported{hint}")
