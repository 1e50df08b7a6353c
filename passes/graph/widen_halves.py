"""``WidenHalves``: convert the factors of a product of half types once, not in every step of a sum.

Before::

    %0 = matmul(%a, const#0)                          # float16

After::

    %0 = cast(%a, dtype="float32")
    %1 = cast(const#0, dtype="float32")               # FoldConstant computes this
    %2 = matmul(%0, %1)
    %3 = cast(%2, dtype="float16")

Sums of half types are computed in float32 and rounded once either way. A tile of a product reads each factor for many
results, and would convert it for each. With few rows of results, the weights are read about once, in half the bytes,
and are not converted. Products for which the target has instructions (``NarrowProducts``) are no longer half types.
"""

from __future__ import annotations

import math

from tilewright.graphir.expr import Call, Expr, Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import is_half
from tilewright.graphir.printer import summary
from tilewright.graphir.types import TensorType
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import is_primitive, rewrite_body
from tilewright.passes.properties import TYPED, UNGROUPED
from tilewright.passes.registry import register_pass

#: From this many rows of results on, converting a factor first is faster.
_ROWS_WORTH_CONVERTING = 16


@register_pass
@function_pass(opt_level=2, name="WidenHalves", requires={TYPED, UNGROUPED})
class WidenHalves(FunctionPass):
    """Convert the factors of products of half types to float32."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with converted factors."""
        if is_primitive(func):
            return func

        def widen(node: Expr) -> Expr:
            if type(node) is not Call or not isinstance(node.op, Operator) or not _is_worth_it(node, node.op):
                return node
            ctx.remark("converted its factors to float32", "applied", summary(node))
            wide = [calls.cast(arg, dtype="float32") for arg in node.args]
            return calls.cast(Call(node.op, wide, node.attrs, None, node.span), dtype=node.tensor_type.dtype)

        return rewrite_body(func, widen)


def _is_worth_it(node: Call, op: Operator) -> bool:
    found = node.type
    if op.kind != "contraction" or len(node.args) != 2 or not isinstance(found, TensorType) or not is_half(found.dtype):
        return False
    if any(not isinstance(arg.type, TensorType) or arg.type.dtype is not found.dtype for arg in node.args):
        return False
    rows = [size for size in found.shape[:-1] if isinstance(size, int)]
    return len(rows) < found.ndim - 1 or math.prod(rows) >= _ROWS_WORTH_CONVERTING
