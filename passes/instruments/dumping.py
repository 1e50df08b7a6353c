"""``DumpIR``: write the module after each pass that changed it to a file."""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.passes.instrument import PassInstrument
from tilewright.passes.instruments.filters import Names
from tilewright.passes.instruments.module_texts import Functions, ModuleTexts

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo

#: The file that lists the others.
INDEX = "index.txt"


class DumpIR(PassInstrument):
    """Write the module to numbered files in a folder: ``000_input.ir``, then one for each pass that changed its text.

    The folder is created with the first file. A pass that changes nothing writes no file. A module that no pass
    returned (another build in the same context) is written as another input. A file gets its name when it is complete;
    files of an earlier run that have the same name are replaced.

    Args:
        folder: the folder for the files.
        passes: names or patterns (``"Fuse*"``) of the passes to observe; None: all. The input of a named pass is
            written as ``..._before_FuseOps.ir`` if it differs from the previous file.
        functions: names or patterns of the functions to write; None: all.
        index: also write a file ``index.txt``, with a line for each file: its pass and the functions that changed.

    Raises:
        TypeError: ``passes`` or ``functions`` is neither a name nor a list of names.
    """

    def __init__(
        self, folder: str | PathLike[str], passes: Names = None, functions: Names = None, index: bool = False
    ) -> None:
        self.folder = Path(folder)
        self._texts = ModuleTexts(passes, functions)
        self._index: list[str] | None = [] if index else None
        self._written = 0
        self._last: Functions = {}
        self._last_text: str | None = None

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if self._texts.takes_all_passes:
            self._write("input", mod)
        elif self._texts.wants(info):
            self._write(f"before_{info.name}", mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if self._texts.wants(info, changes_only=False):
            self._write(info.name, mod)

    def _write(self, name: str, mod: IRModule) -> None:
        functions = self._texts.selected(mod)
        changed = [key.name for key, function in functions.items() if self._last.get(key) is not function]
        changed += [key.name for key in self._last if key not in functions]
        if not changed and self._last_text is not None:
            return
        text = self._texts.text(mod)
        self._last = functions
        if text == self._last_text:
            return
        self._last_text = text
        self.folder.mkdir(parents=True, exist_ok=True)
        file_name = f"{self._written:03d}_{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.ir"
        self._replace(file_name, text)
        self._written += 1
        if self._index is not None:
            self._index.append(f"{file_name}  {', '.join(f'@{function}' for function in dict.fromkeys(changed))}")
            self._replace(INDEX, "\n".join(self._index))

    def _replace(self, name: str, text: str) -> None:
        """Write a file under another name and rename it when it is complete: a reader never sees a partial file."""
        unfinished = self.folder / f".{name}.{os.getpid()}"
        unfinished.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        unfinished.replace(self.folder / name)
