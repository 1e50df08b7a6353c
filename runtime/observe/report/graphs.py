"""Draw a model's graph: as given, and as kernels after fusion."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tilewright.graphir.dims import Dim, symbols_of
from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Loop, Tuple, TupleGetItem, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.origins import KernelOrigins, call_origins
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.graphir.visitor import post_order
from tilewright.runtime.observe.report.layout import place
from tilewright.tensorir.errors import ArgumentTypeError
from tilewright.tensorir.expr import as_expr
from tilewright.tensorir.known_numbers import integer_value

#: Maximum number of nodes that are drawn.
MOST_NODES = 3000
#: The width of a letter and the height of a line, in pixels.
_LETTER, _LINE = 6.7, 15.0
_PADDING = 14.0
_MOST_LETTERS = 34
#: Maximum number of letters of an attribute.
_MOST_OF_ATTRIBUTE = 300


@dataclasses.dataclass
class _Node:
    """A node of a picture: ``title`` in the first line, ``note`` in the second."""

    title: str
    note: str
    kind: str
    label: str | None = None
    kernel: str | None = None
    origins: list[str] = dataclasses.field(default_factory=list)
    type: str = ""
    attributes: dict[str, str] = dataclasses.field(default_factory=dict)
    constants: list[str] = dataclasses.field(default_factory=list)


def picture(mod: IRModule, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return the picture of ``main`` of a graph-level module as plain data.

    ``{nodes, edges, width, height, engine, left_out}``: a node is ``{title, note, kind, label, kernel, origins, type,
    attributes, constants, x, y, w, h}`` (``x`` and ``y`` of its center), an edge ``{from, to, path}``. Constants, and
    values that are computed from constants only, are not nodes: they are listed in the nodes that use them.

    Args:
        sizes: sizes of symbolic dimensions, by name, to show in place of their names; ``type`` keeps the names.
    """
    sizes = sizes or {}
    function = mod["main"]
    if not isinstance(function, Function):
        raise ArgumentTypeError(f"expected a graph, found main as {type(function).__name__}")
    nodes: list[_Node] = []
    edges: dict[tuple[int, int], None] = {}
    #: For each expression the nodes that represent it: several for a tuple.
    meaning: dict[Expr, list[int]] = {}
    order = post_order(function.body, enter_functions=False)
    order = [*function.params, *(node for node in order if not (isinstance(node, Var) and node in function.params))]
    left_out = 0
    constants: set[Expr] = set()
    for expr in order:
        sources = [(part, meaning.get(part, [])) for part in _parts(expr)]
        if isinstance(expr, (Tuple, TupleGetItem, Let)) or (isinstance(expr, Var) and expr not in function.params):
            parts = sources[-1:] if isinstance(expr, Let) else sources
            if parts and all(part in constants for part, _ in parts):
                constants.add(expr)
            meaning[expr] = [number for _, numbers in parts for number in numbers]
            continue
        constant = all(part in constants for part, _ in sources) and not isinstance(expr, Var)
        if isinstance(expr, (Constant, GlobalVar, Function)) or (constant and expr is not function.body):
            constants.add(expr)
            continue
        if len(nodes) >= MOST_NODES:
            left_out += 1
            continue
        made = _node(expr, sizes)
        made.constants = [_shape(part.type, sizes) for part, _ in sources if part in constants]
        meaning[expr] = [len(nodes)]
        for _, numbers in sources:
            edges.update(dict.fromkeys((number, len(nodes)) for number in numbers))
        nodes.append(made)
    results = meaning.get(function.body, [])
    if results:
        edges.update(dict.fromkeys((number, len(nodes)) for number in results))
        result = _Node("result", _shape(function.body.type, sizes), "result")
        result.type = _shape(function.body.type)
        nodes.append(result)
    layout = place([_size(node) for node in nodes], list(edges))
    shown = []
    for node, (x, y) in zip(nodes, layout.centers, strict=True):
        w, h = _size(node)
        shown.append({**dataclasses.asdict(node), "x": round(x, 1), "y": round(y, 1), "w": round(w, 1), "h": h})
    paths = [[round(number, 1) for point in path for number in point] for path in layout.paths]
    return {
        "nodes": shown,
        "edges": [{"from": a, "to": b, "path": path} for (a, b), path in zip(edges, paths, strict=True)],
        "width": round(layout.width, 1),
        "height": round(layout.height, 1),
        "engine": layout.engine,
        "left_out": left_out,
    }


def _parts(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call):
        return list(expr.args)
    return list(expr.children) if not isinstance(expr, Function) else []


def _node(expr: Expr, sizes: Mapping[str, int]) -> _Node:
    made = _titled(expr, _shape(expr.type, sizes))
    made.type = _shape(expr.type)
    if isinstance(expr, Call) and dataclasses.is_dataclass(expr.attrs) and not isinstance(expr.attrs, KernelOrigins):
        values = {field.name: getattr(expr.attrs, field.name) for field in dataclasses.fields(expr.attrs)}
        made.attributes = {name: _shortened(str(value)) for name, value in values.items() if value is not None}
    return made


def _titled(expr: Expr, note: str) -> _Node:
    if isinstance(expr, Var):
        return _Node(expr.name, note, "input", expr.span)
    if isinstance(expr, If):
        return _Node("if", note, "control", expr.span)
    if isinstance(expr, Loop):
        return _Node("loop", note, "control", expr.span)
    assert isinstance(expr, Call)
    if isinstance(expr.op, Operator):
        return _Node(expr.op.name, note, expr.op.kind, expr.span)
    if isinstance(expr.op, GlobalVar):
        origins = [str(origin) for origin in call_origins(expr)]
        return _Node(expr.op.name, note, "kernel", expr.span, expr.op.name, origins)
    inner = [node.op.name for node in post_order(expr.op) if isinstance(node, Call) and isinstance(node.op, Operator)]
    return _Node(" ".join(inner) or "function", note, "group", expr.span)


def _shape(found: Type | None, sizes: Mapping[str, int] | None = None) -> str:
    """Write a type in the form of pictures: ``1 x 64 x 56 x 56 float32``."""
    if isinstance(found, TensorType):
        extents = [_extent(dim, sizes or {}) for dim in found.shape]
        return f"{' x '.join(extents) or 'scalar'} {found.dtype!s}"
    if isinstance(found, TupleType):
        return f"{len(found.fields)} results"
    return "" if found is None else str(found)


def _extent(dim: Dim, sizes: Mapping[str, int]) -> str:
    """Write a dimension as a number if the sizes that it depends on are given."""
    symbols = symbols_of([dim])
    if symbols and all(symbol.name in sizes for symbol in symbols):
        value = integer_value(as_expr(dim), {symbol: sizes[symbol.name] for symbol in symbols})
        if value is not None:
            return str(value)
    return str(dim)


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_OF_ATTRIBUTE else text[: _MOST_OF_ATTRIBUTE - 4] + " ..."


def _size(node: _Node) -> tuple[float, float]:
    letters = min(_MOST_LETTERS, max(len(node.title), len(node.note)))
    return (letters * _LETTER + _PADDING, 2 * _LINE + 6 if node.note else _LINE + 8)
