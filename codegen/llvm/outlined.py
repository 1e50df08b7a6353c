"""Outline loops: emit them as functions of their own.

A loop with the annotation ``{"outline": True}`` (``tensorir.keys.OUTLINE``) becomes a call. An epilogue with an
exponential behind a tile of sums is such a loop: LLVM hoists the constants of a loop out of all loops around it and
keeps them in registers there, although the accumulators need these, so that the innermost loop spills and copies them.
A call separates the two, since no vector register is preserved across it by C's calling conventions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.codegen.analysis import Captured, uses
from tilewright.codegen.llvm.memory import pointer_attributes
from tilewright.codegen.llvm.text import global_name, value_type
from tilewright.tensorir.expr import Var
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import For

if TYPE_CHECKING:
    from tilewright.codegen.llvm.function import FunctionEmitter


def emit_outlined_loop(emitter: FunctionEmitter, loop: For) -> None:
    """Emit ``loop`` as a function, and a call of it."""
    found = uses(emitter.root.body).captured[loop]
    passed = captured_operands(emitter, found, loop, set(emitter.known.values))
    child = emitter.child("part")
    params = capture_parameters(emitter, child, found, set(emitter.known.values))
    child.statement(For(loop.var, loop.min, loop.extent, loop.kind, loop.body, {}))
    symbol, module = global_name(child.symbol), emitter.module
    header = f"define internal void {symbol}({', '.join(params)}) noinline {module.attributes}"
    module.text.functions.append(child.finish(header))
    emitter.builder.emit(f"call void {symbol}({', '.join(f'{kind} {value}' for kind, value in passed)})")
    emitter.memory.forget()


def captured_operands(emitter: FunctionEmitter, found: Captured, node: Node, inside: set[Var]) -> list[tuple[str, str]]:
    """Return the types and operands that a function made of a part of ``emitter``'s captures: variables, without those
    that it knows ``inside``, and buffers.

    Args:
        node: the outlined part, for messages.
    """
    variables = [var for var in found.variables if var not in inside]
    passed = [(value_type(var.dtype), emitter.variable(var)) for var in variables]
    return passed + [("ptr", emitter.slot(buffer, node).pointer) for buffer in found.buffers]


def capture_parameters(
    emitter: FunctionEmitter, child: FunctionEmitter, found: Captured, inside: set[Var]
) -> list[str]:
    """Make those operands parameters of the function that ``child`` emits; return their declarations."""
    params: list[str] = []
    for var in found.variables:
        if var not in inside:
            name = f"%{child.builder.fresh(var.name)}"
            params.append(f"{value_type(var.dtype)} {name}")
            child.values[var] = name
    for buffer in found.buffers:
        name = f"%{child.builder.fresh(buffer.name)}"
        params.append(f"{pointer_attributes(emitter.root, buffer, found.written)} {name}")
        child.bind_buffer(buffer, name)
    return params
