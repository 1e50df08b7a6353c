"""Require sizes to be equal where it cannot be proved: the graph asserts it, and a call checks it.

Take an image of any height ``h`` that is halved four times, and add another that is halved five times and doubled once:
that is right for multiples of 32. ONNX leaves the check to run time, and so do we, through ``match_shape``.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto

from tilewright.graphir.dims import Dim, dim_equal, product
from tilewright.graphir.expr import Expr
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
    if node.op_type in ("MatMul", "Gemm"):
        return _with_equal_inner_sizes(node, result)
    if node.op_type not in BROADCASTING and node.op_type != "Concat":
        return result
    shapes = [tuple(x.type.shape) if x is not None and isinstance(x.type, TensorType) else () for x in result]
    rank = max(map(len, shapes), default=0)
    joined = None
    if node.op_type == "Concat":
        axis = next((int(a.i) for a in node.attribute if a.name == "axis"), 1)
        joined = axis - rank if axis >= 0 else axis
    for place in range(-1, -rank - 1, -1):
        if place == joined:
            continue
        present = [shape[place] for shape in shapes if len(shape) >= -place]
        if joined is None:
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


def _with_equal_inner_sizes(node: NodeProto, inputs: list[Expr | None]) -> list[Expr | None]:
    """Return the operands of a product; the columns of the first and the rows of the second become the same
    expression."""
    a, b = (x.type.shape if x is not None and isinstance(x.type, TensorType) else () for x in inputs[:2])
    if not a or not b:
        return inputs
    transposed = {attribute.name for attribute in node.attribute if attribute.i}
    columns = len(a) - 2 if "transA" in transposed and len(a) > 1 else len(a) - 1
    rows = len(b) - 1 if "transB" in transposed or len(b) == 1 else len(b) - 2
    if dim_equal(a[columns], b[rows]) or (isinstance(a[columns], int) and isinstance(b[rows], int)):
        return inputs
    if isinstance(a[columns], int):
        shape = (*b[:rows], a[columns], *b[rows + 1 :])
        return [inputs[0], get_operator("match_shape")(inputs[1], shape=shape), *inputs[2:]]
    shape = (*a[:columns], b[rows], *a[columns + 1 :])
    return [get_operator("match_shape")(inputs[0], shape=shape), *inputs[1:]]


def with_elements(x: Expr, newshape: Sequence[Dim]) -> Expr:
    """Return ``x`` for a reshape: where it cannot be proved that the shape has as many elements, a call checks it."""
    if not isinstance(x.type, TensorType) or any(isinstance(dim, int) and dim < 0 for dim in newshape):
        return x
    found, wanted = product(x.type.shape), product(newshape)
    if dim_equal(found, wanted) or (isinstance(found, int) and isinstance(wanted, int)):
        return x
    return get_operator("match_shape")(reshape(x, newshape=(found,)), shape=(wanted,))
