"""``AlterOpLayout``: lay channels out in blocks as wide as a vector register, in convolutions and between them.

Before::

    %0 = nn.conv2d(%x, const#0)                     # 32 channels, vectors of 16
    %1 = nn.relu(%0)
    %2 = nn.conv2d(%1, const#1)

After::

    %0 = layout_transform(%x, src_layout="NCHW", dst_layout="NCHW16c")
    %1 = layout_transform(const#0, src_layout="OIHW", dst_layout="OIHW16i16o")      # FoldConstant computes this
    %2 = nn.conv2d(%0, %1, data_layout="NCHW16c", kernel_layout="OIHW16i16o")
    %3 = nn.relu(%2)
    ...
    %6 = layout_transform(%5, src_layout="NCHW16c", dst_layout="NCHW")

Some operators prefer certain layouts (``Operator.prefer_layout``); those without a preference take over the layouts of
their arguments (``Operator.in_layout``), so that nothing is transformed between convolutions. Where an operator needs
the plain layout, the value is transformed back, once. A weight that is not constant keeps its layout, because
transforming it in every call would cost more than it gains, unless the call is in a loop in which the weight is
invariant (see ``HoistLoopInvariant``).
"""

from __future__ import annotations

from tilewright.graphir.expr import Call, Constant, Expr, Function
from tilewright.graphir.layout_rewrite import transform
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.printer import summary
from tilewright.graphir.traits import LayoutChoice
from tilewright.graphir.types import TensorType
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.scopes import Unchanging
from tilewright.passes.graph.walk import children_outside_groups, is_primitive, order_outside_groups, place
from tilewright.passes.properties import BLOCKED_LAYOUTS, FOLDED, PLAIN_LAYOUTS, TYPED, UNGROUPED
from tilewright.passes.registry import register_pass
from tilewright.tensorir.target import Target


@register_pass
@function_pass(
    opt_level=2,
    name="AlterOpLayout",
    requires={TYPED, UNGROUPED, FOLDED, PLAIN_LAYOUTS},
    provides={BLOCKED_LAYOUTS},
    invalidates={PLAIN_LAYOUTS, FOLDED},
)
class AlterOpLayout(FunctionPass):
    """Give operators the layouts that they prefer, with blocks as wide as the current target's vectors."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with blocked layouts where operators prefer them."""
        return func if is_primitive(func) else func.with_body(_Layouts(ctx).run(func))


class _Layouts:
    """Rewrite a graph in which a value may exist in its plain layout, in a blocked one, or in both."""

    def __init__(self, ctx: PassContext) -> None:
        self.ctx = ctx
        self.target = Target.current()
        self.plain: dict[Expr, Expr] = {}
        #: ``(plain layout, blocked layout, value)`` of an expression of the old graph.
        self.blocked: dict[Expr, tuple[str, str, Expr]] = {}

    def run(self, function: Function) -> Expr:
        body, order = function.body, order_outside_groups(function)
        self.unchanging = Unchanging(order, body)
        for node in order:
            if type(node) is Call and isinstance(node.op, Operator) and isinstance(node.type, TensorType):
                self.call(node, node.op)
            else:
                self.keep(node)
        return self.in_plain(body)

    def in_plain(self, node: Expr) -> Expr:
        """The new value of ``node`` in its plain layout."""
        found = self.plain.get(node)
        if found is None:
            source, layout, value = self.blocked[node]
            found = self.plain[node] = transform(value, layout, source, node.tensor_type.shape)
        return found

    def in_layout(self, node: Expr, source: str, layout: str) -> Expr:
        """The new value of ``node``, whose plain layout is ``source``, in ``layout``."""
        known = self.blocked.get(node)
        if source == layout:
            return self.in_plain(node)
        if known is not None and known[:2] == (source, layout):
            return known[2]
        made = transform(self.in_plain(node), source, layout)
        if known is None:
            self.blocked[node] = (source, layout, made)  # shared by other users
        return made

    def keep(self, node: Expr) -> None:
        children = children_outside_groups(node)
        new = tuple([self.in_plain(child) for child in children]) if children else children
        self.plain[node] = node if new == children else node.with_children(new)  # nodes are equal to themselves alone

    def call(self, node: Call, op: Operator) -> None:
        tensor = next((arg for arg in node.args if isinstance(arg.type, TensorType)), None)
        choice: LayoutChoice | str = ""
        if tensor is not None:
            choice = op.prefer_layout(node.args, node.attrs, self.target.lanes(tensor.dtype))
            if isinstance(choice, LayoutChoice):
                choice = self.refused(node, op, choice) or choice
        if isinstance(choice, LayoutChoice):
            *sources, result = zip(choice.plain, choice.blocked, strict=True)
            args = [self.in_layout(arg, *names) for arg, names in zip(node.args, sources, strict=True)]
            altered = op if choice.op is None else get_operator(choice.op)
            self.settle(node, Call(altered, args, choice.attrs, None, node.span), *result)
            self.ctx.remark(f"{altered.name} works in {', '.join(choice.blocked)}", "applied", summary(node))
            return
        if choice:
            self.ctx.remark(f"{op.name} keeps its layout: {choice}", "missed", summary(node))
        self.follow(node, op)

    def refused(self, node: Call, op: Operator, choice: LayoutChoice) -> str:
        """Return the reason against a choice (an argument would be transformed in every call), or an empty string."""
        for position in choice.once:
            arg = node.args[position]
            if not isinstance(arg, Constant) and not self.unchanging.around(node, arg):
                return f"its {op.arguments[position]} is not constant"
        return ""

    def settle(self, node: Call, value: Expr, plain: str, layout: str) -> None:
        if plain == layout:
            self.plain[node] = value
        else:
            self.blocked[node] = (plain, layout, value)

    def follow(self, node: Call, op: Operator) -> None:
        """Take over the layout of the arguments if the operator supports it and an operator computed them."""
        # Where the plain layout exists as well (a graph's input), nothing is gained.
        blocked = [arg for arg in node.args if arg in self.blocked and arg not in self.plain]
        layouts = {self.blocked[arg][:2] for arg in blocked} if blocked else ()
        if len(layouts) == 1:
            ((plain, layout),) = layouts
            known = [self.blocked.get(arg, ("", "", None)) for arg in node.args]
            at_hand = [value if names == [plain, layout] else None for *names, value in known]
            pairs = zip(node.args, at_hand, strict=True)
            args = [self.in_plain(arg) if value is None else arg for arg, value in pairs]
            result = op.in_layout(args, at_hand, node.attrs, plain, layout)
            if result is not None:
                if node.span is not None:
                    place(result, node.span, {*args, *(value for value in at_hand if value is not None)})
                self.blocked[node] = (plain, layout, result)
                return
        self.keep(node)
