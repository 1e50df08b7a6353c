"""Print the module between passes: instruments, and the pass ``PrintIR``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

from tilewright.passes.base import ModulePass
from tilewright.passes.decorators import module_pass
from tilewright.passes.info import name_tuple
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.instruments.filters import Names
from tilewright.passes.instruments.module_texts import Change, Functions, ModuleTexts
from tilewright.passes.registry import register_pass

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.context import PassContext
    from tilewright.passes.info import PassInfo


def _show(title: str, text: str, stream: TextIO | None) -> None:
    # sys.stdout is looked up at each use: notebooks and tests replace it.
    print(f"{title}\n{text}", file=stream if stream is not None else sys.stdout)


class _PrintAll(PassInstrument):
    """Base of ``PrintBeforeAll`` and ``PrintAfterAll``.

    Args:
        stream: gets the text: standard output by default.
        passes: names or patterns (``"Fuse*"``) of the passes to observe; None: all.
        functions: names or patterns of the functions to print; None: all.
        only_changed: print only functions that changed. (The changes of a pipeline are shown only if it is named.)

    Raises:
        TypeError: ``passes`` or ``functions`` is neither a name nor a list of names.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        passes: Names = None,
        functions: Names = None,
        only_changed: bool = False,
    ) -> None:
        self._stream = stream
        self._texts = ModuleTexts(passes, functions)
        self._only_changed = only_changed

    def _show(self, title: str, mod: IRModule) -> None:
        if self._texts.selected(mod):
            _show(title, self._texts.text(mod), self._stream)


class PrintBeforeAll(_PrintAll):
    """Print each pass's name and the module before it; to ``stream``, or standard output.

    ``passes`` and ``functions`` (names or patterns) limit the output; with ``only_changed`` only functions are printed
    whose text has changed since it was last printed.
    """

    _last: Functions = MappingProxyType({})

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        title = f"Before pass: {info.name}"
        if not self._texts.wants(info, self._only_changed):
            return
        if self._only_changed:
            functions = self._texts.selected(mod)
            _show_changed(title, self._texts.changes(self._last, functions), self._stream)
            self._last = functions
        else:
            self._show(title, mod)


class PrintAfterAll(_PrintAll):
    """Print each pass's name and the module after it; to ``stream``, or standard output.

    ``passes`` and ``functions`` (names or patterns) limit the output; with ``only_changed`` only functions are printed
    whose text the pass changed.
    """

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if self._only_changed and self._texts.wants(info):
            self._texts.begin(mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        title = f"After pass: {info.name}"
        if not self._texts.wants(info, self._only_changed):
            return
        if self._only_changed:
            _show_changed(title, self._texts.changes_of_pass(mod), self._stream)
            self._texts.end()
        else:
            self._show(title, mod)

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        if self._only_changed and self._texts.wants(info):
            self._texts.end()


def _show_changed(title: str, changes: Sequence[Change], stream: TextIO | None) -> None:
    texts = [change.after or f"# @{change.function} was removed" for change in changes]
    if texts:
        _show(title, "\n".join(texts), stream)


class PassPrintingInstrument(PassInstrument):
    """Print the module before the passes of one list of names and after those of another.

    Raises:
        TypeError: one of the two is not a list or tuple of names.
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
            _show(f"Before pass: {info.name}", str(mod), self._stream)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self._after:
            _show(f"After pass: {info.name}", str(mod), self._stream)


@register_pass
@module_pass(opt_level=0, name="PrintIR")
class PrintIR(ModulePass):
    """Print ``header`` and the module, and return the module: add it after the pass to inspect."""

    def __init__(self, header: str = "", stream: TextIO | None = None) -> None:
        self._header = header
        self._stream = stream

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        print(f"PrintIR{f' ({self._header})' if self._header else ''}:", file=self._stream or sys.stdout)
        print(mod, file=self._stream or sys.stdout)
        return mod
