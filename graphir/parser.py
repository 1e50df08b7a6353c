"""Read the text of the graph-level IR back into a module; the inverse of ``printer.py``.

``grammar.lark`` defines the grammar. ``parser_text.py`` reads a text into a tree and resolves names;
``parser_types.py`` and ``parser_expressions.py`` build the nodes and check the types that the text states. Errors show
the line with the place underlined. The time is linear in the length of the text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.graphir.expr import Constant, GlobalVar, Var
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.parser_expressions import ExpressionParser
from tilewright.graphir.spelling import digest
from tilewright.graphir.types import FuncType, TensorType, Type
from tilewright.tensorir.errors import ArgumentTypeError, ParseError
from tilewright.tensorir.nesting import bounded
from tilewright.tensorir.parser import parse as parse_loop_level
from tilewright.tensorir.parser import primfunc_end

_PRIMFUNC = re.compile(r"^[ \t]*(primfunc)\b", re.MULTILINE)


def parse(text: str, constants: Mapping[str, np.ndarray[Any, Any]] | None = None) -> IRModule:
    """Return the module that ``text`` describes.

    Args:
        constants: arrays of large constants by their digest, for a text without their data, as
            ``large_constants(module)`` returns them.

    Raises:
        ParseError: the text is no module, uses an undefined name, or needs an array that ``constants`` lacks.
        UnsupportedOperatorError: an operator is unknown; the message suggests the closest names.
        TypeInferenceError: an expression has no type, or another one than the text states.
        NestingError: the text is nested too deeply.
    """
    if not isinstance(text, str):
        raise ArgumentTypeError(f"expected the text of a module, found {type(text).__name__}")
    functions: dict[str, AnyFunction] = {}
    with bounded("reading the text"):
        source = _cut_loop_level(text, functions)
        builder = ModuleParser(source, constants or {})
        return builder.module(builder.read(), functions)


def _cut_loop_level(text: str, functions: dict[str, AnyFunction]) -> str:
    """Read the functions of the loop-level IR, and blank them out; lines keep their numbers.

    Their order among the other functions is not kept.
    """
    parts: list[str] = []
    at = 0
    while (found := _PRIMFUNC.search(text, at)) is not None:
        start = found.start(1)
        end = primfunc_end(text, start)
        function = parse_loop_level(text[start:end], text.count("\n", 0, start) + 1)
        if function.name in functions:
            raise ParseError(f"the module has two functions named @{function.name}")
        functions[function.name] = function
        parts.append(text[at:start])
        parts.append("\n" * text.count("\n", start, end))
        at = end
    parts.append(text[at:])
    return "".join(parts)


class ModuleParser(ExpressionParser):
    """Build the functions of a module, and the constants that it describes."""

    def __init__(self, source: str, constants: Mapping[str, np.ndarray[Any, Any]]) -> None:
        super().__init__(source)
        self.arrays = constants

    def module(self, tree: Any, functions: dict[str, AnyFunction]) -> IRModule:
        definitions = [item for item in tree.children if item.data == "definition"]
        for item in tree.children:
            if item.data == "data_of_constant":
                self.data_of_constant(item)
        heads: list[tuple[str, list[Var], Type | None]] = []
        for item in definitions:
            name = self.name_of(item.children[0])
            if name in functions or any(name == other for other in self.globals):
                raise self.error(item.children[0], f"the module has two functions named @{name}")
            params = [self.param(param) for param in item.children[1].children if param is not None]
            result = None if item.children[2] is None else self.type(item.children[2])
            types = [param.type for param in params]
            known = None if result is None or None in types else FuncType(types, result)  # type: ignore[arg-type]
            self.globals[name] = GlobalVar(name, known)
            heads.append((name, params, result))
        loop_level = dict(functions)
        made: dict[GlobalVar, AnyFunction] = {}
        for item, (name, params, result) in zip(definitions, heads, strict=True):
            made[self.globals[name]] = self.function_of(item, item.children[1], params, result, item.children[3:])
        for name, function in loop_level.items():
            made[self.globals.setdefault(name, GlobalVar(name))] = function
        return IRModule(made)

    def data_of_constant(self, tree: Any) -> None:
        name, found, how, token = tree.children
        described = self.type(found)
        if not isinstance(described, TensorType) or not all(isinstance(dim, int) for dim in described.shape):
            raise self.error(found, f"expected the type of a tensor of static shape, found {described}")
        text = self.make(token, json.loads, str(token))
        if how.type == "DIGEST":
            array = self.arrays.get(text)
            if array is None:
                raise self.error(
                    tree, "the text does not hold the data of this constant; give parse(text, constants=...) its array"
                )
            constant = Constant(np.asarray(array))
            if digest(constant) != text or constant.type != described:
                raise self.error(tree, f"expected the array of this type and digest, found {constant.type}")
        else:
            try:
                data = base64.b64decode(text, validate=True)
                shape = tuple(int(dim) for dim in described.shape)  # type: ignore[arg-type]  # static, see above
                constant = Constant(np.frombuffer(data, described.dtype.numpy).reshape(shape))
            except ValueError as error:
                raise self.error(token, f"this is not the data of {described}: {error}") from None
        self.constants[str(name)] = constant
