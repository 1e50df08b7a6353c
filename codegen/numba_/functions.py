"""Put functions together to one text of Python source, with the statement that each line was written for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.codegen.llvm.bounds import address_of_text
from tilewright.codegen.numba_.names import Names
from tilewright.codegen.numba_.prologue import HEADER, HELPERS
from tilewright.codegen.numba_.source import C_PREFIX, FunctionWriter
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.stmt import PrimFunc, Stmt
from tilewright.tensorir.tensor_intrins import c_function


def python_names(functions: Sequence[PrimFunc]) -> dict[str, str]:
    """Choose the Python name of each function.

    Raises:
        CodegenError: two functions have one name.
    """
    names, taken = {}, Names()
    for func in functions:
        if func.name in names:
            raise CodegenError(f"two functions are named {func.name}")
        names[func.name] = taken.fresh(func.name)
    return names


@dataclasses.dataclass(frozen=True)
class TracedSource:
    """Python source whose lines know where they come from.

    Attributes:
        text: the source.
        statements: for each of its lines the statement that it was written for; None for imports and the like.
    """

    text: str
    statements: Sequence[Stmt | None]


def emit_source(functions: Sequence[PrimFunc]) -> str:
    """Emit Python source for ``functions``. Buffers are arrays of their shapes (of one dimension if they have strides,
    of uint16 for half types), variables are integers.

    Raises:
        CodegenError: a program contains something that cannot be expressed; the place is underlined.
    """
    return trace_source(functions).text


def trace_source(functions: Sequence[PrimFunc]) -> TracedSource:
    """Emit the same with the statement of each line.

    Raises:
        CodegenError: as :func:`emit_source`.
    """
    names = python_names(functions)
    by_name = {func.name: func for func in functions}
    helpers: set[str] = set()
    instructions: set[str] = set()
    accesses: dict[str, str] = {}
    writers = [FunctionWriter(func, helpers, by_name, names, instructions, accesses) for func in functions]
    written = [writer.function() for writer in writers]
    used: list[Callable[..., Any]] = [*([c_function] if instructions else []), *([address_of_text] if accesses else [])]
    imported = [f"from {function.__module__} import {function.__name__}\n" for function in used]
    loaded = [f'{C_PREFIX}{name} = {c_function.__name__}("{name}")' for name in sorted(instructions)]
    loaded += [f"{name} = {address_of_text.__name__}({text!r})" for text, name in accesses.items()]
    header = HEADER + "".join([*imported, *[f"\n{line}\n" for line in loaded]])
    text = "\n\n".join([header, *[HELPERS[name] for name in sorted(helpers)]])
    statements: list[Stmt | None] = []
    for writer, function in zip(writers, written, strict=True):
        text += "\n\n" + function
        above = text.count("\n") - len(writer.makers)  # a function ends with the last of its lines
        statements += [None] * (above - len(statements)) + writer.makers
    return TracedSource(text, statements)
