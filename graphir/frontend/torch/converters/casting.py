"""Convert copies, conversions between element types, and tensors that are made from numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.torch.node import Node, axis_places, cast_to, dtype_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, multiply
from tilewright.tensorir.dtype import FLOAT64, INT64, DataType
from tilewright.tensorir.expr import Expr as Scalar


@converter(
    *("aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default"),
    *("aten.contiguous.default", "aten.positive.default", "aten.lift_fresh.default", "aten.lift.default"),
    *("aten.alias_copy.default", "aten.detach_.default", "aten.conj.default", "aten._conj.default"),
    *("aten.resolve_conj.default", "aten.resolve_neg.default", "aten._conj_physical.default", "aten.real.default"),
    *("aten.conj_physical.default",),
)
def same(node: Node, x: Expr, *_: Any) -> Expr:
    """Return the elements as they are: strides, and what shares memory, do not matter here."""
    return x


@converter("aten._to_copy.default", "prims.convert_element_type.default", "aten.to.dtype", "aten.to.dtype_layout")
def to_type(node: Node, x: Expr, *_: Any) -> Expr:
    """Convert to another element type."""
    return converted(x, node.dtype)


@converter("aten.type_as.default")
def to_type_of(node: Node, x: Expr, other: Expr) -> Expr:
    """Convert to the element type of another tensor."""
    return converted(x, node.dtype)


def converted(x: Expr, dtype: DataType) -> Expr:
    """Return ``x`` as ``dtype``, also from and to a type that is only stored."""
    found = dtype_of(x)
    if found is dtype:
        return x
    if found.kind == "storage":
        x = get_operator("decode")(x)
    if dtype.kind == "storage":
        return get_operator("encode")(cast_to(x, DataType("float32")), dtype=dtype)
    return cast_to(x, dtype)


@converter("aten.copy.default")
def copy(node: Node, x: Expr, source: Expr, *_: Any) -> Expr:
    """Return the elements of ``source`` in the shape and type of ``x``."""
    return get_operator("broadcast_to")(converted(source, node.dtype), shape=node.shape)


@converter("aten.view.dtype")
def view_as_type(node: Node, x: Expr, dtype: DataType) -> Expr:
    """Reinterpret the bits as a type of as many bits."""
    if dtype.bits != dtype_of(x).bits or dtype.is_bool or dtype_of(x).is_bool:
        raise node.unsupported(f"a view of {dtype_of(x)!s} as {dtype!s}")
    return get_operator("bitcast")(x, dtype=dtype)


# Factories. The element type and the shape are those that PyTorch found.


@converter("aten.full.default", "aten.new_full.default", "aten.full_like.default")
def full(node: Node, *arguments: Any) -> Expr:
    """Fill a shape with one value."""
    value = arguments[2] if isinstance(arguments[0], Expr) and isinstance(arguments[1], list) else arguments[1]
    return filled(node, value)


@converter(
    *("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten._efficientzerotensor.default"),
    *("aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default"),
    *("aten.empty_strided.default", "aten.new_empty_strided.default", "aten.empty_permuted.default"),
)
def zeros(node: Node, *_: Any) -> Expr:
    """Return zeros, also for a tensor whose elements are not defined."""
    return filled(node, 0)


@converter("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(node: Node, *_: Any) -> Expr:
    """Return ones."""
    return filled(node, 1)


@converter("aten.fill.Scalar", "aten.fill.Tensor")
def fill(node: Node, x: Expr, value: Any) -> Expr:
    """Fill the shape of ``x`` with one value."""
    return filled(node, value)


@converter("aten.zero.default")
def zero(node: Node, x: Expr) -> Expr:
    """Fill the shape of ``x`` with zeros."""
    return filled(node, 0)


def filled(node: Node, value: Any) -> Expr:
    """Return a tensor of the node's type that holds one value."""
    if isinstance(value, (Expr, Scalar)):
        return get_operator("broadcast_to")(node.tensor(value), shape=node.shape)
    dtype = node.dtype
    if dtype.is_bool:
        value = bool(value)
    elif not dtype.is_float:
        value = int(value)
    return get_operator("full")(shape=node.shape, fill=value, dtype=dtype)


@converter("aten.scalar_tensor.default")
def scalar_tensor(node: Node, value: Any, *_: Any) -> Expr:
    """Return a number as a tensor without dimensions."""
    return node.tensor(value)


@converter("aten.arange.default", "aten.arange.start", "aten.arange.start_step", "prims.iota.default")
def arange(node: Node, *arguments: Any) -> Expr:
    """Return numbers at equal distances: of integers exactly as many as PyTorch counts."""
    start, stop, step = (int(each) if isinstance(each, bool) else each for each in _range(node.label, arguments))
    numbers = (start, stop, step)
    if all(isinstance(number, (int, Scalar)) for number in numbers) and isinstance(step, int):
        return get_operator("arange")(start=start, stop=stop, step=step, dtype=node.dtype)
    count = node.shape[0]
    if isinstance(count, int) and all(isinstance(number, (int, float)) for number in numbers):
        wide = np.arange(count, dtype=np.float64 if node.dtype.is_float else np.int64)
        return const((start + wide * step).astype(node.dtype.numpy))
    wide_type = FLOAT64 if node.dtype.is_float else INT64
    result = add(
        multiply(cast_to(axis_places(count), wide_type), node.tensor(step, wide_type)),
        node.tensor(start, wide_type),
    )
    return cast_to(result, node.dtype)


def _range(label: str, arguments: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return start, stop and step."""
    if label.startswith("prims.iota"):  # length, start, step
        length, start, step = arguments[:3]
        return start, start + length * step, step
    if label.startswith("aten.arange.default"):
        return 0, arguments[0], 1
    if label.startswith("aten.arange.start "):
        return arguments[0], arguments[1], 1
    return arguments[0], arguments[1], arguments[2]


@converter("aten.linspace.default")
def linspace(node: Node, start: Any, stop: Any, steps: int, *_: Any) -> Expr:
    """Return ``steps`` numbers from ``start`` to ``stop``; those of the second half are counted from the end."""
    count = node.shape[0]
    first, last = node.number(start, "a start"), node.number(stop, "an end")
    if not isinstance(count, int):
        raise node.unsupported(f"a number of steps {count}")
    wide = np.float64 if node.dtype is FLOAT64 else np.float32
    distance = (wide(last) - wide(first)) / wide(max(count - 1, 1))
    places = np.arange(count, dtype=np.int64)
    numbers = np.where(
        places < count // 2, wide(first) + distance * places, wide(last) - distance * (count - 1 - places)
    )
    if count == 1:
        numbers = np.array([first], wide)
    return const(numbers.astype(node.dtype.numpy))


@converter("aten.tril_indices.default", "aten.triu_indices.default")
def triangle_indices(node: Node, rows: int, columns: int, offset: int, *_: Any) -> Expr:
    """Return the rows and the columns of the elements on one side of a diagonal."""
    shape = (node.number(rows, "a number of rows"), node.number(columns, "a number of columns"))
    side = np.tril if node.label.startswith("aten.tril") else np.triu
    return const(np.stack(np.nonzero(side(np.ones(shape, bool), offset))).astype(node.dtype.numpy))


@converter("aten.eye.default", "aten.eye.m")
def eye(node: Node, *_: Any) -> Expr:
    """Return ones on the diagonal of zeros."""
    rows, columns = node.shape
    return get_operator("eye")(n=rows, m=columns, k=0, dtype=node.dtype)
