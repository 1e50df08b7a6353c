"""Build types and dimensions of the graph-level IR from trees of the grammar, and the plain data of attributes."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from tilewright.graphir.dims import as_dim, symbol
from tilewright.graphir.parser_text import TextReader
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.tensorir.parser import parse_expr

_SYMBOL = re.compile(r"[^\W\d]\w*")
_WORDS = {"none": None, "true": True, "false": False, "inf": math.inf, "nan": math.nan, "negative_inf": -math.inf}


class TypeParser(TextReader):
    """Build types and plain data; each type that the text repeats is built once."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.types: dict[str, Type] = {}

    def type(self, tree: Any) -> Type:
        children = [child for child in tree.children if child is not None]
        if tree.data == "tensor_type":
            return self.tensor_type(children[0])
        if tree.data == "tuple_type":
            return TupleType([self.type(child) for child in children])
        *params, result = [self.type(child) for child in children]
        return FuncType(params, result)

    def tensor_type(self, token: Any) -> Type:
        found = self.types.get(token)
        if found is None:
            inner = token[len("Tensor[") : -1]
            shape, comma, dtype = inner.rpartition(",")
            shape = shape.strip()
            if not comma or not shape.startswith("(") or not shape.endswith(")"):
                raise self.error(token, f"expected Tensor[(dimensions), element type], found {token}")
            dims = [self.dim(token, part) for part in _split(shape[1:-1])]
            found = self.types[str(token)] = self.make(token, TensorType, dims, dtype.strip())
        return found

    def dim(self, token: Any, text: str) -> Any:
        text = text.strip()
        if text.isdecimal():
            return self.make(token, int, text)
        if _SYMBOL.fullmatch(text):
            return self.make(token, symbol, text)
        names = {name: self.make(token, symbol, name) for name in _SYMBOL.findall(text) if name not in ("min", "max")}
        try:
            return as_dim(parse_expr(text, names))
        except (TypeError, ValueError) as error:
            raise self.error(token, f"{text!r} is no dimension: {str(error).partition(chr(10))[0]}") from None

    def number(self, token: Any) -> Any:
        return self.make(token, int if token.type == "INT" else float, str(token))

    def data(self, tree: Any) -> Any:
        children = [child for child in tree.children if child is not None]
        kind = tree.data
        if kind == "number":
            return self.number(children[0])
        if kind == "negative":
            return -self.number(children[0])
        if kind in ("list", "data_tuple"):
            values = [self.data(child) for child in children]
            return values if kind == "list" else tuple(values)
        if kind == "mapping":
            return self.make(tree, dict, [[self.data(part) for part in entry.children] for entry in children])
        if kind == "text":
            return self.make(tree, json.loads, str(children[0]))
        if kind == "dim":
            return self.dim(children[0], children[0][len("dim[") : -1])
        if kind == "data_type":
            return self.tensor_type(children[0])
        if kind == "opaque":
            raise self.error(tree, "this attribute is an object that text does not describe")
        return _WORDS[kind]


def _split(text: str) -> list[str]:
    """Split ``text`` at commas outside parentheses; an empty last part is left out."""
    parts: list[str] = [""]
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts if parts[-1].strip() else parts[:-1]
