"""Convert gathering, scattering, sorting, running sums and masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graphir.dims import product
from tilewright.graphir.expr import Expr, as_expr, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.known_values import known_values
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.nn.non_max_suppression import non_max_suppression as suppress
from tilewright.graphir.ops.unique import unique


@converter("GatherElements", since=11)
def gather_elements(node: Node) -> Expr:
    return get_operator("gather_elements")(node[0], node[1], axis=node.attribute("axis", 0))


@converter("GatherND", since=11)
def gather_nd(node: Node) -> Expr:
    return get_operator("gather_nd")(node[0], node[1], batch_dims=node.attribute("batch_dims", 0))


@converter("Scatter", since=9)
@converter("ScatterElements", since=11)
def scatter_elements(node: Node) -> Expr:
    attrs = {"axis": node.attribute("axis", 0), "reduction": node.attribute("reduction", "none")}
    return get_operator("scatter_elements")(node[0], node[1], node[2], **attrs)


@converter("ScatterND", since=11)
def scatter_nd(node: Node) -> Expr:
    return get_operator("scatter_nd")(node[0], node[1], node[2], reduction=node.attribute("reduction", "none"))


@converter("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Expr:
    starts = node.optional(2)
    if starts is None:
        starts = get_operator("zeros")(shape=node.shape(0)[:1], dtype="int64")
    attrs = {"axis": node.attribute("axis", -2), "mode": node.attribute("mode", "linear")}
    return get_operator("tensor_scatter")(node[0], node[1], starts, **attrs)


@converter("OneHot", since=9)
def one_hot(node: Node) -> Expr:
    depth = node.dim(1)
    indices = node[0] if node.type(0).dtype.is_integer else calls.cast(node[0], dtype="int64")
    off, on = (calls.reshape(calls.slice(node[2], begin=[n], end=[n + 1], axes=[0]), newshape=()) for n in (0, 1))
    return get_operator("one_hot")(indices, on, off, depth=depth, axis=node.attribute("axis", -1))


@converter("Trilu", since=14)
def trilu(node: Node) -> Expr:
    operator = get_operator("triu" if node.attribute("upper", 1) else "tril")
    k = node.optional(1)
    return operator(node[0]) if k is None else operator(node[0], calls.reshape(k, newshape=()))


@converter("CumSum", since=11)
def cumsum(node: Node) -> Expr:
    return _cumulative(node, "cumsum")


@converter("CumProd", since=26)
def cumprod(node: Node) -> Expr:
    return _cumulative(node, "cumprod")


def _cumulative(node: Node, name: str) -> Expr:
    axis = node.integer(1)
    exclusive, reverse = bool(node.attribute("exclusive", 0)), bool(node.attribute("reverse", 0))
    return get_operator(name)(node[0], axis=axis, exclusive=exclusive, reverse=reverse)


@converter("TopK", since=1)
def top_k(node: Node) -> Expr:
    return get_operator("top_k")(node[0], k=node.required("k"), axis=node.attribute("axis", -1))


@converter("TopK", since=10)
def top_k_of_input(node: Node) -> Expr:
    # Results are always sorted, whatever the attribute "sorted" is.
    k = node.dim(1)
    largest = bool(node.attribute("largest", 1))
    return get_operator("top_k")(node[0], k=k, axis=node.attribute("axis", -1), largest=largest)


@converter("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Expr:
    attrs = {"batch_axis": node.attribute("batch_axis", 1), "time_axis": node.attribute("time_axis", 0)}
    return get_operator("reverse_sequence")(node[0], node[1], **attrs)


@converter("EyeLike", since=9)
def eye_like(node: Node) -> Expr:
    n, m = node.shape(0, rank=2)
    return get_operator("eye")(n=n, m=m, k=node.attribute("k", 0), dtype=node.dtype("dtype", node.type(0).dtype))


def _hardmax(x: Expr, axis: int, depth: object) -> Expr:
    one, zero = (as_expr(number, x.dtype) for number in (1, 0))
    return get_operator("one_hot")(get_operator("argmax")(x, axis=axis), one, zero, depth=depth, axis=axis)


@converter("Hardmax", since=1)
def hardmax_of_matrix(node: Node) -> Expr:
    shape, axis = node.shape(0), node.axis("axis", 1)
    rows, columns = product(shape[:axis]), product(shape[axis:])
    return calls.reshape(_hardmax(calls.reshape(node[0], newshape=(rows, columns)), 1, columns), newshape=shape)


@converter("Hardmax", since=13)
def hardmax(node: Node) -> Expr:
    axis = node.axis("axis", -1)
    return _hardmax(node[0], axis, node.shape(0)[axis])


@converter("NonZero", since=9)
def non_zero(node: Node) -> Expr:
    """Return the indices of nonzero elements; their number is known only at run time, unless the elements are known."""
    if (known := known_values(node[0])) is not None and known.dtype != object:
        return const(np.stack(np.nonzero(np.atleast_1d(known))).astype(np.int64))
    return get_operator("nonzero")(node[0] if node.shape() else calls.reshape(node[0], newshape=(1,)))


@converter("Compress", since=9)
def compress(node: Node) -> Expr:
    """Return the slices along an axis whose condition holds."""
    places = non_zero_places(node[1])
    axis = node.attribute("axis")
    x = calls.reshape(node[0], newshape=(-1,)) if axis is None else node[0]
    return calls.take(x, places, axis=axis or 0)


def non_zero_places(vector: Expr) -> Expr:
    """Return the indices of a vector's nonzero elements."""
    if (known := known_values(vector)) is not None and known.dtype != object:
        return const(np.flatnonzero(known), "int64")
    return calls.squeeze(get_operator("nonzero")(vector), axis=(0,))


@converter("NonMaxSuppression", since=10)
def non_max_suppression(node: Node) -> Expr:
    """Return the boxes that overlap no better one by more than a threshold. Omitted thresholds accept every box."""
    options = [
        default if node.optional(number) is None else calls.reshape(node[number], newshape=())
        for number, default in ((2, const(np.array(0, np.int64))), (3, const(np.float32(0))), (4, None))
    ]
    lowest = const(np.float32(-np.inf)) if options[2] is None else options[2]
    assert options[0] is not None and options[1] is not None
    corners = not node.attribute("center_point_box", 0)
    return suppress(node[0], node[1], options[0], options[1], lowest, corners)


@converter("Unique", since=11)
def unique_elements(node: Node) -> Sequence[Expr]:
    """Return the distinct elements, or slices, with their indices and counts."""
    return unique(node[0], sorted=bool(node.attribute("sorted", 1)), axis=node.attribute("axis"))
