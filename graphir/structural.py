"""Whether two graphs (or modules) are the same but for the names of their variables, and a hash to match.

Both take time linear in the size of the graph and do not recurse over its depth. The rules:

* A variable that the graph binds is compared by where it is bound; a free one by identity, or one to one with
  ``map_free_vars``. Names of variables do not count, those of operators and global functions do.
* What is shared counts: ``y + y`` is not equal to ``y1 + y2``, since the second computes ``y`` twice. Only constants
  are compared by value alone: element type, shape and bytes (so ``-0.0`` differs from ``0.0``, a NaN equals itself).
* Types of variables count, those of other expressions follow from them. Dimensions are equal if provably so.
* Attributes are compared by value, where ``1`` differs from ``True`` and ``1.0``. ``span`` does not count, nor do
  declared result types, which bodies state again.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.graphir.dims import dim_equal
from tilewright.graphir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Loop,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary, to_text
from tilewright.graphir.types import Type
from tilewright.tensorir import structural as loop_level
from tilewright.tensorir.expr import Expr as ScalarExpr
from tilewright.tensorir.stmt import PrimFunc

#: A difference: the two places, and what differs there.
_Difference = tuple[Any, Any, str]


def structural_equal(a: Expr | IRModule, b: Expr | IRModule, map_free_vars: bool = False) -> bool:
    """Whether ``a`` and ``b`` are equal up to the names of variables.

    Args:
        map_free_vars: variables that the expressions use but do not bind may differ too, one to one, if types agree.
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
    """A 64-bit hash that structurally equal nodes share (with or without ``map_free_vars``), the same in every
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
    return int.from_bytes(hasher.state.digest(), "little")


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


def data_equal(p: Any, q: Any) -> bool:
    """Whether two values of plain data (attributes) are equal."""
    if p is q:
        return True
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
    if dataclasses.is_dataclass(p) and type(p) is type(q):
        return all(data_equal(getattr(p, f.name), getattr(q, f.name)) for f in dataclasses.fields(p))
    return type(p) is type(q) and bool(p == q)


def constant_equal(a: Constant, b: Constant) -> bool:
    """Whether two constants have the same element type, shape and bytes."""
    if a is b or a.data is b.data:
        return True
    return a.dtype is b.dtype and a.shape == b.shape and a.data.tobytes() == b.data.tobytes()


def global_name(callee: object) -> str | None:
    """The name of a callee that is a function of the module, else None."""
    return callee.name if isinstance(callee, GlobalVar) else None


class _Comparison:
    """One comparison: which expressions of the left stand for which of the right."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.left: dict[Expr, Expr] = {}
        self.right: dict[Expr, Expr] = {}
        self.stack: list[tuple[Expr, Expr]] = []

    def run(self, a: Expr, b: Expr) -> _Difference | None:
        """The first difference in order of evaluation, None if there is none."""
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
            reason = _COMPARE[type(x)](self, x, y)
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

    def below(self, x: Expr, y: Expr, what: str) -> str | None:
        """Compare the parts of ``x`` and ``y`` next."""
        self.bind(x, y)
        p, q = x.children, y.children
        if len(p) != len(q):
            return f"{len(p)} and {len(q)} {what}"
        self.stack.extend(zip(reversed(p), reversed(q), strict=True))
        return None

    def variable(self, x: Var, y: Var) -> str | None:
        if not self.map_free_vars:
            if x is not y:
                return f"free variables %{x.name} and %{y.name} are different"
            self.bind(x, y)
            return None
        return self.define(x, y)

    def constant(self, x: Constant, y: Constant) -> str | None:
        return None if constant_equal(x, y) else "constants differ"

    def global_var(self, x: GlobalVar, y: GlobalVar) -> str | None:
        return None if x.name == y.name else f"functions @{x.name} and @{y.name}"

    def call(self, x: Call, y: Call) -> str | None:
        if isinstance(x.op, Operator) or isinstance(y.op, Operator):
            if x.op is not y.op:
                return "different operators"
            if x.attrs is not y.attrs and not data_equal(x.attrs, y.attrs):
                return f"attributes {x.attrs} and {y.attrs}"
        elif global_name(x.op) != global_name(y.op):  # a callee that is a GlobalVar is none of the children
            return "different functions are called"
        return self.below(x, y, "arguments")

    def tuple(self, x: Tuple, y: Tuple) -> str | None:
        return self.below(x, y, "fields")

    def field(self, x: TupleGetItem, y: TupleGetItem) -> str | None:
        if x.index != y.index:
            return f"fields {x.index} and {y.index}"
        return self.below(x, y, "parts")

    def let(self, x: Let, y: Let) -> str | None:
        self.bind(x, y)
        self.stack.append((x.body, y.body))
        self.stack.append((x.value, y.value))
        return self.define(x.var, y.var)

    def plain(self, x: Expr, y: Expr) -> str | None:
        return self.below(x, y, "parts")

    def loop(self, x: Loop, y: Loop) -> str | None:
        if (x.condition is None) != (y.condition is None):
            return "one loop has a condition and the other has none"
        if len(x.collect) != len(y.collect):
            return f"loops that collect {len(x.collect)} and {len(y.collect)} tensors"
        return self.below(x, y, "parts")

    def function(self, x: Function, y: Function) -> str | None:
        if len(x.params) != len(y.params):
            return f"{len(x.params)} and {len(y.params)} parameters"
        if not data_equal(x.attrs, y.attrs):
            return f"function attributes {dict(x.attrs)} and {dict(y.attrs)}"
        self.bind(x, y)
        self.stack.append((x.body, y.body))
        return next((r for p, q in zip(x.params, y.params, strict=True) if (r := self.define(p, q)) is not None), None)


_COMPARE: dict[type, Callable[[_Comparison, Any, Any], str | None]] = {
    Var: _Comparison.variable,
    Constant: _Comparison.constant,
    GlobalVar: _Comparison.global_var,
    Call: _Comparison.call,
    Tuple: _Comparison.tuple,
    TupleGetItem: _Comparison.field,
    Let: _Comparison.let,
    If: _Comparison.plain,
    Loop: _Comparison.loop,
    Function: _Comparison.function,
}


class _Hasher:
    """Feeds a graph to a hash function; what is bound or shared is numbered in the order in which it comes."""

    def __init__(self) -> None:
        self.state = hashlib.blake2b(digest_size=8)
        self.numbers: dict[Expr, int] = {}

    def feed(self, *items: Any) -> None:
        for item in items:
            text = item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogatepass")
            self.state.update(b"%d:" % len(text))  # a length before each part: no two lists of parts look alike
            self.state.update(text)

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
            if isinstance(node, Constant):
                self.feed(node.dtype, node.data.shape, node.data.tobytes())
            elif isinstance(node, GlobalVar):
                self.feed(node.name)
            elif isinstance(node, Var):
                self.define(node)
            else:
                self.number(node)
                self.parts(node, stack)

    def parts(self, node: Expr, stack: list[Expr]) -> None:
        if isinstance(node, Function):
            self.feed(len(node.params))
            self.data(node.attrs)
            for param in node.params:
                self.define(param)
            stack.append(node.body)
            return
        if isinstance(node, Let):
            self.define(node.var)
            stack.extend((node.body, node.value))
            return
        if isinstance(node, Call):
            if isinstance(node.op, Operator):
                self.feed(node.op.name)
                self.data(node.attrs)
            elif isinstance(node.op, GlobalVar):
                self.feed("@", node.op.name)
        elif isinstance(node, TupleGetItem):
            self.feed(node.index)
        elif isinstance(node, Loop):
            self.feed(node.condition is None, len(node.collect))
        children = node.children
        self.feed(len(children))
        stack.extend(reversed(children))

    def define(self, var: Var) -> None:
        self.number(var)
        self.feed(hash_text(var.type))

    def data(self, value: Any) -> None:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, Mapping):
            self.feed("mapping", len(value))
            for key in sorted(value, key=str):
                self.feed(key)
                self.data(value[key])
        elif isinstance(value, (list, tuple)):
            self.feed(type(value).__name__, len(value))
            for item in value:
                self.data(item)
        elif dataclasses.is_dataclass(value) and not isinstance(value, (type, ScalarExpr)):
            self.feed(type(value).__name__)
            for field in dataclasses.fields(value):
                self.data(getattr(value, field.name))
        elif isinstance(value, float):
            self.feed("float", "nan" if math.isnan(value) else value.hex())
        elif isinstance(value, str):
            self.feed("str", str(value))
        elif isinstance(value, (bool, int)):
            self.feed(type(value).__name__, value)
        elif isinstance(value, Type):
            self.feed(hash_text(value))
        # Symbolic dimensions may be written in several ways, and of other objects only the type is known to be stable.
        else:
            self.feed("dim" if isinstance(value, ScalarExpr) else type(value).__name__)


def hash_text(found: Type | None) -> str:
    """A text that equal types share: dimensions that are no numbers are left out, since they have many spellings."""
    if found is None:
        return "none"
    shape = getattr(found, "shape", None)
    if shape is not None:
        dims = ",".join(str(dim) if isinstance(dim, int) else "?" for dim in shape)
        return f"{found.dtype}[{dims}]"  # type: ignore[attr-defined]  # what has a shape is a TensorType
    return type(found).__name__
