"""Reports of spans: a common presentation and data format for the costs of passes and of models.

The data (``SpanReport.as_dict``) is described by ``docs/spans.schema.json``, a JSON Schema. The trace is the Trace
Event Format that chrome://tracing and Perfetto read, in its JSON form with complete ("X") events.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from tilewright.passes.spans import OK, Span
from tilewright.passes.tables import html_table, table

#: The name and version of the data format.
SCHEMA = "tilewright.spans.1"


class SpanReport(abc.ABC):
    """A measurement as spans, which may be read at any time.

    Attributes:
        kind: the subject of the spans: ``"passes"``, ``"memory"`` (of passes), ``"profile"`` (of a model's run).
        header: the titles of the columns that :meth:`render` shows: of the spans' names, then of their numbers.
    """

    kind: ClassVar[str]
    header: ClassVar[Sequence[str]]

    @property
    @abc.abstractmethod
    def spans(self) -> list[Span]:
        """The outermost spans, in order."""

    @abc.abstractmethod
    def now(self) -> float:
        """The end time of spans that are still open, in seconds on the clock of the spans' starts."""

    @abc.abstractmethod
    def cells(self, span: Span, now: float, whole: float) -> Sequence[str]:
        """Return the cells of a span's row after its name; ``whole`` is the time of all spans."""

    def attributes(self) -> dict[str, Any]:
        """Attributes of the whole report, as plain data."""
        return {}

    def total(self) -> float:
        """Seconds inside of spans."""
        now = self.now()
        return sum(span.elapsed(now) for span in self.spans)

    def shown(self, now: float) -> list[Span]:
        """The outermost spans as the table shows them."""
        return self.spans

    def rows(self) -> list[list[str]]:
        """The rows of the table: one for each span, indented below its parent."""
        now, whole = self.now(), self.total()
        return [
            [
                "  " * depth + span.name + ("" if span.status == OK else f"  ({span.status})"),
                *self.cells(span, now, whole),
            ]
            for root in self.shown(now)
            for depth, span in root.walk()
        ]

    def render(self) -> str:
        """The table as text."""
        return table(self.header, self.rows())

    def __str__(self) -> str:
        return self.render()

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data: ``{schema, kind, total, attributes, spans}``, where ``total`` is in seconds
        and each span is ``{name, start, duration, self, share, status, attributes, children}``."""
        now, whole = self.now(), self.total()
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "total": whole,
            "attributes": self.attributes(),
            "spans": [span.as_dict(now, whole) for span in self.spans],
        }

    def to_json(self, indent: int | None = 2) -> str:
        """``as_dict`` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def events(self, process: int = 1) -> list[dict[str, Any]]:
        """Return the events of the trace under a process number: viewers show each process separately."""
        return trace_events(self.spans, self.now(), self.kind, process)

    def to_chrome_trace(self) -> str:
        """JSON text for chrome://tracing and Perfetto."""
        return trace_text(self.events())

    def _repr_html_(self) -> str:
        return html_table(self.header, self.rows())


def reports_as_dict(reports: Iterable[SpanReport]) -> dict[str, Any]:
    """Several reports as plain data: ``{schema, kind, reports}``."""
    return {"schema": SCHEMA, "kind": "reports", "reports": [report.as_dict() for report in reports]}


def reports_to_chrome_trace(reports: Iterable[tuple[str, SpanReport]]) -> str:
    """Several reports, each with a title, as JSON text for chrome://tracing and Perfetto, which show them one below the
    other."""
    events: list[dict[str, Any]] = []
    for process, (title, report) in enumerate(reports, 1):
        events.append({"name": "process_name", "ph": "M", "pid": process, "args": {"name": title}})
        events += report.events(process)
    return trace_text(events)


def trace_text(events: Sequence[Mapping[str, Any]]) -> str:
    """A trace of these events as JSON text."""
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def trace_events(
    spans: Iterable[Span], now: float, category: str, process: int = 1, threads: dict[int, int] | None = None
) -> list[dict[str, Any]]:
    """Make a complete event for each span; an open span ends at ``now``.

    Args:
        threads: gets the number of the lane of each thread.
    """
    threads = {} if threads is None else threads
    return [
        {
            "name": span.name,
            "cat": category,
            "ph": "X",
            "ts": span.start * 1e6,  # microseconds
            "dur": span.elapsed(now) * 1e6,
            "pid": process,
            "tid": threads.setdefault(span.thread, len(threads) + 1),
            "args": {"status": span.status, **span.attributes},
        }
        for root in spans
        for _, span in root.walk()
    ]
