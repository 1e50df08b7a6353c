"""``DeadCodeElimination``: remove lets and tuple fields that no result depends on.

Before::

    let %unused = exp(%x)
    %0 = (%x, %y)
    %1 = %0.1

After: ``%y``. A graph holds no unused expressions, so that only two things can be dead: a ``Let`` whose variable no
live expression uses, and the other fields of a tuple of which one is taken.
"""

from __future__ import annotations

from tilewright.graphir.expr import Expr, Function, Let, Tuple, TupleGetItem, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.visitor import post_order
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import rewrite_graph, with_effects
from tilewright.passes.registry import register_pass


@register_pass
@function_pass(opt_level=1, name="DeadCodeElimination")
class DeadCodeElimination(FunctionPass):
    """Remove unused lets and unused tuple fields."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` without dead parts."""
        if not any(type(node) is Let or type(node) is TupleGetItem for node in post_order(func)):
            return func
        body = rewrite_graph(func.body, _take_field, lambda value: isinstance(value, Tuple))
        order = post_order(body)
        if not any(isinstance(node, Let) for node in order):
            return func.with_body(body)
        live = _live_variables(body, order)

        def drop(node: Expr) -> Expr:
            return node.body if isinstance(node, Let) and node.var not in live else node

        return func.with_body(rewrite_graph(body, drop))


def _take_field(node: Expr) -> Expr:
    if type(node) is TupleGetItem and type(node.value) is Tuple:
        return node.value.fields[node.index]
    return node


def _live_variables(body: Expr, order: list[Expr]) -> set[Var]:
    """Return the variables that a result or a value with a side effect depends on."""
    lets = {node.var: node for node in order if isinstance(node, Let)}
    impure = with_effects(order)
    live: set[Var] = set()
    seen: set[Expr] = set()
    stack: list[Expr] = [body]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Let):
            stack.append(node.body)
            if node.value in impure:
                live.add(node.var)
                stack.append(node.value)
        elif isinstance(node, Var):
            live.add(node)
            if node in lets:
                stack.append(lets[node].value)
        else:
            stack.extend(node.children)
    return live
