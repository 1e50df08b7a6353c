"""``HoistLoopInvariant``: hoist expressions that are invariant in a loop out of it.

Before::

    fn (%i, %state) { add(nn.dense(%x, %w), %state) }

After::

    let %invariant0 = nn.dense(%x, %w)
    loop(... fn (%i, %state) { add(%invariant0, %state) })

A graph without lets does not determine where an expression is computed: one that only the body of a loop uses belongs
to the body, and would be computed in each iteration. The let is placed directly around the loop, so that the value is
not kept in memory for longer. Expressions that only a branch of an ``If`` uses stay in the branch. Before all that,
lets are replaced by shared expressions.
"""

from __future__ import annotations

from tilewright.graphir.expr import Expr, Function, Let, Loop, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.printer import summary
from tilewright.graphir.visitor import post_order
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.scopes import Scope, find_scopes_outside_loops, loop_functions, parts
from tilewright.passes.graph.walk import always, children_outside_groups, identity, is_atom, is_primitive, rewrite_graph
from tilewright.passes.registry import register_pass


# At every level: a model that computes something before a loop should not compute it a hundred times.
@register_pass
@function_pass(opt_level=0, name="HoistLoopInvariant")
class HoistLoopInvariant(FunctionPass):
    """Bind loop-invariant expressions to variables around the loop."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` without loop-invariant expressions in its loops."""
        if is_primitive(func):
            return func
        if Loop not in map(type, post_order(func)):
            return func
        body = rewrite_graph(func.body, identity, always)
        return func.with_body(_hoist(body, ctx))


def _hoist(body: Expr, ctx: PassContext) -> Expr:
    order = post_order(body, children_of=children_outside_groups)
    scopes, opened = find_scopes_outside_loops(order, body, Scope())
    loops = loop_functions(order)
    variables: dict[tuple[Expr, Scope], Var] = {}
    #: For each body and condition of a loop, the expressions hoisted out of it, with their variables.
    taken: dict[Expr | None, dict[Expr, Var]] = {}
    done: dict[Expr, Expr] = {}
    for node in order:
        made: list[Expr] = []
        for part, used in parts(node, scopes[node], opened.get(node, ())):
            loop = None if is_atom(part) or isinstance(part, Function) else _outermost(used, scopes[part], loops)
            if loop is None:
                made.append(done[part])
                continue
            if (part, loop) not in variables:
                variables[part, loop] = Var(f"invariant{len(variables)}", part.type)
                taken.setdefault(loop.owner, {})[part] = variables[part, loop]
                ctx.remark("hoisted out of the loop", "applied", summary(part))
            made.append(variables[part, loop])
        changed = any(new is not old for new, old in zip(made, children_outside_groups(node), strict=True))
        new = node.with_children(made) if changed else node
        if isinstance(node, Loop):
            for function in (node.condition, node.body):
                for value, var in reversed(taken.get(function, {}).items()):
                    new = Let(var, done[value], new)
        done[node] = new
    return done[body]


def _outermost(used: Scope, place: Scope, loops: set[Expr | None]) -> Scope | None:
    """Return the outermost scope of one of ``loops`` between a use and the scope ``place``; None if there is none."""
    found = None
    scope: Scope | None = used
    while scope is not None and scope is not place:
        if scope.owner in loops:
            found = scope
        scope = scope.outer
    return found
