"""Print modules between passes. Text is expensive: functions that a pass did not change are not printed again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.graphir.expr import GlobalVar
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.printer import to_text
from tilewright.passes.info import PassInfo
from tilewright.passes.instruments.filters import NameFilter, Names
from tilewright.tensorir.printer import to_text as loop_level_text
from tilewright.tensorir.stmt import PrimFunc

#: The functions of a module.
Functions = Mapping[GlobalVar, AnyFunction]


@dataclass(frozen=True)
class Change:
    """A function whose text changed, before and after; empty text if the function did not exist before or after."""

    function: str
    before: str
    after: str


class ModuleTexts:
    """Texts of the functions of modules whose names match.

    Args:
        passes: names or patterns of the passes to observe; None: all, except pipelines where only changes are shown.
        functions: names or patterns of the functions to print; None: all.

    Raises:
        TypeError: one of the two is neither a name nor a list of names.
    """

    def __init__(self, passes: Names, functions: Names) -> None:
        self._passes = NameFilter(passes, "passes")
        self._functions = NameFilter(functions, "functions")
        self._open = _Open()
        #: For each function of the last module: the text of a module that contains only that function.
        self._alone: dict[AnyFunction, str] = {}
        self._loop_level: dict[PrimFunc, str] = {}

    @property
    def takes_all_passes(self) -> bool:
        """Whether all passes are observed."""
        return self._passes.takes_all

    def wants(self, info: PassInfo, changes_only: bool = True) -> bool:
        """Return whether to observe the pass. Changes are not shown for unnamed pipelines, as their passes show
        them."""
        return self._passes(info.name) and not (changes_only and info.pipeline and self._passes.takes_all)

    def selected(self, mod: IRModule) -> Functions:
        """Return the selected functions of ``mod``."""
        return {key: function for key, function in mod.functions.items() if self._functions(key.name)}

    def text(self, mod: IRModule) -> str:
        """Return the text of the selected functions of ``mod``."""
        known, self._loop_level = self._loop_level, {}

        def loop_level(function: PrimFunc) -> str:
            found = known.get(function)
            self._loop_level[function] = text = loop_level_text(function) if found is None else found
            return text

        return to_text(IRModule(self.selected(mod)), loop_level=loop_level)

    def changes(self, before: Functions, after: Functions) -> list[Change]:
        """Return the functions that differ, in the order of ``after``, and then those that were removed."""
        names_before = {key.name: function for key, function in before.items()}
        names_after = {key.name: function for key, function in after.items()}
        known, self._alone = self._alone, {}
        found: list[Change] = []
        for name in dict.fromkeys([*names_after, *names_before]):
            old, new = names_before.get(name), names_after.get(name)
            if old is new:
                if new in known and new is not None:
                    self._alone[new] = known[new]
                continue
            change = Change(name, _text_alone(name, old, known), _text_alone(name, new, known))
            if new is not None:
                self._alone[new] = change.after
            if change.before != change.after:
                found.append(change)
        return found

    def begin(self, mod: IRModule) -> None:
        """Begin a pass on ``mod``; the caller calls :meth:`end` on the same thread, also if the pass fails."""
        self._open.functions.append(self.selected(mod))

    def changes_of_pass(self, mod: IRModule) -> list[Change]:
        """Return the changes since the :meth:`begin` of the innermost pass that has not ended."""
        return self.changes(self._open.functions[-1], self.selected(mod))

    def end(self) -> None:
        """End the innermost pass."""
        self._open.functions.pop()


class _Open(threading.local):
    """The input functions of the passes that are running on this thread."""

    def __init__(self) -> None:
        self.functions: list[Functions] = []


def _text_alone(name: str, function: AnyFunction | None, known: Mapping[AnyFunction, str]) -> str:
    if function is None:
        return ""
    found = known.get(function)
    return to_text(IRModule({name: function})) if found is None else found
