"""Differentiate matrix products and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import product
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import register_composition, register_gradient, unsupported
from tilewright.graphir.gradients.common import collapse, reshaped
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import compute_type
from tilewright.graphir.ops.reshape import quotient


def _turned(x: Expr) -> Expr:
    """Exchange rows and columns."""
    return calls.transpose(x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _rows(x: Expr) -> Expr:
    """Return a tensor as one matrix with all its rows."""
    return reshaped(x, (product(x.shape[:-1]), x.shape[-1]))


def _widened(call: Call) -> list[Expr]:
    """Return the factors in the type of the product."""
    return [arg if arg.dtype is call.dtype else calls.cast(arg, dtype=call.dtype) for arg in call.args]


def _narrowed(found: Sequence[Expr], call: Call) -> list[Expr]:
    """Return cotangents in the types of the factors."""
    pairs = zip(found, call.args, strict=True)
    return [made if made.dtype is arg.dtype else calls.cast(made, dtype=arg.dtype) for made, arg in pairs]


@register_gradient("matmul")
def matmul(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the other factor, transposed: ``g b^T`` and ``a^T g``. A vector is a row on the left and a column on
    the right; a matrix that all items of a batch are multiplied by gets the sum as one product of all their rows."""
    a, b = _widened(call)
    rows = a if a.ndim > 1 else calls.expand_dims(a, axis=0)
    columns = b if b.ndim > 1 else calls.expand_dims(b, axis=1)
    if a.ndim == 1:
        cotangent = calls.expand_dims(cotangent, axis=cotangent.ndim if b.ndim == 1 else cotangent.ndim - 1)
    if b.ndim == 1:
        cotangent = calls.expand_dims(cotangent, axis=cotangent.ndim)
    by_a = collapse(calls.matmul(cotangent, _turned(columns)), rows)
    if columns.ndim == 2 and rows.ndim > 2:
        by_b = calls.matmul(_turned(_rows(rows)), _rows(cotangent))
    else:
        by_b = collapse(calls.matmul(_turned(rows), cotangent), columns)
    return _narrowed([reshaped(by_a, a.shape), reshaped(by_b, b.shape)], call)


@register_gradient("nn.dense")
def dense(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the weight, and the transposed cotangents by the data."""
    if call.attrs.weight_layout != "OI":
        raise unsupported(call, f"a weight in layout {call.attrs.weight_layout}")
    data, weight = _widened(call)
    if data.ndim == 1:
        by_weight = calls.expand_dims(cotangent, axis=1) * calls.expand_dims(data, axis=0)
    else:
        by_weight = calls.matmul(_turned(_rows(cotangent)), _rows(data))
    return _narrowed([calls.matmul(cotangent, weight), by_weight], call)


@register_composition("nn.attention")
def attention(call: Call) -> Expr:
    """Compute the scores and their softmax, which the derivative needs as a whole."""
    query, key, value, *masks = call.args
    attrs, dtype = call.attrs, call.dtype
    group = quotient([query.shape[-3]], [key.shape[-3]])
    if group is None or not isinstance(group, int):
        raise unsupported(call, f"{query.shape[-3]} heads of queries for {key.shape[-3]} heads of keys")
    wide = compute_type(dtype)
    query, key, value = [arg if dtype is wide else calls.cast(arg, dtype=wide) for arg in (query, key, value)]
    if group != 1:
        key, value = [call_operator("repeat", part, repeats=group, axis=part.ndim - 3) for part in (key, value)]
    width = query.shape[-1]
    scale = attrs.scale if attrs.scale is not None else 1 / math.sqrt(width)  # type: ignore[arg-type]
    scores = calls.matmul(query, _turned(key)) * scale
    for mask in masks:
        if mask.dtype.is_bool:
            scores = calls.where(mask, scores, -math.inf)
        else:
            scores = scores + (mask if mask.dtype is wide else calls.cast(mask, dtype=wide))
    if attrs.causal:
        queries = calls.expand_dims(call_operator("arange", scores.shape[-2]), axis=1)
        offset = calls.reshape(call_operator("sizes", values=(attrs.offset,)), newshape=())
        scores = calls.where(queries + offset >= call_operator("arange", scores.shape[-1]), scores, -math.inf)
    result = calls.matmul(call_operator("nn.softmax", scores), value)
    return result if dtype is wide else calls.cast(result, dtype=dtype)
