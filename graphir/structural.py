"""Compare graphs and modules up to the names of their variables, and compute a matching hash.

Both are derived from the nodes' declared fields (``node.py``), take time linear in the size of the graph, and do not
recurse over its depth. The rules:

* A variable that the graph binds is compared by the place of its binding; a free one by identity, or one to one with
  ``map_free_vars``. Names of variables do not count, those of operators and global functions do.
* Sharing counts: ``y + y`` is not equal to ``y1 + y2``, since the second computes ``y`` twice. Only constants are
  compared by value alone: element type, shape and bytes (so ``-0.0`` differs from ``0.0``, a NaN equals itself).
* Types of variables count, those of other expressions follow from them. Dimensions are equal if provably so.
* Attributes are compared by value, where ``1`` differs from ``True`` and ``1.0``; on calls of functions they only
  record the origin of the call, and do not count. ``span`` does not count, nor do declared result types, which repeat
  the types of bodies.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.graphir.dims import dim_equal
from tilewright.graphir.expr import (
    Expr,
    Function,
    Var,
)
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary, to_text
from tilewright.graphir.types import Type
from tilewright.tensorir import structural as loop_level
from tilewright.tensorir.expr import Expr as ScalarExpr
from tilewright.tensorir.stmt import PrimFunc

#: A difference: the two places, and its description.
_Difference = tuple[Any, Any, str]


def structural_equal(a: Expr | IRModule, b: Expr | IRModule, map_free_vars: bool = False) -> bool:
    """Return whether ``a`` and ``b`` are equal up to the names of variables.

    Args:
        map_free_vars: free variables may differ too, one to one, if their types agree.
    """
    return _difference(a, b, map_free_vars) is None


def assert_structural_equal(a: Expr | IRModule, b: Expr | IRModule, map_free_vars: bool = False) -> None:
    """Check that ``a`` and ``b`` are structurally equal.

    Raises:
        AssertionError: they are not; the message shows the first place that differs, in both, and a diff of the texts.
    """
    found = _difference(a, b, map_free_vars)
    if found is None:
        return
    place_a, place_b, reason = found
    lines = difflib.unified_diff(to_text(a).split("\n"), to_text(b).split("\n"), "left", "right", lineterm="")
    raise AssertionError(
        f"not structurally equal: {reason}\nleft:  {_place(place_a)}\nright: {_place(place_b)}\n" + "\n".join(lines)
    )


def structural_hash(node: Expr | IRModule) -> int:
    """Return a 64-bit hash that structurally equal nodes share (with or without ``map_free_vars``), the same in every
    process."""
    hasher = _Hasher()
    if isinstance(node, IRModule):
        for name, function in sorted(
            ((gv.name, function) for gv, function in node.functions.items()), key=lambda item: item[0]
        ):
            hasher.feed("function", name)
            hasher.function(function)
    else:
        hasher.run(node)
    return hasher.digest()


def _place(node: Any) -> str:
    return summary(node) if isinstance(node, Expr) else str(node).partition("\n")[0]


def _difference(a: Expr | IRModule, b: Expr | IRModule, map_free_vars: bool) -> _Difference | None:
    if not isinstance(a, IRModule) or not isinstance(b, IRModule):
        if isinstance(a, IRModule) or isinstance(b, IRModule):
            return a, b, f"{type(a).__name__} and {type(b).__name__}"
        return _Comparison(map_free_vars).run(a, b)
    left = {gv.name: function for gv, function in a.functions.items()}
    right = {gv.name: function for gv, function in b.functions.items()}
    if left.keys() != right.keys():
        return a, b, f"functions {', '.join(sorted(left)) or 'none'} and {', '.join(sorted(right)) or 'none'}"
    for name, function in left.items():
        other = right[name]
        if isinstance(function, PrimFunc) and isinstance(other, PrimFunc):
            if not loop_level.structural_equal(function, other):
                return function, other, f"loop-level functions @{name} differ"
        elif isinstance(function, Function) and isinstance(other, Function):
            found = _Comparison(map_free_vars).run(function, other)
            if found is not None:
                return found[0], found[1], f"@{name}: {found[2]}"
        else:
            return function, other, f"@{name}: {type(function).__name__} and {type(other).__name__}"
    return None


#: Types whose values are equal if they compare so.
_EXACT = frozenset((str, int, bool))


def data_equal(p: Any, q: Any) -> bool:
    """Return whether two values of plain data (attributes) are equal."""
    if p is q:
        return True
    if type(p) is type(q) and type(p) in _EXACT:
        return bool(p == q)
    if isinstance(p, np.generic):
        p = p.item()
    if isinstance(q, np.generic):
        q = q.item()
    if isinstance(p, str) and isinstance(q, str):
        return str(p) == str(q)
    if isinstance(p, (ScalarExpr, int)) and isinstance(q, (ScalarExpr, int)) and not isinstance(p, bool):
        return not isinstance(q, bool) and dim_equal(p, q)
    if isinstance(p, Mapping) and isinstance(q, Mapping):
        return p.keys() == q.keys() and all(data_equal(value, q[key]) for key, value in p.items())
    if isinstance(p, (list, tuple)) and type(p) is type(q):
        return len(p) == len(q) and all(map(data_equal, p, q))
    if isinstance(p, float) and isinstance(q, float):
        return p.hex() == q.hex()
    if isinstance(p, np.ndarray) and isinstance(q, np.ndarray):
        return p.dtype == q.dtype and p.shape == q.shape and p.tobytes() == q.tobytes()
    if dataclasses.is_dataclass(p) and type(p) is type(q):
        return all(data_equal(getattr(p, f.name), getattr(q, f.name)) for f in dataclasses.fields(p))
    return type(p) is type(q) and bool(p == q)


#: Roles of fields that do not count, and those that do not count beside a called function.
_UNCOUNTED = frozenset({"note", "given"})
_UNCOUNTED_OF_FUNCTIONS = _UNCOUNTED | {"attributes"}


def _shown(value: Any) -> str:
    return str(dict(value) if isinstance(value, Mapping) else value)


class _Comparison:
    """A comparison in progress: the mapping of expressions of the left graph to those of the right."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.left: dict[Expr, Expr] = {}
        self.right: dict[Expr, Expr] = {}
        self.stack: list[tuple[Expr, Expr]] = []

    def run(self, a: Expr, b: Expr) -> _Difference | None:
        """Return the first difference in order of evaluation, None if there is none."""
        stack = self.stack
        stack.append((a, b))
        while stack:
            x, y = stack.pop()
            if type(x) is not type(y):
                return x, y, f"{type(x).__name__} and {type(y).__name__}"
            if x in self.left or y in self.right:
                if self.left.get(x) is not y or self.right.get(y) is not x:
                    return x, y, "one is shared or bound where the other is not"
                continue
            reason = self.variable(x, y) if isinstance(x, Var) and isinstance(y, Var) else self.step(x, y)
            if reason is not None:
                return x, y, reason
        return None

    def bind(self, x: Expr, y: Expr) -> None:
        self.left[x] = y
        self.right[y] = x

    def define(self, x: Var, y: Var) -> str | None:
        if (x.type is None) != (y.type is None) or x.type != y.type:
            return f"variables %{x.name} and %{y.name}: types {x.type} and {y.type}"
        if x in self.left or y in self.right:
            return f"variable %{x.name if x in self.left else y.name} is bound twice or used outside of its scope"
        self.bind(x, y)
        return None

    def step(self, x: Expr, y: Expr) -> str | None:
        """Compare the own fields of ``x`` and ``y``, and push their parts on the stack."""
        if not x.by_value:
            self.bind(x, y)
        below: list[tuple[Expr, Expr]] = []
        uncounted = _UNCOUNTED
        for name, role in x.node_fields:
            if role in uncounted:
                continue
            p, q = getattr(x, name), getattr(y, name)
            reason: str | None = None
            if role == "children":
                if len(p) != len(q):
                    return f"{len(p)} and {len(q)} {name}"
                below += zip(p, q, strict=True)
            elif role == "definition":
                reason = self.define_all(p, q, name)
            elif role != "data" and isinstance(p, Expr) and isinstance(q, Expr):
                below.append((p, q))
                if role == "applied":
                    uncounted = _UNCOUNTED_OF_FUNCTIONS
            elif p is not q and not data_equal(p, q):
                if role == "applied":
                    return f"different {'operators' if isinstance(p, Operator) else 'functions'}"
                if p is None or q is None:
                    return f"one has a part {name} and the other has none"
                if isinstance(p, np.ndarray):
                    return f"{name} of two arrays differ"
                return f"{name} {_shown(p)} and {_shown(q)}"
            if reason is not None:
                return reason
        below.reverse()
        self.stack += below
        return None

    def define_all(self, x: Any, y: Any, name: str) -> str | None:
        """Map variables to each other from here on: one, or those of tuples."""
        if isinstance(x, Var):
            return self.define(x, y)
        if len(x) != len(y):
            return f"{len(x)} and {len(y)} {name}"
        return next((reason for p, q in zip(x, y, strict=True) if (reason := self.define(p, q)) is not None), None)

    def variable(self, x: Var, y: Var) -> str | None:
        if not self.map_free_vars:
            if x is not y:
                return f"free variables %{x.name} and %{y.name} are different"
            self.bind(x, y)
            return None
        return self.define(x, y)


class _Hasher:
    """Feed a graph to a hash function; bound and shared nodes are numbered in order of first occurrence."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.numbers: dict[Expr, int] = {}

    def digest(self) -> int:
        text = "".join(self.pieces).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def feed(self, *items: Any) -> None:
        for item in items:
            text = item if type(item) is str else str(item)
            self.pieces.append(f"{len(text)}:{text}")  # a length before each part: no two lists of parts look alike

    def function(self, function: Any) -> None:
        if isinstance(function, PrimFunc):
            self.feed("loop-level", loop_level.structural_hash(function))
        else:
            self.numbers.clear()
            self.run(function)

    def number(self, node: Expr) -> None:
        self.numbers[node] = len(self.numbers)

    def run(self, root: Expr) -> None:
        stack: list[Expr] = [root]
        while stack:
            node = stack.pop()
            known = self.numbers.get(node)
            if known is not None:
                self.feed("shared", known)
                continue
            self.feed(type(node).__name__)
            if isinstance(node, Var):
                self.define(node)
            else:
                self.parts(node, stack)

    def parts(self, node: Expr, stack: list[Expr]) -> None:
        """Feed the own fields of ``node``, and push its parts on the stack."""
        if not node.by_value:
            self.number(node)
        below: list[Expr] = []
        uncounted = _UNCOUNTED
        for name, role in node.node_fields:
            if role in uncounted:
                continue
            value = getattr(node, name)
            if role == "children":
                self.feed(len(value))
                below += value
            elif role == "definition":
                variables = (value,) if isinstance(value, Var) else value
                self.feed(len(variables))
                for var in variables:
                    self.define(var)
            elif role != "data" and isinstance(value, Expr):
                below.append(value)
                if role == "applied":
                    uncounted = _UNCOUNTED_OF_FUNCTIONS
            elif role == "applied":
                self.feed(value.name)
            else:
                self.data(value)
        below.reverse()
        stack += below

    def define(self, var: Var) -> None:
        self.number(var)
        self.feed(hash_text(var.type))

    def data(self, value: Any) -> None:
        kind = type(value)
        if kind is str:
            self.feed("str", value)
        elif kind in _NAMED_NUMBERS:
            self.feed(_NAMED_NUMBERS[kind], value)
        elif kind is tuple or kind is list:
            self.feed(kind.__name__, len(value))
            for item in value:
                self.data(item)
        elif (names := _field_names(kind)) is not None:
            self.feed(kind.__name__)
            for name in names:
                self.data(getattr(value, name))
        else:
            self.unusual(value)

    def unusual(self, value: Any) -> None:
        """Feed data of the less frequent kinds."""
        if isinstance(value, np.generic):
            self.data(value.item())
        elif isinstance(value, Mapping):
            self.feed("mapping", len(value))
            for key in sorted(value, key=str):
                self.feed(key)
                self.data(value[key])
        elif isinstance(value, (list, tuple)):
            self.feed(type(value).__name__, len(value))
            for item in value:
                self.data(item)
        elif isinstance(value, float):
            self.feed("float", "nan" if math.isnan(value) else value.hex())
        elif isinstance(value, str):
            self.feed("str", str(value))
        elif isinstance(value, (bool, int)):
            self.feed(type(value).__name__, value)
        elif isinstance(value, Type):
            self.feed(hash_text(value))
        elif isinstance(value, np.ndarray):
            self.feed(value.dtype, value.shape, hashlib.blake2b(value.tobytes(), digest_size=16).hexdigest())
        # Symbolic dimensions may be written in several ways, and of other objects only the type is known to be stable.
        else:
            self.feed("dim" if isinstance(value, ScalarExpr) else type(value).__name__)


_NAMED_NUMBERS: dict[type, str] = {bool: "bool", int: "int", type(None): "NoneType"}


#: Answers of :func:`_field_names`.
_FIELD_NAMES: dict[type, tuple[str, ...] | None] = {}


def _field_names(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass of plain data; None for other classes."""
    if kind not in _FIELD_NAMES:
        plain = dataclasses.is_dataclass(kind) and not issubclass(kind, ScalarExpr)
        _FIELD_NAMES[kind] = tuple(field.name for field in dataclasses.fields(kind)) if plain else None
    return _FIELD_NAMES[kind]


def hash_text(found: Type | None) -> str:
    """Return a text that equal types share: symbolic dimensions are left out, since they have many spellings."""
    if found is None:
        return "none"
    shape = getattr(found, "shape", None)
    if shape is not None:
        dims = ",".join(str(dim) if isinstance(dim, int) else "?" for dim in shape)
        return f"{found.dtype}[{dims}]"  # type: ignore[attr-defined]  # only a TensorType has a shape
    return type(found).__name__
