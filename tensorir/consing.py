"""Hash-consing: one node for each structure, so that equality of expressions is identity.

A class of nodes whose ``hash_consed`` is true looks up each node here before it makes one (Filliâtre and Conchon,
Type-Safe Modular Hash-Consing, 2006). So properties of a node (its leaves, kinds, forms) are computed once for all
places where it occurs, and comparing two expressions is comparing two addresses.

The table holds strong references, since nodes of compiled classes take no weak ones. Nodes without another reference
are dropped when the table has grown to twice the number that was alive after the last sweep.
"""

from __future__ import annotations

import sys
from typing import Any, Final, TypeVar

from tilewright.tensorir import forking

N = TypeVar("N")

#: Nodes by class and fields. A key refers to the operands, so that operands are never younger than their users.
NODES: dict[tuple[Any, ...], Any] = {}

#: The table is not swept below this number of nodes: about twenty megabytes.
_LEAST: Final = 1 << 16

_set = object.__setattr__

_sweeping = forking.Lock()

#: The number of nodes above which the table is to be swept, as the only item.
LIMIT = [_LEAST]


def unique(made: N, key: tuple[Any, ...]) -> N:
    """Return the node of ``key``: ``made``, unless the table has one. Constructors do so without this call."""
    found: N = NODES.setdefault(key, made)
    if len(NODES) > LIMIT[0]:
        sweep()
    return found


def made_anew(node: Any) -> Any:
    """Make a node with the class and the fields of ``node``, as its constructor does, beside the table.

    The table stays as it is, because other threads look nodes up meanwhile (but see :func:`_made_without_table`).

    Raises:
        TypeError, ValueError: whatever the constructor raises.
    """
    kind = type(node)
    if hasattr(kind, "__mypyc_attrs__"):
        return _made_without_table(kind, [getattr(node, name) for name, _ in node.node_fields], node)
    made = object.__new__(kind)
    _set(made, "_leaves", None)
    for name, _ in node.node_fields:
        _set(made, name, getattr(node, name))
    if hasattr(kind, "__post_init__"):
        made.__post_init__()
    return made


def _made_without_table(kind: Any, fields: list[Any], node: Any) -> Any:
    """Make a node of a compiled class, which only its constructor can make: the table lacks ``node`` meanwhile, so that
    another thread may make an equal one."""
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
    """Drop the nodes that only the table refers to, and return their number."""
    if not _sweeping.acquire(blocking=False):
        return 0
    try:
        before = len(NODES)
        keys = list(NODES)
        while keys:  # the youngest first: users of a node are younger than it
            _drop_if_unused(keys.pop())
        LIMIT[0] = max(_LEAST, 2 * len(NODES))
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
    """Return the reference count that :func:`_drop_if_unused` sees for a node that only the table holds."""
    key = (_references_in_table, "probe")
    NODES[key] = object()
    node = NODES[key]
    count = sys.getrefcount(node)
    del NODES[key]
    return count


_ALONE: Final = _references_in_table()
