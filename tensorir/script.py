"""Write loops as Python: ``@func`` reads the source of a function into a :class:`~.stmt.PrimFunc`.

::

    @ti.func
    def matmul(
        a: ti.Buffer[("n", 64), "float32"], b: ti.Buffer[(64, 32), "float32"], c: ti.Buffer[("n", 32), "float32"]
    ):
        for i, j, k in ti.grid(n, 32, 64):
            with ti.block("matmul"):
                vi, vj, vk = ti.axes("SSR", [i, j, k])
                with ti.init():
                    c[vi, vj] = 0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

The function is parsed, never run: the idea is that of TVMScript (Shao et al., "Tensor Program Optimization with
Probabilistic Programs", NeurIPS 2022) and of Exo (Ikarashi et al., "Exocompilation for Productive Programming of
Hardware Accelerators", PLDI 2022). Types stand in ``script_types.py``, the words of loops in ``script_words.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, overload

from tilewright.tensorir.builder import Builder
from tilewright.tensorir.expr import Expr
from tilewright.tensorir.node import Node
from tilewright.tensorir.script_source import Source
from tilewright.tensorir.script_statements import StatementReader
from tilewright.tensorir.script_types import add_parameters
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.verify import find_problems, refuse


@overload
def func(function: Callable[..., Any]) -> PrimFunc: ...


@overload
def func(
    *, name: str | None = None, attrs: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., Any]], PrimFunc]: ...


def func(
    function: Callable[..., Any] | None = None, *, name: str | None = None, attrs: Mapping[str, Any] | None = None
) -> PrimFunc | Callable[[Callable[..., Any]], PrimFunc]:
    """Make a :class:`PrimFunc` of a Python function: a decorator, with or without arguments.

    Args:
        function: its parameters are annotated, buffers as ``ti.Buffer[("n", 64), "float32"]`` (for type checkers
            ``Annotated[ti.Buffer, ("n", 64), "float32"]``), then symbolic sizes as ``int``; its body is made of
            ``for``, ``if``, ``with ti.block(..)`` and assignments. Other names are those of the module and of the
            functions around, as they are when it is decorated.
        name: of the function made, by default its own.
        attrs: its attributes, such as ``{"num_outputs": 1}``.

    Raises:
        ParseError: there is no source, or it says something that is no loop; the message shows file, line and column.
        VerifyError: the loops break a rule of the IR, such as an index out of bounds; shown in the same way.
    """
    outer = sys._getframe(1).f_locals
    if function is not None:
        return _read(function, outer, name, attrs)
    return lambda decorated: _read(decorated, outer, name, attrs)


def _read(
    function: Callable[..., Any], outer: Mapping[str, Any], name: str | None, attrs: Mapping[str, Any] | None
) -> PrimFunc:
    source = Source(function, dict(outer))
    builder = Builder(name or source.tree.name, attrs)
    reader = StatementReader(source, builder, add_parameters(source, builder))
    reader.body(source.tree.body)
    made = builder.unverified()

    def spot(node: Node, within: Node | None) -> Any:
        return reader.spans.get((builder.origins.get(within), node)) if isinstance(node, Expr) and within else None

    def show(message: str, node: Node, within: Node | None) -> str:
        statement = builder.origins.get(within) if within is not None else None
        return source.place(spot(node, within) or statement or source.tree, message)

    problems = find_problems(made)
    exact = {(message, node) for message, node, within in problems if spot(node, within) is not None}
    # The regions that are found of a block repeat what is wrong in its body.
    distinct = [item for item in problems if item[:2] not in exact or spot(*item[1:]) is not None]
    refuse(made, distinct, show)
    return made
