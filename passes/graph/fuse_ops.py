"""``FuseOps``: group operators that become one loop nest, so that intermediate results never reach memory.

Before::

    %0 = nn.dense(%x, const#0)
    %1 = add(%0, const#1)
    %2 = nn.relu(%1)

After::

    %0 = fn (%p0, %p1, %p2) attrs {"Primitive": True, "kind": "contraction"} {
      %1 = nn.dense(%p0, %p1)
      ...
    }
    %3 = %0(%x, const#0, const#1)

A group has at most one anchor: a contraction or a reduction. In three rounds

1. each contraction takes its epilogue: the elementwise and broadcast operators after it, while the shape is the same;
2. each reduction does the same;
3. elementwise, broadcast and injective operators join their consumer: another such operator, a reduction (which reads
   them as its input), or an epilogue of the same shape.

``u`` joins ``d`` only if ``d`` is its immediate post-dominator (see ``dominators``) and all operators on the paths
between them join too, so that only the last result of a group is used outside. An expression that is invariant in a
loop joins no expression that varies, so that ``HoistLoopInvariant`` can hoist it out of the loop. Remarks say which
operators are not fused. Constants of one element, or that repeat one, stay inside a group, others are its arguments.
Before all that, lets are replaced by shared expressions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.graphir.dims import shape_equal
from tilewright.graphir.expr import Call, Expr, Function, Let, Var
from tilewright.graphir.keys import KIND, PRIMITIVE
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import FUSION_KINDS, Operator
from tilewright.graphir.origins import Origin, operator_origins
from tilewright.graphir.printer import summary
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order
from tilewright.passes.base import FunctionPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.dominators import PostDominators
from tilewright.passes.graph.scopes import Scope, find_scopes_outside_loops
from tilewright.passes.graph.walk import (
    always,
    children_outside_groups,
    identity,
    inner_constant,
    is_primitive,
    order_outside_groups,
    rewrite_graph,
)
from tilewright.passes.properties import FOLDED, GROUPS, TYPED, UNGROUPED
from tilewright.passes.registry import register_pass

_RANK = {kind: rank for rank, kind in enumerate(FUSION_KINDS)}
_BROADCAST, _INJECTIVE = _RANK["broadcast"], _RANK["injective"]
_REDUCTION, _CONTRACTION, _OPAQUE = _RANK["reduction"], _RANK["contraction"], _RANK["opaque"]


@register_config_option("graphir.FuseOps")
@dataclasses.dataclass(frozen=True)
class FuseOpsConfig:
    """Options of ``FuseOps``."""

    max_depth: int = dataclasses.field(default=256, metadata={"doc": "the greatest number of operators in a group"})


@register_pass
@function_pass(
    opt_level=1, name="FuseOps", requires={TYPED, UNGROUPED, FOLDED}, provides={GROUPS}, invalidates={UNGROUPED}
)
class FuseOps(FunctionPass):
    """Turn groups of two or more operators into primitive functions (attribute ``Primitive``)."""

    family = "fusion"

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with groups in place of operators."""
        if is_primitive(func):
            return func
        config: FuseOpsConfig = ctx.get_config("graphir.FuseOps")
        body = func.body
        order = order_outside_groups(func)
        if Let in map(type, order):
            body = rewrite_graph(body, identity, always)
            order = post_order(body, children_of=children_outside_groups)
        scopes, _ = find_scopes_outside_loops(order, body, Scope())
        fusion = _Fusion(order, scopes, config.max_depth, ctx)
        fusion.run()
        return func.with_body(fusion.rewrite(body))


class _Fusion:
    """Groups as a disjoint-set forest over the places in ``order``."""

    def __init__(self, order: list[Expr], scopes: Mapping[Expr, Scope], max_depth: int, ctx: PassContext) -> None:
        self.order = order
        self.tree = PostDominators(order, children_outside_groups)
        self.max_depth = max_depth
        self.ctx = ctx
        count = len(order)
        self.rank = [_rank(node) for node in order]
        self.operators = [node.op if type(node) is Call and isinstance(node.op, Operator) else None for node in order]
        self.shape = [node.type.shape if isinstance(node.type, TensorType) else None for node in order]
        #: The scope of a group; None for one without inputs, which costs nothing to compute again.
        self.scope = [scopes[node] if node.children else None for node in order]
        self.parent = list(range(count))
        self.size = [1] * count
        #: By a group's representative: the anchor's place, and whether it holds more than elementwise and broadcast
        #: operators of one shape.
        self.anchor: list[int | None] = [n if _REDUCTION <= self.rank[n] < _OPAQUE else None for n in range(count)]
        self.mixed = [self.rank[n] > _BROADCAST for n in range(count)]
        self.epilogue = [False] * count
        #: By a group's representative: whether it reorders elements, and whether it needs contiguous reads.
        self.reorders = [op is not None and op.reorders for op in self.operators]
        self.contiguous = [op is not None and op.contiguous_reads for op in self.operators]

    def find(self, place: int) -> int:
        """Return the representative of the group of ``place``."""
        parent = self.parent
        root = parent[place]
        while parent[root] != root:
            root = parent[root]
        while parent[place] != root:
            parent[place], place = root, parent[place]
        return root

    def run(self) -> None:
        """Run the three rounds."""
        for anchor_rank in (_CONTRACTION, _REDUCTION):
            for place, rank in enumerate(self.rank):
                if rank == anchor_rank:
                    self.take_epilogue(place)
        for place, rank in enumerate(self.rank):
            if rank <= _INJECTIVE and not self.epilogue[place]:
                self.join_consumer(place)

    def take_epilogue(self, anchor: int) -> None:
        """Join the operators after ``anchor``, step by step along the post-dominator tree."""
        last = anchor
        while True:
            consumer = self.tree.immediate(last)
            if consumer is None or self.rank[consumer] == _OPAQUE:
                self.escapes(last, consumer)
                return
            path = self.tree.between(last, consumer, self.max_depth)
            members = [last, *(path or ()), consumer]
            reason = (
                f"the group would hold more than max_depth = {self.max_depth} operators"
                if path is None
                else self.no_epilogue(anchor, members[1:])
            )
            if reason is None:
                reason = self.union(members)
            if reason is not None:
                self.apart(last, consumer, reason)
                return
            for member in members[1:]:
                self.epilogue[member] = True
            last = consumer

    def no_epilogue(self, anchor: int, members: list[int]) -> str | None:
        """Return the reason why ``members`` cannot be an epilogue of ``anchor``; None if they can."""
        for member in members:
            rank = self.rank[member]
            if rank > _BROADCAST:
                kind = FUSION_KINDS[rank]
                if rank in (_REDUCTION, _CONTRACTION):
                    return f"{self.name(member)} is a {kind} as well, and a group holds only one"
                return f"{self.name(member)} is {kind}; an epilogue must be elementwise"
            if not self.same_shape(anchor, member):
                return "their shapes differ"
        return None

    def join_consumer(self, place: int) -> None:
        consumer = self.tree.immediate(place)
        if consumer is None or self.rank[consumer] == _OPAQUE:
            self.escapes(place, consumer)
            return
        if self.find(place) == self.find(consumer):
            return
        path = self.tree.between(place, consumer, self.max_depth)
        if path is None:
            self.apart(place, consumer, f"the group would hold more than max_depth = {self.max_depth} operators")
            return
        reason = self.no_producer(place, path, consumer) or self.union([place, *path, consumer])
        if reason is not None:
            self.apart(place, consumer, reason)

    def no_producer(self, place: int, path: list[int], consumer: int) -> str | None:
        """Return the reason why ``path`` cannot be computed inside the loops of ``consumer``; None if it can."""
        for member in path:
            if self.rank[member] > _INJECTIVE:
                return f"{self.name(member)} on the path between them is {FUSION_KINDS[self.rank[member]]}"
        own = self.find(place)
        if self.anchor[own] is not None and not self.epilogue[place]:
            return "its group has a reduction or contraction, which only an elementwise epilogue can follow"
        if self.rank[consumer] == _CONTRACTION:
            return "a contraction reads each input element many times, and would compute it again each time"
        if self.epilogue[consumer]:
            for member in (place, *path):
                if self.mixed[self.find(member)] and not self.epilogue[member]:
                    return "an operand of an epilogue must be elementwise"
                if not self.same_shape(member, consumer):
                    return "their shapes differ"
            return None
        if self.rank[consumer] <= _BROADCAST:
            for member in (place, *path):
                # Reading a small tensor again is cheap, computing it again is not: only data movement may repeat.
                moves_data = self.rank[member] == _INJECTIVE and self.size[self.find(member)] == 1
                if not moves_data and not self.same_shape(member, consumer):
                    return "broadcasting would compute its elements several times"
        return None

    def union(self, members: list[int]) -> str | None:
        """Merge ``members`` into one group; return the reason if that is impossible, else None."""
        groups = list(dict.fromkeys([self.find(member) for member in members]))
        anchors = [self.anchor[group] for group in groups if self.anchor[group] is not None]
        if len(anchors) > 1:
            return "both contain a reduction or contraction, and a group holds only one"
        places = {self.scope[group] for group in groups} - {None}
        if len(places) > 1:
            return "they are in different control flow, where one would be computed again in each iteration"
        # The arguments of an anchor do not read each other, so that one says nothing about how the others are read.
        end = self.find(members[-1])
        apart = end if _REDUCTION <= self.rank[members[-1]] < _OPAQUE and len(groups) > 1 else None
        joined = [group for group in groups if group != apart]
        reorders, contiguous = False, False
        for group in joined:
            reorders = reorders or self.reorders[group]
            contiguous = contiguous or self.contiguous[group]
        if reorders and (contiguous or (apart is not None and self.contiguous[apart])):
            return "one reorders elements that the other reads contiguously: vector loads would become gathers"
        if apart is not None:
            reorders, contiguous = self.reorders[apart], self.contiguous[apart]
        size = sum([self.size[group] for group in groups])
        if size > self.max_depth:
            return f"the group would hold {size} operators, more than max_depth = {self.max_depth}"
        root = max(groups, key=self.size.__getitem__)
        mixed = any(map(self.mixed.__getitem__, groups))
        mixed = mixed or any(not self.same_shape(members[0], member) for member in members[1:])
        for group in groups:
            self.parent[group] = root
        self.size[root] = size
        self.anchor[root] = anchors[0] if anchors else None
        self.mixed[root] = mixed
        self.scope[root] = places.pop() if places else None
        self.reorders[root], self.contiguous[root] = reorders, contiguous
        return None

    def same_shape(self, a: int, b: int) -> bool:
        p, q = self.shape[a], self.shape[b]
        return p is q or (p is not None and q is not None and shape_equal(p, q))

    # Remarks.

    def name(self, place: int) -> str:
        node, operator = self.order[place], self.operators[place]
        if operator is not None:
            return str(Origin(operator.name, node.span))
        if isinstance(node, Call) and isinstance(node.op, Function) and is_primitive(node.op):
            return ", ".join(map(str, operator_origins(node.op.body)))
        return type(node).__name__

    def apart(self, place: int, consumer: int, reason: str) -> None:
        message = f"{self.name(place)} and {self.name(consumer)} not fused: {reason}"
        self.ctx.remark(message, "missed", summary(self.order[consumer]))

    def escapes(self, place: int, consumer: int | None) -> None:
        """Remark that the result of ``place`` escapes, if it has consumers that it might have joined; or, if it has a
        single consumer that is in no group, name that consumer."""
        users = self.tree.users[place]
        if consumer is not None and users == [consumer] and self.operators[consumer] is not None:
            self.apart(place, consumer, f"{self.name(consumer)} cannot be fused: {self.alone(consumer)}")
            return
        if any(self.rank[user] != _OPAQUE for user in users):
            what = "in several places" if consumer is None else f"by {self.name(consumer)}"
            message = (
                f"{self.name(place)} not fused with its consumers: its result must be stored, as it is used {what}"
            )
            self.ctx.remark(message, "missed", summary(self.order[place]))

    def alone(self, place: int) -> str:
        """Return the reason why an operator is in no group."""
        operator = self.operators[place]
        assert operator is not None
        if not operator.pure:
            return "it has an effect"
        return "it is opaque" if self.shape[place] is not None else "it has several results"

    # Building the groups.

    def rewrite(self, body: Expr) -> Expr:
        members: dict[int, list[int]] = {}
        for place, rank in enumerate(self.rank):
            if rank != _OPAQUE:
                members.setdefault(self.find(place), []).append(place)
        groups = [group for group in members.values() if len(group) > 1]
        if not groups:
            return body
        ends = {group[-1]: group for group in groups}
        inside = {place for group in groups for place in group[:-1]}
        done: dict[Expr, Expr] = {}
        for place, node in enumerate(self.order):
            if place in inside:
                continue
            if place in ends:
                done[node] = self.group([self.order[member] for member in ends[place]], done)
                continue
            done[node] = node
            children = children_outside_groups(node)
            for child in children:
                if done[child] is not child:
                    done[node] = node.with_children([done[part] for part in children])
                    break
        return done[body]

    def group(self, nodes: list[Expr], done: dict[Expr, Expr]) -> Call:
        """Build the call of the primitive function that computes ``nodes``, the last of which is its result."""
        params: dict[Expr, Var] = {}
        values: dict[Expr, Expr] = {}
        for node in nodes:
            assert isinstance(node, Call) and isinstance(node.op, Operator)
            args: list[Expr] = []
            for arg in node.args:
                if arg in values:
                    args.append(values[arg])
                elif (constant := inner_constant(arg, node.op)) is not None:
                    args.append(constant)
                else:
                    outer = done[arg]
                    if outer not in params:
                        name = arg.name if isinstance(arg, Var) else f"p{len(params)}"
                        params[outer] = Var(name, outer.type)
                    args.append(params[outer])
            values[node] = Call(node.op, args, node.attrs, node.type, node.span)
        last = nodes[-1]
        anchor = self.anchor[self.find(self.tree.index[last])]
        rank = max(self.rank[self.tree.index[node]] for node in nodes) if anchor is None else self.rank[anchor]
        attrs = {PRIMITIVE: True, KIND: FUSION_KINDS[rank]}
        self.ctx.remark(f"fused {len(nodes)} operators into one {attrs['kind']} group", "applied", summary(last))
        return Call(Function(params.values(), values[last], attrs=attrs), tuple(params), None, last.type, last.span)


def _rank(node: Expr) -> int:
    """Return the fusion kind as a number; ``opaque`` for all but operator calls with one result."""
    if type(node) is not Call or not isinstance(node.op, Operator) or not isinstance(node.type, TensorType):
        return _OPAQUE
    return _RANK[node.op.kind] if node.op.pure else _OPAQUE
