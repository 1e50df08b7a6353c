"""Instruments and a pass that show the module between passes: on a stream, or as files."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tilewright.passes.base import ModulePass
from tilewright.passes.decorators import module_pass
from tilewright.passes.info import name_tuple
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.registry import register_pass

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.context import PassContext
    from tilewright.passes.info import PassInfo


def _show(title: str, mod: IRModule, stream: TextIO | None) -> None:
    # sys.stdout is looked up at each use: notebooks and tests put another one in its place.
    print(f"{title}\n{mod}", file=stream if stream is not None else sys.stdout)


class PrintBeforeAll(PassInstrument):
    """Prints each pass's name and the module before it; to ``stream``, or standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        _show(f"Before pass: {info.name}", mod, self._stream)


class PrintAfterAll(PassInstrument):
    """Prints each pass's name and the module after it; to ``stream``, or standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        _show(f"After pass: {info.name}", mod, self._stream)


class PassPrintingInstrument(PassInstrument):
    """Prints the module before the passes of one list of names and after those of another.

    Raises:
        TypeError: one of the two is no list or tuple of names.
    """

    def __init__(
        self,
        print_before_pass_names: Sequence[str] | None = (),
        print_after_pass_names: Sequence[str] | None = (),
        stream: TextIO | None = None,
    ) -> None:
        self._before = frozenset(name_tuple(print_before_pass_names, "print_before_pass_names"))
        self._after = frozenset(name_tuple(print_after_pass_names, "print_after_pass_names"))
        self._stream = stream

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self._before:
            _show(f"Before pass: {info.name}", mod, self._stream)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self._after:
            _show(f"After pass: {info.name}", mod, self._stream)


@register_pass
@module_pass(opt_level=0, name="PrintIR")
class PrintIR(ModulePass):
    """A pass that prints ``header`` and the module, and returns the module: put it after the pass to look at."""

    def __init__(self, header: str = "", stream: TextIO | None = None) -> None:
        self._header = header
        self._stream = stream

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        print(f"PrintIR{f' ({self._header})' if self._header else ''}:", file=self._stream or sys.stdout)
        print(mod, file=self._stream or sys.stdout)
        return mod


class DumpIR(PassInstrument):
    """Writes the module to numbered files in a folder: ``000_input.ir``, then one for each pass that changed its text.

    The folder is made when the first file is written. A pass that changes nothing makes no file.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self._written = 0
        self._last_module: IRModule | None = None
        self._last_text: str | None = None

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if self._last_text is None:
            self._write("input", mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._write(info.name, mod)

    def _write(self, name: str, mod: IRModule) -> None:
        if mod is self._last_module:
            return
        text = str(mod)
        self._last_module = mod
        if text == self._last_text:
            return
        self._last_text = text
        self.folder.mkdir(parents=True, exist_ok=True)
        file_name = f"{self._written:03d}_{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.ir"
        (self.folder / file_name).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        self._written += 1
