"""What a converter sees of a node: its inputs as expressions, its attributes as Python values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto

from tilewright.graphir.dims import Dim, format_shape
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.runtime_sizes import RuntimeSizes, elements_of
from tilewright.graphir.frontend.onnx.tensors import numpy_dtype
from tilewright.graphir.known_values import known_values
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import DataType, as_dtype
from tilewright.tensorir.errors import InputError, UnsupportedOperatorError
from tilewright.tensorir.expr import Var

Array = np.ndarray[Any, Any]

T = TypeVar("T")

#: Converts a subgraph with values for its inputs; gives its outputs.
Subgraph = Callable[[GraphProto, Sequence[Expr]], list[Expr]]


class Node:
    """One node that is being converted.

    Attributes:
        op_type: the operator's name.
        opset: of the operator's domain.
        label: what errors call the node.
        inputs: the inputs; None for one that is left out (its name is empty). Left out at the end, it is missing.
        num_outputs: how many results the node names; trailing ones may be left out.
        outputs_used: for each of them, whether it has a name.
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
        #: The symbolic dimensions that stand for numbers of the graph here, with these numbers.
        self.bound_sizes: dict[Var, Expr] = {}

    # Inputs.

    def __getitem__(self, number: int) -> Expr:
        """Input ``number``, which must be there.

        Raises:
            InputError: it is left out.
        """
        found = self.optional(number)
        if found is None:
            raise InputError(f"{self.label}: input {number} is missing")
        return found

    def optional(self, number: int) -> Expr | None:
        """Input ``number``, or None if it is left out."""
        return self.inputs[number] if number < len(self.inputs) else None

    def type(self, number: int = 0) -> TensorType:
        """The type of input ``number``.

        Raises:
            UnsupportedOperatorError: it is no tensor (a sequence or an optional).
        """
        found = self[number].type
        if not isinstance(found, TensorType):
            raise UnsupportedOperatorError(f"{self.label}: input {number}: expected a tensor, found {found}")
        return found

    def shape(self, number: int = 0, rank: int | None = None) -> tuple[Dim, ...]:
        """The shape of input ``number``, which must have ``rank`` dimensions if that is given.

        Raises:
            InputError: it has more or fewer.
        """
        found = tuple(self.type(number).shape)
        if rank is not None and len(found) != rank:
            raise self.wrong(f"input {number}: expected {rank} dimensions, found shape {format_shape(found)}")
        return found

    def constant(self, number: int) -> Array:
        """The elements of input ``number``, all of them numbers that are known now.

        Raises:
            UnsupportedOperatorError: they depend on the model's inputs.
        """
        found = known_values(self[number])
        if found is None or found.dtype == object:
            raise UnsupportedOperatorError(f"{self.label}: input {number} must be known when the model is imported")
        return found

    def _whole(self, number: int, found: Array) -> Array:
        """Numbers of a floating-point type, which some operators allow for sizes, as integers."""
        wide = found.astype(np.float64)
        if not np.all(np.abs(wide) < 1 << 53) or np.any(wide != np.floor(wide)):
            raise self.wrong(f"input {number}: expected integers, found {wide.reshape(-1)[:8].tolist()}")
        return wide.astype(np.int64)

    def optional_constant(self, number: int) -> Array | None:
        """As :meth:`constant`; None if the input is left out."""
        return None if self.optional(number) is None else self.constant(number)

    def integers(self, number: int) -> tuple[int, ...]:
        """The elements of input ``number`` (a vector or a scalar) as integers known now.

        Raises:
            InputError: they are no integers.
        """
        found = self.constant(number)
        if found.dtype.kind not in "iub":
            raise self.wrong(f"input {number}: expected integers, found {found.dtype}")
        return tuple(int(value) for value in found.reshape(-1))

    def integer(self, number: int) -> int:
        """The one element of input ``number`` as an integer known now.

        Raises:
            InputError: it is none, or not one.
        """
        return self._one(number, self.integers(number))

    def dim(self, number: int) -> Dim:
        """The one element of input ``number`` as a size.

        Raises:
            InputError: it is not one.
        """
        return self._one(number, self.dims(number))

    def _one(self, number: int, found: Sequence[T]) -> T:
        if len(found) != 1:
            raise self.wrong(f"input {number}: expected one element, found {len(found)}")
        return found[0]

    def dims(self, number: int) -> tuple[Dim, ...]:
        """The elements of input ``number`` as sizes: integers, or integer expressions over symbolic dimensions; where
        they depend on data, a symbolic dimension stands for what is computed when the model runs.

        Raises:
            UnsupportedOperatorError: it isn't known how many elements there are.
        """
        return tuple(self.size(element) for element in self.elements(number))

    def elements(self, number: int) -> list[Dim | Expr]:
        """The elements of input ``number``: integers and integer expressions as far as they are known, the others as
        scalars of the graph.

        Raises:
            UnsupportedOperatorError: it isn't known how many there are.
            InputError: they are no integers.
        """
        numbers = known_values(self[number])
        if numbers is not None and numbers.dtype.kind not in "iubO":
            return [int(value) for value in self._whole(number, numbers).reshape(-1)]
        found = elements_of(self[number])
        if found is None:
            raise UnsupportedOperatorError(f"{self.label}: input {number}: the rank of a tensor depends on data")
        return found

    def size(self, element: Dim | Expr) -> Dim:
        """A size as a dimension: a scalar of the graph becomes a symbolic dimension that is bound when the model runs,
        and must not be negative then."""
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
        """An attribute as a Python value: lists are tuples, tensors are arrays, graphs stay as they are.

        Raises:
            InputError: an attribute of a kind that no operator has.
        """
        found = self._attributes.get(name)
        if found is None:
            return default
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
        """An attribute that must be there.

        Raises:
            InputError: it is not.
        """
        found = self.attribute(name)
        if found is None:
            raise InputError(f"{self.label}: attribute {name!r} is missing")
        return found

    def has(self, name: str) -> bool:
        """Whether the node states the attribute."""
        return name in self._attributes

    def axis(self, name: str, default: int, rank: int | None = None, last: bool = False) -> int:
        """An attribute that is an axis of the first input (or of a tensor of ``rank``), counted from the front.

        Args:
            last: whether the place behind the last axis is one as well.

        Raises:
            InputError: there is no such axis.
        """
        rank = len(self.shape()) if rank is None else rank
        return self.checked_axis(self.attribute(name, default), rank, f"attribute {name!r}", last)

    def checked_axis(self, axis: int, rank: int, what: str, last: bool = False) -> int:
        """``axis`` of a tensor of ``rank``, counted from the front.

        Raises:
            InputError: there is no such axis.
        """
        if not -rank <= axis < rank + last:
            raise self.wrong(f"{what}: expected an axis of a tensor with {rank} dimensions, found {axis}")
        return axis + rank if axis < 0 else axis

    def wrong(self, what: str) -> InputError:
        """The error that says what of the node is wrong."""
        return InputError(f"{self.label}: {what}")

    def dtype(self, name: str, default: Any = None) -> DataType:
        """The element type that an integer attribute stands for.

        Raises:
            InputError: it is none of ours.
        """
        found = self.attribute(name)
        if found is None:
            if default is None:
                raise InputError(f"{self.label}: attribute {name!r} is missing")
            return as_dtype(default)
        return as_dtype(numpy_dtype(found, self.label))

    def subgraph(self, name: str, inputs: Sequence[Expr] = ()) -> list[Expr]:
        """The outputs of the graph in attribute ``name`` for these inputs; it sees the values around the node."""
        return self._subgraph(self.required(name), inputs)

    def unsupported(self, what: str) -> UnsupportedOperatorError:
        """The error that says what of the operator there is no support for."""
        return UnsupportedOperatorError(f"{self.label}: {what} is not supported")
