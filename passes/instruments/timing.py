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

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo


@dataclasses.dataclass
class PassTotal:
    """All runs of the passes of one name.

    Attributes:
        name: of the pass.
        runs: how often it ran.
        total: seconds in it.
        self_time: seconds in it, but not in passes inside of it.
        share: ``self_time`` as a part of the time of all passes.
        growth: by how much the module grew, in operators and statements, over all runs that did not fail; None if all
            of them did.
    """

    name: str
    runs: int = 0
    total: float = 0.0
    self_time: float = 0.0
    share: float = 0.0
    growth: int | None = None


class PassTimingInstrument(PassInstrument, SpanReport):
    """Measures passes; may be read during and after the context, and after a pass that failed.

    ::

        timing = PassTimingInstrument()
        with PassContext(instruments=[timing]):
            mod = pipeline(mod)
        print(timing)
        print(timing.render("flat"))

    What it has measured stays until ``reset``, also if it enters another context. A pass that raised is there with
    status ``failed``; one that has not ended yet with status ``running`` and its time so far. Each span says how large
    the module was ``size_before`` and ``size_after`` the pass: operators of graphs and statements of loop nests. To
    count them is no part of any pass's time.

    A build is the root of its passes, and has rows for what it does besides: code generation, as far as it was not done
    while passes ran, and linking. What is left is the time of the build itself.

    A build goes on as when nobody looks: passes over loop nests run on a few kernels at a time, while another thread
    compiles those before, with which they share the interpreter. The spans of such runs have an attribute ``part``; the
    tree shows the parts of a pass as one.

    Args:
        steps: whether to time what builds do besides running passes.
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
        """Stop the clock inside of the ``with`` block: for instruments that do a lot themselves."""
        return self._recorder.paused()

    def reset(self) -> None:
        """Forget what was measured."""
        self._recorder.reset()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        with self._recorder.paused():
            size = self._sizes(mod)
        part = PassContext.part()
        where = {} if part is None else {"part": part}
        self._recorder.open(info.name, opt_level=info.opt_level, size_before=size, **where)

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
            self._recorder.open(name)

    def exit_step(self, name: str, error: BaseException | None) -> None:
        if self._steps:
            span = self._recorder.close(OK if error is None else FAILED)
            if span is not None and error is not None:
                span.attributes["error"] = f"{type(error).__name__}: {error}"

    def flat(self) -> list[PassTotal]:
        """The passes, and steps of builds, by name, those first that took most time themselves."""
        now, whole = self.now(), self.total()
        found: dict[str, PassTotal] = {}

        def add(span: Span, inside: frozenset[str]) -> None:
            total = found.setdefault(span.name, PassTotal(span.name))
            total.runs += 1
            total.self_time += span.self_time(now)
            if span.name not in inside:  # a pipeline in one of the same name: that time is there already
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
        """The passes as text.

        Args:
            order: ``"tree"``: each pass under its pipeline with its time, the time outside of its inner passes, its
                share of all, and the module's size before and after; ``"flat"``: one line for all runs of a pass, most
                time of its own first.

        Raises:
            ValueError: another order.
        """
        if order == "tree":
            return super().render()
        if order != "flat":
            raise ValueError(f"order: expected 'tree' or 'flat', found {order!r}")
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


def _joined(span: Span, now: float) -> Span:
    """``span`` with the parts of each pass inside of it as one span, of their time and size in all."""
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
        first.status = child.status  # what fails ends the pipeline: it is in the last part
        for size in ("size_before", "size_after"):
            if size not in child.attributes:  # it failed, so nothing is known of the whole
                first.attributes.pop(size, None)
            elif size in first.attributes:
                first.attributes[size] += child.attributes[size]
    return dataclasses.replace(span, attributes=dict(span.attributes), children=children)
