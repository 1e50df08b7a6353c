"""The post-dominator tree equals the one by definition: the expressions on every path to the result."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import graphir as gi
from tilewright.graphir.visitor import post_order
from tilewright.passes.graph.dominators import PostDominators


def graph(reads: list[tuple[int, int]]) -> gi.Expr:
    """Sums of two earlier values each; the result adds up all that is not used."""
    nodes: list[gi.Expr] = [gi.var("x", shape=(2,))]
    used: set[int] = set()
    for a, b in reads:
        a, b = a % len(nodes), b % len(nodes)
        used |= {a, b}
        nodes.append(gi.add(nodes[a], nodes[b]))
    result = nodes[-1]
    for number, node in enumerate(nodes[:-1]):
        if number not in used:
            result = gi.add(result, node)
    return result


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=30))
def test_immediate_post_dominator_is_the_nearest_on_every_way(reads: list[tuple[int, int]]) -> None:
    order = post_order(graph(reads))
    tree = PostDominators(order)
    on_every_way: list[set[int]] = [set() for _ in order]
    for number in reversed(range(len(order))):
        users = tree.users[number]
        shared = set.intersection(*[on_every_way[user] | {user} for user in users]) if users else set()
        on_every_way[number] = shared
        assert tree.immediate(number) == (min(shared) if shared else None)
