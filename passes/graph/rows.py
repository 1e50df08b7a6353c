"""Rules of ``SimplifyExpr`` for dense layers, and products with one matrix, of joined rows: the axes before the last
stay as they are.

PyTorch decomposes a layer of ``[batch, words, width]`` to a product of matrices between two reshapes. A reshape between
a product and what follows it keeps the two apart, so it moves behind the product, where it meets the other one::

    %0 = reshape(%x, newshape=(6, 4))                     %0 = nn.dense(%x, %w)
    %1 = nn.dense(%0, %w)                          ->     %1 = add(%0, %bias)
    %2 = add(%1, %bias)                                   %2 = nn.gelu(%1)
    %3 = nn.gelu(reshape(%2, newshape=(2, 3, 8)))

Each sum has the same terms in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.dims import Dim, dim_equal, product
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.types import TensorType
from tilewright.passes.graph.pattern import Bind, Match, Op, Rule


def _dense_of_joined_rows(match: Match) -> Expr | None:
    """``nn.dense(reshape(x), w) -> reshape(nn.dense(x, w))``, also where the reshape joins the last axes of ``x``; the
    same for a product with a matrix ``w``."""
    node: Call = match["self"]
    x, rows = match["x"], node.args[0].type
    assert isinstance(rows, TensorType)
    if rows.ndim != 2 or match["w"].ndim != 2:
        return None
    before = _axes_before(x.shape, rows.shape[1])
    if before is None or before < 2:
        return None
    if before < x.ndim - 1:
        x = Call("reshape", (x,), {"newshape": (*x.shape[:before], rows.shape[1])}, None, node.span)
    made = Call(node.op, (x, match["w"]), node.attrs, None, node.span)
    return Call("reshape", (made,), {"newshape": node.tensor_type.shape}, None, node.span)


def _axes_before(shape: Sequence[Dim], width: Dim) -> int | None:
    """Return the number of axes before the last ones of that many elements; None if there are no such."""
    for axis in reversed(range(len(shape))):
        if dim_equal(product(shape[axis:]), width):
            return axis
    return None


def _sum_of_joined_rows(match: Match) -> Expr | None:
    """``reshape(x) + vector -> reshape(x + vector)`` for a dense layer or product ``x`` whose last axis stays."""
    node: Call = match["self"]
    x, vector = match["x"], match["vector"]
    if not isinstance(x, Call) or getattr(x.op, "name", "") not in _PRODUCTS or vector.ndim > 1:
        return None
    if node.ndim != 2 or not dim_equal(x.shape[-1], node.shape[-1]):
        return None
    made = Call(node.op, [x if arg is not vector else vector for arg in node.args], node.attrs, None, node.span)
    return Call("reshape", (made,), {"newshape": node.tensor_type.shape}, None, node.span)


_PRODUCTS = ("nn.dense", "matmul")
#: Rules that give the same bits.
ROWS: tuple[Rule, ...] = (
    *(Rule(Op(name, Op("reshape", Bind("x")), Bind("w")), _dense_of_joined_rows) for name in _PRODUCTS),
    Rule(Op("add", Op("reshape", Bind("x")), Bind("vector")), _sum_of_joined_rows),
    Rule(Op("add", Bind("vector"), Op("reshape", Bind("x"))), _sum_of_joined_rows),
)
