"""``DeadCodeElimination``: remove lets and tuple fields that no result depends on.

Before::

    let %unused = exp(%x)
    %0 = (%x, %y)
    %1 = %0.1

After: ``%y``. A graph holds no unused expressions, so that only two things can be dead: a ``Let`` whose variable no
live expression uses, and the other fields of a tuple of which one is taken.
"""

from __future__ import annotations

from tilewright.graphir.expr import Expr, Function, Let, Tuple, TupleGetItem
from tilewright.graphir.module import IRModule
from tilewright.graphir.runtime_sizes import bound_at
from tilewright.graphir.visitor import post_order
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.kept_sizes import live_variables, with_sizes_of
from tilewright.passes.graph.walk import rewrite_graph
from tilewright.passes.registry import register_pass


@register_pass
@function_pass(opt_level=1, name="DeadCodeElimination")
class DeadCodeElimination(FunctionPass):
    """Remove unused lets and unused tuple fields."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` without dead parts."""
        order = post_order(func)
        if not any(type(node) is Let or type(node) is TupleGetItem for node in order):
            return func
        binds = any(bound_at(node) is not None for node in order)

        def take_field(node: Expr) -> Expr:
            if type(node) is not TupleGetItem or type(node.value) is not Tuple:
                return node
            field = node.value.fields[node.index]
            return with_sizes_of(node.value, field) if binds else field

        body = rewrite_graph(func.body, take_field, lambda value: isinstance(value, Tuple))
        order = post_order(body)
        if not any(isinstance(node, Let) for node in order):
            return func.with_body(body)
        live = live_variables(body, order)

        def drop(node: Expr) -> Expr:
            if not isinstance(node, Let) or node.var in live:
                return node
            return with_sizes_of(node.value, node.body) if binds else node.body

        return func.with_body(rewrite_graph(body, drop))
