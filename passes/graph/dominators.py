"""Post-dominators of the expressions of a graph.

An expression ``d`` post-dominates ``u`` if every path from ``u`` to the result passes through ``d``. The tree of
immediate post-dominators is built as in K. Cooper, T. Harvey and K. Kennedy, "A Simple, Fast Dominance Algorithm"
(2001); on an acyclic graph one sweep suffices. Their search for the common ancestor takes as many steps as paths are
long, which is quadratic where every operator reads one input. Here each node also stores a farther ancestor, by
E. Myers' skew-binary jump pointers ("An applicative random-access stack", Information Processing Letters 17, 1983), so
that a search takes logarithmic time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tilewright.graphir.expr import Expr
from tilewright.graphir.visitor import children


class PostDominators:
    """The post-dominator tree of the expressions in ``order`` (a post order, the result last).

    Args:
        children_of: gives the operands of an expression, as in the walk that gave ``order``.

    Attributes:
        index: the place of each expression in ``order``.
        users: for each place, the places of the expressions that use it, once each, ascending.
    """

    def __init__(self, order: Sequence[Expr], children_of: Callable[[Expr], Iterable[Expr]] = children) -> None:
        self.order = order
        self.index: dict[Expr, int] = {node: number for number, node in enumerate(order)}
        self.users: list[list[int]] = [[] for _ in order]
        for number, node in enumerate(order):
            parts = children_of(node)
            for child in dict.fromkeys(parts) if parts else ():
                self.users[self.index[child]].append(number)
        exit_ = len(order)  # stands behind the result
        self._parent: list[int] = [exit_] * (exit_ + 1)
        self._jump: list[int] = [exit_] * (exit_ + 1)
        self._depth: list[int] = [0] * (exit_ + 1)
        for number in reversed(range(len(order))):
            users = self.users[number]
            found = users[-1] if users else exit_
            if len(users) > 1:
                for user in users[:-1]:
                    found = self._common(found, user)
            self._insert(number, found)

    def _insert(self, number: int, parent: int) -> None:
        """Insert a node below its parent, which must be in the tree already."""
        jump, depth = self._jump, self._depth
        self._parent[number] = parent
        depth[number] = depth[parent] + 1
        ahead = jump[parent]
        equal = depth[parent] - depth[ahead] == depth[ahead] - depth[jump[ahead]]
        jump[number] = jump[ahead] if equal else parent

    def _common(self, a: int, b: int) -> int:
        """Return the nearest common ancestor in the tree."""
        parent, jump, depth = self._parent, self._jump, self._depth
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            a = jump[a] if depth[jump[a]] >= depth[b] else parent[a]
        while a != b:  # equally deep nodes jump equally far
            if jump[a] != jump[b]:
                a, b = jump[a], jump[b]
            else:
                a, b = parent[a], parent[b]
        return a

    def immediate(self, number: int) -> int | None:
        """Return the place of the immediate post-dominator; None for the result and for nodes that do not reach it."""
        found = self._parent[number]
        return found if found < len(self.order) else None

    def between(self, start: int, end: int, limit: int) -> list[int] | None:
        """Return the places on the paths from ``start`` to its post-dominator ``end``, without both ends; None if there
        are more than ``limit``."""
        if self.users[start] == [end]:  # most values have one user
            return []
        found: set[int] = set()
        stack = [start]
        while stack:
            for user in self.users[stack.pop()]:
                if user != end and user not in found:
                    if len(found) >= limit:
                        return None
                    found.add(user)
                    stack.append(user)
        return sorted(found)
