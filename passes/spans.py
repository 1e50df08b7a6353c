"""Spans: nested measurements of time, the common data model of reports on passes and on compiled models.

A ``Span`` is one stretch of time with a name, attributes and the spans inside it; a ``SpanRecorder`` opens and closes
them. All times are seconds (``time.perf_counter``); starts count from the creation of the recorder.
:mod:`.span_report` shows and exports them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

RUNNING = "running"
OK = "ok"
FAILED = "failed"


@dataclass
class Span:
    """One stretch of time.

    Attributes:
        name: the measured activity.
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
        """Return the duration; for an open span, that until time ``now``."""
        return self.duration if self.duration is not None else max(0.0, now - self.start)

    def self_time(self, now: float) -> float:
        """Return the time outside of children."""
        return max(0.0, self.elapsed(now) - sum(child.elapsed(now) for child in list(self.children)))

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Span]]:
        """This span and all inside it with their depth, in order of their start."""
        yield depth, self
        for child in list(self.children):
            yield from child.walk(depth + 1)

    def as_dict(self, now: float, whole: float) -> dict[str, Any]:
        """The span as plain data, with ``duration`` and ``self`` in seconds, and its share of ``whole`` seconds."""
        return {
            "name": self.name,
            "start": self.start,
            "duration": self.elapsed(now),
            "self": self.self_time(now),
            "share": self.elapsed(now) / whole if whole else 0.0,
            "status": self.status,
            "attributes": dict(self.attributes),
            "children": [child.as_dict(now, whole) for child in list(self.children)],
        }


class SpanRecorder:
    """Open and close nested spans, with a stack for each thread; spans may be read at any time."""

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

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock inside the ``with`` block, so that the cost of observing is not measured."""
        start = self._clock()
        try:
            yield
        finally:
            self._origin += self._clock() - start

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

    def _stack(self) -> list[Span]:
        stack: list[Span] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack
