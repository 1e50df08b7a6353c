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
``a - za`` of the type int8 is ``(a + 128) - (za + 128)`` of the type uint8, which flips the highest bit. A convolution
whose filters have the zero point 0 has a border of ``za`` instead of 0.

From opt_level 3 on products of bfloat16 are summed by such instructions too, in float32 (``out_dtype="float32"``) as
before, but in another order.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function, const
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.printer import summary
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import called, is_primitive, rewrite_graph
from tilewright.passes.registry import register_pass
from tilewright.tensorir.dtype import FLOAT32, INT32, DataType
from tilewright.tensorir.target import Target

_BYTES = ("int8", "uint8")
#: From this many rows on, a product with the sums of the columns of a matrix costs less than one of wider numbers.
_ROWS_WORTH_SUMMING = 32


@dataclasses.dataclass(frozen=True)
class _Factor:
    """``stored - zero`` in int32 (``zero`` None: ``stored``)."""

    stored: Expr
    zero: Expr | None

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
        return _Factor(bits, _moved(self.zero, 128 if is_signed else -128))

    def total(self, axes: int | tuple[int, ...], keepdims: bool = True) -> Expr:
        """The sum of ``stored`` over axes."""
        return calls.sum(calls.cast(self.stored, dtype="int32"), axis=axes, keepdims=keepdims)


def _moved(zero: Expr | None, shift: int) -> Expr | None:
    """A zero point of a type that starts ``shift`` lower."""
    if zero is None:
        return const(shift, "int32")
    value = _value(zero)
    if value is None:
        return calls.add(zero, const(shift, "int32")) if shift else zero
    moved = value + np.int32(shift)
    return const(moved, "int32") if moved.any() else None


def _value(zero: Expr) -> np.ndarray | None:
    """The zero point, if it is known."""
    if isinstance(zero, Constant):
        return zero.data
    kept = (called(zero, name) for name in ("cast", "reshape", "expand_dims"))
    call = next((each for each in kept if each is not None), None)
    if call is not None:
        inner = _value(call.args[0])
        shape = [int(str(size)) for size in zero.shape]
        return None if inner is None else inner.reshape(shape).astype(zero.tensor_type.dtype.numpy)
    return None


@register_pass
@function_pass(opt_level=2, name="NarrowProducts")
class NarrowProducts(FunctionPass):
    """Products of 8- and 16-bit numbers in wider ones take them as they are stored."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """``func`` with such products."""
        if is_primitive(func):
            return func
        target = Target.current()

        def narrow(node: Expr) -> Expr:
            if type(node) is not Call or not isinstance(node.op, Operator):
                return node
            rule = _RULES.get(node.op.name)
            if rule is None or node.attrs.out_dtype is not None:
                return node
            found: Expr | None = None
            if node.tensor_type.dtype is INT32:
                found = _of_integers(node, rule, target)
            elif node.tensor_type.dtype == "bfloat16" and ctx.is_fast:
                found = _of_halves(node, rule, target)
            if found is None:
                return node
            ctx.remark("multiplies narrow numbers as they are stored", "applied", summary(node))
            return found

        return func.with_body(rewrite_graph(func.body, narrow))


def _of_halves(node: Call, rule: _Rule, target: Target) -> Expr | None:
    dtype = node.tensor_type.dtype
    count = target.dot_products(dtype, dtype, FLOAT32)
    if count == 1 or not rule.fits(node, count, target.lanes(FLOAT32)):
        return None
    return calls.cast(_summed_in(FLOAT32, node, node.args), dtype=dtype)


def _of_integers(node: Call, rule: _Rule, target: Target) -> Expr | None:
    left, right = _factor(node.args[0]), _factor(node.args[1])
    if left is None or right is None:
        return None
    both = _with_instruction(left, right, target)
    if both is None:
        return None
    count = target.dot_products(both[0].dtype, both[1].dtype, INT32)
    return rule.rewrite(node, *both) if rule.fits(node, count, target.lanes(INT32)) else None


def _summed_in(dtype: DataType, node: Call, args: tuple[Expr, ...], **attrs: object) -> Call:
    return Call(node.op, args, dataclasses.replace(node.attrs, out_dtype=dtype, **attrs), None, node.span)


# Products of matrices.


def _fits_matrix(node: Call, count: int, lanes: int) -> bool:
    steps = node.args[0].shape[-1] if node.args[0].ndim else 0
    if min(arg.ndim for arg in node.args) < 2 or getattr(node.attrs, "weight_layout", "OI") != "OI":
        return False
    return isinstance(steps, int) and steps > 0 and steps % count == 0


def _matrix(node: Call, left: _Factor, right: _Factor) -> Expr | None:
    transposed = hasattr(node.attrs, "weight_layout")  # a dense layer's weight is [units, in]
    axis = -1 if transposed else -2
    if not _is_for_all_steps(left, -1) or not _is_for_all_steps(right, axis):
        return None
    rows = [size for size in node.shape[:-1] if isinstance(size, int)]
    is_short = len(rows) == node.ndim - 1 and math.prod(rows) < _ROWS_WORTH_SUMMING
    if is_short and left.zero is not None and not _is_known(right.stored):
        return None
    result: Expr = _summed_in(INT32, node, (left.stored, right.stored))
    if left.zero is not None:
        result = calls.subtract(result, calls.multiply(left.zero, _as_row(right.total(axis), transposed)))
    if right.zero is not None:
        rest = left.total(-1)
        if left.zero is not None:
            rest = calls.subtract(rest, calls.multiply(left.zero, const(left.stored.shape[-1], "int32")))
        result = calls.subtract(result, calls.multiply(rest, _as_row(right.zero, transposed)))
    return result


def _as_row(parameter: Expr, transposed: bool) -> Expr:
    """A parameter for each column of the result (``[units, 1]`` of a dense layer's weight) as a row."""
    if not transposed or parameter.ndim < 2:
        return parameter
    return calls.reshape(parameter, newshape=(parameter.shape[0],))


def _is_known(node: Expr) -> bool:
    """Whether an expression is made of constants alone, so that it is folded."""
    while isinstance(node, Call) and node.args:
        node = node.args[0]  # that of a constant weight, its bits perhaps flipped
    return isinstance(node, Constant)


def _is_for_all_steps(factor: _Factor, steps: int) -> bool:
    """Whether the zero point is the same for all products of a sum over the axis ``steps``."""
    zero = factor.zero
    return zero is None or zero.ndim < -steps or zero.shape[steps] == 1


# Convolutions.


def _fits_convolution(node: Call, count: int, lanes: int) -> bool:
    attrs = node.attrs
    if attrs.layouts != attrs.plain_layouts:
        return False
    outputs, inputs = node.args[1].shape[:2]
    own = outputs // attrs.groups if isinstance(outputs, int) else 0
    # Whole blocks of channels, which the layout puts side by side in groups.
    return isinstance(inputs, int) and inputs % lanes == 0 and own >= lanes and (attrs.groups == 1 or own % lanes == 0)


def _convolution(node: Call, data: _Factor, weight: _Factor) -> Expr | None:
    zero = 0
    if data.zero is not None:
        known = _value(data.zero)
        if known is None or known.size != 1:
            return None
        zero = int(known.reshape(()))
    limits = np.iinfo(data.dtype.numpy)
    if weight.zero is not None or not limits.min <= zero <= limits.max:
        return None
    result: Expr = _summed_in(INT32, node, (data.stored, weight.stored), pad_value=zero)
    if zero:
        total = weight.total(tuple(range(1, node.ndim)), keepdims=False)
        sums = calls.reshape(total, newshape=(weight.stored.shape[0], *[1] * (node.ndim - 2)))
        result = calls.subtract(result, calls.multiply(sums, const(zero, "int32")))
    return result


@dataclasses.dataclass(frozen=True)
class _Rule:
    """How an operator is rewritten.

    Attributes:
        fits: whether its sums have whole groups of so many products, and its vectors so many lanes.
        rewrite: the operator on two factors; None where their zero points stand in the way.
    """

    fits: Callable[[Call, int, int], bool]
    rewrite: Callable[[Call, _Factor, _Factor], Expr | None]


_RULES = {
    "matmul": _Rule(_fits_matrix, _matrix),
    "nn.dense": _Rule(_fits_matrix, _matrix),
    "nn.conv2d": _Rule(_fits_convolution, _convolution),
    "nn.conv3d": _Rule(_fits_convolution, _convolution),
}


# Factors.


def _with_instruction(left: _Factor, right: _Factor, target: Target) -> tuple[_Factor, _Factor] | None:
    """The factors in types whose products the target adds several at a time."""
    choices = [(left, right)]
    if left.dtype in _BYTES and left.dtype is right.dtype:
        # The second factor is often a weight, and what is computed of it is then known when the model is built.
        choices.append((left.flipped(), right) if left.dtype == "int8" else (left, right.flipped()))
    return next((both for both in choices if target.dot_products(both[0].dtype, both[1].dtype, INT32) > 1), None)


def _factor(node: Expr) -> _Factor | None:
    zero: Expr | None = None
    difference = called(node, "subtract")
    if difference is not None:
        node, zero = difference.args
        if zero.ndim > node.ndim:
            return None
        zero = _moved(zero, 0)
    cast = called(node, "cast")
    if cast is None:
        return None
    (stored,) = cast.args
    return _Factor(stored, zero) if stored.tensor_type.dtype.is_integer else None
