"""Count the nodes of both IRs while a model is built: made, visited, and alive after each stage.

*Made* are calls of the constructors of node classes, without those that find an existing node. *Visited* are the
entries into ``Visitor.visit`` and ``Mutator.mutate``, and the nodes that ``walk``, the other walks beside it and
``post_order`` yield. *Alive* are the distinct nodes that the module contains after the stage. The work of threads other
than the one that runs the passes, mostly code generation, counts as the last stage, ``code``.
"""

from __future__ import annotations

import collections
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

Counts = tuple[int, int]

_WALKS = ("walk", "walk_once", "walk_to", "walk_to_loads", "walk_statements")


class _Counter:
    """Hooks all node classes, visitors and walks of Tilewright; for a process that does nothing else."""

    def __init__(self) -> None:
        self.made: dict[int, int] = collections.defaultdict(int)
        self.visited: dict[int, int] = collections.defaultdict(int)
        from tilewright.graphir.base import Expr
        from tilewright.graphir.visitor import post_order
        from tilewright.tensorir import functor
        from tilewright.tensorir.functor import Mutator, Visitor
        from tilewright.tensorir.node import Node

        for base in (Node, Expr):
            for cls in _family(base):
                for name in ("__new__", "__init__"):
                    if name in vars(cls):  # the first that is defined makes the node
                        self._count_constructor(cls, name)
                        break
        for base, name in ((Visitor, "visit"), (Mutator, "mutate")):
            for cls in _family(base):
                if name in vars(cls):
                    self._count_visits(cls, name)
        for name in _WALKS:
            generator = getattr(functor, name)
            _replace(generator, self._counting_generator(generator))
        _replace(post_order, self._counting_list(post_order))

    def _count_constructor(self, cls: type, name: str) -> None:
        from tilewright.tensorir.consing import NODES

        original, made, ident = getattr(cls, name), self.made, threading.get_ident
        first, hash_consed = name == "__new__", getattr(cls, "hash_consed", False)

        @functools.wraps(original)
        def counted(node: Any, *args: Any, **kwargs: Any) -> Any:
            known = len(NODES)
            result = original(node, *args, **kwargs)
            if _maker(node if first else type(node)) is cls:  # not when a subclass calls it
                is_new = not hash_consed or len(NODES) != known or (hasattr(cls, "key") and result.key() is None)
                made[ident()] += is_new
            return result

        setattr(cls, name, staticmethod(counted) if first else counted)

    def _count_visits(self, cls: type, name: str) -> None:
        original, visited, ident = getattr(cls, name), self.visited, threading.get_ident
        outermost = _owner_of(name)

        @functools.wraps(original)
        def counted(visitor: Any, node: Any) -> Any:
            if outermost(type(visitor)) is cls:  # not when a subclass forwards the same node
                visited[ident()] += 1
            return original(visitor, node)

        setattr(cls, name, counted)

    def _counting_generator(self, original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        visited, ident = self.visited, threading.get_ident

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Iterator[Any]:
            for node in original(*args, **kwargs):
                visited[ident()] += 1
                yield node

        return counted

    def _counting_list(self, original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        visited, ident = self.visited, threading.get_ident

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> list[Any]:
            nodes = original(*args, **kwargs)
            visited[ident()] += len(nodes)
            return nodes

        return counted

    def here(self) -> Counts:
        """Return the counts of made and visited nodes in this thread so far."""
        return self.made[threading.get_ident()], self.visited[threading.get_ident()]

    def everywhere(self) -> Counts:
        """Return the counts of made and visited nodes in all threads so far."""
        return sum(self.made.values()), sum(self.visited.values())


def _family(base: type) -> list[type]:
    found, pending = [], [base]
    while pending:
        cls = pending.pop()
        found.append(cls)
        pending.extend(type.__subclasses__(cls))
    return list(dict.fromkeys(found))


def _owner_of(name: str) -> Callable[[type], type]:
    """Return a function that finds the class in whose body a class inherits ``name``."""

    @functools.cache
    def owner(cls: type) -> type:
        return next(each for each in cls.__mro__ if name in vars(each))

    return owner


@functools.cache
def _maker(cls: type) -> type:
    """Return the class whose constructor makes the objects of ``cls``."""
    for each in cls.__mro__[:-1]:  # without ``object``
        if "__new__" in vars(each) or "__init__" in vars(each):
            return each
    return object


def _replace(original: Any, by: Any) -> None:
    """Replace ``original`` by ``by`` in all modules of Tilewright."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tilewright"):
            for key, value in list(vars(module).items()):
                if value is original:
                    setattr(module, key, by)


def _parts(node: Any) -> Iterator[Any]:
    """Yield the nodes that a node of either IR contains."""
    if hasattr(node, "children"):  # of the graph IR
        yield from node.children
        return
    for name, role in node.node_fields:
        value = getattr(node, name)
        if role != "data" and value is not None:
            yield from value if isinstance(value, tuple) else (value,)


def alive(module: Any) -> int:
    """Count the distinct nodes in the functions of a module."""
    seen: dict[int, Any] = {}
    pending = list(module.functions.values())
    while pending:
        node = pending.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            pending.extend(_parts(node))
    return len(seen)


def by_stage(module: Any) -> list[tuple[str, int, int, int | None]]:
    """Return name, nodes made, visited and alive for each stage of a build. The model must be a single function:
    nothing in it computes sizes."""
    import tilewright as tw
    from tilewright import passes
    from tilewright.passes.pipelines import STAGES

    counter = _Counter()
    snapshots: list[tuple[str, Counts, int]] = []

    def snapshot(stage: str) -> Any:
        @passes.module_pass(opt_level=0, name=f"Count_{stage}")
        def count(mod: Any, ctx: Any) -> Any:
            snapshots.append((stage, counter.here(), alive(mod)))
            return mod

        return count

    with tw.PassContext(opt_level=3):
        before = counter.everywhere()
        tw.build(module, passes={stage: snapshot(stage) for stage in ("graph", *STAGES)})
    rows: list[tuple[str, int, int, int | None]] = []
    (_, last, given), *later = snapshots
    rows.append(("graph", 0, 0, given))
    for stage, counts, left in later:
        rows.append((stage, counts[0] - last[0], counts[1] - last[1], left))
        last = counts
    whole = [after - earlier for after, earlier in zip(counter.everywhere(), before, strict=True)]
    rows.append(("code", whole[0] - sum(row[1] for row in rows), whole[1] - sum(row[2] for row in rows), None))
    return rows
