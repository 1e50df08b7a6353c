"""``SimplifyExpr``: algebra on operators, by a table of rules.

Before::

    %0 = multiply(%x, float32(1.0))
    %1 = transpose(%0, axes=(1, 0))
    %2 = transpose(%1, axes=(1, 0))

After: ``%x``. A rule applies only where the result has the same type. ``EXACT`` rules give the same bits for every
input, NaN and signed zero included; those of ``INEXACT`` do not, and only opt_level 3 reads them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.types import TensorType
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.pattern import Bind, Match, Op, Rule, RuleTable, Splat, apply_rules, rule_table
from tilewright.passes.graph.walk import rewrite_graph
from tilewright.passes.registry import register_pass
from tilewright.tensorir.dtype import DataType

_ANY_SIZE = 1 << 16  # larger constants are not searched for ones and zeros


def _equals(value: float) -> Splat:
    return Splat(lambda data: data.size <= _ANY_SIZE and data == value)


def _neutral_addend(data: np.ndarray[Any, Any]) -> Any:
    """What added to anything gives the same bits: an integer 0, and -0.0 (as -0.0 + 0.0 is 0.0)."""
    if data.size > _ANY_SIZE:
        return False
    return (data == 0) & np.signbit(data.astype(np.float64)) if data.dtype.kind not in "biu" else data == 0


def _neutral_subtrahend(data: np.ndarray[Any, Any]) -> Any:
    if data.size > _ANY_SIZE:
        return False
    return (data == 0) & ~np.signbit(data.astype(np.float64)) if data.dtype.kind not in "biu" else data == 0


def _power_of_two(data: np.ndarray[Any, Any]) -> Any:
    """Floats whose reciprocal is exact (and no subnormal, which some processors flush to zero)."""
    if data.dtype.kind in "biu" or data.size > _ANY_SIZE:
        return False
    mantissa, exponent = np.frexp(data.astype(np.float64))
    return (np.abs(mantissa) == 0.5) & (np.abs(exponent) < 100 if data.dtype.itemsize > 2 else np.abs(exponent) < 10)


X, Y = Bind("x"), Bind("y")
ONE, ZERO = _equals(1), _equals(0)
#: Operators that keep the elements in row-major order and only give the tensor another shape.
RESHAPES = ("reshape", "expand_dims", "squeeze", "nn.batch_flatten")


def _x(match: Match) -> Expr:
    found: Expr = match["x"]
    return found


def _again(match: Match, *args: Expr, **attrs: Any) -> Expr:
    """The matched operator on other arguments, with other attributes where some are given."""
    node: Call = match["self"]
    return Call(node.op, args, attrs or node.attrs, None, node.span)


def _transpose_axes(attrs: Any, ndim: int) -> list[int]:
    axes = attrs.axes
    return list(range(ndim))[::-1] if axes is None else [axis % ndim for axis in axes]


def _transpose_twice(match: Match) -> Expr:
    inner, x = match["inner"], match["x"]
    first = _transpose_axes(inner, x.ndim)
    second = _transpose_axes(match["self"].attrs, x.ndim)
    axes = tuple(first[axis] for axis in second)
    return x if axes == tuple(range(x.ndim)) else _again(match, x, axes=axes)


def _transpose_nothing(match: Match) -> Expr | None:
    x = _x(match)
    return x if _transpose_axes(match["self"].attrs, x.ndim) == list(range(x.ndim)) else None


def _reshape_twice(match: Match) -> Expr | None:
    x, node = _x(match), match["self"]
    if x.type == node.type:
        return x  # row-major order is the same, so equal shapes mean equal tensors
    if node.op.name != "reshape" or any(dim == -1 for dim in np.atleast_1d(np.asarray(node.attrs.newshape, object))):
        return None
    return _again(match, x)


def _cast_back(match: Match) -> Expr | None:
    """Widening loses nothing, so narrowing again gives back what was there."""
    x, middle = _x(match), match["middle"]
    return x if x.type == match["self"].type and _holds_all(middle.dtype, x.dtype) else None


def _holds_all(wide: DataType, narrow: DataType) -> bool:
    """Whether every value of ``narrow`` is one of ``wide``."""
    if wide is narrow:
        return True
    if wide.is_float and narrow.is_float:
        return wide.bits > narrow.bits
    if wide.is_float:
        precision = {64: 53, 32: 24, 16: 8}[wide.bits]
        return narrow.is_bool or (narrow.is_integer and narrow.bits <= precision)
    if not wide.is_integer or narrow.is_float:
        return False
    if narrow.is_bool:
        return True
    return wide.bits > narrow.bits and (wide.is_int or narrow.is_uint)


def _layout_and_back(match: Match) -> Expr | None:
    inner, outer = match["inner"], match["self"].attrs
    return _x(match) if inner.src_layout == outer.dst_layout and inner.dst_layout == outer.src_layout else None


def _layout_nothing(match: Match) -> Expr | None:
    attrs = match["self"].attrs
    return _x(match) if attrs.src_layout == attrs.dst_layout else None


def _reciprocal(match: Match) -> Expr:
    node, divisor = match["self"], match["c"]
    return Call(
        "multiply", (match["x"], _constant(1 / divisor.data.astype(np.float64), divisor)), None, None, node.span
    )


def _constant(value: Any, like: Constant) -> Constant:
    return Constant(np.asarray(value).astype(like.data.dtype))


def _joined(match: Match) -> Expr | None:
    """(x op a) op b -> x op (a op b)."""
    a, b = match["a"], match["b"]
    node: Call = match["self"]
    with np.errstate(all="ignore"):
        value = np.multiply(a.data, b.data) if node.op.name == "multiply" else np.add(a.data, b.data)  # type: ignore[union-attr]
    if value.size > max(a.data.size, b.data.size) or not np.all(np.isfinite(value)):
        return None
    return _again(match, match["x"], _constant(value, b))


def _full_slice(match: Match) -> Expr | None:
    """A slice that takes every element in order: with the same type, all that is left to ask is the direction."""
    strides = getattr(match["self"].attrs, "strides", None)
    return None if strides is not None and any(step is not None and step < 0 for step in strides) else _x(match)


#: Rules that give the same bits.
EXACT: tuple[Rule, ...] = (
    Rule(Op("multiply", X, ONE), _x),  # x * 1 -> x
    Rule(Op("multiply", ONE, X), _x),  # 1 * x -> x
    Rule(Op(("divide", "floor_divide"), X, ONE), lambda m: _x(m) if not _rounds(m) else None),  # x / 1 -> x
    Rule(Op("power", X, ONE), _x),  # x ** 1 -> x
    Rule(Op("add", X, Splat(_neutral_addend)), _x),  # x + -0.0 -> x, i + 0 -> i
    Rule(Op("add", Splat(_neutral_addend), X), _x),  # -0.0 + x -> x, 0 + i -> i
    Rule(Op("subtract", X, Splat(_neutral_subtrahend)), _x),  # x - 0.0 -> x, i - 0 -> i
    Rule(Op("divide", X, Splat(_power_of_two, "c")), _reciprocal),  # x / 4 -> x * 0.25
    Rule(Op("negative", Op("negative", X)), _x),  # --x -> x
    Rule(Op("logical_not", Op("logical_not", X)), _x),  # not not x -> x
    Rule(Op("abs", Op(("abs", "negative"), X)), lambda m: _again(m, _x(m))),  # |-x| -> |x|, ||x|| -> |x|
    Rule(Op("nn.relu", Op("nn.relu", X)), lambda m: _again(m, _x(m))),  # relu(relu(x)) -> relu(x)
    Rule(Op(("maximum", "minimum"), X, X), _x),  # max(x, x) -> x
    Rule(Op("where", Splat(lambda data: data), X, Y), _x),  # where(True, x, y) -> x
    Rule(Op("where", Splat(lambda data: ~data), X, Y), lambda m: m["y"]),  # where(False, x, y) -> y
    Rule(Op("where", Bind("c"), X, X), _x),  # where(c, x, x) -> x
    Rule(Op("cast", X), _x),  # cast(x, type of x) -> x
    Rule(Op("cast", Op("cast", X, attrs="middle")), _cast_back),  # cast(cast(x, wider), type of x) -> x
    Rule(Op("transpose", X), _transpose_nothing),  # transpose(x, (0, 1)) -> x
    Rule(Op("transpose", Op("transpose", X, attrs="inner")), _transpose_twice),  # transpose(transpose(x)) -> transpose
    Rule(Op(RESHAPES, X), _x),  # reshape(x, shape of x) -> x
    Rule(Op(RESHAPES, Op(RESHAPES, X)), _reshape_twice),  # reshape(reshape(x)) -> reshape(x), squeeze(expand_dims(x))
    Rule(Op("concatenate", X), _x),  # concatenate([x]) -> x
    Rule(Op("slice", X), _full_slice),  # x[:] -> x
    Rule(Op("pad", X), _x),  # pad(x, 0) -> x
    Rule(Op("broadcast_to", X), _x),  # broadcast_to(x, shape of x) -> x
    Rule(Op("broadcast_to", Op("broadcast_to", X)), lambda m: _again(m, _x(m))),  # broadcast twice -> once
    Rule(Op("layout_transform", X), _layout_nothing),  # NCHW to NCHW -> x
    Rule(Op("layout_transform", Op("layout_transform", X, attrs="inner")), _layout_and_back),  # A to B to A -> x
)

#: Rules that round differently or lose the sign of a zero.
INEXACT: tuple[Rule, ...] = (
    Rule(Op("add", X, ZERO), _x),  # x + 0 -> x
    Rule(Op("add", ZERO, X), _x),  # 0 + x -> x
    Rule(Op("subtract", X, ZERO), _x),  # x - 0 -> x
    Rule(  # (x * a) * b -> x * (a * b), (x + a) + b -> x + (a + b)
        Op("multiply", Op("multiply", X, Splat(np.isfinite, "a")), Splat(np.isfinite, "b")), _joined
    ),
    Rule(Op("add", Op("add", X, Splat(np.isfinite, "a")), Splat(np.isfinite, "b")), _joined),
)


def _rounds(match: Match) -> bool:
    """Whether dividing by one changes a value: floor_divide of floats does."""
    node: Call = match["self"]
    return node.op.name == "floor_divide" and node.dtype.is_float  # type: ignore[union-attr]  # it matched an Op


_EXACT_TABLE = rule_table(EXACT)
_FULL_TABLE = rule_table(EXACT, INEXACT)


@register_pass
@function_pass(opt_level=1, name="SimplifyExpr")
class SimplifyExpr(FunctionPass):
    """Applies the rules of this module, bottom-up, until none applies."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """``func`` simplified."""
        table: RuleTable = _FULL_TABLE if ctx.is_fast else _EXACT_TABLE

        def simplify(node: Expr) -> Expr:
            if type(node) is not Call or not isinstance(node.type, TensorType):
                return node
            return apply_rules(node, table)

        return func.with_body(rewrite_graph(func.body, simplify))
