"""Find the place in the IR at which an error happened, from the error's attributes or its traceback.

Visitors and rewriters pass the current node to a function as an argument. So the traceback of an exception holds the
node, and neither they nor the passes need to record it in the normal case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tilewright.graphir.base import Expr
from tilewright.graphir.expr import Function
from tilewright.graphir.printer import summary
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.functor import walk
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer import underline
from tilewright.tensorir.stmt import PrimFunc

if TYPE_CHECKING:
    from types import TracebackType

#: Attributes of exceptions that state the place in the IR: a node or IR text, and a function's name.
LOCATION_ATTRIBUTE = "ir_location"
FUNCTION_ATTRIBUTE = "ir_function"

_MAX_LINE = 240  # characters of one line of IR


def set_ir_location(error: BaseException, place: object) -> None:
    """Record where in the IR ``error`` happened, for the note on it; an earlier record is kept.

    ``place`` is an IR node or a line of IR text. A pass that knows the place calls this before it raises or re-raises.
    """
    if getattr(error, LOCATION_ATTRIBUTE, None) is None:
        setattr(error, LOCATION_ATTRIBUTE, place)


def set_ir_function(error: BaseException, function: str) -> None:
    """Record in which function of the module ``error`` happened; an earlier record is kept."""
    if getattr(error, FUNCTION_ATTRIBUTE, None) is None:
        setattr(error, FUNCTION_ATTRIBUTE, function)


def ir_function(error: BaseException) -> str | None:
    """Return the function that ``error`` names, or None."""
    return getattr(error, FUNCTION_ATTRIBUTE, None)


def ir_location(error: BaseException, function: object = None) -> str | None:
    """Return the IR lines where ``error`` happened, or None if unknown.

    ``function`` is the function that the pass was given: a place in it is shown underlined in its text. The place is
    taken from the error (``set_ir_location``), else it is the innermost IR node among the arguments of functions in the
    traceback, preferably a node of ``function`` (not one that the pass was building).
    """
    place: Any = getattr(error, LOCATION_ATTRIBUTE, None)
    if isinstance(place, str):
        return place
    places = [place] if place is not None else list(_argument_nodes(error.__traceback__))
    if not places:
        return None
    if isinstance(function, (PrimFunc, Function)):
        nodes = {id(node) for node in (walk(function) if isinstance(function, PrimFunc) else post_order(function))}
        places = [node for node in places if id(node) in nodes] or places
    place = places[0]
    if isinstance(place, Expr):
        return _shortened(summary(place))  # its full text would include all of its operands
    if isinstance(function, PrimFunc) and any(node is place for node in walk(function)):
        return "\n".join(map(_shortened, underline(function, place, context=1).splitlines()))
    return _shortened(next((line.strip() for line in str(place).splitlines() if line.strip()), ""))


def _argument_nodes(traceback: TracebackType | None) -> Iterator[Node | Expr]:
    """Yield the IR nodes among the arguments of functions in the traceback, innermost function first."""
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    for frame in reversed(frames):
        variables = frame.f_locals
        for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]:
            value = variables.get(name)
            # A whole function is too coarse as a place.
            if isinstance(value, (Node, Expr)) and not isinstance(value, (PrimFunc, Function)):
                yield value


def _shortened(line: str) -> str:
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 4] + " ..."
