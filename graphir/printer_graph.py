"""Print the graph below a function as lines: one for each expression, in the innermost braces that hold its uses."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Loop, Tuple, TupleGetItem, Var
from tilewright.graphir.op import Operator
from tilewright.graphir.spelling import attribute_text, attribute_texts, digest, inline_text, quote_name, variable_name
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.errors import ArgumentValueError, VerifyError
from tilewright.tensorir.stmt import PrimFunc

#: Forms in which constants of more than ``INLINE_ELEMENTS`` elements are described: digest, data, or type alone.
Constants = Literal["digest", "inline", "type"]

_INDENT = "  "


class _Region:
    """The lines between two braces. A line is a text, or a region with the texts before and after it."""

    __slots__ = ("depth", "lines", "parent")

    def __init__(self, parent: _Region | None) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.lines: list[str | _Region] = []


def _common(a: _Region, b: _Region) -> _Region:
    """Return the innermost region that contains both."""
    while a is not b:
        if a.depth >= b.depth:
            assert a.parent is not None
            a = a.parent
        else:
            assert b.parent is not None
            b = b.parent
    return a


class ModulePrinter:
    """Collect the lines of a text, and the constants that it has named."""

    def __init__(self, constants: Constants, loop_level: Callable[[PrimFunc], str]) -> None:
        if constants not in ("digest", "inline", "type"):
            raise ArgumentValueError(f"constants: expected 'digest', 'inline' or 'type', found {constants!r}")
        self.constants = constants
        self.loop_level = loop_level
        self.lines: list[str] = []
        self.named: dict[Constant, str] = {}

    def text(self) -> str:
        return "\n".join([*self.lines, *(self.described(node, name) for node, name in self.named.items())])

    def function(self, name: str, function: Any) -> None:
        if isinstance(function, Function):
            printer = _GraphPrinter(self, function)
            head = f"def @{quote_name(name)}{printer.signature(function)}"
            self.lines.extend(printer.run(f"{head} {{", "}"))
        else:
            self.lines.extend(self.loop_level(function).split("\n"))

    def expression(self, node: Expr) -> None:
        self.lines.extend(_GraphPrinter(self, node).run(None, None))

    def atom(self, node: Constant | GlobalVar) -> str:
        if isinstance(node, GlobalVar):
            return f"@{quote_name(node.name)}"
        text = inline_text(node)
        return self.named.setdefault(node, f"const#{len(self.named)}") if text is None else text

    def described(self, node: Constant, name: str) -> str:
        if self.constants == "type":
            return f"{name}: {node.type}"
        if self.constants == "digest":
            return f'{name}: {node.type} sha256="{digest(node)}"'
        data = np.ascontiguousarray(node.data)
        swapped = data.astype(data.dtype.newbyteorder("<")) if data.dtype.byteorder == ">" else data
        return f'{name}: {node.type} base64="{base64.b64encode(swapped.tobytes()).decode()}"'


class _GraphPrinter:
    """Print the graph below one function (or expression)."""

    def __init__(self, module: ModulePrinter, root: Expr) -> None:
        self.module = module
        self.root = root
        self.names: dict[Expr, str] = {}
        self.taken: dict[str, int] = {}
        self.numbered = 0
        self.top = _Region(None)
        #: The regions that an expression opens: of a function's body, of branches, of a Let inside an expression.
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
        name = variable_name(var.name)
        count = self.taken.get(name, 0)
        self.taken[name] = count + 1
        while count and (unique := variable_name(f"{var.name}_{count}")) in self.taken:
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
            # A value that only the variable uses needs no line of its own.
            self.numbered -= 1
            lines[-1] = f"let {name}{before[len(value) :]}"
        else:
            typed = "" if let.var.type is None else f": {let.var.type}"
            lines.append(f"let {name}{typed} = {value}")

    def line(self, node: Expr) -> str:
        """Return the text behind the ``=``."""
        if isinstance(node, Call):
            callee = node.op.name if isinstance(node.op, Operator) else self.use(node.op)
            attrs = attribute_texts(node.attrs) if isinstance(node.op, Operator) else []
            return f"{callee}({', '.join([*map(self.use, node.args), *attrs])})"
        if isinstance(node, Tuple):
            inner = ", ".join(map(self.use, node.fields))
            return f"({inner},)" if len(node.fields) == 1 else f"({inner})"
        if isinstance(node, TupleGetItem):
            return f"{self.use(node.value)}.{node.index}"
        if not isinstance(node, Loop):
            return f"{type(node).__name__}({', '.join(self.declared(node))})"
        condition = "None" if node.condition is None else self.use(node.condition)
        parts = (self.use(node.trip_count), condition, self.use(node.body), *map(self.use, node.initial))
        collected = f" collect({', '.join(map(self.use, node.collect))})" if node.collect else ""
        return f"loop({', '.join(parts)}){collected}"

    def declared(self, node: Expr) -> list[str]:
        """Return the fields of a node of a class without a form of its own, in order of evaluation."""
        shown: list[str] = []
        for name, role in node.node_fields:
            value = getattr(node, name)
            if role == "note" or role == "given":
                continue
            if isinstance(value, Expr):
                shown.append(self.use(value))
            elif isinstance(value, tuple) and role != "data":
                shown.append(f"[{', '.join(map(self.use, value))}]")
            else:
                shown.append(f"{name}={attribute_text(value)}")
        return shown

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
    """Write the lines of a region, indented, without recursion over its depth."""
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
