"""The text of the graph-level IR: what ``str(node)`` gives, what errors show, and what the parser reads back.

One line for each expression, in order of evaluation; an expression that is used twice has one line::

    def @main(%x: Tensor[(batch, 784), float32]) -> Tensor[(batch, 10), float32] attrs {"SkipOptimization": True} {
      %0 = nn.dense(%x, const#0) : Tensor[(batch, 10), float32]
      %1 = multiply(%0, float32(0.5)) : Tensor[(batch, 10), float32]
      let %v: Tensor[(batch, 10), float32] = %1             # holds in the rest of these braces
      %2 = fn (%p: Tensor[(), bool]) -> Tensor[(), bool] attrs {"Primitive": True} {
        %p
      }
      %3 = %2(bool(True)) : Tensor[(), bool]
      %4 = if %3 { %v } else { %0 } : Tensor[(batch, 10), float32]      # braces are written on lines of their own
      %5 = (%4, %v)
      %6 = %5.0 : Tensor[(batch, 10), float32]
      %7 = loop(int64(3), None, %step, %6)                  # trip count, condition, body, initial state
      %6                                                    # the value of the braces
    }
    const#0: Tensor[(10, 784), float32] sha256="5d4f..."    # a large constant

* Types after a colon are checked when the text is read, not believed. ``-> ...`` declares a result type.
* A constant of up to 8 elements stands where it is used: ``float32(0.5)``, ``const(int64, [1, 2])``. A larger one is
  named there and described below: by default by type and digest, and then :func:`parse` needs the arrays
  (``parse(text, constants=large_constants(module))``); with ``constants="inline"`` the text also holds the data.
* Names that are no identifiers stand in backquotes, with JSON's escapes: ``%`conv/1 weight` ``. Symbolic dimensions in
  attributes are written ``dim[2 * batch]``. Functions of the loop-level IR are written as its printer writes them.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Loop, Tuple, TupleGetItem, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.types import Type
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.dtype import as_dtype
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.expr import Expr as ScalarExpr
from tilewright.tensorir.printer import to_text as loop_level_text
from tilewright.tensorir.spelling import float_text
from tilewright.tensorir.stmt import PrimFunc

#: How constants of more than ``INLINE_ELEMENTS`` elements are described: by digest, or with their data.
Constants = Literal["digest", "inline"]

INLINE_ELEMENTS = 8

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_INDENT = "  "
_DIGESTS: weakref.WeakKeyDictionary[Constant, str] = weakref.WeakKeyDictionary()


def to_text(
    node: Expr | IRModule,
    constants: Constants = "digest",
    loop_level: Callable[[PrimFunc], str] = loop_level_text,
) -> str:
    """The text of an expression or a module. That of a module parses back to a structurally equal one.

    Args:
        constants: ``"inline"`` writes the data of large constants too (base64, little-endian), so that the text is
            self-contained; ``"digest"`` only what identifies them.
        loop_level: gives the text of a loop-level function, for those who know it already.
    """
    printer = _ModulePrinter(constants, loop_level)
    if isinstance(node, IRModule):
        for gv, function in node.functions.items():
            printer.function(gv.name, function)
    elif isinstance(node, (Constant, GlobalVar)):
        return printer.atom(node)
    elif isinstance(node, Var):
        return _variable_name(node.name)
    else:
        printer.expression(node)
    return printer.text()


def summary(node: Expr) -> str:
    """One line about one expression, with its parts named by what they are: for remarks and errors.

    Its length does not depend on the size of the graph below ``node``.
    """

    def part(child: Expr) -> str:
        if isinstance(child, Call):
            return f"{callee_name(child)}(...)"
        return f"const{list(child.shape)}" if isinstance(child, Constant) and child.ndim else _short(child)

    if isinstance(node, Call):
        text = f"{callee_name(node)}({', '.join([*map(part, node.args), *_attributes(node.attrs)])})"
    else:
        text = _short(node)
    return text + (f" : {node.type}" if node.type is not None else "") + (f"  # {node.span}" if node.span else "")


def callee_name(node: Call) -> str:
    """The operator or function that a call calls, as text."""
    if isinstance(node.op, Operator):
        return node.op.name
    return _short(node.op)


def _short(node: Expr) -> str:
    if isinstance(node, Var):
        return _variable_name(node.name)
    if isinstance(node, GlobalVar):
        return f"@{_name(node.name)}"
    if isinstance(node, Constant):
        return _inline(node) or f"const{list(node.shape)}"
    if isinstance(node, Function):
        return str(node.attrs.get("name", "fn"))
    return type(node).__name__


def digest(constant: Constant) -> str:
    """What identifies a constant's value: SHA-256 of its element type, shape and data, in hex."""
    found = _DIGESTS.get(constant)
    if found is None:
        data = np.ascontiguousarray(constant.data)
        state = hashlib.sha256(f"{as_dtype(data.dtype)!s}{data.shape}".encode())
        state.update(data.reshape(-1).view(np.uint8).data)  # its memory, not a copy
        found = _DIGESTS[constant] = state.hexdigest()
    return found


def large_constants(node: Expr | IRModule) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays that the text of ``node`` only describes, by their digest: what ``parse`` takes as ``constants``."""
    roots = [f for f in node.functions.values() if isinstance(f, Expr)] if isinstance(node, IRModule) else [node]
    found: dict[str, np.ndarray[Any, Any]] = {}
    for item in post_order(*roots):
        if isinstance(item, Constant) and _inline(item) is None:
            found[digest(item)] = item.data
    return found


def _inline(constant: Constant) -> str | None:
    """As :func:`constant_text`; a large constant's value is not computed for it."""
    return None if constant.size > INLINE_ELEMENTS else constant_text(constant.data)


def constant_text(data: np.ndarray[Any, Any]) -> str | None:
    """The text of a small constant where it is used; None for one that is described below."""
    dtype = as_dtype(data.dtype)
    if data.size > INLINE_ELEMENTS or (data.size == 0 and data.ndim != 1):
        return None
    values = data.reshape(-1).tolist() if dtype.is_integer or dtype.is_bool else [float(v) for v in data.reshape(-1)]
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        return None  # which of the NaNs it is only the bytes tell

    def nested(values: list[Any], shape: tuple[int, ...]) -> str:
        if not shape:
            value = values[0]
            return float_text(value, dtype) if isinstance(value, float) else str(value)
        step = len(values) // shape[0] if shape[0] else 0
        parts = [nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
        return f"[{', '.join(parts)}]"

    inner = nested(values, data.shape)
    return f"const({dtype!s}, {inner})" if data.ndim else f"{dtype!s}({inner})"


def _name(name: str) -> str:
    if _IDENTIFIER.fullmatch(name):
        return name
    return "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"


def _variable_name(name: str) -> str:
    return "%" + _name(name)


def attribute_text(value: Any) -> str:
    """The text of plain data: an attribute's value."""
    if isinstance(value, str):
        return json.dumps(str(value))
    if value is None or isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, np.generic):
        return attribute_text(value.item())
    if isinstance(value, ScalarExpr):
        return f"dim[{value}]"
    if isinstance(value, Type):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{attribute_text(k)}: {attribute_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(attribute_text, value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return f"opaque[{json.dumps(repr(value))}]"


def _attributes(attrs: Any) -> list[str]:
    """``name=value`` for each attribute that differs from its default."""
    shown = []
    for field in dataclasses.fields(attrs):
        value = getattr(attrs, field.name)
        if field.default is not dataclasses.MISSING and type(field.default) is type(value) and field.default == value:
            continue
        shown.append(f"{field.name}={attribute_text(value)}")
    return shown


class _Region:
    """What stands between two braces. A line is a text, or a region with the texts before and after it."""

    __slots__ = ("depth", "lines", "parent")

    def __init__(self, parent: _Region | None) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.lines: list[str | _Region] = []


def _common(a: _Region, b: _Region) -> _Region:
    """The innermost region that holds both."""
    while a is not b:
        if a.depth >= b.depth:
            assert a.parent is not None
            a = a.parent
        else:
            assert b.parent is not None
            b = b.parent
    return a


class _ModulePrinter:
    """Collects the lines of a text, and the constants that it has named."""

    def __init__(self, constants: Constants, loop_level: Callable[[PrimFunc], str]) -> None:
        if constants not in ("digest", "inline"):
            raise ValueError(f"constants: expected 'digest' or 'inline', found {constants!r}")
        self.constants = constants
        self.loop_level = loop_level
        self.lines: list[str] = []
        self.named: dict[Constant, str] = {}

    def text(self) -> str:
        return "\n".join([*self.lines, *(self.described(node, name) for node, name in self.named.items())])

    def function(self, name: str, function: Any) -> None:
        if isinstance(function, Function):
            printer = _GraphPrinter(self, function)
            head = f"def @{_name(name)}{printer.signature(function)}"
            self.lines.extend(printer.run(f"{head} {{", "}"))
        else:
            self.lines.extend(self.loop_level(function).split("\n"))

    def expression(self, node: Expr) -> None:
        self.lines.extend(_GraphPrinter(self, node).run(None, None))

    def atom(self, node: Constant | GlobalVar) -> str:
        if isinstance(node, GlobalVar):
            return f"@{_name(node.name)}"
        text = _inline(node)
        return self.named.setdefault(node, f"const#{len(self.named)}") if text is None else text

    def described(self, node: Constant, name: str) -> str:
        if self.constants == "digest":
            return f'{name}: {node.type} sha256="{digest(node)}"'
        data = np.ascontiguousarray(node.data)
        swapped = data.astype(data.dtype.newbyteorder("<")) if data.dtype.byteorder == ">" else data
        return f'{name}: {node.type} base64="{base64.b64encode(swapped.tobytes()).decode()}"'


class _GraphPrinter:
    """Prints the graph below one function (or expression)."""

    def __init__(self, module: _ModulePrinter, root: Expr) -> None:
        self.module = module
        self.root = root
        self.names: dict[Expr, str] = {}
        self.taken: dict[str, int] = {}
        self.numbered = 0
        self.top = _Region(None)
        #: The regions that an expression opens: of a function's body, of branches, of a Let amid an expression.
        self.opened: dict[Expr, list[_Region]] = {}
        self.region: dict[Expr, _Region] = {}
        self.let_of: dict[Var, Let] = {}
        self.uses: dict[Expr, int] = {}

    def run(self, head: str | None, foot: str | None) -> list[str]:
        try:
            order = post_order(self.root)
        except VerifyError as error:
            return [f"<{type(self.root).__name__}: {error}>"]
        body = self.root.body if isinstance(self.root, Function) and head is not None else self.root
        self.place(order, body)
        for node in order:
            if isinstance(node, Let) and node.var not in self.let_of:
                self.let_of[node.var] = node
        if body is not self.root:
            order = order[:-1]
        for node in order:
            self.emit(node)
        self.top.lines.append(self.use(body))
        lines: list[str] = [] if head is None else [head]
        _flatten(self.top, lines, 0 if head is None else 1)
        if foot is not None:
            lines.append(foot)
        if head is None and len(lines) > 1 and lines[-1].startswith("%"):
            # An expression alone: its own line without the name is enough.
            last = lines[-2].partition(" = ")
            if last[0] == lines[-1] and last[2]:
                lines[-2:] = [last[2]]
        return lines

    def place(self, order: list[Expr], body: Expr) -> None:
        """Find the region of each expression: the innermost that holds all its uses. Users come before their parts."""
        self.region[body] = self.top
        flat = {body}  # a Let that ends a region is written as a line of it
        uses = self.uses = {body: 1 if body is self.root else 0}
        for node in order:
            for child in node.children:
                uses[child] = uses.get(child, 0) + 1
        for node in reversed(order):
            region = self.region.get(node)
            if region is None:
                continue  # the root, where its body is printed
            inside: dict[Expr, _Region] = {}
            if isinstance(node, If):
                branches = [_Region(region), _Region(region)]
                self.opened[node] = branches
                self.put(node.condition, region)
                self.put(node.then_branch, branches[0])
                self.put(node.else_branch, branches[1])
                flat.update(branch for branch in (node.then_branch, node.else_branch) if uses[branch] == 1)
                continue
            if isinstance(node, Function) or (isinstance(node, Let) and (node not in flat or uses[node] > 1)):
                inner = _Region(region)
                self.opened[node] = [inner]
                inside = dict.fromkeys(node.children, inner)
                flat.add(node.body)
            elif isinstance(node, Let):
                flat.add(node.body)
            for child in node.children:
                self.put(child, inside.get(child, region))

    def put(self, node: Expr, region: _Region) -> None:
        known = self.region.get(node)
        self.region[node] = region if known is None else _common(known, region)

    def bind(self, var: Var) -> str:
        name = _variable_name(var.name)
        count = self.taken.get(name, 0)
        self.taken[name] = count + 1
        while count and (unique := _variable_name(f"{var.name}_{count}")) in self.taken:
            count += 1
        if count:
            name = unique
            self.taken[name] = 1
        self.names[var] = name
        return name

    def use(self, node: Expr) -> str:
        name = self.names.get(node)
        if name is not None:
            return name
        if isinstance(node, (Constant, GlobalVar)):
            return self.module.atom(node)
        if isinstance(node, Let):
            while isinstance(node, Let) and node not in self.names:
                node = node.body
            return self.use(node)
        return self.bind(node) if isinstance(node, Var) else "%?"

    def emit(self, node: Expr) -> None:
        if isinstance(node, Var):
            if node in self.names:
                return
            let = self.let_of.get(node)
            name = self.bind(node)
            if let is not None:
                region = self.opened[let][0] if let in self.opened else self.region.get(let, self.top)
                self.emit_let(name, let, region.lines)
            return
        if isinstance(node, (Constant, GlobalVar)) or (isinstance(node, Let) and node not in self.opened):
            return
        name = self.names[node] = f"%{self.numbered}"
        self.numbered += 1
        typed = "" if node.type is None or isinstance(node, (Function, Tuple, Let)) else f" : {node.type}"
        span = f"  # {' '.join(node.span.split())}" if node.span else ""
        lines = self.region.get(node, self.top).lines
        regions = self.opened.get(node)
        if regions is None:
            lines.append(f"{name} = {self.line(node)}{typed}{span}")
            return
        if isinstance(node, If):
            regions[0].lines.append(self.use(node.then_branch))
            regions[1].lines.append(self.use(node.else_branch))
            lines.extend((f"{name} = if {self.use(node.condition)} {{", regions[0], "} else {", regions[1]))
            lines.append(f"}}{typed}{span}")
            return
        assert isinstance(node, (Function, Let))
        regions[0].lines.append(self.use(node.body))
        head = f"fn {self.signature(node)} " if isinstance(node, Function) else ""
        lines.extend((f"{name} = {head}{{", regions[0], f"}}{span}"))

    def emit_let(self, name: str, let: Let, lines: list[str | _Region]) -> None:
        value = self.use(let.value)
        before = lines[-1] if lines and self.uses.get(let.value) == 1 else None
        if isinstance(before, str) and before.startswith(f"{value} = ") and not before.endswith("{"):
            # What only the variable uses needs no line of its own.
            self.numbered -= 1
            lines[-1] = f"let {name}{before[len(value) :]}"
        else:
            typed = "" if let.var.type is None else f": {let.var.type}"
            lines.append(f"let {name}{typed} = {value}")

    def line(self, node: Expr) -> str:
        """What stands behind the ``=``."""
        if isinstance(node, Call):
            callee = node.op.name if isinstance(node.op, Operator) else self.use(node.op)
            attrs = _attributes(node.attrs) if isinstance(node.op, Operator) else []
            return f"{callee}({', '.join([*map(self.use, node.args), *attrs])})"
        if isinstance(node, Tuple):
            inner = ", ".join(map(self.use, node.fields))
            return f"({inner},)" if len(node.fields) == 1 else f"({inner})"
        if isinstance(node, TupleGetItem):
            return f"{self.use(node.value)}.{node.index}"
        assert isinstance(node, Loop)
        condition = "None" if node.condition is None else self.use(node.condition)
        parts = (self.use(node.trip_count), condition, self.use(node.body), *map(self.use, node.initial))
        collected = f" collect({', '.join(map(self.use, node.collect))})" if node.collect else ""
        return f"loop({', '.join(parts)}){collected}"

    def signature(self, function: Function) -> str:
        params: list[str] = []
        for param in function.params:
            name = self.names.get(param) or self.bind(param)
            params.append(name if param.type is None else f"{name}: {param.type}")
        result = function.body.type if function.body.type is not None else function.ret_type
        declared = "" if result is None else f" -> {result}"
        attrs = f" attrs {attribute_text(function.attrs)}" if function.attrs else ""
        return f"({', '.join(params)}){declared}{attrs}"


def _flatten(region: _Region, lines: list[str], depth: int) -> None:
    """Write a region's lines, indented, without recursion over its depth."""
    stack: list[tuple[Iterable[Any], str]] = [(iter(region.lines), _INDENT * depth)]
    while stack:
        items, indent = stack[-1]
        for item in items:
            if isinstance(item, _Region):
                stack.append((iter(item.lines), indent + _INDENT))
                break
            lines.append(indent + item)
        else:
            stack.pop()
