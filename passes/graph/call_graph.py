"""Find the calls between the functions of a module."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.graphir.expr import Call, Expr, Function, GlobalVar
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.expr import Call as ScalarCall
from tilewright.tensorir.functor import walk


def callees(function: AnyFunction) -> dict[str, int]:
    """Count the references in ``function`` to other functions, by name."""
    found: dict[str, int] = {}
    if isinstance(function, Function):
        nodes: Iterable[Expr] = post_order(function)
        for node in nodes:
            callee = node.op if isinstance(node, Call) else node
            if isinstance(callee, GlobalVar):
                found[callee.name] = found.get(callee.name, 0) + 1
    else:
        for item in walk(function):
            if isinstance(item, ScalarCall) and item.name.startswith("@"):
                found[item.name[1:]] = found.get(item.name[1:], 0) + 1
    return found


def reachable(mod: IRModule, entries: Iterable[str]) -> set[str]:
    """Return the names of ``entries`` and of all functions that they call, directly or through others."""
    found: set[str] = set()
    stack = [name for name in entries if name in mod]
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack.extend(callee for callee in callees(mod[name]) if callee in mod)
    return found


def recursive_functions(mod: IRModule, calls: dict[str, dict[str, int]]) -> set[str]:
    """Find the functions that call themselves, directly or through others: the cycles of the call graph, by Tarjan's
    strongly connected components ("Depth-first search and linear graph algorithms", 1972), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    found: set[str] = {name for name, called in calls.items() if name in called}
    for start in calls:
        work = [(start, iter(calls[start]))] if start not in index else []
        if work:
            index[start] = low[start] = len(index)
            path.append(start)
            on_path.add(start)
        while work:
            name, rest = work[-1]
            for callee in rest:
                if callee not in calls:
                    continue
                if callee not in index:
                    index[callee] = low[callee] = len(index)
                    path.append(callee)
                    on_path.add(callee)
                    work.append((callee, iter(calls[callee])))
                    break
                if callee in on_path:
                    low[name] = min(low[name], index[callee])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    component = path[path.index(name) :]
                    del path[len(path) - len(component) :]
                    on_path.difference_update(component)
                    if len(component) > 1:
                        found.update(component)
    return found


def callees_first(calls: dict[str, dict[str, int]]) -> list[str]:
    """Sort the functions so that callees come before callers (in cycles, in any order)."""
    order: list[str] = []
    state: set[str] = set()
    for start in calls:
        stack = [(start, False)]
        while stack:
            name, finished = stack.pop()
            if finished:
                order.append(name)
            elif name not in state:
                state.add(name)
                stack.append((name, True))
                stack.extend((callee, False) for callee in calls[name] if callee in calls and callee not in state)
    return order
