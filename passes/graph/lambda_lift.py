"""``LambdaLift``: turn nested functions into functions of the module.

Before::

    def @main(%x, %y) {
      %0 = fn (%p) { %1 = add(%p, %y); %1 }
      %2 = %0(%x)
      %2
    }

After::

    def @main(%x, %y) { %2 = @main_lifted(%y, %x); %2 }
    def @main_lifted(%y, %p) { %1 = add(%p, %y); %1 }

Captured variables come first among the new parameters. Fused groups stay, and so do functions that capture variables
and are used other than by calls (a ``Loop`` passes nothing but its state to its body): a remark says so.
"""

from __future__ import annotations

from tilewright.graphir.expr import Call, Expr, Function, GlobalVar, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.printer import summary
from tilewright.graphir.visitor import free_vars, post_order, substitute
from tilewright.passes.base import SKIP_OPTIMIZATION, ModulePass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import module_pass
from tilewright.passes.graph.walk import children_outside_groups, is_primitive
from tilewright.passes.registry import register_pass


@register_pass
@module_pass(opt_level=1, name="LambdaLift")
class LambdaLift(ModulePass):
    """Lift nested functions to the module."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return ``mod`` with nested functions lifted."""
        for gv, function in mod.functions.items():
            if isinstance(function, Function) and not function.attrs.get(SKIP_OPTIMIZATION):
                with ctx.in_function(gv.name):
                    mod = _Lifting(mod, gv, ctx).run(function)
        return mod


class _Lifting:
    def __init__(self, mod: IRModule, gv: GlobalVar, ctx: PassContext) -> None:
        self.mod = mod
        self.gv = gv
        self.ctx = ctx
        self.done: dict[Expr, Expr] = {}
        #: The variables that lifted functions capture, by the original function.
        self.captured: dict[Expr, list[Var]] = {}

    def run(self, function: Function) -> IRModule:
        order = post_order(function.body, children_of=children_outside_groups)
        passed_on = _passed_on(order, function.body)
        for node in order:
            children = children_outside_groups(node)
            if isinstance(node, Call) and node.op in self.captured:
                captured = self.captured[node.op]
                args = [*(self.done[var] for var in captured), *(self.done[arg] for arg in node.args)]
                self.done[node] = Call(self.done[node.op], args, None, node.type, node.span)
                continue
            new = node
            if any(self.done[child] is not child for child in children):
                new = node.with_children([self.done[child] for child in children])
            if isinstance(node, Function) and not is_primitive(node):
                assert isinstance(new, Function)
                new = self.lift(node, new, node in passed_on)
            self.done[node] = new
        body = self.done[function.body]
        return self.mod if body is function.body else self.mod.with_functions({self.gv: function.with_body(body)})

    def lift(self, original: Function, nested: Function, passed_on: bool) -> Expr:
        """Return the global function that replaces ``nested``, or ``nested`` if it must stay."""
        captured = free_vars(nested)
        if captured and passed_on:
            message = "not lifted: the function captures variables and is used as a value"
            self.ctx.remark(message, "missed", summary(nested))
            return nested
        fresh: dict[Expr, Expr] = {var: Var(var.name, var.type, var.span) for var in captured}
        body = substitute(nested.body, fresh) if fresh else nested.body
        params = [*fresh.values(), *nested.params]
        lifted = Function(params, body, nested.ret_type, nested.attrs, nested.span)  # type: ignore[arg-type]
        key = GlobalVar(self.mod.unique_name(f"{self.gv.name}_lifted"), lifted.type)
        self.mod = self.mod.with_functions({key: lifted})
        if captured:
            self.captured[original] = captured
        return key


def _passed_on(order: list[Expr], body: Expr) -> set[Expr]:
    """Return the functions that are used other than as the callee of a call."""
    found = {body}
    for node in order:
        parts = node.args if isinstance(node, Call) else node.children
        found.update(part for part in parts if isinstance(part, Function))
    return found
