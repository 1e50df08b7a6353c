"""What passes and the infrastructure tell the user: remarks, notes on errors, suggestions for a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.tensorir.errors import add_note
from tilewright.tensorir.node import Node

if TYPE_CHECKING:
    from types import TracebackType

    from tilewright.passes.info import PassInfo

#: An exception says where in the IR it happened by attributes of these names: a node or line of text, a function's
#: name.
LOCATION_ATTRIBUTE = "ir_location"
FUNCTION_ATTRIBUTE = "ir_function"

_MAX_LOCATION = 240  # characters of an IR line that a note shows


@dataclass(frozen=True)
class Remark:
    """What a pass did, or why it did not, in one sentence for the user.

    Attributes:
        pass_name: the pass that speaks; empty outside of a pass.
        function: the function that it worked on; empty if it was about the module.
        kind: ``"applied"``, ``"missed"``, ``"note"``, or a word of the pass's own.
        message: the sentence, such as "conv1 and add2 not fused: the output escapes".
        place: the IR line that it is about; empty if there is none.
    """

    pass_name: str
    function: str
    kind: str
    message: str
    place: str = ""

    def __str__(self) -> str:
        where = f" @{self.function}" if self.function else ""
        place = f" [{self.place}]" if self.place else ""
        return f"{self.pass_name or '(no pass)'}{where}: {self.kind}: {self.message}{place}"


def order_by_similarity(name: str, candidates: Iterable[str]) -> list[str]:
    """All candidates, the most similar to ``name`` first; case does not count, ties go by the alphabet."""
    matcher = difflib.SequenceMatcher(b=name.lower(), autojunk=False)

    def distance(candidate: str) -> tuple[float, str]:
        matcher.set_seq1(candidate.lower())
        return -matcher.ratio(), candidate

    return sorted(set(candidates), key=distance)


def suggestion(name: str, candidates: Iterable[str], limit: int = 3) -> str:
    """``" Did you mean 'A', 'B' or 'C'?"`` with the ``limit`` nearest candidates; empty if there are none at all."""
    nearest = [repr(candidate) for candidate in order_by_similarity(name, candidates)[:limit]]
    if not nearest:
        return ""
    listed = nearest[0] if len(nearest) == 1 else f"{', '.join(nearest[:-1])} or {nearest[-1]}"
    return f" Did you mean {listed}?"


def set_ir_location(error: BaseException, place: object) -> None:
    """Say where in the IR ``error`` happened, for the note that the infrastructure attaches; an earlier word stays.

    ``place`` is an IR node or a line of IR text. A pass that knows the place calls this before it raises or re-raises.
    """
    if getattr(error, LOCATION_ATTRIBUTE, None) is None:
        setattr(error, LOCATION_ATTRIBUTE, place)


def set_ir_function(error: BaseException, function: str) -> None:
    """Say in which function of the module ``error`` happened; an earlier word stays."""
    if getattr(error, FUNCTION_ATTRIBUTE, None) is None:
        setattr(error, FUNCTION_ATTRIBUTE, function)


def ir_location(error: BaseException) -> str | None:
    """The IR line where ``error`` happened, or None if it is not known.

    It is what the exception says of itself (``set_ir_location``), else the IR node that the innermost function of the
    traceback had been given as an argument: visitors and rewriters pass the node at hand that way, so that neither
    they nor a pass need to keep track of it while nothing goes wrong.
    """
    place: Any = getattr(error, LOCATION_ATTRIBUTE, None)
    if place is None:
        place = _innermost_node(error.__traceback__)
    return None if place is None else _one_line(str(place))


def note_pass_failure(error: BaseException, info: PassInfo, function: str | None) -> None:
    """Note on ``error`` which pass was running, on which function, and (once, innermost) at which IR line."""
    function = getattr(error, FUNCTION_ATTRIBUTE, None) or function
    where = f" on function @{function}" if function else ""
    place = None if getattr(error, "_tilewright_located", False) else ir_location(error)
    at = f"\n  at: {place}" if place else ""
    add_note(error, f"in pass {info.name} (opt_level {info.opt_level}){where}{at}")
    if place:
        error._tilewright_located = True  # type: ignore[attr-defined]


def _innermost_node(traceback: TracebackType | None) -> Node | None:
    found: Node | None = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        arguments = code.co_varnames[: code.co_argcount]
        if arguments:
            variables = traceback.tb_frame.f_locals
            for name in arguments:
                value = variables.get(name)
                if isinstance(value, Node):
                    found = value
                    break
        traceback = traceback.tb_next
    return found


def _one_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _MAX_LOCATION else line[: _MAX_LOCATION - 4] + " ..."
