"""Convert products of matrices, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.broadcasting import joined
from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.torch.node import Node, cast_to, dtype_of, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, expand_dims, matmul, multiply, reshape, squeeze, transpose
from tilewright.tensorir.dtype import BOOL


@converter("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default", "aten.dot.default")
@converter("aten.vdot.default", "aten.linalg_matmul.default")
def product(node: Node, a: Expr, b: Expr) -> Expr:
    """Multiply matrices; leading axes broadcast, vectors are a row or a column."""
    return multiplied(node, a, b)


def multiplied(node: Node, a: Expr, b: Expr) -> Expr:
    """Return the product of the node's element type."""
    if len(shape_of(b)) == 2 and len(shape_of(a)) > 1:
        transposed = _transposed(b)
        if transposed is not None and dtype_of(a).is_float:
            return get_operator("nn.dense")(a, transposed)
    return matmul(a, b)


def _transposed(x: Expr) -> Expr | None:
    """Return the matrix whose transpose ``x`` is, if ``x`` is one: a weight as ``linear`` has it."""
    op = getattr(x, "op", None)
    if getattr(op, "name", "") == "transpose" and tuple(x.attrs.axes) == (1, 0):  # type: ignore[attr-defined]
        found: Expr = x.args[0]  # type: ignore[attr-defined]
        return found
    return None


@converter("aten.linear.default")
def linear(node: Node, x: Expr, weight: Expr, bias: Expr | None) -> Expr:
    """Multiply by a transposed weight, and add a bias."""
    if len(shape_of(weight)) == 1:
        result = matmul(x, weight)
    elif dtype_of(x).is_float:
        row = x if len(shape_of(x)) > 1 else reshape(x, newshape=(1, -1))
        result = reshaped(get_operator("nn.dense")(row, weight), node.shape)
    else:
        result = matmul(x, transpose(weight, axes=(1, 0)))
    return result if bias is None else add(result, bias)


def _combined(node: Node, x: Expr, made: Expr, beta: Any, alpha: Any) -> Expr:
    """Return ``beta * x + alpha * made``; a ``beta`` of 0 leaves NaN of ``x`` out."""
    scaled = made if alpha == 1 else multiply(made, node.tensor(alpha))
    if beta == 0:
        return get_operator("broadcast_to")(scaled, shape=node.shape)
    return add(node.tensor(x) if beta == 1 else multiply(node.tensor(x), node.tensor(beta)), scaled)


@converter("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def sum_with_product(node: Node, x: Expr, a: Expr, b: Expr, beta: Any, alpha: Any) -> Expr:
    """Return ``beta * x + alpha * a @ b``."""
    return _combined(node, x, multiplied(node, a, b), beta, alpha)


@converter("aten.addbmm.default")
def sum_with_products(node: Node, x: Expr, a: Expr, b: Expr, beta: Any, alpha: Any) -> Expr:
    """Return ``beta * x + alpha * sum(a[i] @ b[i])``."""
    return _combined(node, x, get_operator("sum")(matmul(a, b), axis=(0,)), beta, alpha)


@converter("aten.addr.default")
def sum_with_outer_product(node: Node, x: Expr, a: Expr, b: Expr, beta: Any, alpha: Any) -> Expr:
    """Return ``beta * x + alpha * outer(a, b)``."""
    column = reshape(node.tensor(a), newshape=(*shape_of(a), 1))
    if node.dtype.is_bool:
        made = get_operator("logical_and")(column, node.tensor(b))
        return made if not beta else get_operator("logical_or")(node.tensor(x), made)
    return _combined(node, x, multiply(column, node.tensor(b)), beta, alpha)


@converter("aten.einsum.default")
def einsum(node: Node, equation: str, tensors: list[Expr], path: Any) -> Expr:
    """Sum products of elements by an equation."""
    return get_operator("einsum")(*tensors, equation=equation)


@converter("aten.outer.default")
def outer(node: Node, a: Expr, b: Expr) -> Expr:
    """Multiply each element of one vector with each of another."""
    return multiply(reshape(node.tensor(a), newshape=(*shape_of(a), 1)), node.tensor(b))


# Attention.


@converter("aten.scaled_dot_product_attention.default")
def attention(
    node: Node,
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Expr:
    """Average values, weighted by the softmax of the products of queries with keys."""
    if dropout_p:
        raise node.unsupported("dropout while training")
    return attended(node, query, key, value, mask, is_causal, scale)


@converter("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    node: Node,
    query: Expr,
    key: Expr,
    value: Expr,
    dropout_p: float,
    is_causal: bool,
    mask: Expr | None,
    scale: float | None,
) -> list[Expr]:
    """Compute attention; the second result, the logarithm of the sum of each row, is only for gradients."""
    if dropout_p:
        raise node.unsupported("dropout while training")
    return [
        attended(node, query, key, value, mask, is_causal, scale),
        log_sums(node, query, key, mask, is_causal, scale),
    ]


def attended(
    node: Node, query: Expr, key: Expr, value: Expr, mask: Expr | None, is_causal: bool, scale: float | None
) -> Expr:
    """Return the attention of queries to keys, whose leading axes broadcast."""
    rank = max(map(len, map(shape_of, (query, key, value))))
    if rank < 3:
        q, k, v = (expand_dims(part, axis=0, num_newaxis=3 - rank) for part in (query, key, value))
        return squeeze(_attended(node, q, k, v, mask, is_causal, scale), axis=tuple(range(3 - rank)))
    return _attended(node, query, key, value, mask, is_causal, scale)


def _attended(
    node: Node, query: Expr, key: Expr, value: Expr, mask: Expr | None, is_causal: bool, scale: float | None
) -> Expr:
    parts = [_with_leading(part, (query, key, value)) for part in (query, key, value)]
    masks = []
    if mask is not None:
        masks = [mask if dtype_of(mask) is BOOL else cast_to(mask, dtype_of(query))]
    known = None if scale is None else float(node.number(scale, "a scale"))
    made = get_operator("nn.attention")(*parts, *masks, scale=known, causal=bool(is_causal))
    if masks and dtype_of(masks[0]) is BOOL:  # a query that sees no key gives 0, not NaN
        seen = get_operator("any")(masks[0], axis=(-1,), keepdims=True)
        return get_operator("where")(seen, made, get_operator("zeros_like")(made))
    return made


def _with_leading(x: Expr, parts: tuple[Expr, ...]) -> Expr:
    """Return one of the parts of attention with the axes before the heads that all of them broadcast to."""
    rank = max(len(shape_of(part)) for part in parts)
    leading: list[Dim] = [1] * (rank - 3)
    for part in parts:
        shape = (1,) * (rank - len(shape_of(part))) + shape_of(part)
        for n in range(rank - 3):
            both = joined(leading[n], shape[n])
            leading[n] = shape[n] if both is None else both
    own = (1,) * (rank - len(shape_of(x))) + shape_of(x)
    return get_operator("broadcast_to")(reshaped(x, own), shape=(*leading, *own[rank - 3 :]))


def log_sums(node: Node, query: Expr, key: Expr, mask: Expr | None, is_causal: bool, scale: float | None) -> Expr:
    """Return the logarithm of the sum of exponentials of each query's scores."""
    width = shape_of(query)[-1]
    if not isinstance(width, int):
        raise node.unsupported(f"a width {width}")
    wide = node.result(1).dtype
    axes = (*range(len(shape_of(key)) - 2), len(shape_of(key)) - 1, len(shape_of(key)) - 2)
    scores = cast_to(matmul(query, transpose(key, axes=axes)), wide)
    scores = multiply(scores, node.tensor(width**-0.5 if scale is None else float(scale), wide))
    if mask is not None:
        low = node.tensor(float("-inf"), wide)
        scores = (
            get_operator("where")(mask, scores, low) if dtype_of(mask) is BOOL else add(scores, cast_to(mask, wide))
        )
    if is_causal:
        ones = get_operator("full")(shape=shape_of(scores)[-2:], fill=1.0, dtype=wide)
        seen = get_operator("greater")(get_operator("tril")(ones), 0.0)
        scores = get_operator("where")(seen, scores, node.tensor(float("-inf"), wide))
    return get_operator("logsumexp")(scores, axis=(-1,), keepdims=False)


@converter("aten._trilinear.default")
def trilinear(
    node: Node,
    a: Expr,
    b: Expr,
    c: Expr,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    *_: Any,
) -> Expr:
    """Multiply three tensors, with axes that are inserted, and sum over axes."""
    parts = []
    for part, axes in ((a, expand1), (b, expand2), (c, expand3)):
        for axis in sorted(axes):
            part = expand_dims(part, axis=axis)
        parts.append(part)
    made = multiply(multiply(parts[0], parts[1]), parts[2])
    return get_operator("sum")(made, axis=tuple(sumdim)) if sumdim else made
