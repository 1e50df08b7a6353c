"""``TraceSymbol``: follow a function, a variable or an operator of the graph, pass by pass."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from tilewright.graphir.expr import Function
from tilewright.passes.diagnostics import Remark, suggestion
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.instruments.sightings import (
    Sighting,
    describe,
    kernels_of,
    label_matches,
    names_in,
    sightings,
)

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo

INPUT = "input"


@dataclasses.dataclass
class Event:
    """A change of a symbol by one pass.

    Attributes:
        pass_name: the name of the pass; ``"input"`` for the input of the first pass.
        text: the change; empty if the pass only made remarks.
        remarks: the remarks of the pass about the symbol: kind and message.
    """

    pass_name: str
    text: str
    remarks: list[str] = dataclasses.field(default_factory=list)


class TraceSymbol(PassInstrument):
    """Trace a name through the passes: report which passes changed, renamed, fused, split or removed it.

    ::

        trace = TraceSymbol("conv1")
        with PassContext(opt_level=3, instruments=[trace]):
            tw.build(mod)
        print(trace.render())

    A symbol is the name of a function or kernel, of a variable or parameter, or the label of an operator's call
    (``span``; nodes of imported models, as ``Conv 'conv1'``, are also found by the quoted name alone). Operators that
    replace another one keep its label, so a symbol may occur in several places. Renamed functions and parameters are
    followed. A symbol that disappears without a remark is reported as lost.

    Remarks about the symbol, and about kernels that compute it, are included. One instance may trace several builds;
    each begins with another ``input``.

    Attributes:
        symbol: the name.
        events: the changes, in order.
    """

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self.events: list[Event] = []
        self._names = {symbol}
        self._candidates: set[str] = set()
        self._open = _Open()
        self._last: IRModule | None = None
        self._seen: Counter[Sighting] = Counter()
        self._kernels: set[str] = set()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if mod is not self._last:
            self._begin(mod)
        if not info.pipeline:
            self._open.remarks.append([])

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.pipeline:
            return
        remarks = self._open.remarks[-1]
        text = ""
        if mod is not self._last:
            assert self._last is not None
            renamed = self._follow(self._last, mod)
            found = sightings(mod, self._matches)
            if found != self._seen:
                text = self._story(found, renamed, remarks)
            self._last, self._seen = mod, found
            self._kernels = kernels_of(mod, self._matches)
        self._open.remarks.pop()
        if text or remarks:
            self.events.append(Event(info.name, text, list(dict.fromkeys(remarks))))

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        if not info.pipeline:
            self._open.remarks.pop()

    def remark(self, remark: Remark) -> None:
        if not self._open.remarks:
            return
        words = f"{remark.message} {remark.place}"
        about = any(f"'{name}'" in words or name in words.replace(",", " ").split() for name in self._spelled())
        if about or remark.function in self._kernels:
            self._open.remarks[-1].append(f"{remark.kind}: {remark.message}")

    def _begin(self, mod: IRModule) -> None:
        """Start with a module that no pass returned: the input of a build."""
        self._names = {self.symbol}
        self._candidates = names_in(mod)
        self._last, self._seen = mod, sightings(mod, self._matches)
        self._kernels = kernels_of(mod, self._matches)
        text = f"{self.symbol} is {describe(self._seen)}" if self._seen else f"{self.symbol} does not occur yet"
        self.events.append(Event(INPUT, text))

    def _matches(self, name: str) -> bool:
        return any(label_matches(symbol)(name) for symbol in self._names)

    def _spelled(self) -> set[str]:
        """Return the forms in which remarks mention the symbol."""
        return {form for name in self._names for form in (name, f"@{name}", f"%{name}", f"@{name}:")}

    def _story(self, found: Counter[Sighting], renamed: str, remarks: list[str]) -> str:
        if renamed:
            return renamed
        if not found:
            return "gone" + ("" if remarks else ": lost, without a remark of the pass")
        if not self._seen:
            return f"appears: {describe(found)}"
        if all(sighting.what == "a constant" for sighting in found):
            return f"folded into {describe(found)}"
        return f"now {describe(found)}"

    def _follow(self, before: IRModule, after: IRModule) -> str:
        """Follow a function or parameter that was renamed; return a text that says so, empty if none was."""
        functions = {key.name: function for key, function in after.functions.items()}
        for key, function in before.functions.items():
            if key.name in self._names and key.name not in after:
                for other, made in functions.items():
                    if other not in before and made.body is function.body:
                        self._names.add(other)
                        return f"renamed to @{other}"
            now = functions.get(key.name)
            if isinstance(function, Function) and isinstance(now, Function) and len(function.params) == len(now.params):
                for old, new in zip(function.params, now.params, strict=True):
                    if old.name in self._names and not any(param.name == old.name for param in now.params):
                        self._names.add(new.name)
                        return f"renamed to %{new.name}, a parameter of @{key.name}"
        return ""

    def as_dict(self) -> dict[str, Any]:
        """Return ``{symbol, events: [{pass_name, text, remarks}, ...]}``."""
        return {"symbol": self.symbol, "events": [dataclasses.asdict(event) for event in self.events]}

    def to_json(self, indent: int | None = 2) -> str:
        """Return ``as_dict`` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def render(self) -> str:
        """Return the events as text: a line for each pass that changed the symbol, with its remarks below it."""
        if not self.events:
            return f"{self.symbol}: no pass has run"
        if all(event.pass_name == INPUT and "does not occur" in event.text for event in self.events):
            hint = suggestion(self.symbol, self._candidates)
            return f"{self.symbol}: no function, variable or operator has this name.{hint}"
        lines = []
        for event in self.events:
            lines.append(f"{event.pass_name}: {event.text}" if event.text else f"{event.pass_name}:")
            lines += [f"    {remark}" for remark in event.remarks]
        return "\n".join(lines)


class _Open(threading.local):
    """The remarks about the symbol of each pass that is running on this thread."""

    def __init__(self) -> None:
        self.remarks: list[list[str]] = []
