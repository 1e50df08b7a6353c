"""Gathering, scattering, sorting, running sums and masks."""

from __future__ import annotations

import numpy as np

from tilewright.graphir.dims import product
from tilewright.graphir.expr import Expr, as_expr, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops import calls


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
    (depth,) = node.dims(1)
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
    (axis,) = node.integers(1)
    exclusive, reverse = bool(node.attribute("exclusive", 0)), bool(node.attribute("reverse", 0))
    return get_operator(name)(node[0], axis=axis, exclusive=exclusive, reverse=reverse)


@converter("TopK", since=1)
def top_k(node: Node) -> Expr:
    return get_operator("top_k")(node[0], k=node.required("k"), axis=node.attribute("axis", -1))


@converter("TopK", since=10)
def top_k_of_input(node: Node) -> Expr:
    # Results are always in order, whether or not "sorted" asks for it.
    (k,) = node.dims(1)
    largest = bool(node.attribute("largest", 1))
    return get_operator("top_k")(node[0], k=k, axis=node.attribute("axis", -1), largest=largest)


@converter("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Expr:
    attrs = {"batch_axis": node.attribute("batch_axis", 1), "time_axis": node.attribute("time_axis", 0)}
    return get_operator("reverse_sequence")(node[0], node[1], **attrs)


@converter("EyeLike", since=9)
def eye_like(node: Node) -> Expr:
    n, m = node.shape(0)
    return get_operator("eye")(n=n, m=m, k=node.attribute("k", 0), dtype=node.dtype("dtype", node.type(0).dtype))


def _hardmax(x: Expr, axis: int, depth: object) -> Expr:
    one, zero = (as_expr(number, x.dtype) for number in (1, 0))
    return get_operator("one_hot")(get_operator("argmax")(x, axis=axis), one, zero, depth=depth, axis=axis)


@converter("Hardmax", since=1)
def hardmax_of_matrix(node: Node) -> Expr:
    shape = node.shape(0)
    axis = node.attribute("axis", 1) % len(shape)
    rows, columns = product(shape[:axis]), product(shape[axis:])
    return calls.reshape(_hardmax(calls.reshape(node[0], newshape=(rows, columns)), 1, columns), newshape=shape)


@converter("Hardmax", since=13)
def hardmax(node: Node) -> Expr:
    axis = node.attribute("axis", -1)
    return _hardmax(node[0], axis, node.shape(0)[axis])


@converter("NonZero", since=9)
def non_zero(node: Node) -> Expr:
    return const(np.stack(np.nonzero(np.atleast_1d(node.constant(0)))).astype(np.int64))


@converter("Compress", since=9)
def compress(node: Node) -> Expr:
    places = np.flatnonzero(node.constant(1))
    axis = node.attribute("axis")
    x = calls.reshape(node[0], newshape=(-1,)) if axis is None else node[0]
    return calls.take(x, const(places, "int64"), axis=axis or 0)
