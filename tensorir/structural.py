"""Compare and hash programs up to the names of their variables and buffers.

Both are derived from the nodes' declared fields, take time linear in the size of the program, and do not recurse over
its depth. What a program defines (loop and let variables, allocated buffers, parameters) is compared by where it is
defined; what it only uses is compared by identity, or one to one with ``map_free_vars``. The names of functions,
blocks and intrinsics, and all plain data, are compared by value: a NaN equals a NaN, ``-0.0`` differs from ``0.0``,
``1`` from ``True`` and ``1.0``; mappings compare without regard to order. Attributes of functions that only say where
they come from (``stmt.ORIGIN_ATTRS``) do not count.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.tensorir import expr, stmt
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Buffer, Var
from tilewright.tensorir.keys import ORIGIN_ATTRS
from tilewright.tensorir.nesting import TRUST, check_extent
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer import to_text, underline
from tilewright.tensorir.stmt import PrimFunc

#: A difference: the two places, and what differs there.
_Difference = tuple[Any, Any, str]
_Pair = tuple[Any, Any, Node, Node]


def structural_equal(a: Node, b: Node, map_free_vars: bool = False) -> bool:
    """Return whether ``a`` and ``b`` are equal up to the names of variables and buffers.

    Args:
        map_free_vars: variables and buffers that the nodes use but do not define may differ as well, one to one, as
            long as types, shapes and scopes agree.

    Raises:
        BudgetError: ``a`` is a function that is too large.
    """
    if isinstance(a, PrimFunc) and a is not b and not TRUST.given:
        check_extent("comparing", [a])
    return _Comparison(map_free_vars).difference(a, b) is None


def assert_structural_equal(a: Node, b: Node, map_free_vars: bool = False) -> None:
    """Check that ``a`` and ``b`` are structurally equal.

    Raises:
        AssertionError: they are not; the message shows the first place that differs, in both, and a diff of the texts.
    """
    found = _Comparison(map_free_vars).difference(a, b)
    if found is None:
        return
    place_a, place_b, reason = found
    lines = difflib.unified_diff(to_text(a).split("\n"), to_text(b).split("\n"), "left", "right", lineterm="")
    raise AssertionError(
        f"not structurally equal: {reason}\nleft:\n{underline(a, place_a)}\nright:\n{underline(b, place_b)}\n"
        + "\n".join(lines)
    )


def structural_hash(node: Node, most_nodes: int | None = None) -> int:
    """A 64-bit hash that structurally equal nodes share (with or without ``map_free_vars``), the same in every
    process.

    Args:
        most_nodes: hash only this number of nodes, the first ones: enough to distinguish most programs, in a time that
            does not grow with them.

    Raises:
        BudgetError: a function, all of which is to be hashed, is too large.
    """
    if isinstance(node, PrimFunc) and most_nodes is None and not TRUST.given:
        check_extent("hashing", [node])
    hasher = _Hasher()
    hasher.run(node, most_nodes)
    return hasher.digest()


#: Types of most plain data: checking for them is cheaper than checking for a mapping.
_PLAIN = (str, int, float, type(None))


def _as_plain(value: Any) -> Any:
    """NumPy's scalars as Python's; strings without their subclass."""
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, str) else value


def _compared(node: Node, values: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the plain data of ``node`` that comparisons take into account."""
    if isinstance(node, PrimFunc) and not ORIGIN_ATTRS.isdisjoint(values):
        return {key: value for key, value in values.items() if key not in ORIGIN_ATTRS}
    return values


class _Deferred:
    """Annotations on the stack, compared after the nodes that define the variables and buffers in them."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Comparison:
    """One comparison, with the map from definitions of the left program to those of the right."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.left: dict[Node, Node] = {}
        self.right: dict[Node, Node] = {}
        self.renamed = False

    def difference(self, a: Node, b: Node) -> _Difference | None:
        """The first difference in the order of the fields, None if there is none."""
        stack: list[_Pair] = [(a, b, a, b)]
        while stack:
            x, y, parent_x, parent_y = stack.pop()
            if x is None or y is None:
                if x is not y:
                    return parent_x, parent_y, "one has a part that the other lacks"
                continue
            if x is y and not self.renamed:
                continue  # one object under the same names is equal to itself
            if isinstance(x, _Deferred):
                reason = self.data(x.value, y.value, "")
                x, y = parent_x, parent_y
            else:
                reason = self.step(x, y, stack)
            if reason is not None:
                return x, y, reason
        return None

    def step(self, x: Node, y: Node, stack: list[_Pair]) -> str | None:
        """Compare the plain data of ``x`` and ``y``, and push the nodes below them on the stack."""
        if type(x) is not type(y):
            return f"{type(x).__name__} and {type(y).__name__}"
        if isinstance(x, (Var, Buffer)):
            return self.use(x, y)
        below: list[_Pair] = []
        for name, role in x.node_fields:
            p, q = getattr(x, name), getattr(y, name)
            reason: str | None = None
            if role == "child":
                below.append((p, q, x, y))
            elif role == "children":
                if len(p) != len(q):
                    reason = f"{len(p)} and {len(q)} {name}"
                below.extend((s, t, x, y) for s, t in zip(p, q, strict=False))
            elif role == "buffer":
                reason = self.use(p, q)
            elif role in ("definition", "new_buffer"):
                reason = self.define(p, q)
            elif not isinstance(p, _PLAIN) and isinstance(p, Mapping):
                below.append((_Deferred(_compared(x, p)), _Deferred(_compared(y, q)), x, y))
            else:
                reason = self.data(p, q, f"{name} ")
            if reason is not None:
                return reason
        stack.extend(reversed(below))
        return None

    def use(self, x: Any, y: Any) -> str | None:
        if x in self.left or y in self.right:
            matched, back = self.left.get(x), self.right.get(y)
            return None if matched is y and back is x else self.names(x, y, "are different definitions")
        if x is y:
            if self.map_free_vars:
                self.bind(x, y)
            return None
        if not self.map_free_vars or type(x) is not type(y):
            return self.names(x, y, "are different")
        return self.define(x, y)

    @staticmethod
    def names(x: Any, y: Any, what: str) -> str:
        return f"{x.name} and {y.name} {what}"

    def define(self, x: Any, y: Any) -> str | None:
        """Let ``x`` stand for ``y`` from here on, if their types agree. Parameters come as tuples."""
        if isinstance(x, tuple):
            if [type(item) for item in x] != [type(item) for item in y]:
                return "the kinds of the parameters differ"
            # Variables first: the buffers before them mention them in their shapes.
            pairs = sorted(zip(x, y, strict=True), key=lambda pair: isinstance(pair[0], Buffer))
            return next((reason for p, q in pairs if (reason := self.define(p, q)) is not None), None)
        if isinstance(x, Buffer):
            reason = self.buffer_type(x, y)
        else:
            reason = None if x.dtype is y.dtype else self.names(x, y, f"are {x.dtype!s} and {y.dtype!s}")
        if reason is None:
            self.bind(x, y)
        return reason

    def bind(self, x: Node, y: Node) -> None:
        self.left[x] = y
        self.right[y] = x
        self.renamed = self.renamed or x is not y

    def buffer_type(self, x: Buffer, y: Buffer) -> str | None:
        for name, role in x.node_fields:
            p, q = getattr(x, name), getattr(y, name)
            if role == "children":
                same = len(p) == len(q) and all(self.difference(s, t) is None for s, t in zip(p, q, strict=True))
                if not same:
                    return self.names(x, y, f"have different {name}")
            elif name != "name" and p != q:
                return self.names(x, y, f"have different {name}: {p!s} and {q!s}")
        return None

    def data(self, p: Any, q: Any, what: str) -> str | None:
        p, q = _as_plain(p), _as_plain(q)
        if isinstance(p, Mapping) and isinstance(q, Mapping):
            if set(p) != set(q):
                return f"{what}the keys {sorted(map(str, p))} and {sorted(map(str, q))}"
            reasons = (self.data(p[key], q[key], f"{what}{key}: ") for key in p)
            return next((reason for reason in reasons if reason is not None), None)
        if isinstance(p, (list, tuple)) and type(p) is type(q):
            if len(p) != len(q):
                return f"{what}{p!r} and {q!r}"
            reasons = (self.data(s, t, what) for s, t in zip(p, q, strict=True))
            return next((reason for reason in reasons if reason is not None), None)
        if isinstance(p, Node) and isinstance(q, Node):
            found = self.difference(p, q)
            return None if found is None else what + found[2]
        if isinstance(p, float) and isinstance(q, float):
            same = _float_key(p) == _float_key(q)
        else:
            same = type(p) is type(q) and p == q
        return None if same else f"{what}{p!r} and {q!r}"


def _float_key(value: float) -> str:
    return "nan" if math.isnan(value) else value.hex()


#: What a node of some class says in a hash, besides the nodes that it owns: a function that returns the name of the
#: class and the words, numbers and types in the node's fields; and the other fields with their roles, where that of a
#: node that may be missing is ``"optional"``.
_Layout = tuple[Callable[[Any], tuple[Any, ...]], tuple[tuple[str, str], ...]]


def _layout(cls: Any) -> _Layout:
    types = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    words: list[str] = []
    others: list[tuple[str, str]] = []
    for name, role in cls.node_fields:
        if role == "data" and types[name] in ("str", "int", "float", "DataType"):
            if name != "name" or cls not in (Var, Buffer):
                words.append(name)
        elif role != "child":
            others.append((name, role))
        elif "None" in types[name]:
            others.append((name, "optional"))
    # Of two attributes or more, it returns a tuple.
    return operator.attrgetter("__class__.__name__", "hash_consed", *words), tuple(others)


#: The layouts of what nodes define: without names.
_DEFINED = {kind: _layout(kind) for kind in (Var, Buffer)}

#: Those of all other classes that Tilewright defines.
_LAYOUTS = {
    kind: _layout(kind)
    for module in (expr, stmt)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Node) and kind.node_fields and kind not in _DEFINED
}


class _Hasher:
    """Feeds a program to a hash function, with its definitions numbered in the order in which they come."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.numbers: dict[Node, int] = {}
        self.defined = 0

    def feed(self, *items: Any) -> None:
        self.parts.extend(map(str, items))

    def digest(self) -> int:
        """Return the hash of the parts fed so far: of their lengths, so that no two lists of parts have the same input,
        and of their text."""
        lengths = ",".join(map(str, map(len, self.parts)))
        text = "".join(self.parts).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(lengths.encode() + b";" + text, digest_size=8).digest(), "little")

    def run(self, node: Node, most_nodes: int | None = None) -> None:
        stack: list[Node | _Deferred] = [node]
        say = self.parts.extend
        for _ in range(sys.maxsize if most_nodes is None else most_nodes):
            if not stack:
                break
            current: Any = stack.pop()
            layout = _LAYOUTS.get(type(current))
            if layout is None:
                layout = self.special(current)
                if layout is None:
                    continue
            words, others = layout
            say(map(str, words(current)))
            if others:
                self.others(current, others, stack)
            below = current.parts()
            if below:
                stack.extend(below[::-1])

    def special(self, found: Any) -> _Layout | None:
        """Feed what is no node, or a definition. Return how to feed another node, of a user's class."""
        if isinstance(found, _Deferred):
            self.data(found.value)
        elif isinstance(found, (Var, Buffer)):
            self.use(found)
        else:
            return _layout(type(found))
        return None

    def others(self, node: Node, fields: tuple[tuple[str, str], ...], stack: list[Node | _Deferred]) -> None:
        """Feed what ``node`` says beside words and owned nodes."""
        for name, role in fields:
            value = getattr(node, name)
            if role == "children":
                self.parts.append(str(len(value)))
            elif role == "buffer":
                self.use(value)
            elif role == "optional":
                self.parts.append("none" if value is None else "some")
            elif role in ("definition", "new_buffer"):
                self.define(value)
            elif value and isinstance(value, Mapping):
                stack.append(_Deferred(_compared(node, value)))
            else:
                self.data(value)

    def use(self, node: Any) -> None:
        if node not in self.numbers:
            self.define(node)
        self.parts.append(str(self.numbers[node]))

    def define(self, node: Any) -> None:
        if isinstance(node, tuple):
            self.feed(*(type(item).__name__ for item in node))
            for item in sorted(node, key=lambda item: isinstance(item, Buffer)):
                self.define(item)
            return
        words, sizes = _DEFINED[type(node)]
        self.feed(*words(node), *[len(getattr(node, name)) for name, _ in sizes])
        for extent in node.parts():
            self.run(extent)
        self.numbers[node] = self.defined
        self.defined += 1

    def data(self, value: Any) -> None:
        kind = type(value)
        if kind is str or kind is int or kind is bool:  # the types of nearly all plain data
            self.parts += (kind.__name__, str(value))
            return
        if kind is DataType:
            self.parts += ("str", str(value))
            return
        value = _as_plain(value)
        self.feed(type(value).__name__ if not isinstance(value, Mapping) else "mapping")
        if isinstance(value, Mapping):
            self.feed(len(value))
            for key in sorted(value, key=lambda key: (type(key).__name__, str(key))):
                self.data(key)
                self.data(value[key])
        elif isinstance(value, (list, tuple)):
            self.feed(len(value))
            for item in value:
                self.data(item)
        elif isinstance(value, Node):
            self.run(value)
        elif isinstance(value, float):
            self.feed(_float_key(value))
        elif isinstance(value, (bool, int, str)):
            self.feed(value)
        # None and objects of other types: only their type is known to be the same in every process
