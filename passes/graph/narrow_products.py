"""``NarrowProducts``: multiplies bytes as bytes, where the target has an instruction that adds several such products.

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

``sum((a - za) * (b - zb))`` over ``K`` products is ``sum(a * b) - za * sum(b) - zb * (sum(a) - K * za)``; all of it
wraps like int32, so that the result has the same bits. The instruction takes one factor without a sign and one with:
``a - za`` of the type int8 is ``(a + 128) - (za + 128)`` of the type uint8, which flips the highest bit.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function, const
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.printer import summary
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import is_primitive, rewrite_graph
from tilewright.passes.registry import register_pass
from tilewright.tensorir.dtype import INT32, DataType
from tilewright.tensorir.target import Target

_BYTES = ("int8", "uint8")


@dataclasses.dataclass(frozen=True)
class _Factor:
    """``stored - zero`` in int32 (``zero`` None: ``stored``); ``steps``: the axis that the product sums over."""

    stored: Expr
    zero: Expr | None
    steps: int

    @property
    def dtype(self) -> DataType:
        return self.stored.dtype

    def flipped(self) -> _Factor:
        """The same numbers of bytes with the other kind of sign."""
        bits = self.stored
        is_signed = self.dtype == "int8"
        if is_signed:
            bits = get_operator("bitcast")(bits, dtype="uint8")
        bits = get_operator("bitwise_xor")(bits, const(128, "uint8"))
        if not is_signed:
            bits = get_operator("bitcast")(bits, dtype="int8")
        shift = const(128 if is_signed else -128, "int32")
        return _Factor(bits, shift if self.zero is None else calls.add(self.zero, shift), self.steps)

    def total(self) -> Expr:
        """The sum of ``stored`` over the steps, which stay an axis of one element."""
        return calls.sum(calls.cast(self.stored, dtype="int32"), axis=self.steps, keepdims=True)


@register_pass
@function_pass(opt_level=2, name="NarrowProducts")
class NarrowProducts(FunctionPass):
    """Products of 8- and 16-bit integers in int32 take them as they are stored."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """``func`` with such products."""
        if is_primitive(func):
            return func
        target = Target.current()

        def narrow(node: Expr) -> Expr:
            found = _narrowed(node, target)
            if found is None:
                return node
            assert isinstance(node, Call)
            ctx.remark("multiplies narrow integers as they are stored", "applied", summary(node))
            return found

        return func.with_body(rewrite_graph(func.body, narrow))


def _narrowed(node: Expr, target: Target) -> Expr | None:
    if type(node) is not Call or not isinstance(node.op, Operator) or node.op.name not in ("matmul", "nn.dense"):
        return None
    if node.tensor_type.dtype is not INT32 or node.attrs.out_dtype is not None or min(a.ndim for a in node.args) < 2:
        return None
    transposed = node.op.name == "nn.dense"
    if transposed and node.attrs.weight_layout != "OI":
        return None
    left, right = _factor(node.args[0], -1), _factor(node.args[1], -1 if transposed else -2)
    if left is None or right is None:
        return None
    both = _with_instruction(left, right, target)
    if both is None:
        return None
    left, right = both
    steps = left.stored.shape[-1]
    count = target.dot_products(left.dtype, right.dtype, INT32)
    if not isinstance(steps, int) or steps % count or not steps:
        return None
    attrs = {"out_dtype": "int32"} if not transposed else {"units": node.attrs.units, "out_dtype": "int32"}
    result = node.op(left.stored, right.stored, **attrs)
    if left.zero is not None:
        result = calls.subtract(result, calls.multiply(left.zero, _as_row(right.total(), transposed)))
    if right.zero is not None:
        rest = left.total()
        if left.zero is not None:
            rest = calls.subtract(rest, calls.multiply(left.zero, const(steps, "int32")))
        result = calls.subtract(result, calls.multiply(rest, _as_row(right.zero, transposed)))
    return result


def _as_row(parameter: Expr, transposed: bool) -> Expr:
    """A parameter for each column of the result (``[units, 1]`` of a dense layer's weight) as a row."""
    if not transposed or parameter.ndim < 2:
        return parameter
    return calls.reshape(parameter, newshape=(parameter.shape[0],))


def _with_instruction(left: _Factor, right: _Factor, target: Target) -> tuple[_Factor, _Factor] | None:
    """The factors in types whose products the target adds several at a time."""
    choices = [(left, right)]
    if left.dtype in _BYTES and left.dtype is right.dtype:
        # The second factor is often a weight, and what is computed of it is then known when the model is built.
        choices.append((left.flipped(), right) if left.dtype == "int8" else (left, right.flipped()))
    return next((both for both in choices if target.dot_products(both[0].dtype, both[1].dtype, INT32) > 1), None)


def _factor(node: Expr, steps: int) -> _Factor | None:
    zero: Expr | None = None
    if _is_call(node, "subtract"):
        node, zero = node.args  # type: ignore[attr-defined]  # it is a Call
        if not _is_for_all_steps(zero, steps, node.ndim):
            return None
        zero = None if _is_zero(zero) else zero
    if not _is_call(node, "cast"):
        return None
    (stored,) = node.args  # type: ignore[attr-defined]  # it is a Call
    return _Factor(stored, zero, steps) if stored.tensor_type.dtype.is_integer else None


def _is_call(node: Expr, name: str) -> bool:
    return type(node) is Call and isinstance(node.op, Operator) and node.op.name == name


def _is_for_all_steps(zero: Expr, steps: int, ndim: int) -> bool:
    """Whether a zero point is the same for all products of a sum, and does not give the factor more dimensions."""
    if zero.ndim > ndim:
        return False
    return zero.ndim < -steps or zero.shape[steps] == 1


def _is_zero(zero: Expr) -> bool:
    while _is_call(zero, "cast"):
        (zero,) = zero.args  # type: ignore[attr-defined]  # it is a Call
    return isinstance(zero, Constant) and not np.any(zero.data)
