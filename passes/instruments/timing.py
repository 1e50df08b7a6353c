"""``PassTimingInstrument``: time each pass, as a tree of pipelines and the passes in them, and as a list."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tilewright.passes.context import PassContext
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.instruments.sizes import ModuleSizes
from tilewright.passes.span_report import SpanReport
from tilewright.passes.spans import FAILED, OK, Span, SpanRecorder
from tilewright.passes.tables import format_seconds, table
from tilewright.tensorir.errors import ArgumentValueError

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo


@dataclasses.dataclass
class PassTotal:
    """All runs of the passes of one name.

    Attributes:
        name: the name of the pass.
        runs: the number of runs.
        total: seconds in the pass.
        self_time: seconds in the pass, without the passes inside it.
        share: ``self_time`` as a fraction of the time of all passes.
        growth: the growth of the module, in operators and statements, over all runs that did not fail; None if all of
            them did.
    """

    name: str
    runs: int = 0
    total: float = 0.0
    self_time: float = 0.0
    share: float = 0.0
    growth: int | None = None


class PassTimingInstrument(PassInstrument, SpanReport):
    """Measure the time of passes; may be read during and after the context, and after a pass that failed.

    ::

        timing = PassTimingInstrument()
        with PassContext(instruments=[timing]):
            mod = pipeline(mod)
        print(timing)
        print(timing.render("flat"))

    Measurements are kept until ``reset``, across contexts. A pass that raised has the status ``failed``; one that has
    not ended yet has the status ``running`` and its time so far. Each span has the size of the module (operators of
    graphs and statements of loop nests) before and after the pass, ``size_before`` and ``size_after``; counting it is
    not part of any pass's time.

    A build is the root of its passes, and has rows for its other steps: code generation, as far as it did not run
    beside the passes, and linking. The rest is the build's own time.

    The instrument does not change the order of a build: passes over loop nests run on a few kernels at a time, while
    another thread compiles the previous ones and shares the interpreter with them. The spans of such runs have an
    attribute ``part``; the tree shows the parts of a pass as one.

    Args:
        steps: whether to time also the steps of builds that are not passes.
    """

    in_parts = True

    kind = "passes"
    header = ("pass", "total", "self", "share", "size before", "after")

    def __init__(self, steps: bool = True) -> None:
        self._steps = steps
        self._recorder = SpanRecorder()
        self._sizes = ModuleSizes()

    @property
    def spans(self) -> list[Span]:
        return list(self._recorder.roots)

    def now(self) -> float:
        return self._recorder.now()

    def paused(self) -> AbstractContextManager[None]:
        """Stop the clock inside the ``with`` block: for instruments that themselves take time."""
        return self._recorder.paused()

    def reset(self) -> None:
        """Delete the measurements."""
        self._recorder.reset()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        with self._recorder.paused():
            size = self._sizes(mod)
        self._recorder.open(info.name, opt_level=info.opt_level, size_before=size, **_part())

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        span = self._recorder.close(OK)
        if span is not None:
            with self._recorder.paused():
                span.attributes["size_after"] = self._sizes(mod)

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        span = self._recorder.close(FAILED)
        if span is not None:
            span.attributes["error"] = f"{type(error).__name__}: {error}"

    def enter_step(self, name: str) -> None:
        if self._steps:
            self._recorder.open(name, **_part())

    def exit_step(self, name: str, error: BaseException | None) -> None:
        if self._steps:
            span = self._recorder.close(OK if error is None else FAILED)
            if span is not None and error is not None:
                span.attributes["error"] = f"{type(error).__name__}: {error}"

    def flat(self) -> list[PassTotal]:
        """Return the passes, and the steps of builds, by name, in descending order of their own time."""
        now, whole = self.now(), self.total()
        found: dict[str, PassTotal] = {}

        def add(span: Span, inside: frozenset[str]) -> None:
            total = found.setdefault(span.name, PassTotal(span.name))
            total.runs += 1
            total.self_time += span.self_time(now)
            if span.name not in inside:  # a pipeline in one of the same name: its time is included already
                total.total += span.elapsed(now)
                if "size_after" in span.attributes:
                    grown = span.attributes["size_after"] - span.attributes["size_before"]
                    total.growth = grown + (total.growth or 0)
            for child in list(span.children):
                add(child, inside | {span.name})

        for root in self.spans:
            add(root, frozenset())
        for total in found.values():
            total.share = total.self_time / whole if whole else 0.0
        return sorted(found.values(), key=lambda total: (-total.self_time, total.name))

    def cells(self, span: Span, now: float, whole: float) -> Sequence[str]:
        elapsed = span.elapsed(now)
        return [
            format_seconds(elapsed),
            format_seconds(span.self_time(now)),
            f"{100 * elapsed / whole if whole else 0:.1f} %",
            *(str(span.attributes.get(size, "-")) for size in ("size_before", "size_after")),
        ]

    def shown(self, now: float) -> list[Span]:
        return [_joined(span, now) for span in self.spans]

    def rows(self) -> list[list[str]]:
        return [*super().rows(), ["all", format_seconds(self.total()), "", "", "", ""]]

    def attributes(self) -> dict[str, Any]:
        return {"flat": [dataclasses.asdict(total) for total in self.flat()]}

    def render(self, order: str = "tree") -> str:
        """Return the passes as text.

        Args:
            order: ``"tree"``: each pass under its pipeline with its time, the time outside of its inner passes, its
                share of the total, and the module's size before and after; ``"flat"``: one line for all runs of a pass,
                in descending order of their own time.

        Raises:
            ValueError: ``order`` is something else.
        """
        if order == "tree":
            return super().render()
        if order != "flat":
            raise ArgumentValueError(f"order: expected 'tree' or 'flat', found {order!r}")
        header = ["pass", "runs", "total", "self", "share", "growth"]
        rows = [
            [
                total.name,
                str(total.runs),
                format_seconds(total.total),
                format_seconds(total.self_time),
                f"{100 * total.share:.1f} %",
                "-" if total.growth is None else f"{total.growth:+d}",
            ]
            for total in self.flat()
        ]
        return table(header, [*rows, ["all", "", format_seconds(self.total()), "", "", ""]])


def _part() -> dict[str, int]:
    """Return the attribute of the part of a module that passes run on now, if they run on parts."""
    part = PassContext.part()
    return {} if part is None else {"part": part}


def _joined(span: Span, now: float) -> Span:
    """Return ``span`` with the parts of each inner pass joined to one span, with the sums of their times and sizes."""
    children: list[Span] = []
    firsts: dict[tuple[str, int], Span] = {}
    runs: Counter[tuple[str, int]] = Counter()
    for child in list(span.children):
        child, part = _joined(child, now), child.attributes.get("part")
        if part is None:
            children.append(child)
            continue
        runs[child.name, part] += 1  # a pipeline may hold a pass twice
        first = firsts.setdefault((child.name, runs[child.name, part]), child)
        if first is child:
            children.append(child)
            continue
        first.duration = first.elapsed(now) + child.elapsed(now)
        first.children += child.children
        first.status = child.status  # a failure ends the pipeline, so it is in the last part
        for size in ("size_before", "size_after"):
            if size not in child.attributes:  # it failed, so nothing is known of the whole
                first.attributes.pop(size, None)
            elif size in first.attributes:
                first.attributes[size] += child.attributes[size]
    return dataclasses.replace(span, attributes=dict(span.attributes), children=children)
