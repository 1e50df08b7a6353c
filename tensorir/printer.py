"""Print the loop-level IR: the text that ``str(node)`` gives, that errors show, and that the parser reads back.

The text reads like Python with braces. Its rules, in full, are the grammar in ``grammar.lark``; in short::

    primfunc @sum(A: Buffer[(n, 64), float32], C: Buffer[(n,), float32, align=64], n: int64) attrs {"num_outputs": 1} {
      for i in parallel(n) {                        # For(i, 0, n, "parallel"); a first bound: range(lo, extent=n)
        for k in range(64) annotations {"unroll": True} {
          block sum(vi: spatial(n) = i, vk: reduction(64) = k) where i < n {
            reads A[vi, 0:+64]                      # Range(0, 64); an extent of one is left out
            writes C[vi]
            init {
              C[vi] = 0.0
            }
            let x: float32 = A[vi, vk]              # holds in the rest of these braces, as does allocate
            C[vi] = C[vi] + x
          }
        }
      }
    }

* A bare ``1`` is an int64 and a bare ``2.0`` a float32, unless an operand beside it or the place where it stands has
  another type, which it then takes; everywhere else a constant names its type: ``int32(3)``, ``float32(inf)``. A type
  around anything but a bare constant is a cast; the cast of a bare constant is ``cast(int32, 3)``.
* Two different variables or buffers that are visible at one place have different names: ``i``, ``i_1``.
* A name that is not an identifier, or is a keyword, stands in backquotes, with JSON's escapes: `` `conv/1 weight` ``.
"""

from __future__ import annotations

from tilewright.tensorir.expr import Var
from tilewright.tensorir.nesting import bounded
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer_statements import StatementPrinter
from tilewright.tensorir.spelling import quote_name


def to_text(node: Node) -> str:
    """Return the text of any node. That of a function parses back to a structurally equal one.

    Raises:
        NestingError, BudgetError: the program is nested too deeply, or too large.
    """
    if type(node) is Var:  # the usual case, a dimension in the text of a type
        return quote_name(node.name)
    printer = StatementPrinter()
    with bounded("printing", node):
        printer.root(node)
    return printer.text()


def underline(root: Node, node: Node, message: str = "", context: int = 3, within: Node | None = None) -> str:
    """Return the lines of ``root``'s text around ``node`` (the first occurrence of that object), underlined, with
    ``message`` after the line. If ``root`` does not hold ``node``, the text of both is shown.

    Args:
        context: the number of lines shown before and after the place.
        within: show the occurrence inside this node, for a ``node`` such as a variable that occurs several times.
    """
    printer = StatementPrinter(marked=(node,) if within is None else (node, within))
    with bounded("printing", root):
        printer.root(root)
    text = printer.text()
    note = f" {message}" if message else ""
    spans = printer.spans[node]
    if not spans:
        return f"{text}\nat: {to_text(node)}{note}"
    inside = [
        span
        for span in spans
        if within is not None and any(first <= span[0] and span[1] <= last for first, last in printer.spans[within])
    ]
    start, end = min(inside or spans)
    start += len(text[start:end]) - len(text[start:end].lstrip())
    first = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    line_end = len(text) if stop < 0 else stop
    column = start - first
    carets = " " * column + "^" * max(1, min(end, line_end) - start) + note
    lines = text.split("\n")
    number = text.count("\n", 0, start)
    above, below = lines[max(0, number - context) : number + 1], lines[number + 1 : number + 1 + context]
    head = [] if number <= context else [lines[0]] if number == context + 1 else [lines[0], "  ..."]
    shown = [*head, *above, carets, *below]
    if number + 1 + context < len(lines):
        shown.append("  ...")
    return "\n".join(shown)
