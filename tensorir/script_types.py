"""The parameters of functions of loops that are written as Python: what their annotations say.

A buffer is annotated as ``ti.Buffer[("n", 64), "float32"]``, or, for type checkers, as
``Annotated[ti.Buffer, ("n", 64), "float32"]``; a symbolic size as ``int``, or by the name of an integer type. A name in
a shape is a size, and a text there may be a formula of names.
"""

from __future__ import annotations

import ast
import dataclasses
import typing
from typing import Any

from tilewright.tensorir.builder import Builder
from tilewright.tensorir.dtype import INT64, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError
from tilewright.tensorir.expr import Buffer, Expr, Var
from tilewright.tensorir.script_source import Source


@dataclasses.dataclass(frozen=True)
class BufferType:
    """The annotation of a buffer: shape and type of its elements."""

    shape: tuple[Any, ...]
    dtype: DataType


def buffer_type(items: Any) -> BufferType:
    """Return what ``Buffer[items]`` stands for: ``Buffer[(extents), dtype]`` or ``Buffer[extents, dtype]``; the type
    may be left out: float32.

    Raises:
        TypeError: it is neither.
        ValueError: there is no such data type.
    """
    parts = items if isinstance(items, tuple) else (items,)
    if parts and isinstance(parts[0], (tuple, list)):
        if len(parts) > 2:
            raise ArgumentTypeError(
                f'expected Buffer[(extents), dtype], such as Buffer[("n", 64), "float32"], found {items!r}'
            )
        return BufferType(tuple(parts[0]), as_dtype(parts[1] if len(parts) > 1 else "float32"))
    if parts and _names_dtype(parts[-1]):
        return BufferType(parts[:-1], as_dtype(parts[-1]))
    return BufferType(parts, as_dtype("float32"))


def _names_dtype(item: Any) -> bool:
    if not isinstance(item, (str, type)):
        return False
    try:
        as_dtype(item)
    except ValueError:
        return False
    return True


def add_parameters(source: Source, builder: Builder) -> dict[str, Buffer | Var]:
    """Add the parameters of a function to a builder; gives what their names, and those of sizes in shapes, stand for.

    Raises:
        ParseError: a parameter has no annotation, or another one.
    """
    arguments = source.tree.args
    for odd in (arguments.vararg, arguments.kwarg, *arguments.kwonlyargs, *arguments.defaults):
        if odd is not None:
            raise source.error(odd, "expected plain parameters with annotations, and no defaults")
    return _Parameters(source, builder).all([*arguments.posonlyargs, *arguments.args])


class _Parameters:
    def __init__(self, source: Source, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        self.names: dict[str, Buffer | Var] = {}

    def all(self, nodes: list[ast.arg]) -> dict[str, Buffer | Var]:
        found = [(node, self.annotation(node)) for node in nodes]
        declared = None
        for node, annotation in found:  # sizes first: shapes mention them
            if isinstance(annotation, DataType):
                self.names[node.arg] = self.builder.size(node.arg, annotation)
                declared = node
            elif declared is not None:
                message = f"buffer {node.arg} stands behind the size {declared.arg}; expected buffers first, then sizes"
                raise self.source.error(node, message)
        for node, annotation in found:
            if isinstance(annotation, BufferType):
                shape = [self.extent(extent, node) for extent in annotation.shape]
                self.names[node.arg] = self.builder.buffer(node.arg, shape, annotation.dtype)
        return self.names

    def annotation(self, node: ast.arg) -> BufferType | DataType:
        """Return what the annotation of a parameter says: a buffer, or the type of a size."""
        expected = f'expected {node.arg}: Buffer[("n", 64), "float32"], or int for a size'
        if node.annotation is None:
            raise self.source.error(node, expected)
        value = self.source.function.__annotations__.get(node.arg)
        try:
            if isinstance(value, str):  # `from __future__ import annotations` leaves the text
                value = eval(value, self.source.names)
            if typing.get_origin(value) is typing.Annotated:
                base, *items = typing.get_args(value)
                if base is Buffer and not (len(items) == 1 and isinstance(items[0], BufferType)):
                    return buffer_type(tuple(items))
                value = items[0] if base is Buffer else base
            if isinstance(value, BufferType):
                return value
            dtype = INT64 if value is int or value is Var else as_dtype(value)
        except Exception as error:
            raise self.source.error(node.annotation, f"{expected}: {error}") from None
        if not dtype.is_integer or dtype.lanes != 1:
            message = f'{expected}; a number of type {dtype!s} is passed as Buffer[(), "{dtype!s}"]'
            raise self.source.error(node.annotation, message)
        return dtype

    def extent(self, extent: Any, node: ast.arg) -> Any:
        """An extent: a number, an expression, or a text that names sizes."""
        if isinstance(extent, Expr) or (isinstance(extent, int) and not isinstance(extent, bool)):
            return extent
        if hasattr(extent, "__index__"):
            return int(extent)
        if not isinstance(extent, str):
            raise self.source.error(node.annotation, f"expected an extent, found {extent!r}")
        try:
            tree = ast.parse(extent.strip(), mode="eval")
            names = {part.id: self.size(part.id) for part in ast.walk(tree) if isinstance(part, ast.Name)}
            return eval(compile(tree, "<extent>", "eval"), {"__builtins__": {}}, names)
        except Exception as error:
            raise self.source.error(node.annotation, f"{extent!r} is not an extent: {error}") from None

    def size(self, name: str) -> Var:
        found = self.names.get(name)
        if not isinstance(found, Var):
            found = self.names[name] = self.builder.size(name)
        return found
