"""Describe the place of buffers, and the offset of an access: a variable part, a constant, and a step between lanes."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.tensorir.arith.lanes import even_lanes
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Buffer, Expr, IntImm, binary, cast


class Slot(NamedTuple):
    """The place of a buffer in memory.

    Attributes:
        pointer: the operand that holds its address.
        local: whether it is a stack slot of this function, padded so that a masked access may touch all of its lanes.
        strides: the strides of its dimensions, in elements.
        dense: whether it is one contiguous dimension: an index is an offset.
        size: for a stack slot the number of its elements, without the padding.
    """

    pointer: str
    local: bool
    strides: tuple[Expr, ...]
    dense: bool
    size: int = 0

    @classmethod
    def of(cls, buffer: Buffer, pointer: str, local: bool) -> Slot:
        """Return the slot of ``buffer`` at ``pointer``."""
        strides = row_major_strides(buffer)
        dense = len(strides) == 1 and isinstance(strides[0], IntImm) and strides[0].value == 1
        return cls(pointer, local, strides, dense, span_of(buffer) if local else 0)


def row_major_strides(buffer: Buffer) -> tuple[Expr, ...]:
    """Return the strides of ``buffer`` in elements: its own, or those of a dense array with the last dimension
    innermost."""
    if buffer.strides:
        return buffer.strides
    strides: list[Expr] = [IntImm(1)] * len(buffer.shape)
    for axis in range(len(buffer.shape) - 2, -1, -1):
        strides[axis] = binary("mul", strides[axis + 1], cast(INT64, buffer.shape[axis + 1]))
    return tuple(strides)


def span_of(buffer: Buffer) -> int:
    """Return how many elements a buffer of constant extents and strides covers, at least one."""
    size = 1
    for extent, stride in zip(buffer.shape, row_major_strides(buffer), strict=True):
        assert isinstance(extent, IntImm) and isinstance(stride, IntImm)
        size = max(size, extent.value * stride.value)
    return size


class Address(NamedTuple):
    """The offset of an access from the address of its buffer, in elements.

    Attributes:
        variable: its variable part in the first lane; None if there is none.
        fixed: its constant part.
        step: the step from lane to lane; None if it is not constant: then only ``offset`` is known.
        offset: the offset as a whole, with all lanes.
    """

    variable: Expr | None
    fixed: int
    step: int | None
    offset: Expr


#: The variable part of a sum (None if there is none) and its constant.
Split = tuple[Expr | None, int]


def split(offset: Expr, sums: dict[Expr, Split]) -> Address:
    """Return the parts of ``offset``; ``sums`` keeps those of sums, which offsets share."""
    if offset.dtype.lanes == 1:
        return Address(*split_constant(offset, sums), 1, offset)
    lanes = even_lanes(offset)
    if lanes is None:
        return Address(None, 0, None, offset)
    return Address(*split_constant(lanes[0], sums), lanes[1], offset)


def split_constant(offset: Expr, sums: dict[Expr, Split]) -> Split:
    """Split ``offset`` into a variable part (None if there is none) and a constant; ``sums`` keeps those of sums."""
    if type(offset) is BinaryOp:
        if offset.op != "add" and offset.op != "sub":
            return offset, 0
        found = sums.get(offset)
        if found is None:
            found = sums[offset] = _split_sum(offset, sums)
        return found
    return (None, offset.value) if type(offset) is IntImm else (offset, 0)


def _split_sum(offset: BinaryOp, sums: dict[Expr, Split]) -> Split:
    a, fixed = split_constant(offset.a, sums)
    second, is_sum = offset.b, offset.op == "add"
    if type(second) is IntImm:
        return a, fixed + second.value if is_sum else fixed - second.value
    b, more = split_constant(second, sums)
    if a is offset.a and b is second:
        return offset, 0
    fixed = fixed + more if is_sum else fixed - more
    if b is None:
        return a, fixed
    if a is None and is_sum:
        return b, fixed
    return binary(offset.op, a if a is not None else IntImm(0), b), fixed
