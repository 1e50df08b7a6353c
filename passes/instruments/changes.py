"""``PrintChanged``: print the changes of each pass as a unified diff of the IR text."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from tilewright.passes.instrument import PassInstrument
from tilewright.passes.instruments.filters import Names
from tilewright.passes.instruments.module_texts import Change, ModuleTexts
from tilewright.tensorir.errors import ArgumentValueError

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo

#: The style of a line by its prefix; longer prefixes first.
_STYLES = (("+++", "bold"), ("---", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


class PrintChanged(PassInstrument):
    """Print a unified diff of each function whose text a pass changed.

    ::

        with PassContext(instruments=[PrintChanged(passes="Fuse*", functions="main")]):
            tw.build(mod)

    Args:
        passes: names or patterns (``"Fuse*"``) of the passes to observe; None: all. The changes of a pipeline are shown
            only if it is named.
        functions: names or patterns of the functions to print; None: all.
        stream: gets the text: standard output by default.
        color: whether to print in color; None: if ``stream`` is a terminal.
        context_lines: the number of unchanged lines to show around changed ones.

    Raises:
        TypeError: ``passes`` or ``functions`` is neither a name nor a list of names.
        ValueError: ``context_lines`` is negative.
    """

    def __init__(
        self,
        passes: Names = None,
        functions: Names = None,
        stream: TextIO | None = None,
        color: bool | None = None,
        context_lines: int = 3,
    ) -> None:
        if context_lines < 0:
            raise ArgumentValueError(f"context_lines: expected a number of lines, found {context_lines}")
        self._texts = ModuleTexts(passes, functions)
        self._stream = stream
        self._color = color
        self._context_lines = context_lines

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if self._texts.wants(info):
            self._texts.begin(mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if not self._texts.wants(info):
            return
        stream = self._stream if self._stream is not None else sys.stdout
        color = stream.isatty() if self._color is None else self._color
        for change in self._texts.changes_of_pass(mod):
            for line in diff_lines(change, info.name, self._context_lines):
                print(colored(line) if color else line, file=stream)
        self._texts.end()

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        if self._texts.wants(info):
            self._texts.end()


def diff_lines(change: Change, pass_name: str, context_lines: int = 3) -> Iterator[str]:
    """Return a unified diff of a function's text."""
    before, after = (text.splitlines() for text in (change.before, change.after))
    names = (f"@{change.function} before {pass_name}", f"@{change.function} after {pass_name}")
    return difflib.unified_diff(before, after, *names, n=context_lines, lineterm="")


def colored(line: str) -> str:
    """Return a line of a unified diff with the escape sequences that color it on a terminal."""
    from rich.color import ColorSystem  # loaded only when needed: `import tilewright` must stay fast
    from rich.style import Style

    for beginning, style in _STYLES:
        if line.startswith(beginning):
            return Style.parse(style).render(line, color_system=ColorSystem.STANDARD)
    return line
