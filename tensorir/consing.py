"""Hash-consing: one node for each structure, so that equality of expressions is identity.

A class of nodes whose ``hash_consed`` is true looks here for what it is asked to make (Filliâtre and Conchon, Type-Safe
Modular Hash-Consing, 2006). What was found out about a node (its leaves, its kinds, its forms) is so found out once for
all places where it stands, and to compare two expressions is to compare two addresses.

The table holds its nodes, since nodes of compiled classes take no weak references. Those that nobody else refers to are
dropped when the table has grown to twice what was alive at last.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Final, TypeVar

N = TypeVar("N")

#: Nodes by class and fields. A key refers to the operands, so that they are younger than nothing that uses them.
NODES: dict[tuple[Any, ...], Any] = {}

#: The table is not looked through below this size: some ten megabytes.
_LEAST: Final = 1 << 15

_sweeping = threading.Lock()
_limit = _LEAST


def unique(made: N, key: tuple[Any, ...]) -> N:
    """The node of ``key``: ``made``, unless there is one already."""
    found: N = NODES.setdefault(key, made)
    if found is made and len(NODES) > _limit:
        sweep()
    return found


def made_anew(node: Any) -> Any:
    """A node of the class and the fields of ``node``, checked by its constructor as if there were none yet.

    Raises:
        TypeError, ValueError: whatever the constructor raises.
    """
    kind, fields = type(node), [getattr(node, name) for name, _ in node.node_fields]
    made = kind(*fields)
    if made is not node:
        return made
    key = node.key() if hasattr(node, "key") else (kind, *fields)
    del NODES[key]
    try:
        return kind(*fields)
    finally:
        NODES[key] = node


def sweep() -> int:
    """Drop the nodes that only the table refers to; how many there were."""
    global _limit
    if not _sweeping.acquire(blocking=False):
        return 0
    try:
        before = len(NODES)
        keys = list(NODES)
        while keys:  # from the youngest on: who uses a node is younger than it
            _drop_if_unused(keys.pop())
        _limit = max(_LEAST, 2 * len(NODES))
        return before - len(NODES)
    finally:
        _sweeping.release()


def _drop_if_unused(key: tuple[Any, ...]) -> None:
    node = NODES.get(key)
    if node is None or sys.getrefcount(node) > _ALONE:  # None: another thread makes it anew
        return
    del NODES[key]
    if sys.getrefcount(node) >= _ALONE:  # another thread has found it meanwhile
        NODES.setdefault(key, node)


def _references_in_table() -> int:
    """How often a node is referred to, as :func:`_drop_if_unused` counts, that only the table holds."""
    key = (_references_in_table, "probe")
    NODES[key] = object()
    node = NODES[key]
    count = sys.getrefcount(node)
    del NODES[key]
    return count


_ALONE: Final = _references_in_table()
