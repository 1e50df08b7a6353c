"""``PlaceParts``: compute the parts of a concatenation, and images inside of padding, in the memory of the whole.

Before::

    %0 = nn.relu(nn.conv2d(%x, const#0))
    %1 = nn.relu(nn.conv2d(%x, const#1))
    %2 = concatenate(%0, %1, axis=1)
    %3 = nn.conv2d(%2, const#2, padding=(1, 1, 1, 1))

After::

    %0 = nn.relu(nn.conv2d(%x, const#0))
    %1 = nn.relu(nn.conv2d(%x, const#1))
    %2 = fn (%p0, %p1) attrs {"Primitive": True, "in_place": (0, 1)} { concatenate(%p0, %p1, axis=1) }(%0, %1)
    %3 = fn (%p0) attrs {"Primitive": True, "in_place": (0,)} { pad(%p0, pad_width=...) }(%2)
    %4 = nn.conv2d(%3, const#2)

The groups state that the kernels of ``%0`` and ``%1`` write into the memory of ``%2``, which lies inside of that of
``%3`` (see ``graphir.parts``): the concatenation disappears, and the padding writes only the border.

Operators state by the trait ``places`` where their arguments lie in the result. An argument can be placed if a kernel
computes it, only operators read it, and its contiguous pieces are long enough; each value has a single place. An
operator is left to ``FuseOps`` if its arguments would be computed in its own loops, where they need no memory at all:
elementwise formulas without another user. Padding that an operator adds to its argument in each call
(``padded_outside``) becomes an operator of its own if the argument can be placed in it. Models with branches or loops
are not changed: their linearization decides where each value is computed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from tilewright.graphir.dims import TYPICAL, Dim, estimate, shape_equal
from tilewright.graphir.expr import Call, Expr, Function, Var
from tilewright.graphir.keys import IN_PLACE, KIND, PRIMITIVE
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.parts import excess
from tilewright.graphir.printer import summary
from tilewright.graphir.structural import structural_equal
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import rewrite
from tilewright.passes.base import FunctionPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.dominators import PostDominators
from tilewright.passes.graph.walk import (
    children_outside_groups,
    has_control_flow,
    is_primitive,
    order_outside_groups,
)
from tilewright.passes.properties import FOLDED, TYPED, UNGROUPED
from tilewright.passes.registry import register_pass

#: The most operators that are searched between the ends of a branching formula.
_LONGEST = 32


@register_config_option("graphir.PlaceParts")
@dataclasses.dataclass(frozen=True)
class PlacePartsConfig:
    """Options of ``PlaceParts``."""

    least_bytes: int = dataclasses.field(
        default=16384, metadata={"doc": "the fewest bytes of a result whose arguments are computed in place"}
    )
    least_piece: int = dataclasses.field(
        default=256, metadata={"doc": "the fewest bytes in each contiguous piece of a part in several pieces"}
    )
    most_border: float = dataclasses.field(
        default=0.1, metadata={"doc": "the most elements of padding, relative to the elements inside it"}
    )
    unknown: int = dataclasses.field(default=TYPICAL, metadata={"doc": "assumed extent of a symbolic dimension"})


@register_pass
@function_pass(opt_level=2, name="PlaceParts", requires={TYPED, UNGROUPED, FOLDED})
class PlaceParts(FunctionPass):
    """Mark values that can be computed in the memory of the value of which they become a part."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with groups that state which of their arguments are computed in place."""
        if is_primitive(func):
            return func
        order = order_outside_groups(func)
        if has_control_flow(order):
            return func
        config: PlacePartsConfig = ctx.get_config("graphir.PlaceParts")
        placement = _Placement(order, func.body, config, ctx)
        placement.run()
        return func.with_body(placement.rewrite(func.body)) if placement.found else func


def _with_epilogues(order: Sequence[Expr], tree: PostDominators) -> set[Expr]:
    """Find the results of contractions, reductions and opaque operators, and the elementwise operators on these results
    alone: ``FuseOps`` makes one kernel of each."""
    found: set[Expr] = set()
    for place, node in enumerate(order):
        if _kind(node) not in ("contraction", "reduction", "opaque"):
            continue
        last: int | None = place
        while last is not None and order[last] not in found:
            found.add(order[last])
            end = tree.immediate(last)
            path = None if end is None else tree.between(last, end, _LONGEST)
            members = [] if end is None or path is None else [order[member] for member in (*path, end)]
            fits = [_kind(member) in ("elementwise", "broadcast") for member in members]
            same = fits and all(fits) and all(shape_equal(member.shape, node.shape) for member in members)
            last = end if same else None
    return found


def _kind(node: Expr) -> str:
    """Return the fusion kind of an operator call with one result; an empty string for another expression."""
    if type(node) is Call and isinstance(node.op, Operator) and isinstance(node.type, TensorType):
        return node.op.kind
    return ""


class _Placement:
    """Decide which values lie in the memory of which larger ones."""

    def __init__(self, order: Sequence[Expr], root: Expr, config: PlacePartsConfig, ctx: PassContext) -> None:
        self.order = order
        self.root = root
        self.config = config
        self.ctx = ctx
        #: Values that have a place in another one.
        self.placed: set[Expr] = set()
        #: For a call that joins its arguments: the arguments that are placed.
        self.wholes: dict[Expr, tuple[int, ...]] = {}
        #: For a call that pads its first argument: the padding, and the call on its result.
        self.borders: dict[Expr, tuple[Call, Call]] = {}
        #: For a value inside of padding: the padding.
        self.around: dict[Expr, Call] = {}

    # Most graphs join and pad nothing large.

    @functools.cached_property
    def tree(self) -> PostDominators:
        """The post-dominators of the expressions."""
        return PostDominators(self.order, children_outside_groups)

    @functools.cached_property
    def computed(self) -> set[Expr]:
        """The values that kernels of operators other than elementwise ones compute."""
        return _with_epilogues(self.order, self.tree)

    @functools.cached_property
    def users(self) -> dict[Expr, list[Expr]]:
        """The expressions that use each of those that have any."""
        found: dict[Expr, list[Expr]] = {}
        for node in self.order:
            for child in dict.fromkeys(children_outside_groups(node)):
                found.setdefault(child, []).append(node)
        return found

    @property
    def found(self) -> bool:
        """Whether anything is to be rewritten."""
        return bool(self.wholes or self.borders)

    def run(self) -> None:
        """Place the arguments of concatenations and the like, then padded values, among which may be concatenations."""
        calls = [node for node in self.order if type(node) is Call and isinstance(node.op, Operator)]
        for call in calls:
            self.join(call)
        for call in calls:
            self.border(call)

    def join(self, call: Call) -> None:
        """Place the arguments that ``call`` joins, if it joins any and placing them saves copies."""
        assert isinstance(call.op, Operator)
        if type(call.op).places is Operator.places:
            return
        if not isinstance(call.type, TensorType) or not all(isinstance(arg.type, TensorType) for arg in call.args):
            return
        places = call.op.places([arg.tensor_type for arg in call.args], call.attrs)
        size = self.bytes(call.tensor_type)
        if places is None or size < self.config.least_bytes:
            return
        reasons = [self.obstacle(arg, place, call) for arg, place in zip(call.args, places, strict=True)]
        placed = [number for number, reason in enumerate(reasons) if reason is None]
        amount = sum(self.bytes(call.args[number].tensor_type) for number in placed)
        written = sum(
            self.bytes(call.args[number].tensor_type) for number in placed if self.is_written(call.args[number])
        )
        if not placed or 4 * amount < 3 * size or 2 * written < size:
            why = next(
                (reason for reason in reasons if reason is not None),
                "most are elementwise and can be fused with it instead",
            )
            self.ctx.remark(f"arguments of {call.op.name} not computed in place: {why}", "missed", summary(call))
            return
        self.wholes[call] = tuple(placed)
        self.placed.update(call.args[number] for number in placed)
        count = f"{len(placed)} of {len(call.args)} arguments"
        self.ctx.remark(f"{call.op.name}: {count} computed in place", "applied", summary(call))

    def border(self, call: Call) -> None:
        """Split off the padding that ``call`` adds to its argument, if the argument can be placed in it."""
        assert isinstance(call.op, Operator)
        if not call.args or not isinstance(call.args[0].type, TensorType):
            return
        made = call.op.padded_outside(call.args, call.attrs)
        if not isinstance(made, Call) or made.type != call.type:
            return
        around = made.args[0]
        assert isinstance(around, Call) and isinstance(around.op, Operator)
        inner = call.args[0]
        other = self.around.get(inner)
        if other is not None and structural_equal(other, around):  # it has equal padding already
            self.borders[call] = (other, made)
            return
        places = around.op.places([inner.tensor_type], around.attrs)
        if places is None or self.bytes(around.tensor_type) < self.config.least_bytes:
            return
        reason = self.obstacle(inner, places[0], around)
        count = self.number(inner.shape)
        border = self.number(around.shape) - count
        if reason is None and border > self.config.most_border * count:
            reason = (
                f"its padding of {border} elements around {count} is more than most_border = {self.config.most_border}"
            )
        if reason is not None:
            self.ctx.remark(
                f"{call.op.name}: its argument is not computed in place, but copied: {reason}", "missed", summary(call)
            )
            return
        self.placed.add(inner)
        self.around[inner] = around
        self.borders[call] = (around, made)
        self.ctx.remark(
            f"{call.op.name}: its argument is computed in place, inside the padding", "applied", summary(call)
        )

    def obstacle(self, part: Expr, place: Sequence[Dim], whole: Call) -> str | None:
        """Return the reason why ``part`` cannot be computed in its place in ``whole``; None if it can."""
        if type(part) is not Call or not isinstance(part.op, Operator) or not part.op.pure:
            return "it is not the result of a pure operator"
        if part is self.root:
            return "it is a result of the function itself"
        if part in self.placed or sum(arg is part for arg in whole.args) > 1:
            return "it would have to lie in two places in memory"
        if any(type(user) is not Call or not isinstance(user.op, Operator) for user in self.users.get(part, ())):
            return "a tuple, a function call or control flow uses it as well"
        if not all(isinstance(begin, int) for begin in place):
            return "its offset depends on symbolic dimensions"
        more = excess(part.shape, whole.shape)
        if not all(isinstance(amount, int) for amount in more):
            return "its row stride depends on symbolic dimensions"
        last = max((axis for axis, amount in enumerate(more) if amount), default=None)
        if last is not None:
            piece = self.number(part.shape[last:]) * part.dtype.bytes
            if piece < self.config.least_piece:
                return (
                    f"its contiguous pieces of {piece} bytes are smaller than least_piece = {self.config.least_piece}"
                )
        return None

    def is_written(self, part: Expr) -> bool:
        """Return whether a value is stored in memory in any case: it has several users, its own parts are placed in it,
        or it is not an elementwise formula."""
        return part in self.wholes or part in self.computed or len(self.users.get(part, ())) > 1

    def bytes(self, found: TensorType) -> int:
        return self.number(found.shape) * found.dtype.bytes

    def number(self, extents: Sequence[Dim]) -> int:
        """Return the product of extents, with the configured number for each symbolic dimension."""
        return math.prod(estimate(extent, self.config.unknown) for extent in extents)

    def rewrite(self, body: Expr) -> Expr:
        """Return ``body`` with the groups."""
        made: dict[Call, Call] = {}

        def change(old: Expr, new: Expr) -> Expr:
            if old in self.wholes:
                assert isinstance(new, Call)
                return _group(new, self.wholes[old])
            if old in self.borders:
                assert isinstance(new, Call) and isinstance(old, Call)
                around, bare = self.borders[old]
                if around not in made:
                    padded = Call(around.op, (new.args[0],), around.attrs, around.type, old.span)
                    made[around] = _group(padded, (0,))
                return Call(bare.op, (made[around], *new.args[1:]), bare.attrs, bare.type, old.span)
            return new

        return rewrite(body, change)


def _group(call: Call, placed: tuple[int, ...]) -> Call:
    """Wrap ``call`` in a group of its own that states which of its arguments are computed in place."""
    params = [Var(f"p{number}", arg.type) for number, arg in enumerate(call.args)]
    attrs = {PRIMITIVE: True, KIND: "opaque", IN_PLACE: placed}
    body = Call(call.op, params, call.attrs, call.type, call.span)
    return Call(Function(params, body, attrs=attrs), call.args, None, call.type, call.span)
