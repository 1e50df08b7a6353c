"""Convert reductions over axes, and the indices of extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import cast
from tilewright.tensorir.dtype import FLOAT32, FLOAT64
from tilewright.tensorir.tensor import highest, lowest

#: A reduction of a tensor, by the operator's keywords ``axis`` and ``keepdims``.
_Reduction = Callable[..., Expr]


def _named(name: str, **attrs: Any) -> _Reduction:
    return lambda x, **where: get_operator(name)(x, **attrs, **where)


def _extreme(name: str, of_bools: str, identity: Callable[..., int | float]) -> _Reduction:
    """Return a reduction to the greatest or the least; an empty one is the lowest or the highest number of the type."""

    def reduce(x: Expr, **where: Any) -> Expr:
        if x.dtype.is_bool:
            return get_operator(of_bools)(x, **where)
        empty = any(isinstance(dim, int) and dim == 0 for dim in x.shape)
        initial = {"initial": identity(x.dtype)} if empty else {}
        return get_operator(name)(x, **initial, **where)

    return reduce


def _in_float(reduction: _Reduction) -> _Reduction:
    """Return a reduction in float32 for half types, and in float64 for integers, which are finally rounded toward
    zero."""

    def reduce(x: Expr, **where: Any) -> Expr:
        dtype = x.dtype
        if dtype.is_float and dtype.bits > 16:
            return reduction(x, **where)
        wide = cast(x, dtype=FLOAT32 if dtype.is_float else FLOAT64)
        return cast(reduction(wide, **where), dtype=dtype)

    return reduce


def _log_sum(x: Expr, **where: Any) -> Expr:
    return get_operator("log")(get_operator("sum")(x, **where))


_REDUCTIONS: dict[str, _Reduction] = {
    "ReduceL1": _named("norm", ord=1),
    "ReduceL2": _named("norm", ord=2),
    "ReduceLogSum": _in_float(_log_sum),
    "ReduceLogSumExp": _in_float(_named("logsumexp")),
    "ReduceMax": _extreme("max", "any", lowest),
    "ReduceMean": _in_float(_named("mean")),
    "ReduceMin": _extreme("min", "all", highest),
    "ReduceProd": _named("prod"),
    "ReduceSum": _named("sum"),
    "ReduceSumSquare": _named("sum_squares"),
}

#: The opset from which on the axes are an input.
_AXES_INPUT_SINCE = {"ReduceSum": 13}


def _by_attribute(node: Node) -> Expr:
    return _reduce(node, node.attribute("axes"))


def _by_input(node: Node) -> Expr:
    axes = None if node.optional(1) is None else node.integers(1)
    if not axes:
        axes = () if node.attribute("noop_with_empty_axes", 0) else None
    return _reduce(node, axes)


def _reduce(node: Node, axes: Sequence[int] | None) -> Expr:
    keepdims = bool(node.attribute("keepdims", 1))
    return _REDUCTIONS[node.op_type](node[0], axis=axes, keepdims=keepdims)


for _name in _REDUCTIONS:
    converter(_name)(_by_attribute)
    converter(_name, since=_AXES_INPUT_SINCE.get(_name, 18))(_by_input)


def _place_of_extreme(node: Node) -> Expr:
    return get_operator(node.op_type.lower())(
        node[0],
        axis=node.attribute("axis", 0),
        keepdims=bool(node.attribute("keepdims", 1)),
        select_last_index=bool(node.attribute("select_last_index", 0)),
    )


converter("ArgMax")(_place_of_extreme)
converter("ArgMin")(_place_of_extreme)


@converter("Det", since=11)
def det(node: Node) -> Expr:
    """Compute the determinant of matrices."""
    return get_operator("det")(node[0])
