"""``PassTimingInstrument``: how long each pass took, as a tree of pipelines and the passes in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tilewright.passes.instrument import PassInstrument
from tilewright.passes.spans import FAILED, OK, Span, SpanRecorder, chrome_trace, format_seconds, table

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo


class PassTimingInstrument(PassInstrument):
    """Measures passes; may be read during and after the context, and after a pass that failed.

    ::

        timing = PassTimingInstrument()
        with PassContext(instruments=[timing]):
            mod = pipeline(mod)
        print(timing.render())

    What it has measured stays until ``reset``, also if it enters another context. A pass that raised is there with
    status ``failed``; one that has not ended yet with status ``running`` and its time so far.
    """

    def __init__(self) -> None:
        self._recorder = SpanRecorder()

    @property
    def spans(self) -> list[Span]:
        """The outermost spans, in order."""
        return list(self._recorder.roots)

    def reset(self) -> None:
        """Forget what was measured."""
        self._recorder.reset()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._recorder.open(info.name, opt_level=info.opt_level)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._recorder.close(OK)

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        span = self._recorder.close(FAILED)
        if span is not None:
            span.attributes["error"] = f"{type(error).__name__}: {error}"

    def total(self) -> float:
        """Seconds inside passes."""
        return self._recorder.total()

    def render(self) -> str:
        """The tree as text: each pass with its time, the time outside of its inner passes, and its share of all."""
        now, whole = self._recorder.now(), self.total()
        rows = []
        for root in self.spans:
            for depth, span in root.walk():
                elapsed = span.elapsed(now)
                status = "" if span.status == OK else f"  ({span.status})"
                rows.append(
                    [
                        "  " * depth + span.name + status,
                        format_seconds(elapsed),
                        format_seconds(span.self_time(now)),
                        f"{100 * elapsed / whole if whole else 0:.1f} %",
                    ]
                )
        return table(["pass", "total", "self", "share"], [*rows, ["all", format_seconds(whole), "", ""]])

    def as_dict(self) -> dict[str, Any]:
        """``{"total": seconds, "spans": [{name, start, duration, self, share, status, attributes, children}]}``."""
        now, whole = self._recorder.now(), self.total()
        spans = [span.as_dict(now) for span in self.spans]
        _add_shares(spans, whole)
        return {"total": whole, "spans": spans}

    def to_json(self, indent: int | None = 2) -> str:
        """``as_dict`` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def to_chrome_trace(self) -> str:
        """JSON text for chrome://tracing and Perfetto."""
        return chrome_trace(self.spans, self._recorder.now(), "pass")


def _add_shares(spans: list[dict[str, Any]], whole: float) -> None:
    for span in spans:
        span["share"] = span["duration"] / whole if whole else 0.0
        _add_shares(span["children"], whole)
