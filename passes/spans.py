"""Spans: what took how long, inside what. The data model that profiles of passes and of compiled models share.

A ``Span`` is one stretch of time with a name, attributes and the spans inside it; a ``SpanRecorder`` opens and closes
them. All times are seconds (``time.perf_counter``), starts count from the recorder's making. The trace format is the
Trace Event Format that chrome://tracing and Perfetto read, in its JSON form with complete ("X") events.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

RUNNING = "running"
OK = "ok"
FAILED = "failed"


@dataclass
class Span:
    """One stretch of time.

    Attributes:
        name: what happened.
        start: seconds since the recorder was made.
        duration: seconds; None while the span is open.
        status: ``"running"``, ``"ok"`` or ``"failed"``.
        attributes: further facts, plain data.
        children: the spans inside this one, in order.
        thread: identifier of the thread that it ran on.
    """

    name: str
    start: float
    duration: float | None = None
    status: str = RUNNING
    attributes: dict[str, Any] = field(default_factory=dict)
    children: list[Span] = field(default_factory=list)
    thread: int = 0

    def elapsed(self, now: float) -> float:
        """The duration; of an open span, what it is at time ``now``."""
        return self.duration if self.duration is not None else max(0.0, now - self.start)

    def self_time(self, now: float) -> float:
        """The time that is not inside children."""
        return max(0.0, self.elapsed(now) - sum(child.elapsed(now) for child in list(self.children)))

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Span]]:
        """This span and all inside it with their depth, in order of their start."""
        yield depth, self
        for child in list(self.children):
            yield from child.walk(depth + 1)

    def as_dict(self, now: float) -> dict[str, Any]:
        """The span as plain data, with ``duration`` and ``self`` in seconds."""
        return {
            "name": self.name,
            "start": self.start,
            "duration": self.elapsed(now),
            "self": self.self_time(now),
            "status": self.status,
            "attributes": dict(self.attributes),
            "children": [child.as_dict(now) for child in list(self.children)],
        }


class SpanRecorder:
    """Opens and closes nested spans, for each thread a stack of its own; may be read at any time."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._origin = clock()
        self._local = threading.local()
        self.roots: list[Span] = []

    def now(self) -> float:
        """Seconds since the recorder was made (or reset)."""
        return self._clock() - self._origin

    def reset(self) -> None:
        """Forget all spans and begin at time 0."""
        self.roots = []
        self._local = threading.local()
        self._origin = self._clock()

    def open(self, name: str, **attributes: Any) -> Span:
        """Open a span inside the innermost open one of this thread."""
        stack = self._stack()
        span = Span(name, self.now(), attributes=attributes, thread=threading.get_ident())
        (stack[-1].children if stack else self.roots).append(span)
        stack.append(span)
        return span

    def close(self, status: str = OK) -> Span | None:
        """Close the innermost open span of this thread and return it; None if none is open."""
        stack = self._stack()
        if not stack:
            return None
        span = stack.pop()
        span.duration = max(0.0, self.now() - span.start)
        span.status = status
        return span

    def close_all(self, status: str) -> None:
        """Close every open span of this thread."""
        while self.close(status) is not None:
            pass

    def total(self) -> float:
        """Seconds inside root spans."""
        now = self.now()
        return sum(span.elapsed(now) for span in list(self.roots))

    def _stack(self) -> list[Span]:
        stack: list[Span] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack


def chrome_trace(spans: Iterable[Span], now: float, category: str) -> str:
    """JSON text for chrome://tracing and Perfetto; an open span reaches to ``now``."""
    threads: dict[int, int] = {}
    events = [
        {
            "name": span.name,
            "cat": category,
            "ph": "X",
            "ts": span.start * 1e6,  # microseconds
            "dur": span.elapsed(now) * 1e6,
            "pid": 1,
            "tid": threads.setdefault(span.thread, len(threads) + 1),
            "args": {"status": span.status, **span.attributes},
        }
        for root in spans
        for _, span in root.walk()
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def format_seconds(seconds: float) -> str:
    """A duration with a unit that suits it: ``1.234 s``, ``12.345 ms``, ``0.7 us``."""
    if seconds >= 1.0:
        return f"{seconds:.3f} s"
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def format_bytes(count: int | None) -> str:
    """A signed number of bytes with a unit that suits it: ``+1.5 MiB``; ``-`` if unknown."""
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:+.0f} B" if unit == "B" else f"{size:+.1f} {unit}"
        size /= 1024
    return f"{size:+.1f} GiB"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Aligned text: the first column to the left, the others to the right, a line under the header."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(row: list[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), "-" * (sum(widths) + 2 * (len(widths) - 1)), *(line(row) for row in rows)])
