"""Find where elements lie in the memory of buffers, for Python code that passes parts of arrays."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, IntImm, binary, cast


def strides_of(buffer: Buffer) -> list[Expr]:
    """Return the distances between neighbours along each dimension, in elements."""
    if buffer.strides:
        return list(buffer.strides)
    strides: list[Expr] = [IntImm(1)]
    for extent in reversed(buffer.shape[1:]):
        strides.insert(0, binary("mul", strides[0], cast("int64", extent)))
    return strides[: len(buffer.shape)]


def offset_of(access: BufferLoad) -> Expr:
    """Return the number of elements before one in its buffer."""
    offset: Expr = IntImm(0)
    for index, stride in zip(access.indices, strides_of(access.buffer), strict=True):
        offset = binary("add", offset, binary("mul", cast("int64", index), cast("int64", stride)))
    return offset


def is_whole(buffer: Buffer, offset: Expr, param: Buffer, shape: tuple[Expr, ...]) -> bool:
    """Return whether an argument that begins at ``offset`` is the whole of ``buffer`` in the shape of the callee's
    ``param``."""
    if buffer.strides or param.strides or buffer.dtype != param.dtype or len(buffer.shape) != len(shape):
        return False
    pairs = [(offset, IntImm(0)), *zip(buffer.shape, shape, strict=True)]
    simplify = Analyzer().simplify
    return all(simplify(cast("int64", a)) is simplify(cast("int64", b)) for a, b in pairs)


def product(extents: Sequence[Expr]) -> Expr:
    """Return the number of elements of a shape."""
    count: Expr = IntImm(1)
    for extent in extents:
        count = binary("mul", count, cast("int64", extent))
    return count


def span(buffer: Buffer) -> Expr:
    """Return the number of elements from the first to the last of a strided buffer."""
    span: Expr = IntImm(1)
    for extent, stride in zip(buffer.shape, strides_of(buffer), strict=True):
        span = binary(
            "add", span, binary("mul", binary("sub", cast("int64", extent), IntImm(1)), cast("int64", stride))
        )
    return span
