"""``InlineFunctions``: replace calls of functions by their bodies.

Before::

    def @main(%x) { %0 = @square(%x); %0 }
    def @square(%p) attrs {"Inline": True} { %1 = multiply(%p, %p); %1 }

After: ``def @main(%x) { %0 = multiply(%x, %x); %0 }`` (and ``@square``, until ``RemoveUnusedFunctions``).

It inlines calls of functions with the attribute ``Inline``, of functions that the module calls only once, and of nested
functions that are called where they are defined. Recursive functions, fused groups and functions with
``SkipOptimization`` are not inlined.
"""

from __future__ import annotations

from tilewright.graphir.call_sizes import bound_sizes
from tilewright.graphir.expr import Call, Expr, Function, GlobalVar, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.specialize import with_sizes
from tilewright.graphir.visitor import free_vars, post_order
from tilewright.passes.base import SKIP_OPTIMIZATION, ModulePass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import module_pass
from tilewright.passes.graph.call_graph import callees, callees_first, recursive_functions
from tilewright.passes.graph.kept_sizes import with_sizes_of
from tilewright.passes.graph.walk import is_primitive, rewrite_body, rewrite_graph
from tilewright.passes.registry import register_pass

INLINE = "Inline"


@register_pass
@module_pass(opt_level=1, name="InlineFunctions")
class InlineFunctions(ModulePass):
    """Inline calls of functions."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return ``mod`` with calls inlined, callees before callers."""
        functions = {gv.name: function for gv, function in mod.functions.items() if isinstance(function, Function)}
        calls = {name: callees(function) for name, function in functions.items()}
        recursive = recursive_functions(mod, calls)
        uses: dict[str, int] = {}
        for called in calls.values():
            for name, count in called.items():
                uses[name] = uses.get(name, 0) + count
        inlined: dict[str, Function] = {}
        updates = {}
        for name in callees_first(calls):
            function = functions[name]
            if not function.attrs.get(SKIP_OPTIMIZATION):
                with ctx.in_function(name):
                    new = _inline(function, inlined, ctx)
                if new is not function:
                    updates[mod.get_global_var(name)] = function = new
            wanted = function.attrs.get(INLINE) or uses.get(name) == 1
            barred = name in recursive or function.attrs.get(SKIP_OPTIMIZATION) or is_primitive(function)
            if function.attrs.get(INLINE) and name in recursive:
                ctx.remark(f"@{name} not inlined: it calls itself", "missed", function=name)
            if wanted and not barred:
                inlined[name] = function
        return mod.with_functions(updates) if updates else mod


def _inline(function: Function, inlined: dict[str, Function], ctx: PassContext) -> Function:
    seen: set[Function] = set()

    def expand(node: Expr) -> Expr:
        if type(node) is not Call or isinstance(node.op, Operator):
            return node
        callee = node.op
        if isinstance(callee, GlobalVar) and callee.name in inlined:
            ctx.remark(f"@{callee.name} inlined", "applied")
            callee = inlined[callee.name]
            return instantiate(callee, node.args)
        if isinstance(callee, Function) and not is_primitive(callee) and not callee.attrs.get(SKIP_OPTIMIZATION):
            first = callee not in seen
            seen.add(callee)
            # The first call may take the body itself; later ones need variables of their own.
            return instantiate(callee, node.args, copy=not first)
        return node

    return rewrite_body(function, expand)


def instantiate(function: Function, args: tuple[Expr, ...], copy: bool = True) -> Expr:
    """Return the body of ``function`` with ``args`` in place of its parameters.

    Args:
        copy: whether to rename the variables that the body binds, which is needed if the body is also used elsewhere.

    Symbolic dimensions of the parameters become those of the arguments.
    """
    sizes = bound_sizes([param.type for param in function.params], [arg.type for arg in args])
    if sizes and function.type is not None:
        function = with_sizes(function, sizes)
    done: dict[Expr, Expr] = dict(zip(function.params, args, strict=True))
    if copy:
        for node in post_order(function.body, known=done):
            for var in node.bound:
                done[var] = Var(var.name, var.type, var.span)
    made = rewrite_graph(function.body, lambda node: node, done=done)
    used = set(free_vars(function.body))
    for param, arg in zip(function.params, args, strict=True):
        if param not in used:
            made = with_sizes_of(arg, made)
    return made
