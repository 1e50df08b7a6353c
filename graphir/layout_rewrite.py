"""Convert expressions between layouts: the means with which operators state their calls on blocked tensors
(``in_layout``)."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.dims import Dim, dim_equal
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.op import get_operator
from tilewright.graphir.types import TensorType


def transform(x: Expr, source: str, target: str, shape: Sequence[Dim] | None = None) -> Expr:
    """Convert ``x`` from layout ``source`` to layout ``target``.

    Args:
        shape: the shape of the result, needed if ``target`` has no blocks and the last blocks of ``source`` may be
            partly filled.
    """
    if source == target:
        return x
    attrs: dict[str, object] = {"src_layout": source, "dst_layout": target}
    if shape is not None:
        wanted, stored = parse_layout(target).extents(shape), parse_layout(source).extents(x.shape)
        partial = {axis: extent for axis, extent in wanted.items() if not dim_equal(extent, stored[axis])}
        if partial:
            attrs["extents"] = partial
    return Call(get_operator("layout_transform"), (x,), attrs, None, x.span)


def reshape(x: Expr, shape: Sequence[object]) -> Expr:
    """Reshape ``x``; return it unchanged if it has the shape."""
    if x.ndim == len(shape) and all(map(dim_equal, x.shape, shape)):  # type: ignore[arg-type]
        return x
    return Call(get_operator("reshape"), (x,), {"newshape": tuple(shape)}, None, x.span)


def divides(found: TensorType, plain: str, target: str) -> bool:
    """Return whether the blocks of ``target`` divide the axes of a tensor in layout ``plain``."""
    source, blocked = parse_layout(plain), parse_layout(target)
    if found.ndim != source.ndim or sorted(source.primal) != sorted(blocked.primal):
        return False
    for axis in source.primal:
        extent, block = found.shape[source.position(axis)], blocked.block(axis)
        if block > 1 and not (isinstance(extent, int) and extent % block == 0 and extent > 0):
            return False
    return True


def broadcast_operand(x: Expr, plain: str, target: str) -> Expr | None:
    """Convert an operand of a broadcasting operator whose other operands are in ``target`` instead of ``plain``.

    Returns:
        the operand in a form in which broadcasting pairs the same elements; None if blocks prevent that.
    """
    source, blocked = parse_layout(plain), parse_layout(target)
    found = x.tensor_type
    if found.ndim == 0:
        return x
    if found.ndim > source.ndim:
        return None
    shape = (1,) * (source.ndim - found.ndim) + found.shape
    whole = reshape(x, shape)
    extents = source.extents(shape)
    blocks = [extents[axis] for axis in source.primal if blocked.block(axis) > 1]
    if all(isinstance(extent, int) and extent > 1 for extent in blocks):
        return transform(whole, plain, target)
    for axis in source.primal:
        if blocked.block(axis) > 1 and not (isinstance(extents[axis], int) and extents[axis] == 1):
            return None
    # A blocked axis of extent 1 gets a dimension of extent 1 for the block as well.
    if blocked.primal != source.primal:
        return None
    return reshape(whole, [1 if size else extents[axis] for axis, size in blocked.axes])


def operands_in_layout(
    args: Sequence[Expr], blocked: Sequence[Expr | None], plain: str, target: str
) -> list[Expr] | None:
    """Convert all operands of a broadcasting operator to layout ``target``; return None if one cannot be converted."""
    result: list[Expr] = []
    for arg, at_hand in zip(args, blocked, strict=True):
        operand = at_hand if at_hand is not None else broadcast_operand(arg, plain, target)
        if operand is None:
            return None
        result.append(operand)
    return result


def axes_in_layout(axes: Sequence[int], plain: str, target: str) -> tuple[int, ...] | None:
    """Return the dimensions in layout ``target`` of axes of a tensor in layout ``plain``; None if one is blocked
    there."""
    source, layout = parse_layout(plain), parse_layout(target)
    names = [source.axes[axis][0] for axis in axes]
    if any(layout.block(name) > 1 for name in names):
        return None
    return tuple(layout.position(name) for name in names)
