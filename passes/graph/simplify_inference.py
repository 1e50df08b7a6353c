"""``SimplifyInference``: replace operators that are simpler in inference than in training.

Before::

    %0 = nn.batch_norm(%x, %gamma, %beta, %mean, %variance)
    %1 = nn.dropout(%0, rate=0.5)

After::

    %0 = ... scale and shift from gamma, beta, mean and variance, which FoldConstant computes
    %1 = multiply(%x, %scale)
    %2 = add(%1, %shift)

Each operator defines its own form for inference (``Operator.simplify_inference``).
"""

from __future__ import annotations

from tilewright.graphir.expr import Call, Expr, Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import rewrite_body
from tilewright.passes.registry import register_pass


@register_pass
@function_pass(opt_level=0, name="SimplifyInference")
class SimplifyInference(FunctionPass):
    """Rewrite batch normalization to a multiplication and an addition, splits to slices, and remove dropout."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with such calls replaced."""
        return rewrite_body(func, _simplify)


def _simplify(node: Expr) -> Expr:
    if type(node) is not Call or not isinstance(node.op, Operator):
        return node
    found = node.op.simplify_inference(node.args, node.attrs)
    return node if found is None else found
