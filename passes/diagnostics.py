"""Remarks of passes, notes on errors of passes, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.passes.location import ir_function, ir_location
from tilewright.tensorir.errors import add_note

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo


@dataclass(frozen=True)
class Remark:
    """One sentence for the user about a change that a pass made, or the reason why it made none.

    Attributes:
        pass_name: the pass that makes the remark; empty outside of a pass.
        function: the function that it worked on; empty if it was about the module.
        kind: ``"applied"``, ``"missed"``, ``"note"``, or a word of the pass's own.
        message: the sentence, such as "conv1 and add2 not fused: the output escapes".
        place: the IR line that the remark is about; empty if there is none.
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
    """Sort all candidates, the most similar to ``name`` first, ignoring case; ties are in alphabetical order."""
    matcher = difflib.SequenceMatcher(b=name.lower(), autojunk=False)

    def distance(candidate: str) -> tuple[float, str]:
        matcher.set_seq1(candidate.lower())
        return -matcher.ratio(), candidate

    return sorted(set(candidates), key=distance)


def suggestion(name: str, candidates: Iterable[str], limit: int = 3) -> str:
    """Return ``" Did you mean 'A', 'B' or 'C'?"`` with the ``limit`` nearest candidates; empty without candidates."""
    nearest = [repr(candidate) for candidate in order_by_similarity(name, candidates)[:limit]]
    if not nearest:
        return ""
    listed = nearest[0] if len(nearest) == 1 else f"{', '.join(nearest[:-1])} or {nearest[-1]}"
    return f" Did you mean {listed}?"


def note_pass_failure(error: BaseException, info: PassInfo, function_name: str | None, mod: IRModule) -> None:
    """Note on ``error`` the running pass, the function of ``mod``, and (once, innermost) the place in its IR."""
    function_name = ir_function(error) or function_name
    note = f"in pass {info.name} (opt_level {info.opt_level})"
    if function_name:
        note += f" on function @{function_name}"
    if not getattr(error, "_tilewright_located", False):
        error._tilewright_located = True  # type: ignore[attr-defined]
        function = next((func for gv, func in mod.functions.items() if gv.name == function_name), None)
        try:
            place = ir_location(error, function)
        except Exception as second:  # a broken program may not print; its error must not hide the first one
            place = f"(the place cannot be shown: {type(second).__name__}: {second})"
        if place:
            note += "\n  at: " + place.replace("\n", "\n      ")
    add_note(error, note)
