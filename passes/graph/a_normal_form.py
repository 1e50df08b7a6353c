"""``ToANormalForm``: every intermediate result gets a name, by a ``Let``::

    add(tanh(%x), tanh(%x))   ->   let %v0 = tanh(%x)
                                   let %v1 = tanh(%x)
                                   let %v2 = add(%v0, %v1)
                                   %v2

Variables, constants, global functions and fused groups that are called are not named. A result is bound in the
innermost function body or branch that holds all its uses, so that a branch still computes only what it needs.
``ToGraphNormalForm`` is the inverse: it replaces let variables by what they stand for.
"""

from __future__ import annotations

from tilewright.graphir.expr import Call, Expr, Function, If, Let, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.visitor import post_order
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import always, children_outside_groups, identity, is_atom, is_primitive, rewrite_graph
from tilewright.passes.registry import register_pass


@register_pass
@function_pass(opt_level=1, name="ToGraphNormalForm")
class ToGraphNormalForm(FunctionPass):
    """Removes all lets; what their variables were used for several times is shared."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """``func`` without ``Let``."""
        return func.with_body(rewrite_graph(func.body, identity, always))


@register_pass
@function_pass(opt_level=1, name="ToANormalForm")
class ToANormalForm(FunctionPass):
    """Binds every intermediate result to a variable."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """``func`` in A-normal form."""
        return func.with_body(_normalize(rewrite_graph(func.body, identity, always)))


class _Scope:
    """A function body or a branch: what is bound in it, in order."""

    __slots__ = ("bound", "depth", "outer")

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.bound: list[tuple[Var, Expr]] = []

    def close(self, result: Expr) -> Expr:
        for var, value in reversed(self.bound):
            result = Let(var, value, result)
        return result


def _common(a: _Scope | None, b: _Scope) -> _Scope:
    """The innermost scope that holds both; ``b`` if ``a`` is None."""
    while a is not None and a is not b:
        if a.depth >= b.depth:
            a = a.outer
        else:
            assert b.outer is not None
            b = b.outer
    return b


def _normalize(body: Expr) -> Expr:
    order = post_order(body, children_of=children_outside_groups)
    top = _Scope(None)
    scopes, opened = _find_scopes(order, body, top)
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
            branches = [inner[0].close(done[node.then_branch]), inner[1].close(done[node.else_branch])]
            value = node.with_children([done[node.condition], *branches])
        else:
            assert isinstance(node, Function)
            value = node.with_body(inner[0].close(done[node.body]))
        done[node] = var = Var(f"v{named}", value.type)
        named += 1
        scopes[node].bound.append((var, value))
    return top.close(done[body])


def _find_scopes(order: list[Expr], body: Expr, top: _Scope) -> tuple[dict[Expr, _Scope], dict[Expr, list[_Scope]]]:
    """For each expression the scope in which it is bound, and for functions and branches the scopes that they open."""
    scopes: dict[Expr, _Scope] = {body: top}
    opened: dict[Expr, list[_Scope]] = {}

    def use(node: Expr, scope: _Scope) -> None:
        scopes[node] = _common(scopes.get(node), scope)

    for node in reversed(order):  # users before what they are made of
        scope = scopes[node]
        if isinstance(node, If):
            inner = opened[node] = [_Scope(scope), _Scope(scope)]
            use(node.condition, scope)
            use(node.then_branch, inner[0])
            use(node.else_branch, inner[1])
        elif isinstance(node, Function) and not is_primitive(node):
            (inside,) = opened[node] = [_Scope(scope)]
            use(node.body, inside)
            for param in node.params:
                use(param, inside)
        else:
            for child in children_outside_groups(node):
                use(child, scope)
    return scopes, opened


def is_a_normal_form(body: Expr) -> bool:
    """Whether every part of a call, tuple, field or condition is an atom (or the function that is called)."""
    for node in post_order(body, children_of=children_outside_groups):
        parts = node.args if isinstance(node, Call) else () if isinstance(node, (Let, Function, If)) else node.children
        if not all(map(is_atom, parts)):
            return False
    return True
