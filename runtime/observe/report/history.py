"""Record the text of each function after each pass that changed it.

The loop nests of a network are a hundred thousand lines in each of two dozen stages, most of them unchanged from stage
to stage. So each function has one table of lines, and a version of it is a list of line numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from tilewright.graphir.expr import GlobalVar
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.printer import to_text
from tilewright.passes.instrument import PassInstrument

if TYPE_CHECKING:
    from tilewright.passes.info import PassInfo
    from tilewright.passes.instruments.timing import PassTimingInstrument

#: Maximum number of lines that are kept of a function, besides the number of further lines.
MOST_LINES = 4000


class Texts:
    """The versions of a function's text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[str, int] = {}
        self.versions: list[list[int]] = []

    def add(self, text: str) -> int:
        """Add a version; return its number, or that of the last one if it is the same."""
        lines = text.splitlines()
        if len(lines) > MOST_LINES:
            lines = [*lines[:MOST_LINES], f"... {len(lines) - MOST_LINES} lines more"]
        version = [self._number(line) for line in lines]
        if not self.versions or self.versions[-1] != version:
            self.versions.append(version)
        return len(self.versions) - 1

    def _number(self, line: str) -> int:
        number = self._numbers.setdefault(line, len(self.lines))
        if number == len(self.lines):
            self.lines.append(line)
        return number

    def as_dict(self) -> dict[str, Any]:
        """Return ``{lines, versions}``: a version is encoded as runs of neighbouring lines, ``[first, count, first,
        ...]``."""
        return {"lines": self.lines, "versions": [_runs(version) for version in self.versions]}


def _runs(numbers: list[int]) -> list[int]:
    runs: list[int] = []
    for number in numbers:
        if runs and runs[-2] + runs[-1] == number:
            runs[-1] += 1
        else:
            runs += [number, 1]
    return runs


@dataclasses.dataclass
class Step:
    """The effect of one pass.

    Attributes:
        name: name of the pass; ``input`` for the module that the first pass gets.
        changed: the functions that it changed or added, each with the version of its text afterwards; None for those
            that it removed.
    """

    name: str
    changed: dict[str, int | None]


class PassHistory(PassInstrument):
    """Record the text of each function after each pass.

    Args:
        timing: the instrument that excludes the time of recording.

    Attributes:
        steps: the input, and then each pass that changed something, in order.
        passes: the number of passes that ran.
    """

    def __init__(self, timing: PassTimingInstrument | None = None) -> None:
        self._timing = timing
        self.steps: list[Step] = []
        self.passes = 0
        self._texts: dict[str, Texts] = {}
        self._last: dict[str, AnyFunction] = {}

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if not self.steps:
            self._look("input", mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.passes += 1
        self._look(info.name, mod)

    def _look(self, name: str, mod: IRModule) -> None:
        with self._timing.paused() if self._timing is not None else contextlib.nullcontext():
            self._compare(name, mod)

    def _compare(self, name: str, mod: IRModule) -> None:
        functions = mod.functions
        changed: dict[str, int | None] = {}
        for key, function in functions.items():
            if self._last.get(key.name) is function:
                continue
            texts = self._texts.setdefault(key.name, Texts())
            count = len(texts.versions)
            version = texts.add(function_text(key, function))
            if version == count or key.name not in self._last:
                changed[key.name] = version
        names = {key.name for key in functions}
        changed.update((gone, None) for gone in self._last if gone not in names)
        self._last = {key.name: function for key, function in functions.items()}
        if changed or not self.steps:
            self.steps.append(Step(name, changed))

    def as_dict(self) -> dict[str, Any]:
        """Return ``{passes, steps, functions}``, where ``functions`` has the texts by name (:meth:`Texts.as_dict`)."""
        return {
            "passes": self.passes,
            "steps": [dataclasses.asdict(step) for step in self.steps],
            "functions": {name: texts.as_dict() for name, texts in self._texts.items()},
        }


def function_text(key: GlobalVar, function: AnyFunction) -> str:
    """Print one function of a module."""
    return to_text(IRModule({key: function})).strip("\n")
