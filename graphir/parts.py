"""Mark values that are computed in the memory of a larger one, so that nothing is copied to put them there.

A group ``fn (%a, %b) attrs {"Primitive": True, "in_place": (0, 1)} { concatenate(%a, %b) }`` states that the kernels
that compute its arguments 0 and 1 write them into the memory of the result. A group with ``"row_padding": 16`` leaves
memory for 16 elements behind each row of its result. The result of one with ``"view": True``, which only gives its
argument another shape, is the argument's memory. The values of the graph are the same without the attributes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.dims import Dim, dim_equal, simplify
from tilewright.graphir.expr import Call, Expr, Function
from tilewright.graphir.keys import IN_PLACE, PRIMITIVE, ROW_PADDING, VIEW
from tilewright.graphir.op import Operator


def in_place(node: Expr) -> tuple[int, ...]:
    """Return the arguments of a call that are computed in the memory of its result; none for most calls."""
    if not (isinstance(node, Call) and isinstance(node.op, Function)):
        return ()
    return tuple(node.op.attrs.get(IN_PLACE, ()))


def row_padding(node: Expr) -> int:
    """Return the number of unused elements behind each row of a call's result; 0 for most calls."""
    return int(node.op.attrs.get(ROW_PADDING, 0)) if isinstance(node, Call) and isinstance(node.op, Function) else 0


def is_view(node: Expr) -> bool:
    """Return whether a call's result is a view of its argument's memory."""
    group = node.op if isinstance(node, Call) else None
    return isinstance(group, Function) and bool(group.attrs.get(PRIMITIVE) and group.attrs.get(VIEW))


def inner_call(node: Call) -> Call:
    """Return the operator's call in a group of one."""
    assert isinstance(node.op, Function)
    inner = node.op.body
    assert isinstance(inner, Call) and isinstance(inner.op, Operator)
    return inner


def excess(part: Sequence[Dim], whole: Sequence[Dim], around: Sequence[Dim] = ()) -> tuple[Dim, ...]:
    """Return the excess of the memory that a part is stored in over the part's own extents, along each dimension.

    Along leading dimensions, up to the first with more than one element, it makes no difference: 0.

    Args:
        part: the part's extents.
        whole: the extents of the value that it is a part of.
        around: the excess of that value, if it is a part as well.
    """
    found: list[Dim] = []
    is_front = True
    for number, (inner, outer) in enumerate(zip(part, whole, strict=True)):
        more: Dim = 0
        if not is_front:
            more = 0 if dim_equal(inner, outer) else simplify(outer - inner)
            if around:
                more = simplify(more + around[number])
        found.append(more)
        is_front = is_front and dim_equal(inner, 1)
    return tuple(found)
