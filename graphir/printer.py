"""Print the graph IR: the text of ``str(node)`` and of error messages, which the parser reads back.

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

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer_graph import Constants, ModulePrinter
from tilewright.graphir.spelling import attribute_texts, digest, inline_text, quote_name, variable_name
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.printer import to_text as loop_level_text
from tilewright.tensorir.stmt import PrimFunc


def to_text(
    node: Expr | IRModule,
    constants: Constants = "digest",
    loop_level: Callable[[PrimFunc], str] = loop_level_text,
) -> str:
    """Return the text of an expression or a module. That of a module parses back to a structurally equal one.

    Args:
        constants: ``"inline"`` writes the data of large constants too (base64, little-endian), so that the text is
            self-contained; ``"digest"`` only their type and digest; ``"type"`` only their type, so that no data are
            read, and the text cannot be parsed.
        loop_level: returns the text of a loop-level function, for callers that have it already.
    """
    printer = ModulePrinter(constants, loop_level)
    if isinstance(node, IRModule):
        for gv, function in node.functions.items():
            printer.function(gv.name, function)
    elif isinstance(node, (Constant, GlobalVar)):
        return printer.atom(node)
    elif isinstance(node, Var):
        return variable_name(node.name)
    else:
        printer.expression(node)
    return printer.text()


def summary(node: Expr) -> str:
    """Return a line about one expression, which names its parts by their kinds: for remarks and errors.

    Its length does not depend on the size of the graph below ``node``.
    """

    def part(child: Expr) -> str:
        if isinstance(child, Call):
            return f"{callee_name(child)}(...)"
        return f"const{list(child.shape)}" if isinstance(child, Constant) and child.ndim else _short(child)

    if isinstance(node, Call):
        text = f"{callee_name(node)}({', '.join([*map(part, node.args), *attribute_texts(node.attrs)])})"
    else:
        text = _short(node)
    return text + (f" : {node.type}" if node.type is not None else "") + (f"  # {node.span}" if node.span else "")


def callee_name(node: Call) -> str:
    """Return the operator or function that a call calls, as text."""
    if isinstance(node.op, Operator):
        return node.op.name
    return _short(node.op)


def _short(node: Expr) -> str:
    if isinstance(node, Var):
        return variable_name(node.name)
    if isinstance(node, GlobalVar):
        return f"@{quote_name(node.name)}"
    if isinstance(node, Constant):
        return inline_text(node) or f"const{list(node.shape)}"
    if isinstance(node, Function):
        return str(node.attrs.get("name", "fn"))
    return type(node).__name__


def large_constants(node: Expr | IRModule) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays that the text of ``node`` only describes, by their digest, as ``parse`` takes them."""
    roots = [f for f in node.functions.values() if isinstance(f, Expr)] if isinstance(node, IRModule) else [node]
    found: dict[str, np.ndarray[Any, Any]] = {}
    for item in post_order(*roots):
        if isinstance(item, Constant) and inline_text(item) is None:
            found[digest(item)] = item.data
    return found
