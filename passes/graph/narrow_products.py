"""``NarrowProducts``: multiply 8-bit numbers without widening them, where the target has a dot product instruction.

Before::

    %0 = cast(%a, dtype="int32")                      # uint8
    %1 = subtract(%0, %zero)
    %2 = cast(const#0, dtype="int32")                 # int8
    %3 = matmul(%1, %2)

After::

    %0 = matmul(%a, const#0, out_dtype="int32")
    %1 = cast(const#0, dtype="int32")
    %2 = sum(%1, axis=-2, keepdims=True)              # FoldConstant computes this
    %3 = multiply(%zero, %2)
    %4 = subtract(%0, %3)

``sum((a - za) * (b - zb))`` over ``K`` products is ``sum(a * b) - za * sum(b) - zb * (sum(a) - K * za)``; all terms
wrap like int32, so that the result has the same bits. The instruction takes one unsigned and one signed factor:
``a - za`` of the type int8 is ``(a + 128) - (za + 128)`` of the type uint8, which flips the highest bit. A convolution
whose filters have the zero point 0 is padded with ``za`` instead of 0.

From opt_level 3 on, such instructions also sum products of bfloat16, in float32 (``out_dtype="float32"``) as before but
in another order.
"""

from __future__ import annotations

from tilewright.graphir.expr import Call, Expr, Function
from tilewright.graphir.meaning import Conversion, Difference, meaning_of
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.narrow import Stored, SumOfProducts, shifted_zero
from tilewright.graphir.printer import summary
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import is_primitive, rewrite_body
from tilewright.passes.properties import TYPED, UNFOLDED, UNGROUPED
from tilewright.passes.registry import register_pass
from tilewright.tensorir.dtype import FLOAT32, INT32
from tilewright.tensorir.target import Target

_BYTES = ("int8", "uint8")


@register_pass
@function_pass(opt_level=2, name="NarrowProducts", requires={TYPED, UNGROUPED, UNFOLDED})
class NarrowProducts(FunctionPass):
    """Remove the casts of 8- and 16-bit factors to the wider type in which their products are summed."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with such products on the factors as they are stored."""
        if is_primitive(func):
            return func
        target = Target.current()

        def narrow(node: Expr) -> Expr:
            if type(node) is not Call or not isinstance(node.op, Operator):
                return node
            sums = node.op.sum_of_products(node.args, node.attrs)
            if sums is None or node.attrs.out_dtype is not None:
                return node
            found: Expr | None = None
            if node.tensor_type.dtype is INT32:
                found = _of_integers(sums, target)
            elif node.tensor_type.dtype == "bfloat16" and ctx.is_fast:
                found = _of_halves(sums, target)
            if found is None:
                return node
            ctx.remark(
                "removed the casts of its factors: it multiplies their narrow type directly", "applied", summary(node)
            )
            return found

        return rewrite_body(func, narrow)


def _of_halves(sums: SumOfProducts, target: Target) -> Expr | None:
    dtype = sums.args[0].dtype
    count = target.dot_products(dtype, dtype, FLOAT32)
    if count == 1 or not sums.fits(count, target.lanes(FLOAT32)):
        return None
    return calls.cast(sums.summed_in(FLOAT32, *sums.args), dtype=dtype)


def _of_integers(sums: SumOfProducts, target: Target) -> Expr | None:
    left, right = _factor(sums.args[0]), _factor(sums.args[1])
    if left is None or right is None:
        return None
    both = _with_instruction(left, right, target)
    if both is None:
        return None
    count = target.dot_products(both[0].dtype, both[1].dtype, INT32)
    return sums.of(*both) if sums.fits(count, target.lanes(INT32)) else None


def _with_instruction(left: Stored, right: Stored, target: Target) -> tuple[Stored, Stored] | None:
    """Return the factors in types for which the target has a dot product instruction; None if it has none."""
    choices = [(left, right)]
    if left.dtype in _BYTES and left.dtype is right.dtype:
        # The second factor is often a weight; conversions of it are then computed when the model is built.
        choices.append((left.flipped(), right) if left.dtype == "int8" else (left, right.flipped()))
    return next((both for both in choices if target.dot_products(both[0].dtype, both[1].dtype, INT32) > 1), None)


def _factor(node: Expr) -> Stored | None:
    """Match a factor that is cast from an integer type, and from which a zero point may be subtracted."""
    zero: Expr | None = None
    found = meaning_of(node)
    if isinstance(found, Difference):
        node, zero = found.left, found.right
        if zero.ndim > node.ndim:
            return None
        zero = shifted_zero(zero, 0)
        found = meaning_of(node)
    if not isinstance(found, Conversion) or not found.value.tensor_type.dtype.is_integer:
        return None
    return Stored(found.value, zero)
