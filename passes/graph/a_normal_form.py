"""``ToANormalForm``: give every intermediate result a name, by a ``Let``::

    add(tanh(%x), tanh(%x))   ->   let %v0 = tanh(%x)
                                   let %v1 = tanh(%x)
                                   let %v2 = add(%v0, %v1)
                                   %v2

Variables, constants, called global functions and called fused groups are not named. A result is bound in the
innermost function body or branch that holds all its uses, so that a branch still computes only what it needs.
``ToGraphNormalForm`` is the inverse: it replaces let variables by their values.
"""

from __future__ import annotations

from tilewright.graphir.expr import Call, Expr, Function, If, Let, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.visitor import post_order
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.kept_sizes import keep_sizes_of_dead_lets
from tilewright.passes.graph.scopes import Scope, find_scopes
from tilewright.passes.graph.walk import (
    always,
    children_outside_groups,
    identity,
    is_atom,
    is_primitive,
    rewrite_body,
    rewrite_graph,
)
from tilewright.passes.registry import register_pass


@register_pass
@function_pass(opt_level=1, name="ToGraphNormalForm")
class ToGraphNormalForm(FunctionPass):
    """Replace let variables by their values; a value that is used several times is shared."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` without ``Let``."""
        return rewrite_body(func.with_body(keep_sizes_of_dead_lets(func.body)), identity, always)


@register_pass
@function_pass(opt_level=1, name="ToANormalForm")
class ToANormalForm(FunctionPass):
    """Bind every intermediate result to a variable."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` in A-normal form."""
        return func.with_body(_normalize(rewrite_graph(keep_sizes_of_dead_lets(func.body), identity, always)))


def _normalize(body: Expr) -> Expr:
    order = post_order(body, children_of=children_outside_groups)
    top = Scope()
    scopes, opened = find_scopes(order, body, top)
    done: dict[Expr, Expr] = {}
    named = 0
    for node in order:
        if is_atom(node) or is_primitive(node):
            done[node] = node
            continue
        inner = opened.get(node)
        if inner is None:
            value = node.with_children([done[child] for child in children_outside_groups(node)])
        elif isinstance(node, If):
            branches = [_close(inner[0], done[node.then_branch]), _close(inner[1], done[node.else_branch])]
            value = node.with_children([done[node.condition], *branches])
        else:
            assert isinstance(node, Function)
            value = node.with_body(_close(inner[0], done[node.body]))
        done[node] = var = Var(f"v{named}", value.type)
        named += 1
        scopes[node].bound.append((var, value))
    return _close(top, done[body])


def _close(scope: Scope, result: Expr) -> Expr:
    for var, value in reversed(scope.bound):
        result = Let(var, value, result)
    return result


def is_a_normal_form(body: Expr) -> bool:
    """Return whether every part of a call, tuple, field or condition is an atom (or the function that is called)."""
    for node in post_order(body, children_of=children_outside_groups):
        parts = node.args if isinstance(node, Call) else () if isinstance(node, (Let, Function, If)) else node.children
        if not all(map(is_atom, parts)):
            return False
    return True
