"""Require sizes to be equal, or to broadcast, where it cannot be proved: the graph asserts it, and a call checks it.

Take an image of any height ``h`` that is halved four times, and add another that is halved five times and doubled once:
that is right for multiples of 32. ONNX leaves the check to run time, and so do we, through ``match_shape``. Where one
of two sizes may be 1 and the other greater, ``broadcast_to`` decides at run time which of them is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto

from tilewright.graphir.broadcasting import is_one, joined, ones_coincide
from tilewright.graphir.dims import Dim, dim_equal, product, simplify
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.agreements import with_agreeing_sizes
from tilewright.graphir.op import get_operator
from tilewright.graphir.types import TensorType

#: Operators whose inputs all broadcast to one shape.
BROADCASTING = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Where", "PRelu"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"),
    )
)

#: Convolutions: the input of the weights, and the axis that counts channels there (unless it is 0: those of one group).
_CHANNELS = {
    "Conv": (1, 1),
    "ConvInteger": (1, 1),
    "QLinearConv": (3, 1),
    "ConvTranspose": (1, 0),
}


def with_equal_sizes(node: NodeProto, inputs: Sequence[Expr | None]) -> list[Expr | None]:
    """Return the inputs of a node; sizes that broadcasting or concatenation requires to be equal become the same
    expression. A size that may be 1 where another is greater is broadcast when the model runs."""
    result = list(inputs)
    if node.domain not in ("", "ai.onnx"):
        return result
    if node.op_type == "MatMul":
        return _broadcast_together(_with_equal_inner_sizes(result), behind=2)
    if node.op_type in _CHANNELS:
        return _with_equal_channels(node, result)
    if node.op_type == "GatherND":
        return _with_equal_batches(node, result)
    if node.op_type in BROADCASTING:
        return result if any(a.name == "axis" for a in node.attribute) else _broadcast_together(result)
    if node.op_type == "Gemm":
        result = _with_equal_summand(node, result)
    if node.op_type != "Concat":
        return with_agreeing_sizes(node, result)
    shapes = [tuple(x.type.shape) if x is not None and isinstance(x.type, TensorType) else () for x in result]
    rank = max(map(len, shapes), default=0)
    axis = next((int(a.i) for a in node.attribute if a.name == "axis"), 1)
    for place in range(-1, -rank - 1, -1):
        if place == (axis - rank if axis >= 0 else axis):
            continue
        present = [shape[place] for shape in shapes if len(shape) >= -place]
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


def _broadcast_together(inputs: Sequence[Expr | None], behind: int = 0) -> list[Expr | None]:
    """Return the inputs with sizes that broadcast by proof, or that are checked when the model runs; the last
    ``behind`` dimensions stay as they are."""
    result = list(inputs)
    shapes = [tuple(x.type.shape) if x is not None and isinstance(x.type, TensorType) else () for x in result]
    rank = max(map(len, shapes), default=0)
    for place in range(-1 - behind, -rank - 1, -1):
        present = [shape[place] for shape in shapes if len(shape) >= -place]
        chosen = _join(present)
        if chosen is None:
            continue
        for number, shape in enumerate(shapes):
            if len(shape) < -place or isinstance(shape[place], int) or dim_equal(shape[place], chosen):
                continue
            position = len(shape) + place
            shapes[number] = wanted = (*shape[:position], chosen, *shape[position + 1 :])
            name = "match_shape" if ones_coincide(shape[place], chosen) else "broadcast_to"
            result[number] = get_operator(name)(result[number], shape=wanted)
    return result


def _join(dims: Sequence[Dim]) -> Dim | None:
    """Return the dimension to which these broadcast, None for different numbers; of dimensions that must be equal the
    simplest."""
    chosen: Dim = 1
    for dim in dims:
        if is_one(chosen) or is_one(dim) or dim_equal(chosen, dim) or not ones_coincide(chosen, dim):
            both = joined(chosen, dim)
            if both is None:
                return None
            chosen = both
        else:
            chosen = min(chosen, dim, key=lambda each: (not isinstance(each, int), len(str(each)), str(each)))
    return chosen


def _shape(x: Expr | None) -> tuple[Dim, ...]:
    return tuple(x.type.shape) if x is not None and isinstance(x.type, TensorType) else ()


def _matched(x: Expr | None, axis: int, size: Dim) -> Expr | None:
    """Return ``x``, whose size along ``axis`` is ``size``, by proof or by a check when the model runs."""
    shape = _shape(x)
    if dim_equal(shape[axis], size) or (isinstance(shape[axis], int) and isinstance(size, int)):
        return x
    return get_operator("match_shape")(x, shape=(*shape[:axis], size, *shape[axis + 1 :]))


def _with_equal_channels(node: NodeProto, inputs: list[Expr | None]) -> list[Expr | None]:
    """Return the inputs of an operator with weights; its first input has as many channels as they say."""
    number, axis = _CHANNELS[node.op_type]
    data, weights = _shape(inputs[0]), _shape(inputs[number] if number < len(inputs) else None)
    if len(data) < 2 or len(weights) <= axis:
        return inputs
    groups = next((int(a.i) for a in node.attribute if a.name == "group"), 1) if axis == 1 else 1
    return [_matched(inputs[0], 1, simplify(weights[axis] * groups)), *inputs[1:]]


def _with_equal_batches(node: NodeProto, inputs: list[Expr | None]) -> list[Expr | None]:
    """Return the inputs of GatherND; those dimensions of the indices that count batches are those of the data."""
    data, indices = (_shape(x) for x in inputs[:2])
    batches = next((int(a.i) for a in node.attribute if a.name == "batch_dims"), 0)
    found = inputs[1]
    for axis in range(min(batches, len(data), len(indices) - 1)):
        found = _matched(found, axis, data[axis])
    return [inputs[0], found, *inputs[2:]]


def _with_equal_summand(node: NodeProto, inputs: list[Expr | None]) -> list[Expr | None]:
    """Return the operands of a product of matrices; the summand broadcasts to it."""
    shapes = [tuple(x.type.shape) if x is not None and isinstance(x.type, TensorType) else () for x in inputs]
    if len(shapes) < 3 or not len(shapes[0]) == len(shapes[1]) == 2 or len(shapes[2]) > 2:
        return inputs
    transposed = {attribute.name for attribute in node.attribute if attribute.i}
    product_shape = (shapes[0]["transA" in transposed], shapes[1]["transB" not in transposed])
    wanted = list(shapes[2])
    for place in range(-1, -len(wanted) - 1, -1):
        if not isinstance(wanted[place], int):
            wanted[place] = product_shape[place]
    if wanted == list(shapes[2]):
        return inputs
    return [*inputs[:2], get_operator("broadcast_to")(inputs[2], shape=tuple(wanted))]


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
