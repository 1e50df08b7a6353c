"""Convert products of matrices, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.broadcasting import joined
from tilewright.graphir.dims import Dim, dim_equal, simplify
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.node import Node, cast_to, dtype_of, reshaped, shape_of, with_shape
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, expand_dims, matmul, multiply, reshape, squeeze, subtract, transpose
from tilewright.tensorir.dtype import BOOL, DataType


@converter("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default", "aten.dot.default")
@converter("aten.vdot.default", "aten.linalg_matmul.default")
def product(node: Node, a: Expr, b: Expr) -> Expr:
    """Multiply matrices; leading axes broadcast, vectors are a row or a column."""
    return multiplied(node, a, b)


def multiplied(node: Node, a: Expr, b: Expr) -> Expr:
    """Return the product of the node's element type."""
    b = _with_rows(b, shape_of(a)[-1])
    if len(shape_of(b)) == 2 and len(shape_of(a)) > 1:
        transposed = _transposed(b)
        if transposed is not None and dtype_of(a).is_float:
            return get_operator("nn.dense")(a, transposed)
    return matmul(a, b)


def _with_rows(x: Expr, rows: Dim) -> Expr:
    """Return a matrix, or a vector, with as many rows as the other factor has columns: PyTorch knows of formulas that
    they are equal, from guards, where nothing proves it. A call checks them."""
    shape = shape_of(x)
    axis = max(len(shape) - 2, 0)
    return with_shape(x, [*shape[:axis], rows, *shape[axis + 1 :]])


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
    return _combined(node, x, get_operator("sum")(multiplied(node, a, b), axis=(0,)), beta, alpha)


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
    known: dict[str, Dim] = {}
    terms = equation.replace(" ", "").split("->")[0].split(",")
    fitted = [_with_extents(x, letters, known) for x, letters in zip(tensors, terms, strict=True)]
    return get_operator("einsum")(*fitted, equation=equation)


def _with_extents(x: Expr, letters: str, known: dict[str, Dim]) -> Expr:
    """Return a tensor with the sizes of the same letters of others, and note its own; an axis of size 1 broadcasts."""
    shape = shape_of(x)
    if len(letters) != len(shape):  # an ellipsis
        return x
    wanted = [dim if isinstance(dim, int) else known.setdefault(a, dim) for a, dim in zip(letters, shape, strict=True)]
    return with_shape(x, wanted)


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
    value = _with_words(value, key)
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
    if known is None and not isinstance(shape_of(query)[-1], int):  # the operator takes a number
        parts[0] = multiply(parts[0], _scale(node, query, None, dtype_of(query)))
        known = 1.0
    made = get_operator("nn.attention")(*parts, *masks, scale=known, causal=bool(is_causal))
    if masks:  # a query that sees no key gives 0, not NaN; PyTorch states unseen keys of Boolean masks by -inf
        lets_see = masks[0] if dtype_of(masks[0]) is BOOL else get_operator("greater")(masks[0], float("-inf"))
        seen = get_operator("any")(lets_see, axis=(-1,), keepdims=True)
        return get_operator("where")(seen, made, get_operator("zeros_like")(made))
    return made


def _with_words(value: Expr, key: Expr) -> Expr:
    """Return values with as many words as the keys: PyTorch gives caches of both lengths of their own, and asks for
    none to be equal."""
    shape = shape_of(value)
    return with_shape(value, (*shape[:-2], shape_of(key)[-2], shape[-1]))


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
    key = _with_heads(key, query)
    wide = node.result(1).dtype
    scores = _scores(node, query, key, mask, is_causal, _scale(node, query, scale, wide), wide)
    return get_operator("logsumexp")(scores, axis=(-1,), keepdims=False)


def _scale(node: Node, query: Expr, scale: float | None, wide: DataType) -> Expr:
    """Return the factor of the scores."""
    width = shape_of(query)[-1]
    if scale is not None:
        return node.tensor(float(node.number(scale, "a scale")), wide)
    if isinstance(width, int):
        return node.tensor(float(width**-0.5), wide)
    return get_operator("rsqrt")(cast_to(as_number(width), wide))


def _scores(
    node: Node, query: Expr, key: Expr, mask: Expr | None, is_causal: bool, scale: Expr, wide: DataType
) -> Expr:
    """Return what the softmax of attention is computed of: the products of queries with keys, scaled and masked."""
    scores = multiply(cast_to(matmul(query, _flipped(key)), wide), scale)
    low = node.tensor(float("-inf"), wide)
    if mask is not None:
        scores = (
            get_operator("where")(mask, scores, low) if dtype_of(mask) is BOOL else add(scores, cast_to(mask, wide))
        )
    if is_causal:
        ones = get_operator("full")(shape=shape_of(scores)[-2:], fill=1.0, dtype=wide)
        scores = get_operator("where")(get_operator("greater")(get_operator("tril")(ones), 0.0), scores, low)
    return scores


def _with_heads(x: Expr, query: Expr) -> Expr:
    """Return keys or values for each head of the queries, of which several may share one."""
    *leading, heads, words, width = shape_of(x)
    wanted = shape_of(query)[-3]
    if dim_equal(heads, wanted):
        return x
    shared = (*leading, heads, simplify(wanted // heads), words, width)
    repeated = get_operator("broadcast_to")(expand_dims(x, axis=-3), shape=shared)
    return reshaped(repeated, (*leading, wanted, words, width))


def _without_heads(grad: Expr, x: Expr) -> Expr:
    """Return the gradient of ``x`` from that of :func:`_with_heads`: heads that share one are added up."""
    *leading, heads, words, width = shape_of(x)
    repeated = shape_of(grad)[-3]
    if dim_equal(heads, repeated):
        return grad
    parts = reshaped(grad, (*leading, heads, simplify(repeated // heads), words, width))
    return get_operator("sum")(parts, axis=(-3,))


def _flipped(x: Expr) -> Expr:
    """Exchange the last two axes."""
    rank = len(shape_of(x))
    return transpose(x, axes=(*range(rank - 2), rank - 1, rank - 2))


@converter("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    node: Node,
    grad: Expr,
    query: Expr,
    key: Expr,
    value: Expr,
    out: Expr,
    log_sum: Expr,
    dropout_p: float,
    is_causal: bool,
    mask: Expr | None,
    scale: float | None,
) -> list[Expr]:
    """Return the gradients of queries, keys and values (FlashAttention, 2022, appendix B.4), of weights that are
    computed anew from the sums that the forward pass kept."""
    if dropout_p:
        raise node.unsupported("dropout while training")
    wide = dtype_of(log_sum)
    factor = _scale(node, query, scale, wide)
    value = _with_words(value, key)
    q, k, v, upper, made = (cast_to(part, wide) for part in (query, key, value, grad, out))
    k, v = _with_heads(k, q), _with_heads(v, q)
    scores = _scores(node, q, k, mask, is_causal, factor, wide)
    weights = get_operator("exp")(subtract(scores, expand_dims(log_sum, axis=-1)))
    if mask is not None:  # a query that sees no key: its sum is that of nothing
        seen = get_operator("greater")(expand_dims(log_sum, axis=-1), float("-inf"))
        weights = get_operator("where")(seen, weights, get_operator("zeros_like")(weights))
    of_weights = subtract(
        matmul(upper, _flipped(v)), get_operator("sum")(multiply(upper, made), axis=(-1,), keepdims=True)
    )
    of_scores = multiply(multiply(weights, of_weights), factor)
    of_key = _without_heads(matmul(_flipped(of_scores), q), key)
    of_value = _without_heads(matmul(_flipped(weights), upper), value)
    found = (matmul(of_scores, k), of_key, of_value)
    return [cast_to(part, node.result(number).dtype) for number, part in enumerate(found)]


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
