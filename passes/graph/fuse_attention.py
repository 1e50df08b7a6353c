"""``FuseAttention``: replace the operators that compute attention by one.

Before::

    %0 = matmul(%query, %keys)                        # keys [.., D, T]
    %1 = multiply(%0, 0.125)
    %2 = add(%1, %mask)
    %3 = nn.softmax(%2)
    %4 = matmul(%3, %value)

After::

    %0 = transpose(%keys, axes=(0, 1, 3, 2))          # most often cancels another one
    %1 = nn.attention(%query, %0, %value, %mask, scale=0.125)

``nn.attention`` is computed in strips of a few queries, whose scores stay in the cache: the matrix of scores is never
stored, the sums are divided by those of the weights only at the end, and operators that only move data, such as the
transposes between heads and words or the concatenation of old and new keys, are computed while operands are read. The
results round differently. Attention whose scores are also used elsewhere is not fused. Products, sums, selections and
softmax are recognised by the traits of operators (``Operator.meaning``).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tilewright.graphir.dims import dim_equal, shape_equal
from tilewright.graphir.expr import Constant, Expr, Function
from tilewright.graphir.meaning import Choice, MatrixProduct, Product, Quotient, Softmax, Sum, meaning_of
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import FLOATS
from tilewright.graphir.printer import summary
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order, rewrite
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import is_primitive
from tilewright.passes.properties import TYPED, UNGROUPED
from tilewright.passes.registry import register_pass


@dataclasses.dataclass(frozen=True)
class _Attention:
    """``softmax(query @ keys * scale + mask) @ value``, with the intermediate expressions, which need a single use."""

    query: Expr
    keys: Expr
    value: Expr
    scale: float
    mask: Expr | None
    between: tuple[Expr, ...]


@register_pass
@function_pass(opt_level=3, name="FuseAttention", requires={TYPED, UNGROUPED})
class FuseAttention(FunctionPass):
    """Replace matrix products, softmax and the operators between them by ``nn.attention``."""

    family = "fusion"

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with ``nn.attention``."""
        if is_primitive(func):
            return func
        order = post_order(func)
        matches = {node: found for node in order if (found := _match(node)) is not None}
        if not matches:
            return func
        users: dict[Expr, int] = {}
        for node in order:
            for child in node.children:
                users[child] = users.get(child, 0) + 1

        def change(old: Expr, new: Expr) -> Expr:
            found = matches.get(old)
            if found is None:
                return new
            shared = next((node for node in found.between if users[node] > 1), None)
            reason = f"{summary(shared)} has other users" if shared is not None else _unfit(found)
            if reason is not None:
                ctx.remark(f"attention not fused: {reason}", "missed", summary(old))
                return new
            ctx.remark(
                "fused matmul, softmax and matmul into attention, which does not store the scores",
                "applied",
                summary(old),
            )
            again = _match(new)  # the same match, with rewritten arguments
            assert again is not None
            return _fused(again)

        return func.with_body(rewrite(func.body, change))


def _match(node: Expr) -> _Attention | None:
    """Match attention that ends with the product ``node``; None if it does not match."""
    outer = meaning_of(node)
    if not isinstance(outer, MatrixProduct):
        return None
    weights = meaning_of(outer.left)
    if not isinstance(weights, Softmax) or weights.axis % outer.left.ndim != outer.left.ndim - 1:
        return None
    between: list[Expr] = [outer.left]
    scores = weights.value
    mask: Expr | None = None
    masked = meaning_of(scores)
    if isinstance(masked, Sum):
        between.append(scores)
        left, right = _scores(masked.left), _scores(masked.right)
        if (left is None) == (right is None):
            return None
        scores, mask = (masked.left, masked.right) if right is None else (masked.right, masked.left)
    elif isinstance(masked, Choice):
        between.append(scores)
        condition, here, there = masked.condition, masked.chosen, masked.other
        if _is_lowest(here):
            condition, here, there = calls.logical_not(condition), there, here
        if not _is_lowest(there):
            return None
        scores, mask = here, condition
    found = _scores(scores)
    if found is None:
        return None
    product, scale, computed = found
    return _Attention(product.left, product.right, outer.right, scale, mask, (*between, *computed))


def _is_lowest(node: Expr) -> bool:
    """Return whether ``node`` is minus infinity, the score of masked keys."""
    return isinstance(node, Constant) and node.data.size > 0 and bool(np.all(node.data == -np.inf))


def _scores(node: Expr) -> tuple[MatrixProduct, float, list[Expr]] | None:
    """Match a matrix product that may be scaled: the product, its scale, and the expressions that compute both."""
    scale = 1.0
    computed: list[Expr] = []
    while True:
        computed.append(node)
        form = meaning_of(node)
        if isinstance(form, MatrixProduct):
            return form, scale, computed
        if not isinstance(form, (Product, Quotient)):
            return None
        left, right = form.left, form.right
        if isinstance(left, Constant) and isinstance(form, Product):
            left, right = right, left
        if not isinstance(right, Constant) or right.size != 1:
            return None
        number = float(right.data.astype(np.float64).reshape(()))
        if not np.isfinite(number) or (number == 0 and isinstance(form, Quotient)):
            return None
        scale = scale * number if isinstance(form, Product) else scale / number
        node = left


def _unfit(found: _Attention) -> str | None:
    """Return the reason why ``nn.attention`` rejects these arguments; None if it accepts them."""
    types = [found.query.type, found.keys.type, found.value.type]
    query, keys, value = types
    if not (isinstance(query, TensorType) and isinstance(keys, TensorType) and isinstance(value, TensorType)):
        return "the type of an argument is not known"
    if str(query.dtype) not in FLOATS:
        return f"element type {query.dtype!s} is not supported"
    if query.ndim < 3 or keys.ndim != query.ndim or value.ndim != query.ndim:
        return "the arguments need at least 3 dimensions, and all the same number"
    if not (shape_equal(query.shape[:-2], keys.shape[:-2]) and shape_equal(query.shape[:-2], value.shape[:-2])):
        return "the leading (batch and head) dimensions of its arguments differ"
    if found.mask is not None:
        mask = found.mask.type
        assert isinstance(mask, TensorType)
        scores = (*query.shape[:-1], keys.shape[-1])
        shape = (1,) * (len(scores) - mask.ndim) + tuple(mask.shape)
        fits = len(shape) == len(scores) and all(
            dim == 1 or dim_equal(dim, whole) for dim, whole in zip(shape, scores, strict=True)
        )
        if not fits:
            return "the mask does not broadcast to the shape of the scores"
    return None


def _fused(found: _Attention) -> Expr:
    axes = list(range(found.keys.ndim))
    axes[-2:] = axes[:-3:-1]
    key = calls.transpose(found.keys, axes=tuple(axes))
    operator = get_operator("nn.attention")
    offset = _causal_offset(found)
    if offset is not None:
        return operator(found.query, key, found.value, scale=found.scale, causal=True, offset=offset)
    masks = () if found.mask is None else (found.mask,)
    return operator(found.query, key, found.value, *masks, scale=found.scale)


def _causal_offset(found: _Attention) -> int | None:
    """Return ``offset`` if the mask is a constant by which query ``s`` sees exactly the keys ``0 .. s + offset``."""
    words, keys = found.query.tensor_type.shape[-2], found.keys.tensor_type.shape[-1]
    mask = found.mask
    if not isinstance(mask, Constant) or not isinstance(words, int) or not isinstance(keys, int):
        return None
    if mask.shape[-2:] != (words, keys) or mask.size != words * keys or not mask.size:
        return None
    data = mask.data.reshape(words, keys)
    seen = data if data.dtype == bool else data == 0
    offset = int(seen[0].sum()) - 1
    if not np.array_equal(seen, np.tri(words, keys, offset, bool)):
        return None
    if data.dtype == bool or np.all(data[~seen] == -np.inf):
        return offset
    # The least finite number masks a key as infinity does, unless all keys of a query have it: then all weigh the same.
    return offset if offset >= 0 and np.all(data[~seen] == np.finfo(data.dtype).min) else None
