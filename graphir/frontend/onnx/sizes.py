"""Require sizes to be equal where it cannot be proved: the graph asserts it, and a call checks it.

Take an image of any height ``h`` that is halved four times, and add another that is halved five times and doubled once:
that is right for multiples of 32. ONNX leaves the check to run time, and so do we, through ``match_shape``.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto

from tilewright.graphir.dims import Dim, dim_equal, product, simplify
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.agreements import with_agreeing_sizes
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import reshape
from tilewright.graphir.types import TensorType

#: Operators whose inputs all broadcast to one shape.
BROADCASTING = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Where", "PRelu"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"),
    )
)


def with_equal_sizes(node: NodeProto, inputs: Sequence[Expr | None]) -> list[Expr | None]:
    """Return the inputs of a node; sizes that broadcasting or concatenation requires to be equal become the same
    expression.

    Two symbolic sizes are assumed to be equal; if one of them is 1 only at run time, that is an error then.
    """
    result = list(inputs)
    if node.domain not in ("", "ai.onnx"):
        return result
    if node.op_type == "MatMul":
        return _with_equal_axes(_with_equal_inner_sizes(result), (-1, -2), False)
    if node.op_type not in BROADCASTING and node.op_type != "Concat":
        return with_agreeing_sizes(node, result)
    rank = max((x.type.ndim for x in result if x is not None and isinstance(x.type, TensorType)), default=0)
    joined: tuple[int, ...] = ()
    if node.op_type == "Concat":
        axis = next((int(a.i) for a in node.attribute if a.name == "axis"), 1)
        joined = (axis - rank if axis >= 0 else axis,)
    return _with_equal_axes(result, joined, node.op_type == "Concat")


def _with_equal_axes(result: list[Expr | None], skipped: Sequence[int], ones_too: bool) -> list[Expr | None]:
    """Return tensors whose sizes of an axis, counted from the last, are the same expression. Axes of ``skipped`` are
    left as they are and, unless ``ones_too``, sizes of 1."""
    shapes = [tuple(x.type.shape) if x is not None and isinstance(x.type, TensorType) else () for x in result]
    rank = max(map(len, shapes), default=0)
    for place in range(-1, -rank - 1, -1):
        if place in skipped:
            continue
        present = [shape[place] for shape in shapes if len(shape) >= -place]
        if not ones_too:
            present = [dim for dim in present if not (isinstance(dim, int) and dim == 1)]
        if all(dim is present[0] for dim in present) or all(dim_equal(dim, present[0]) for dim in present):
            continue
        chosen = min(present, key=lambda dim: (not isinstance(dim, int), len(str(dim)), str(dim)))
        for number, shape in enumerate(shapes):
            if len(shape) < -place or (isinstance(shape[place], int)) or dim_equal(shape[place], chosen):
                continue
            position = len(shape) + place
            shapes[number] = wanted = (*shape[:position], chosen, *shape[position + 1 :])
            result[number] = get_operator("match_shape")(result[number], shape=wanted)
    return result


def _with_equal_inner_sizes(inputs: list[Expr | None]) -> list[Expr | None]:
    """Return the operands of a product; the columns of the first and the rows of the second become the same
    expression."""
    a, b = (x.type.shape if x is not None and isinstance(x.type, TensorType) else () for x in inputs[:2])
    if not a or not b:
        return inputs
    columns, rows = len(a) - 1, max(len(b) - 2, 0)
    if dim_equal(a[columns], b[rows]) or (isinstance(a[columns], int) and isinstance(b[rows], int)):
        return inputs
    if isinstance(a[columns], int):
        shape = (*b[:rows], a[columns], *b[rows + 1 :])
        return [inputs[0], get_operator("match_shape")(inputs[1], shape=shape)]
    return [get_operator("match_shape")(inputs[0], shape=(*a[:columns], b[rows])), inputs[1]]


def with_elements(x: Expr, newshape: Sequence[Dim]) -> Expr:
    """Return ``x`` for a reshape: where it cannot be proved that the shape has as many elements, a call checks it."""
    if not isinstance(x.type, TensorType) or any(isinstance(dim, int) and dim < 0 for dim in newshape):
        return x
    found, wanted = product(x.type.shape), product(newshape)
    if dim_equal(found, wanted) or (isinstance(found, int) and isinstance(wanted, int)):
        return x
    return get_operator("match_shape")(reshape(x, newshape=(found,)), shape=(wanted,))


def with_remaining(old: Sequence[Dim], newshape: Sequence[Dim]) -> list[Dim]:
    """Return the sizes of a reshape with the -1 computed, where the known sizes may not divide the others: then a call
    checks that they do."""
    unknown = [place for place, dim in enumerate(newshape) if isinstance(dim, int) and dim == -1]
    rest = [dim for dim in newshape if not (isinstance(dim, int) and dim == -1)]
    if len(unknown) != 1 or all(isinstance(dim, int) for dim in old):
        return list(newshape)
    left, others = list(old), []
    for dim in rest:
        place = next((place for place, each in enumerate(left) if dim_equal(each, dim)), None)
        if place is None:
            others.append(dim)
        else:
            del left[place]
    total, divisor = product(left), product(others)
    if isinstance(total, int) or (isinstance(divisor, int) and divisor < 2) or dim_equal(total % divisor, 0):
        return list(newshape)
    sizes = list(newshape)
    sizes[unknown[0]] = simplify(total // divisor)
    return sizes
