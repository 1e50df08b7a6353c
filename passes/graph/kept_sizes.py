"""Keep sizes that a model computes while passes remove the values that bind them.

``bind_size`` states the number of a symbolic dimension at one value. Other values of that dimension need it, too::

    let %unused = bind_size(%0, %k, dim=n)
    broadcast_to(0.0, shape=(n,))

Without the let nothing says what ``n`` is, so that a pass that removes it binds ``n`` to ``%k`` in what is left.
"""

from __future__ import annotations

from tilewright.graphir.expr import Expr, Let, Var
from tilewright.graphir.runtime_sizes import bound_at, with_bound_sizes
from tilewright.graphir.types import TensorType, TupleType
from tilewright.graphir.visitor import free_vars, post_order
from tilewright.passes.graph.walk import rewrite_graph, with_effects


def with_sizes_of(removed: Expr, kept: Expr) -> Expr:
    """Return ``kept`` with the sizes bound that it mentions and that only ``removed`` binds."""
    found = [bound_at(node) for node in post_order(removed)]
    sizes = dict(binding for binding in found if binding is not None)
    if not sizes or not isinstance(kept.type, (TensorType, TupleType)):
        return kept
    # Numbers that depend on what ``removed`` itself names, such as a loop's counter, mean nothing outside of it.
    (bound,) = with_bound_sizes([kept], sizes, list(free_vars(removed)))
    return bound


def keep_sizes_of_dead_lets(body: Expr) -> Expr:
    """Bind the sizes that lets bind on which no result depends where the rest of ``body`` mentions them."""
    order = post_order(body)
    if not any(type(node) is Let for node in order) or not any(bound_at(node) is not None for node in order):
        return body
    live = live_variables(body, order)

    def keep(node: Expr) -> Expr:
        if not isinstance(node, Let) or node.var in live:
            return node
        body = with_sizes_of(node.value, node.body)
        return node if body is node.body else Let(node.var, node.value, body, node.span)

    return rewrite_graph(body, keep)


def live_variables(body: Expr, order: list[Expr]) -> set[Var]:
    """Return the variables that a result or a value with a side effect depends on.

    Args:
        order: the expressions in ``body``, operands first.
    """
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
