"""``Remarks``: collect the remarks of passes, and select them by pass, kind, function and text."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any, TextIO

from tilewright.passes.diagnostics import Remark
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.instruments.filters import NameFilter, Names


class Remarks(PassInstrument):
    """Collect the remarks that passes make through ``PassContext.remark``.

    ::

        remarks = Remarks()
        with PassContext(opt_level=3, instruments=[remarks]):
            tw.build(mod)
        print(remarks.render(passes="FuseOps", kinds="missed", message="conv2d"))

    The remarks are kept until ``reset``, across contexts.

    Args:
        passes: names or patterns (``"Fuse*"``) of the passes whose remarks are collected; None: of all.
        kinds: ``"applied"``, ``"missed"``, ``"note"``, or kinds that passes define; None: all.
        functions: names or patterns of the functions that remarks are about; None: all, and those about no function.
        message: a regular expression that is searched for in the message and the place.
        stream: also gets each remark when it is made.

    Raises:
        TypeError: a filter is neither a name nor a list of names.
        re.error: ``message`` is not a valid regular expression.
    """

    def __init__(
        self,
        passes: Names = None,
        kinds: Names = None,
        functions: Names = None,
        message: str = "",
        stream: TextIO | None = None,
    ) -> None:
        self._fits = _filter(passes, kinds, functions, message)
        self._stream = stream
        self._remarks: list[Remark] = []

    @property
    def remarks(self) -> list[Remark]:
        """Return the collected remarks, in order (a copy)."""
        return list(self._remarks)

    def reset(self) -> None:
        """Delete the collected remarks."""
        self._remarks = []

    def remark(self, remark: Remark) -> None:
        if self._fits(remark):
            self._remarks.append(remark)
            if self._stream is not None:
                print(remark, file=self._stream)

    def select(
        self, passes: Names = None, kinds: Names = None, functions: Names = None, message: str = ""
    ) -> list[Remark]:
        """Return the remarks that match; the arguments are those of ``Remarks``."""
        return list(filter(_filter(passes, kinds, functions, message), self._remarks))

    def render(self, passes: Names = None, kinds: Names = None, functions: Names = None, message: str = "") -> str:
        """Return the remarks that match (see :meth:`select`) as text: below the name of each pass a line per remark,
        with its place below it. Equal remarks are shown once, with their number."""
        groups: dict[str, dict[Remark, int]] = {}
        for remark in self.select(passes, kinds, functions, message):
            group = groups.setdefault(remark.pass_name or "(no pass)", {})
            group[remark] = group.get(remark, 0) + 1
        return "\n".join(line for name, group in groups.items() for line in (name, *_lines(group)))

    def as_dict(self) -> dict[str, Any]:
        """Return ``{remarks: [{pass_name, function, kind, message, place}, ...]}``."""
        return {"remarks": [dataclasses.asdict(remark) for remark in self._remarks]}

    def to_json(self, indent: int | None = 2) -> str:
        """Return ``as_dict`` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)


def _filter(passes: Names, kinds: Names, functions: Names, message: str) -> Callable[[Remark], bool]:
    by_pass, by_kind = NameFilter(passes, "passes"), NameFilter(kinds, "kinds")
    by_function = NameFilter(functions, "functions")
    pattern = re.compile(message)

    def fits(remark: Remark) -> bool:
        return (
            by_pass(remark.pass_name)
            and by_kind(remark.kind)
            and by_function(remark.function)
            and any(pattern.search(text) for text in (remark.message, remark.place))
        )

    return fits


def _lines(group: dict[Remark, int]) -> list[str]:
    lines: list[str] = []
    for remark, count in group.items():
        where = f"@{remark.function}: " if remark.function else ""
        times = f"  (x{count})" if count > 1 else ""
        lines.append(f"  {remark.kind:8}{where}{remark.message}{times}")
        if remark.place:
            lines.append(f"          at {remark.place}")
    return lines
