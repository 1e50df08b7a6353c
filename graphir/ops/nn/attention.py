"""Compute attention: sums of values, weighted by the softmax of the products of queries with keys.

It is stated so that a schedule can compute it in strips of a few queries, whose scores stay in the cache and whose sums
are divided only at the end: the matrix of all scores is never stored (Rabe and Staats, "Self-attention does not need
O(n^2) memory", 2021; Dao et al., "FlashAttention", 2022).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, as_amount, dim_equal, format_shape
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import (
    FLOATS,
    broadcast_shapes,
    check_dtype,
    compute_type,
    normalize,
    read_broadcast,
    widened,
)
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import BOOL, DataType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, call, cast, const, select
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class AttentionAttrs:
    """The scores' scale and causal mask.

    Attributes:
        scale: factor of the products; None: one over the square root of the width of a key.
        causal: whether query ``s`` attends to the keys ``0 .. s + offset`` only.
        offset: an integer, or an expression over symbolic dimensions: the number of keys before that of the first
            query.
    """

    scale: float | None = None
    causal: bool = False
    offset: Any = 0

    def __post_init__(self) -> None:
        normalize(self, offset=as_amount(self.offset))
        if self.scale is not None and not math.isfinite(self.scale):
            raise ArgumentValueError(f"scale: expected a finite number, found {self.scale}")


@register_operator
class attention(Operator):
    """Compute ``softmax(query @ key^T * scale + mask) @ value`` for ``query [.., H, S, D]``, ``key [.., h, T, D]`` and
    ``value [.., h, T, E]``, where each of the ``h`` heads of keys serves ``H / h`` neighbouring heads of queries. The
    mask broadcasts to ``[.., H, S, T]`` and is added, or, of type bool, selects the keys that a query attends to. A
    query that attends to none gives NaN, as softmax does. Half types compute in float32."""

    name = "nn.attention"
    arguments = ("query", "key", "value", "mask?")
    #: Each result needs many elements of all arguments, which are read as rows: operators that move data fuse with it.
    kind = "reduction"
    Attrs = AttentionAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: AttentionAttrs) -> TensorType:
        query, key, value, *masks = args
        for number, arg in enumerate(args[:3]):
            check_dtype(self, number, arg, FLOATS)
            if arg.dtype is not query.dtype:
                raise self.error(number, f"element type {query.dtype!s} as query", arg)
            if arg.ndim != query.ndim or arg.ndim < 3:
                raise self.error(number, f"{max(query.ndim, 3)} dimensions (.., heads, words, width)", arg)
            if not all(map(dim_equal, arg.shape[:-3], query.shape[:-3])):
                raise self.error(number, f"leading dimensions {format_shape(query.shape[:-3])} as query", arg)
        if not dim_equal(key.shape[-1], query.shape[-1]):
            raise self.error(1, f"keys as wide as queries, {query.shape[-1]}", key)
        for axis, what in ((-3, "heads"), (-2, "words")):
            if not dim_equal(value.shape[axis], key.shape[axis]):
                raise self.error(2, f"{key.shape[axis]} {what} as key", value)
        if attrs.scale is None and not isinstance(query.shape[-1], int):
            raise self.error("scale", f"a number, as the width {query.shape[-1]} is not known", attrs.scale)
        if _group(query.shape, key.shape) is None:
            raise self.error(1, f"a number of heads that divides that of query, {query.shape[-3]}", key)
        scores = (*query.shape[:-1], key.shape[-2])
        for mask in masks:
            if mask.dtype is not BOOL and mask.dtype is not query.dtype:
                raise self.error(3, f"element type bool or {query.dtype!s}", mask)
            shape = broadcast_shapes(self, [TensorType(scores), TensorType((1,)), TensorType((1,)), mask])
            if len(shape) != len(scores) or not all(map(dim_equal, shape, scores)):
                raise self.error(3, f"a shape that broadcasts to {format_shape(scores)}", mask)
        return TensorType((*query.shape[:-1], value.shape[-1]), query.dtype)

    def reference(self, args: Sequence[Any], attrs: AttentionAttrs) -> Any:
        query, key, value, *masks = map(widened, args)
        group = query.shape[-3] // max(1, key.shape[-3])
        key, value = (np.repeat(part, group, axis=-3) for part in (key, value))
        with np.errstate(all="ignore"):
            scores = query @ np.swapaxes(key, -1, -2) * query.dtype.type(_scale(attrs, query.shape[-1]))
            for mask in masks:
                scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
            if attrs.causal:
                seen = np.arange(scores.shape[-2])[:, None] + attrs.offset >= np.arange(scores.shape[-1])
                scores = np.where(seen, scores, -np.inf)
            powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
            result = powers @ value / powers.sum(axis=-1, keepdims=True)
        return result.astype(args[0].dtype)

    def compute(self, args: Sequence[Tensor], attrs: AttentionAttrs, out: TensorType) -> Tensor:
        query, key, value, *masks = args
        wide = compute_type(out.dtype)
        group = _group(query.shape, key.shape)
        assert group is not None  # infer_type checked it
        shape = (*query.shape[:-1], key.shape[-2])
        scale = const(_scale(attrs, query.shape[-1]), wide)
        k, words = te.reduce_axis(query.shape[-1], "k"), key.shape[-2]

        def shared(*place: Var) -> tuple[Expr, ...]:
            *batch, head = place
            return (*batch, head if group == 1 else head // group)

        def product(*place: Var) -> te.Reduction:
            *head, s, t = place
            return te.sum(cast(wide, query(*head, s, k)) * cast(wide, key(*shared(*head), t, k)), axis=k)

        def sees(s: Expr, t: Expr) -> Expr:
            last: Expr = s + attrs.offset
            return t <= last

        def needed(condition: Callable[..., Expr]) -> Callable[..., Expr] | None:
            # A key that a query does not attend to has weight zero, whatever their product is.
            return condition if attrs.causal else None

        is_seen = needed(lambda *place: sees(*place[-2:]))
        products = te.compute(shape, product, name="attention_products", needed=is_seen)

        def score(*place: Var) -> Expr:
            result: Expr = products[place] * scale
            for mask in masks:
                seen = read_broadcast(mask, place)
                result = _seen(seen, result, wide) if mask.dtype is BOOL else result + cast(wide, seen)
            *_, s, t = place
            return _seen(sees(s, t), result, wide) if attrs.causal else result

        scores = te.compute(shape, score, name="attention_scores", needed=is_seen)
        t = te.reduce_axis(words, "t")
        greatest = te.compute(
            shape[:-1],
            lambda *row: te.max(scores(*row, t), axis=t),
            name="attention_max",
            needed=needed(lambda *row: sees(row[-1], t)),
        )
        powers = te.compute(
            shape,
            lambda *place: call("exp", scores[place] - greatest[place[:-1]]),
            name="attention_exp",
            needed=is_seen,
        )
        j = te.reduce_axis(words, "j")
        total = te.compute(
            shape[:-1],
            lambda *row: te.sum(powers(*row, j), axis=j),
            name="attention_sum",
            needed=needed(lambda *row: sees(row[-1], j)),
        )
        i = te.reduce_axis(words, "i")

        def weighted(*place: Var) -> te.Reduction:
            *row, column = place
            *head, _ = row
            return te.sum(powers(*row, i) * cast(wide, value(*shared(*head), i, column)), axis=i)

        sums = te.compute(
            out.shape, weighted, name="attention_values", needed=needed(lambda *place: sees(place[-2], i))
        )
        return te.compute(out.shape, lambda *place: cast(out.dtype, sums[place] / total[place[:-1]]), name="attention")


def _seen(condition: Expr, score: Expr, wide: DataType) -> Expr:
    return select(condition, score, const(-math.inf, wide))


def _scale(attrs: AttentionAttrs, width: Any) -> float:
    if attrs.scale is not None:
        return attrs.scale
    return 1 / math.sqrt(getattr(width, "value", width) or 1)


def _group(query: Sequence[Dim], key: Sequence[Dim]) -> int | None:
    """Return the number of heads of queries that share one head of keys; None if it is not known to be a whole
    number."""
    heads, shared = (getattr(shape[-3], "value", shape[-3]) for shape in (query, key))
    if dim_equal(heads, shared):
        return 1
    if isinstance(heads, int) and isinstance(shared, int) and shared and heads % shared == 0:
        return heads // shared
    return None
