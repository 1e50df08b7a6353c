"""Find the scope in which each expression of a graph is computed: a function body or a branch of an ``If``.

A graph without lets leaves this implicit: an expression is computed in the innermost scope that holds all its uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.graphir.expr import Expr, Function, If, Loop, Var
from tilewright.passes.graph.walk import children_outside_groups, is_atom, is_primitive, with_effects


class Scope:
    """A function body, one branch of an ``If``, or the outermost scope around them all.

    Attributes:
        outer: the scope around this one.
        owner: the ``Function`` or ``If`` that opens it; None for the outermost.
        bound: variables with their values, in order, for passes that name the values computed here.
    """

    __slots__ = ("bound", "depth", "outer", "owner")

    def __init__(self, outer: Scope | None = None, owner: Expr | None = None) -> None:
        self.outer = outer
        self.owner = owner
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.bound: list[tuple[Var, Expr]] = []


#: Choose the scope that an expression moves to from the innermost one that holds all its uses.
Move = Callable[[Expr, Scope], Scope]


def _stay(_: Expr, scope: Scope) -> Scope:
    return scope


def _common(a: Scope | None, b: Scope) -> Scope:
    """Return the innermost scope that holds both; ``b`` if ``a`` is None."""
    while a is not None and a is not b:
        if a.depth >= b.depth:
            a = a.outer
        else:
            assert b.outer is not None
            b = b.outer
    return b


def parts(node: Expr, scope: Scope, opened: Sequence[Scope]) -> list[tuple[Expr, Scope]]:
    """Return the operands of ``node``, which is computed in ``scope``, each with the scope of that use.

    Args:
        opened: the scopes that ``node`` opens.
    """
    if isinstance(node, If):
        return [(node.condition, scope), (node.then_branch, opened[0]), (node.else_branch, opened[1])]
    return [(child, opened[0] if opened else scope) for child in children_outside_groups(node)]


def find_scopes(
    order: Sequence[Expr], body: Expr, top: Scope, move: Move = _stay
) -> tuple[dict[Expr, Scope], dict[Expr, list[Scope]]]:
    """Find the scope in which each expression is computed, and the scopes that functions and branches open.

    Args:
        order: the expressions below ``body`` in post order, fused groups not entered.
        top: the scope of ``body``.
        move: may move expressions outwards, together with the operands that only they use.
    """
    if move is _stay and not {If, Function} & {*map(type, order)}:
        return dict.fromkeys(order, top), {}
    scopes: dict[Expr, Scope] = {body: top}
    opened: dict[Expr, list[Scope]] = {}
    for node in reversed(order):  # users before their operands
        scope = scopes[node] = move(node, scopes[node])
        if isinstance(node, If):
            opened[node] = [Scope(scope, node), Scope(scope, node)]
        elif isinstance(node, Function) and not is_primitive(node):
            opened[node] = [Scope(scope, node)]
        for part, used in parts(node, scope, opened.get(node, ())):
            scopes[part] = _common(scopes.get(part), used)
    return scopes, opened


def find_scopes_outside_loops(
    order: Sequence[Expr], body: Expr, top: Scope
) -> tuple[dict[Expr, Scope], dict[Expr, list[Scope]]]:
    """Find scopes as :func:`find_scopes` does, but hoist loop-invariant expressions out of loops.

    Expressions that only a branch of an ``If`` in a loop uses stay in it, and so do expressions with effects.
    """
    loops = loop_functions(order)
    if not loops:
        return find_scopes(order, body, top)
    depends = _depends(order, loops)
    fixed = with_effects(order, functions=True)

    def move(node: Expr, scope: Scope) -> Scope:
        if is_atom(node) or isinstance(node, Function) or node in fixed:
            return scope
        while scope.outer is not None and scope.owner in loops and scope.owner not in depends[node]:
            scope = scope.outer
        return scope

    return find_scopes(order, body, top, move)


class Unchanging:
    """Tell which expressions are invariant in the loops of a graph.

    Args:
        order: the expressions below ``body`` in post order, fused groups not entered.
    """

    def __init__(self, order: Sequence[Expr], body: Expr) -> None:
        self.loops = loop_functions(order)
        self.scopes: dict[Expr, Scope] = {}
        if self.loops:
            self.depends = _depends(order, self.loops)
            self.effects = with_effects(order, functions=True)
            self.scopes, _ = find_scopes_outside_loops(order, body, Scope())

    def around(self, node: Expr, value: Expr) -> bool:
        """Return whether ``node`` is computed in each iteration of a loop, and ``value`` is the same in all of them."""
        scope = self.scopes.get(node)
        while scope is not None and scope.owner not in self.loops:
            scope = scope.outer
        return scope is not None and scope.owner not in self.depends[value] and value not in self.effects


def loop_functions(order: Sequence[Expr]) -> set[Expr | None]:
    """Return the bodies and conditions of loops, except those that several loops share."""
    if Loop not in map(type, order):
        return set()
    uses: dict[Expr, int] = {}
    for node in order:
        if not isinstance(node, (Function, Var)):
            for child in children_outside_groups(node):
                if isinstance(child, Function):
                    uses[child] = uses.get(child, 0) + 1
    found = [part for node in order if isinstance(node, Loop) for part in (node.body, node.condition)]
    return {part for part in found if isinstance(part, Function) and uses[part] == 1}


def _depends(order: Sequence[Expr], loops: set[Expr | None]) -> dict[Expr, frozenset[Expr]]:
    """Find for each expression the loop functions on whose parameters it depends, except those inside of it."""
    nothing: frozenset[Expr] = frozenset()
    binders = {param: frozenset((node,)) for node in order if isinstance(node, Function) for param in node.params}
    found: dict[Expr, frozenset[Expr]] = {}
    for node in order:
        result = binders.get(node, nothing) if isinstance(node, Var) else nothing
        for child in children_outside_groups(node):
            if not found[child] <= result:
                result |= found[child]
        found[node] = result - {node} if node in loops else result
    return found
