"""Differentiate reductions over axes, running sums, softmax and normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import product
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import register_gradient
from tilewright.graphir.gradients.common import (
    along,
    channel_sum,
    count_of,
    masked,
    reshaped,
    spread,
    with_axes,
)
from tilewright.graphir.ops import calls
from tilewright.tensorir.dtype import INT64


def _axes(call: Call) -> tuple[int, ...]:
    op: Any = call.op
    found: tuple[int, ...] = op.axes(call.args[0].ndim, call.attrs)
    return found


def _count(call: Call, less: int = 0) -> Any:
    """Return the number of elements that each result comes from."""
    (x,) = call.args
    return count_of([x.shape[axis] for axis in _axes(call)], x.dtype, less)


def _spread(call: Call, reduced: Expr) -> Expr:
    """Broadcast the result of a reduction, or its cotangent, to the shape of the argument."""
    return spread(reduced, call.args[0], _axes(call), call.attrs.keepdims)


@register_gradient("sum")
def sum(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Give each element the cotangent of its sum."""
    return (_spread(call, cotangent),)


@register_gradient("mean")
def mean(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Give each element its share of the mean's cotangent."""
    return (_spread(call, cotangent / _count(call)),)


@register_gradient("variance")
def variance(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the distance from the mean: ``2 (x - mean) / count``. That the mean depends on ``x`` does not matter,
    since the distances add up to 0."""
    (x,) = call.args
    share = cotangent * 2.0 / _count(call, int(call.attrs.unbiased))
    return (_spread(call, share) * (x - calls.mean(x, axis=_axes(call), keepdims=True)),)


@register_gradient("sum_squares")
def sum_squares(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by twice the element."""
    return (_spread(call, cotangent * 2.0) * call.args[0],)


@register_gradient("norm")
def norm(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the direction of the vector; 0 for a vector of zeros, where there is none (as PyTorch)."""
    (x,) = call.args
    if call.attrs.ord == 1:
        return (_spread(call, cotangent) * call_operator("sign", x),)
    length = calls.where(call.equal(0.0), 1.0, call)
    return (_spread(call, cotangent / length) * x,)


@register_gradient("nn.lp_norm")
def lp_norm(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Compute ``sign(x) (|x| / norm) ** (p - 1)``; 0 for a vector of zeros, where there is no derivative."""
    (x,), p = call.args, call.attrs.p
    length = with_axes(calls.where(call.equal(0.0), 1.0, call), _axes(call), call.attrs.keepdims)
    share = call_operator("power", call_operator("abs", x) / length, p - 1.0)
    return (_spread(call, cotangent) * call_operator("sign", x) * share,)


@register_gradient("logsumexp")
def logsumexp(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the softmax, ``exp(x - logsumexp(x))``."""
    (x,) = call.args
    return (_spread(call, cotangent) * calls.exp(x - with_axes(call, _axes(call), call.attrs.keepdims)),)


@register_gradient("max", "min")
def extreme(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Share the cotangent among the elements that are equal to the result (as PyTorch's ``amax`` and JAX)."""
    (x,) = call.args
    axes, keepdims = _axes(call), call.attrs.keepdims
    wins = x.equal(with_axes(call, axes, keepdims))
    winners = calls.sum(calls.cast(wins, dtype=x.dtype), axis=axes, keepdims=True)
    share = with_axes(cotangent, axes, keepdims) / call_operator("maximum", winners, 1.0)
    return (masked(wins, calls.broadcast_to(share, shape=x.shape)),)


@register_gradient("prod")
def prod(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the product of the other elements: of those before, and of those behind. So zeros do no harm."""
    (x,) = call.args
    axes = _axes(call)
    if not axes:
        return (cotangent,)
    others = [axis for axis in range(x.ndim) if axis not in axes]
    order = (*others, *axes)
    moved = calls.transpose(x, axes=order)
    flat = calls.reshape(
        moved, newshape=(*[x.shape[axis] for axis in others], product([x.shape[axis] for axis in axes]))
    )
    before = call_operator("cumprod", flat, axis=-1, exclusive=True)
    behind = call_operator("cumprod", flat, axis=-1, exclusive=True, reverse=True)
    rest = calls.transpose(
        reshaped(before * behind, moved.shape), axes=tuple(order.index(axis) for axis in range(x.ndim))
    )
    return (_spread(call, cotangent) * rest,)


@register_gradient("cumsum")
def cumsum(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Sum in the other direction."""
    attrs = call.attrs
    moves = {"axis": attrs.axis, "exclusive": attrs.exclusive, "reverse": not attrs.reverse}
    return (call_operator("cumsum", cotangent, **moves),)


@register_gradient("cumprod")
def cumprod(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Divide the sums ``g y`` of all products that hold an element by it. Products behind the first zero of a row are
    0; for that zero itself the sums are those of the products without it, and elements behind it have none."""
    (x,), attrs = call.args, call.attrs
    back = {"axis": attrs.axis, "exclusive": attrs.exclusive, "reverse": not attrs.reverse}
    zeros = call_operator("cumsum", calls.cast(x.equal(0.0), dtype=INT64), axis=attrs.axis, reverse=attrs.reverse)
    first = x.equal(0.0) & zeros.equal(1)
    before = zeros.equal(0)
    without = call_operator(
        "cumprod", calls.where(first, 1.0, x), axis=attrs.axis, exclusive=attrs.exclusive, reverse=attrs.reverse
    )
    divided = call_operator("cumsum", cotangent * call, **back) / calls.where(before, x, 1.0)
    of_first = call_operator("cumsum", cotangent * without, **back)
    return (calls.where(first, of_first, calls.where(before, divided, 0.0)),)


@register_gradient("nn.softmax")
def softmax(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Compute ``y (g - sum(g y))``."""
    weighted = cotangent * call
    return (weighted - call * calls.sum(weighted, axis=call.attrs.axis, keepdims=True),)


@register_gradient("nn.log_softmax")
def log_softmax(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Compute ``g - softmax(x) sum(g)``."""
    return (cotangent - calls.exp(call) * calls.sum(cotangent, axis=call.attrs.axis, keepdims=True),)


@register_gradient("nn.layer_norm")
def layer_norm(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Compute ``(h - mean(h) - n mean(h n)) / deviation`` for ``h = g gamma`` and the normalized data ``n``."""
    data, gamma, _ = call.args
    axis = call.attrs.axis
    over = {"axis": axis, "keepdims": True}
    scale = call_operator("rsqrt", calls.variance(data, **over) + call.attrs.epsilon)
    normal = (data - calls.mean(data, **over)) * scale
    inner = cotangent * along(gamma, data.ndim, axis)
    by_data = (inner - calls.mean(inner, **over) - normal * calls.mean(inner * normal, **over)) * scale
    return by_data, channel_sum(cotangent * normal, axis), channel_sum(cotangent, axis)


@register_gradient("nn.bias_add")
def bias_add(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Sum over all but the channels for the bias."""
    return cotangent, channel_sum(cotangent, call.attrs.axis)


@register_gradient("top_k")
def top_k(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Put the cotangents of the values back at their places."""
    (x, *rest) = call.args
    empty = call_operator("zeros", shape=x.shape, dtype=x.dtype)
    places = call[1]
    found = call_operator("scatter_elements", empty, places, cotangent[0], axis=call.attrs.axis)
    return (found, *[None] * len(rest))


@register_gradient("cummax", "cummin")
def running_extreme(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Add the cotangent of each extreme to those of the element that it is."""
    (x,) = call.args
    empty = call_operator("zeros", shape=x.shape, dtype=x.dtype)
    return (call_operator("scatter_elements", empty, call[1], cotangent[0], axis=call.attrs.axis, reduction="add"),)
