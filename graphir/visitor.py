"""Walk and rewrite graphs without recursion, in linear time, whatever the depth of the graph."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

from tilewright.graphir.expr import Call, Expr, Function, Let, Var
from tilewright.tensorir.errors import VerifyError


def children(node: Expr) -> Iterable[Expr]:
    """Return the parts of an expression: the default of walks that may leave some parts out."""
    return node.children


def post_order(
    *roots: Expr,
    enter_functions: bool = True,
    known: Container[Expr] = (),
    children_of: Callable[[Expr], Iterable[Expr]] = children,
) -> list[Expr]:
    """Return every expression below ``roots``, once each, after its parts.

    Args:
        enter_functions: whether to enter the bodies of nested functions.
        known: expressions to leave out, together with parts that only they use.
        children_of: returns the parts of an expression, for walks that leave some out (branches not yet taken).

    Raises:
        VerifyError: the graph has a cycle.
    """
    whole = enter_functions and not known and children_of is children
    if whole and len(roots) == 1 and type(roots[0]) is Function:
        return _order_of(roots[0])
    return _walk(roots, enter_functions, known, children_of)


def _order_of(function: Function) -> list[Expr]:
    """Return every expression below ``function``. Nodes do not change, and most passes leave most functions as they
    are, so it is walked once."""
    below = getattr(function, "_order", None)
    if below is None:
        below = tuple(_below(function))  # without the function, which would keep itself alive
        object.__setattr__(function, "_order", below)
    return [*below, function]


def _below(root: Expr) -> list[Expr]:
    """Return what :func:`_walk` finds below ``root``, none of which is left out: most walks are of this kind."""
    order: list[Expr] = []
    state: dict[Expr, bool] = {root: False}  # False: entered, True: finished
    node = root
    rest = iter(root.children)  # the parts of `node` that are not entered yet
    around: list[tuple[Expr, Iterator[Expr]]] = []  # the expressions that `node` is a part of, and their rest
    while True:
        for child in rest:
            finished = state.get(child)
            if finished:
                continue
            if finished is not None:
                raise _cycle(child)
            parts = child.children
            if parts:
                state[child] = False
                around.append((node, rest))
                node, rest = child, iter(parts)
                break
            state[child] = True
            order.append(child)
        else:
            if not around:
                return order
            state[node] = True
            order.append(node)
            node, rest = around.pop()


def _cycle(node: Expr) -> VerifyError:
    return VerifyError(f"the graph has a cycle through a {type(node).__name__}")


def _walk(
    roots: tuple[Expr, ...],
    enter_functions: bool,
    known: Container[Expr],
    children_of: Callable[[Expr], Iterable[Expr]],
) -> list[Expr]:
    order: list[Expr] = []
    state: dict[Expr, bool] = {}  # False: entered, True: finished
    top = set(roots)
    node: Expr | None = None
    rest: Iterator[Expr] = iter(roots)  # the parts of `node` that are not entered yet
    around: list[tuple[Expr | None, Iterator[Expr]]] = []  # the expressions that `node` is a part of, and their rest
    while True:
        for child in rest:
            finished = state.get(child)
            if finished is None:
                if child in known and node is not None:
                    continue
                if not enter_functions and isinstance(child, Function) and child not in top:
                    parts: tuple[Expr, ...] = ()
                else:
                    parts = child.children if children_of is children else tuple(children_of(child))
                if parts:
                    state[child] = False
                    around.append((node, rest))
                    node, rest = child, iter(parts)
                    break
                state[child] = True
                order.append(child)
            elif not finished:
                raise _cycle(child)
        else:
            if node is None:
                return order
            state[node] = True
            order.append(node)
            node, rest = around.pop()


def rewrite(
    root: Expr,
    transform: Callable[[Expr, Expr], Expr],
    memo: dict[Expr, Expr] | None = None,
    enter_functions: bool = True,
) -> Expr:
    """Rebuild ``root`` bottom-up.

    Args:
        transform: called once for each expression as ``transform(old, new)``, where ``new`` is ``old`` with its parts
            rewritten (``old`` itself if none changed); returns the replacement.
        memo: expressions whose replacement is already known, which are not entered; every result is added.
        enter_functions: whether to enter the bodies of nested functions.
    """
    done: dict[Expr, Expr] = {} if memo is None else memo
    for node in post_order(root, enter_functions=enter_functions, known=set(done)):
        if node in done:
            continue
        new = node
        parts = node.children
        if parts and (enter_functions or node is root or not isinstance(node, Function)):
            replaced = [done[child] for child in parts]
            for before, after in zip(parts, replaced, strict=True):
                if before is not after:
                    new = node.with_children(replaced)
                    break
        done[node] = transform(node, new)
    return done[root]


def substitute(root: Expr, replacements: dict[Expr, Expr]) -> Expr:
    """Replace expressions (variables, usually) below ``root`` by others."""
    return rewrite(root, lambda old, new: new, dict(replacements))


def free_vars(root: Expr) -> list[Var]:
    """Return the variables that ``root`` uses but does not bind, in order of first use."""
    bound: set[Var] = set()
    used: dict[Var, None] = {}
    for node in post_order(root):
        if isinstance(node, Var):
            used[node] = None
        else:
            bound.update(node.bound)
    return [var for var in used if var not in bound]


def is_recursive(let: Let) -> bool:
    """Return whether the value of a let uses the variable that it defines."""
    return let.var in post_order(let.value)


def recursion(let: Let) -> str:
    """Describe the error of a let that is recursive."""
    return (
        f"let %{let.var.name} is recursive: its value uses %{let.var.name}, which is defined only behind it; "
        f"use gi.Loop to repeat a computation"
    )


def users(root: Expr) -> dict[Expr, list[Expr]]:
    """Map each expression below ``root`` to its users, one entry for each use."""
    found: dict[Expr, list[Expr]] = {root: []}
    for node in post_order(root):
        found.setdefault(node, [])
        for child in node.children:
            found.setdefault(child, []).append(node)
    return found


def call_nodes(root: Expr) -> list[Call]:
    """Return all calls below ``root`` in order of evaluation."""
    return [node for node in post_order(root) if type(node) is Call]


def count_operators(root: Any) -> int:
    """Count the calls below ``root``."""
    return len(call_nodes(root))
