"""``SimplifyExpr``: simplify expressions by the algebra of operators, with a table of rules.

Before::

    %0 = multiply(%x, float32(1.0))
    %1 = transpose(%0, axes=(1, 0))
    %2 = transpose(%1, axes=(1, 0))

After: ``%x``. A rule applies only where the result has the same type. ``EXACT`` rules give the same bits for every
input, NaN and signed zero included; those of ``INEXACT``, which replace them at opt_level 3, do not. Most rules are
about traits that operators state (``graphir/traits.py``); rules about particular operators name them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, dim_equal, simplify
from tilewright.graphir.expr import Call, Constant, Expr, Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.types import TensorType
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.pattern import AnyConstant, Bind, Match, Op, Rule, Rules, Splat, all_true
from tilewright.passes.graph.rows import ROWS
from tilewright.passes.graph.walk import rewrite_body
from tilewright.passes.registry import register_pass
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import TypeInferenceError

_ANY_SIZE = 1 << 16  # larger constants are not searched for ones and zeros


def _power_of_two(data: np.ndarray[Any, Any]) -> Any:
    """Check for floats whose reciprocal is exact (and not subnormal, which some processors flush to zero)."""
    if data.dtype.kind in "biu" or data.size > _ANY_SIZE:
        return False
    mantissa, exponent = np.frexp(data.astype(np.float64))
    return (np.abs(mantissa) == 0.5) & (np.abs(exponent) < 100 if data.dtype.itemsize > 2 else np.abs(exponent) < 10)


X, Y = Bind("x"), Bind("y")
A, B = Splat(np.isfinite, "a"), Splat(np.isfinite, "b")
C = AnyConstant("c")


def _has_neutral(op: Operator) -> bool:
    return type(op).neutral is not Operator.neutral


def _may_be_identity(op: Operator) -> bool:
    return op.keeps_order or type(op).is_identity is not Operator.is_identity


def _keeps_order(op: Operator) -> bool:
    return op.keeps_order


def _involution(op: Operator) -> bool:
    return op.involution


def _idempotent(op: Operator) -> bool:
    return op.idempotent


def _even(op: Operator) -> bool:
    return op.even


def _associative(op: Operator) -> bool:
    return op.associative


def _x(match: Match) -> Expr:
    found: Expr = match["x"]
    return found


def _again(match: Match, *args: Expr, **attrs: Any) -> Expr:
    """Build a call of the matched operator on other arguments, with other attributes where some are given."""
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


def _reshaped(match: Match) -> Expr | None:
    """Reshape ``x`` directly. A dimension -1 may be impossible to infer from the shape of ``x``; then the shape of the
    result is written out."""
    node: Call = match["self"]
    for attrs in ({}, {"newshape": node.tensor_type.shape}):
        with contextlib.suppress(TypeInferenceError):
            made = _again(match, _x(match), **attrs)
            if made.type == node.type:
                return made
    return None


def _neutral(argument: int, zeros_differ: bool) -> Callable[[Match], Expr | None]:
    """Drop the ``argument`` of a call if it is the operator's neutral element.

    Args:
        zeros_differ: whether zeros of different signs are different numbers.
    """

    def build(match: Match) -> Expr | None:
        constant: Constant = match["c"]
        number = match["self"].op.neutral(argument, constant.dtype)
        if number is None or constant.size > _ANY_SIZE:
            return None
        data = constant.data
        same = data == number
        if zeros_differ and number == 0 and constant.dtype.is_float:
            same = same & (np.signbit(data.astype(np.float64)) == np.signbit(number))
        return _x(match) if all_true(same) else None

    return build


def _unchanged(match: Match) -> Expr | None:
    node: Call = match["self"]
    return _x(match) if node.op.is_identity(node.args, node.attrs) else None  # type: ignore[union-attr]  # an Operator


def _without_sign(match: Match) -> Expr | None:
    """``op(-x) -> op(x)``, except for unsigned integers, whose negation wraps."""
    return None if _x(match).dtype.is_uint else _again(match, _x(match))


def _cast_back(match: Match) -> Expr | None:
    """Drop a widening cast and the cast back: widening loses nothing, so narrowing restores the value."""
    x, middle = _x(match), match["middle"]
    return x if x.type == match["self"].type and _holds_all(middle.dtype, x.dtype) else None


def _holds_all(wide: DataType, narrow: DataType) -> bool:
    """Return whether every value of ``narrow`` is one of ``wide``."""
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


def _widened_twice(match: Match) -> Expr | None:
    """Leave out a cast to a wider type, which holds each value. An integer is excepted that passes through a float on
    its way to another integer type, where floats do not wrap, or to a half type, where it is rounded twice."""
    x, middle, result = _x(match).dtype, match["middle"].dtype, match["self"].dtype
    if not _holds_all(middle, x):
        return None
    through_float = middle.is_float and not x.is_float
    if through_float and not (_holds_all(result, x) or (result.is_float and result.bits >= 32)):
        return None
    return _again(match, _x(match))


@dataclasses.dataclass
class _Piece:
    """The elements of ``x`` from ``begin`` up to ``end`` along an axis."""

    x: Expr
    begin: Dim
    end: Dim

    @classmethod
    def of(cls, node: Expr, axis: int) -> _Piece | None:
        """Return the piece that ``node`` takes from another value along ``axis``; None if it does not."""
        if type(node) is not Call or node.op is not get_operator("slice"):
            return None
        (x,) = node.args
        ranges = node.op.ranges(x.shape, node.attrs)  # type: ignore[attr-defined]  # the operator is slice
        begin, count, _ = ranges[axis]
        others = [other for other in range(x.ndim) if other != axis]
        if any(stride != 1 for *_, stride in ranges) or not all(dim_equal(ranges[n][1], x.shape[n]) for n in others):
            return None
        return cls(x, begin, simplify(begin + count))

    def value(self, axis: int) -> Expr:
        if dim_equal(self.begin, 0) and dim_equal(self.end, self.x.shape[axis]):
            return self.x
        attrs = {"begin": (self.begin,), "end": (self.end,), "axes": (axis,)}
        return Call("slice", (self.x,), attrs, None, self.x.span)


def _joined_pieces(match: Match) -> Expr | None:
    """Concatenate neighbouring pieces of a value as one."""
    node: Call = match["self"]
    axis = node.attrs.axis % node.ndim
    pieces: list[_Piece | None] = []
    parts: list[Expr] = []
    for arg in node.args:
        piece, before = _Piece.of(arg, axis), pieces[-1] if pieces else None
        if piece is not None and before is not None and before.x is piece.x and dim_equal(before.end, piece.begin):
            before.end = piece.end
            parts[-1] = before.value(axis)
        else:
            pieces.append(piece)
            parts.append(arg)
    if len(parts) == len(node.args):
        return None
    return parts[0] if len(parts) == 1 else _again(match, *parts)


def _clipped_twice(match: Match) -> Expr | None:
    """Clip the bounds of the inner call by those of the outer one, if each call's are in order."""
    inner, outer = match["inner"], match["self"].attrs
    bounds = [inner.a_min, inner.a_max, outer.a_min, outer.a_max]
    known = [bound for bound in bounds if bound is not None]
    if any(bound != bound or (bound == 0 and math.copysign(1, bound) < 0) for bound in known):
        return None
    if any(None not in (low, high) and low > high for low, high in (bounds[:2], bounds[2:])):
        return None

    def clipped(bound: float | None, missing: float | None) -> float | None:
        if bound is None:
            return missing
        if outer.a_min is not None:
            bound = max(bound, outer.a_min)
        return bound if outer.a_max is None else min(bound, outer.a_max)

    low, high = clipped(inner.a_min, outer.a_min), clipped(inner.a_max, outer.a_max)
    return _again(match, _x(match), a_min=low, a_max=high)


def _layout_changed(match: Match, source: str, target: str, extents: Mapping[str, Any]) -> Expr | None:
    if source == target and not extents:
        return _x(match)
    with contextlib.suppress(TypeInferenceError):
        attrs = {"src_layout": source, "dst_layout": target, "extents": extents}
        return Call("layout_transform", (_x(match),), attrs, None, match["self"].span)
    return None


def _layout_twice(match: Match) -> Expr | None:
    """Change layout A to B to C as A to C. Where C keeps padding of B, the types differ, and nothing changes."""
    inner, outer = match["inner"], match["self"].attrs
    if inner.dst_layout != outer.src_layout:
        return None
    extents = {**dict(inner.extents), **dict(outer.extents)}
    return _layout_changed(match, inner.src_layout, outer.dst_layout, extents)


def _dense_of_transposed(match: Match) -> Expr | None:
    """dense(x, transpose(w)) -> matmul(x, w): the gradient of a layer's data, from PyTorch."""
    node: Call = match["self"]
    if node.attrs.weight_layout != "OI" or _transpose_axes(match["inner"], 2) != [1, 0]:
        return None
    return Call("matmul", (_x(match), match["y"]), {"out_dtype": node.attrs.out_dtype}, None, node.span)


def _layout_of_transpose(match: Match) -> Expr | None:
    outer = match["self"].attrs
    if not outer.src_layout.isupper():  # blocks
        return None
    order = _transpose_axes(match["inner"], _x(match).ndim)
    source = "".join(outer.src_layout[order.index(axis)] for axis in range(len(order)))
    return _layout_changed(match, source, outer.dst_layout, dict(outer.extents))


def _transpose_of_layout(match: Match) -> Expr | None:
    inner = match["inner"]
    if not inner.dst_layout.isupper():  # blocks
        return None
    order = _transpose_axes(match["self"].attrs, len(inner.dst_layout))
    target = "".join(inner.dst_layout[axis] for axis in order)
    return _layout_changed(match, inner.src_layout, target, dict(inner.extents))


def _layout_and_back(match: Match) -> Expr | None:
    inner, outer = match["inner"], match["self"].attrs
    return _x(match) if inner.src_layout == outer.dst_layout and inner.dst_layout == outer.src_layout else None


def _reciprocal(match: Match) -> Expr:
    node, divisor = match["self"], match["c"]
    return Call(
        "multiply", (match["x"], _constant(1 / divisor.data.astype(np.float64), divisor)), None, None, node.span
    )


def _constant(value: Any, like: Constant) -> Constant:
    return Constant(np.asarray(value).astype(like.data.dtype))


def _joined_sides(match: Match) -> Expr | None:
    """Join as :func:`_joined` does, for a commutative operator."""
    return _joined(match) if match["self"].op.commutative else None


def _of_integers(build: Callable[[Match], Expr | None]) -> Callable[[Match], Expr | None]:
    """Restrict a rule to integers, which wrap, so that it is exact."""

    def built(match: Match) -> Expr | None:
        return None if match["self"].dtype.is_float else build(match)

    return built


def _joined(match: Match) -> Expr | None:
    """(x op a) op b -> x op (a op b)."""
    a, b = match["a"], match["b"]
    node: Call = match["self"]
    with np.errstate(all="ignore"):
        value = np.asarray(node.op.reference([a.data, b.data], node.attrs))  # type: ignore[union-attr]  # an Operator
    if value.size > max(a.data.size, b.data.size) or not all_true(np.isfinite(value)):
        return None
    return _again(match, match["x"], _constant(value, b))


#: ``(x * a) * b``, ``b * (x * a)``, ``(a * x) * b`` and ``b * (a * x)`` -> ``x * (a * b)``, and the same for others.
_CONSTANTS = (
    (Op(_associative, Op(_associative, X, A, call="f"), B, call="f"), _joined),
    (Op(_associative, B, Op(_associative, X, A, call="f"), call="f"), _joined_sides),
    (Op(_associative, Op(_associative, A, X, call="f"), B, call="f"), _joined_sides),
    (Op(_associative, B, Op(_associative, A, X, call="f"), call="f"), _joined_sides),
)

#: Rules that give the same bits for all types.
_FOR_ALL: tuple[Rule, ...] = (
    Rule(Op("divide", X, Splat(_power_of_two, "c")), _reciprocal),  # x / 4 -> x * 0.25
    Rule(Op(_involution, Op(_involution, X, call="f"), call="f"), _x),  # --x, not not x -> x
    Rule(Op(_even, Op("negative", X)), _without_sign),  # |-x| -> |x|
    Rule(Op(_idempotent, Op(_idempotent, X, call="f"), call="f"), lambda m: m["self"].args[0]),  # ||x|| -> |x|
    Rule(Op(_idempotent, X, X), _x),  # max(x, x) -> x
    Rule(Op("where", Splat(lambda data: data), X, Y), _x),  # where(True, x, y) -> x
    Rule(Op("where", Splat(lambda data: ~data), X, Y), lambda m: m["y"]),  # where(False, x, y) -> y
    Rule(Op("where", Bind("c"), X, X), _x),  # where(c, x, x) -> x
    Rule(Op(_may_be_identity, X), _unchanged),  # cast(x, type of x), transpose(x, (0, 1)), x[:] -> x
    Rule(Op("cast", Op("cast", X, attrs="middle")), _cast_back),  # cast(cast(x, wider), type of x) -> x
    Rule(Op("cast", Op("cast", X, attrs="middle")), _widened_twice),  # cast(cast(x, wider), other) -> cast(x, other)
    Rule(Op("transpose", Op("transpose", X, attrs="inner")), _transpose_twice),  # transpose(transpose(x)) -> transpose
    Rule(Op("nn.dense", X, Op("transpose", Y, attrs="inner")), _dense_of_transposed),
    Rule(Op(_keeps_order, Op(_keeps_order, X)), _x),  # squeeze(expand_dims(x)) -> x: equal shapes mean equal tensors
    Rule(Op("reshape", Op(_keeps_order, X)), _reshaped),  # reshape(squeeze(x)) -> reshape(x)
    Rule(Op("concatenate"), _joined_pieces),  # concatenate(x[:3], x[3:], y) -> concatenate(x, y)
    Rule(Op("broadcast_to", Op("broadcast_to", X)), lambda m: _again(m, _x(m))),  # broadcast twice -> once
    Rule(Op("layout_transform", Op("layout_transform", X, attrs="inner")), _layout_and_back),  # A to B to A -> x
    Rule(Op("layout_transform", Op("layout_transform", X, attrs="inner")), _layout_twice),  # A to B to C -> A to C
    Rule(Op("layout_transform", Op("transpose", X, attrs="inner")), _layout_of_transpose),  # as one change of layout
    Rule(Op("transpose", Op("layout_transform", X, attrs="inner")), _transpose_of_layout),
    Rule(Op("clip", Op("clip", X, attrs="inner")), _clipped_twice),  # clip(clip(x, -1, 6), 0, 8) -> clip(x, 0, 6)
    *ROWS,
)

#: Rules that give the same bits.
EXACT: tuple[Rule, ...] = (
    Rule(Op(_has_neutral, X, C), _neutral(1, zeros_differ=True)),  # x * 1, x / 1, x ** 1, x - 0.0, x + -0.0, i + 0 -> x
    Rule(Op(_has_neutral, C, X), _neutral(0, zeros_differ=True)),  # 1 * x, -0.0 + x, 0 + i -> x
    *_FOR_ALL,
    *(Rule(pattern, _of_integers(build)) for pattern, build in _CONSTANTS),  # (i + 3) + 4 -> i + 7
)

#: ``EXACT``, and the same for floats where results round differently or lose the sign of a zero.
INEXACT: tuple[Rule, ...] = (
    Rule(Op(_has_neutral, X, C), _neutral(1, zeros_differ=False)),  # x + 0, x - 0 -> x
    Rule(Op(_has_neutral, C, X), _neutral(0, zeros_differ=False)),  # 0 + x -> x
    *_FOR_ALL,
    *(Rule(pattern, build) for pattern, build in _CONSTANTS),
)
_EXACT, _INEXACT = Rules(EXACT), Rules(INEXACT)


@register_pass
@function_pass(opt_level=1, name="SimplifyExpr")
class SimplifyExpr(FunctionPass):
    """Apply the rules of this module, bottom-up, until none applies."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` simplified."""
        table = _INEXACT if ctx.is_fast else _EXACT

        def simplify(node: Expr) -> Expr:
            if type(node) is not Call or not isinstance(node.type, TensorType):
                return node
            return table.apply(node)

        return rewrite_body(func, simplify)
