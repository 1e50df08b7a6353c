"""Check a node by itself: what its constructor checks and derives, for nodes that were made or changed without it."""

from __future__ import annotations

from tilewright.tensorir.consing import made_anew
from tilewright.tensorir.expr import Expr, FloatImm, IntImm
from tilewright.tensorir.nesting import Extents
from tilewright.tensorir.node import Node


class Known:
    """Facts that verifications of programs with common parts share: nodes do not change, and are checked once.

    Attributes:
        sound: nodes that are as their constructors would make them.
        extents: the extents of parts.
    """

    def __init__(self) -> None:
        self.sound: set[Node] = set()
        self.extents = Extents()


def broken_invariant(node: Node) -> str:
    """Return what is wrong with a node whatever its place; an empty text if it is as its constructor would make it."""
    try:
        again = made_anew(node)
    except (TypeError, ValueError) as error:
        return str(error)
    except Exception as error:  # a part that is no expression may fail in any way
        return _misplaced(node) or f"{type(node).__name__}: {error}"
    if not isinstance(node, Expr):
        return ""
    if again.dtype is not node.dtype:
        return f"the type is {node.dtype!s}, the operands give {again.dtype!s}"
    if isinstance(node, (IntImm, FloatImm)) and again.value != node.value and node.value == node.value:
        return f"the constant {node.value!r} is no number of type {node.dtype!s}"
    return ""


def _misplaced(node: Node) -> str:
    """Describe a part of ``node`` that is no expression; an empty text if all are."""
    wrong = [part for part in node.parts() if not isinstance(part, Expr)]
    return f"{type(wrong[0]).__name__} is no expression" if wrong else ""
