"""``FoldScaleAxis``: fold multiplications by one constant factor per channel into adjacent weights.

``BackwardFoldScaleAxis``, for a factor after the operator with weights::

    %0 = nn.conv2d(%x, %w)                      %0 = multiply(%w, reshaped s)        # FoldConstant computes this
    %1 = add(%0, %b)                     ->     %1 = nn.conv2d(%x, %0)
    %2 = nn.relu(%1)                            %2 = add(%1, %b * s)
    %3 = multiply(%2, %s)   # s > 0             %3 = nn.relu(%2)

``ForwardFoldScaleAxis``, for a factor before it: ``nn.conv2d(multiply(%x, %s), %w)`` becomes ``nn.conv2d(%x, %w * s)``,
and ``nn.conv2d(x * s + b, w)`` becomes ``nn.conv2d(x + b / s, w * s)``. Where several operators read what is scaled,
each of them takes the factor up.

Operators state whether they multiply or add (``Operator.meaning``). Factors pass through operators that commute with
scaling (``Operator.commutes_with_scale``), through additions of constants, and through other factors. Every expression
on the path must have no other user; forward, all users must be on a path. Scaled weights round differently, hence
opt_level 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function
from tilewright.graphir.meaning import Product, Sum, meaning_of
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.printer import summary
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.properties import FOLDED, PLAIN_LAYOUTS, TYPED, UNGROUPED
from tilewright.passes.registry import register_pass
from tilewright.passes.sequential import Sequential

Vector = np.ndarray[Any, Any]

#: Constants are divided by no smaller factors, nor by those larger than its reciprocal: what they are added to would
#: count for nothing, or overflow in a half type.
_LEAST_DIVISOR = 2.0**-10


class _Way(NamedTuple):
    """A path for factors into weights: the axis that they belong to, whether they must be positive, and whether
    something is divided by them."""

    axis: int
    positive: bool
    divides: bool = False


@register_pass
@function_pass(
    opt_level=3, name="BackwardFoldScaleAxis", requires={TYPED, UNGROUPED, PLAIN_LAYOUTS}, invalidates={FOLDED}
)
class BackwardFoldScaleAxis(FunctionPass):
    """Fold factors into the weights of the operator that computes their operand."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with factors folded backward."""
        return func.with_body(_Backward(func, ctx).run())


@register_pass
@function_pass(
    opt_level=3, name="ForwardFoldScaleAxis", requires={TYPED, UNGROUPED, PLAIN_LAYOUTS}, invalidates={FOLDED}
)
class ForwardFoldScaleAxis(FunctionPass):
    """Fold factors into the weights of the operator that uses their result."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with factors folded forward."""
        return func.with_body(_Forward(func, ctx).run())


@register_pass
class FoldScaleAxis(Sequential):
    """Fold factors backward, then forward: most follow a convolution and come from a batch normalization."""

    def __init__(self) -> None:
        super().__init__([BackwardFoldScaleAxis(), ForwardFoldScaleAxis()], opt_level=3, name="FoldScaleAxis")


def _factor(node: Expr) -> tuple[Expr, Constant] | None:
    """Match ``x * s`` or ``s * x`` with a constant ``s`` that does not broadcast ``x``; return ``(x, s)``."""
    product = meaning_of(node)
    if not isinstance(product, Product):
        return None
    for x, s in ((product.left, product.right), (product.right, product.left)):
        if type(s) is Constant and type(x) is not Constant and x.type == node.type and s.dtype.is_float:
            return x, s
    return None


def along_axis(constant: Constant, like: TensorType, axis: int) -> Vector | None:
    """Return the constant as a vector along ``axis`` of a tensor of type ``like``; None if it varies along others."""
    extent = like.shape[axis]
    if not isinstance(extent, int) or constant.ndim > like.ndim:
        return None
    shape = (1,) * (like.ndim - constant.ndim) + constant.shape
    if any(size != 1 for number, size in enumerate(shape) if number != axis % like.ndim):
        return None
    return np.broadcast_to(constant.data.reshape(-1), (extent,))


def _shaped(vector: Vector, ndim: int, axis: int) -> Constant:
    shape = [1] * ndim
    shape[axis] = -1
    return Constant(np.ascontiguousarray(vector.reshape(shape)))


class _Scaling:
    """The parts common to both directions: the order of the expressions, the number of their uses, and those that
    multiply by factors."""

    def __init__(self, function: Function, ctx: PassContext) -> None:
        self.body = function.body
        self.ctx = ctx
        self.order = post_order(function)[:-1]
        #: The operand and the factors of each expression that multiplies by a constant.
        self.factors: dict[Expr, tuple[Expr, Constant]] = {}
        for node in self.order:
            if type(node) is Call and (found := _factor(node)) is not None:
                self.factors[node] = found
        self.uses: dict[Expr, int] = {self.body: 1}
        for node in self.order if self.factors else ():
            for child in node.children:
                self.uses[child] = self.uses.get(child, 0) + 1
        #: The factors that an expression's value is multiplied by in the rewritten graph, as one vector.
        self.pending: dict[Expr, Vector] = {}
        self.done: dict[Expr, Expr] = {}
        self._axes: dict[tuple[Expr, bool], int | None] = {}

    def commuting(self, node: Expr) -> tuple[Call, str] | None:
        """Return ``node`` if factors pass through it (from or to argument 0), and which factors do; None if none do."""
        if type(node) is not Call or not isinstance(node.op, Operator) or not isinstance(node.type, TensorType):
            return None
        kind = node.op.commutes_with_scale
        return None if kind is None or node.args[0].type is None else (node, kind)

    def rebuilt(self, node: Expr) -> Expr:
        children = node.children
        new = tuple([self.done[child] for child in children])
        return node if new == children else node.with_children(new)  # nodes are equal to themselves alone

    def accept(self, way: _Way | None, source: Expr, constant: Constant) -> Vector | None:
        """Return the vector of factors if they can take this path, else None."""
        if way is None or not isinstance(source.type, TensorType):
            return None
        vector = along_axis(constant, source.type, way.axis)
        if vector is None or not np.all(np.isfinite(vector)) or (way.positive and not np.all(vector > 0)):
            return None
        if way.divides and not np.all((abs(vector) > _LEAST_DIVISOR) & (abs(vector) < 1 / _LEAST_DIVISOR)):
            return None
        return vector

    def scaled_call(self, node: Call, vector: Vector, of_result: bool) -> Expr:
        assert isinstance(node.op, Operator)
        args = [self.done[arg] for arg in node.args]
        scaled = node.op.scale_weights(args, node.attrs, Constant(np.ascontiguousarray(vector)), of_result)
        assert scaled is not None  # checked before
        where = "after" if of_result else "before"
        self.ctx.remark(f"folded the factor {where} {node.op.name} into its weights", "applied", summary(node))
        return Call(node.op, scaled, node.attrs, node.type, node.span)

    def takes_up(self, node: Expr, of_result: bool) -> int | None:
        """Return the channel axis of an operator whose weights can absorb factors, else None."""
        key = node, of_result
        if key not in self._axes:
            self._axes[key] = self._find_axis(node, of_result)
        return self._axes[key]

    @staticmethod
    def _find_axis(node: Expr, of_result: bool) -> int | None:
        if type(node) is not Call or not isinstance(node.op, Operator):
            return None
        axis = node.op.channel_axis(-1 if of_result else 0, node.attrs)
        tensor = node if of_result else node.args[0]
        if axis is None or not isinstance(tensor.type, TensorType) or not tensor.dtype.is_float:
            return None
        extent = tensor.shape[axis]
        if not isinstance(extent, int):
            return None
        ones = Constant(np.broadcast_to(np.ones((), tensor.dtype.numpy), (extent,)))  # one element in memory
        possible = node.op.scale_weights(node.args, node.attrs, ones, of_result) is not None
        return axis % tensor.ndim if possible else None

    def times(self, node: Expr, vector: Vector) -> None:
        known = self.pending.get(node)
        self.pending[node] = vector if known is None else known * vector

    @staticmethod
    def addend(node: Expr) -> tuple[Expr, Constant] | None:
        """Match ``x + b`` with a constant ``b``; return ``(x, b)``, where ``b`` has its shape before broadcasting."""
        total = meaning_of(node)
        if not isinstance(total, Sum) or not isinstance(node.type, TensorType):
            return None
        for x, b in ((total.left, total.right), (total.right, total.left)):
            if type(b) is Constant and type(x) is not Constant and x.type == node.type:
                return x, b
        return None


class _Backward(_Scaling):
    """Move factors from users to their operands."""

    def run(self) -> Expr:
        if not self.factors:
            return self.body
        ways = self.find_ways()
        if not any(scaled in ways for scaled, _ in self.factors.values()):
            return self.body
        absorbed: set[Expr] = set()
        for node in reversed(self.order):
            factor = self.factors.get(node)
            if factor is not None:
                vector = self.accept(ways.get(factor[0]), factor[0], factor[1])
                if vector is None or self.uses[factor[0]] != 1:
                    self.stays(node, factor[0], ways)
                else:
                    absorbed.add(node)
                    self.times(factor[0], vector)
            passed_on = self.pending.get(node)
            if passed_on is not None:
                source = self.source(node)
                if source is not None:
                    self.times(source, passed_on)
        if not absorbed:
            return self.body
        for node in self.order:
            self.done[node] = self.rewrite(node, node in absorbed, ways)
        return self.done[self.body]

    def stays(self, node: Expr, scaled: Expr, ways: dict[Expr, _Way]) -> None:
        """Remark why the factor of ``node`` stays, if its operand comes from an operator with weights."""
        if scaled in ways:
            uses = self.uses[scaled]
            once = "it is not one finite constant per channel" + (", all positive" if ways[scaled].positive else "")
            why = f"the tensor that it multiplies has {uses} uses" if uses != 1 else once
            self.ctx.remark(f"factor not folded into weights: {why}", "missed", summary(node))

    def find_ways(self) -> dict[Expr, _Way]:
        ways: dict[Expr, _Way] = {}
        for node in self.order:
            axis = self.takes_up(node, True)
            if axis is not None:
                ways[node] = _Way(axis, False)
                continue
            source = self.source(node) if ways else None
            if source is None or source not in ways or self.uses[source] != 1:
                continue
            way = ways[source]
            call = self.commuting(node)
            if call is None:
                assert isinstance(node.type, TensorType)
                addend = self.addend(node)
                if addend is None or along_axis(addend[1], node.type, way.axis) is not None:
                    ways[node] = way
                continue
            own = call[0].op.channel_axis(0, call[0].attrs)  # type: ignore[union-attr]  # it is an operator's call
            if own is None or own % node.ndim == way.axis:
                ways[node] = _Way(way.axis, way.positive or call[1] == "positive")
        return ways

    def source(self, node: Expr) -> Expr | None:
        """Return the argument that factors of ``node`` move to."""
        if self.commuting(node) is not None:
            return node.children[0]
        found = self.factors.get(node) or self.addend(node)
        return None if found is None else found[0]

    def rewrite(self, node: Expr, absorbed: bool, ways: dict[Expr, _Way]) -> Expr:
        if absorbed:
            return self.done[self.factors[node][0]]
        vector = self.pending.get(node)
        if vector is None:
            return self.rebuilt(node)
        if self.takes_up(node, True) is not None:
            assert isinstance(node, Call)
            return self.scaled_call(node, vector, True)
        addend = self.addend(node)
        if addend is not None and node not in self.factors:
            assert isinstance(node, Call)
            assert isinstance(node.type, TensorType)
            own = along_axis(addend[1], node.type, ways[node].axis)
            assert own is not None
            scaled = _shaped(own * vector, node.ndim, ways[node].axis)
            return Call(get_operator("add"), (self.done[addend[0]], scaled), None, node.type, node.span)
        return self.rebuilt(node)


class _Forward(_Scaling):
    """Move factors from operands to all of their users."""

    def run(self) -> Expr:
        if not self.factors:
            return self.body
        ways = self.find_ways()
        if ways.keys().isdisjoint(self.factors):
            return self.body
        absorbed: set[Expr] = set()
        for node in self.order:
            factor = self.factors.get(node)
            vector = None if factor is None else self.accept(ways.get(node), node, factor[1])
            if factor is not None and vector is not None:
                absorbed.add(node)
                self.times(node, vector)
                if factor[0] in self.pending:
                    self.times(node, self.pending[factor[0]])
                self.done[node] = self.done[factor[0]]
                continue
            source = self.source(node)
            before = None if source is None else self.pending.get(source)
            if before is not None and self.takes_up(node, False) is not None:
                assert isinstance(node, Call)
                self.done[node] = self.scaled_call(node, before, False)
                continue
            if before is not None:
                self.pending[node] = before
            addend = (
                None if before is None or self.commuting(node) is not None or factor is not None else self.addend(node)
            )
            self.done[node] = self.rebuilt(node) if addend is None else self.divided(node, *addend, ways[node].axis)
        return self.done[self.body] if absorbed else self.body

    def divided(self, node: Expr, x: Expr, b: Constant, axis: int) -> Expr:
        """Build ``x * v + b`` without the factors ``v``: ``x + b / v``."""
        assert isinstance(node.type, TensorType)
        own = along_axis(b, node.type, axis)
        assert own is not None  # else there is no way
        quotient = (own / self.pending[node]).astype(own.dtype)
        return Call(get_operator("add"), (self.done[x], _shaped(quotient, node.ndim, axis)), None, node.type, node.span)

    def source(self, node: Expr) -> Expr | None:
        """Return the argument whose factors a call takes up or passes on."""
        if type(node) is not Call or not isinstance(node.op, Operator) or not node.args:
            return None
        if self.takes_up(node, False) is not None or self.commuting(node) is not None:
            return node.args[0]
        found = self.factors.get(node) or self.addend(node)
        return None if found is None else found[0]

    def find_ways(self) -> dict[Expr, _Way]:
        """Find for each expression the path of its factors: into all of its users."""
        ways: dict[Expr, _Way] = {}
        offers: dict[Expr, list[_Way]] = {}
        for node in reversed(self.order):
            offered = offers.get(node, [])
            if offered and len(offered) == self.uses[node] and len({way.axis for way in offered}) == 1:
                first = offered[0]
                ways[node] = _Way(first.axis, any(way.positive for way in offered), any(way.divides for way in offered))
            if not node.children or (node not in ways and self.takes_up(node, False) is None):
                continue
            source = self.source(node)
            if source is None:
                continue
            way = self.through(node, ways.get(node))
            if way is not None:
                offers.setdefault(source, []).append(way)
        return ways

    def through(self, node: Expr, way: _Way | None) -> _Way | None:
        """Return the path through ``node`` for factors of its source; ``way`` is the path of its own factors."""
        axis = self.takes_up(node, False)
        if axis is not None:
            return _Way(axis, False)
        if way is None or node in self.factors:
            return way
        call = self.commuting(node)
        if call is None:
            addend = self.addend(node)
            assert addend is not None and isinstance(node.type, TensorType)
            return None if along_axis(addend[1], node.type, way.axis) is None else way._replace(divides=True)
        own = call[0].op.channel_axis(0, call[0].attrs)  # type: ignore[union-attr]  # it is an operator's call
        if own is None or own % node.ndim == way.axis:
            return way._replace(positive=way.positive or call[1] == "positive")
        return None
