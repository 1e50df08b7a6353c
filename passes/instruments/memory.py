"""``PassMemoryInstrument``: measure the memory that each pass allocated, and its peak.

Python's memory is measured by ``tracemalloc``, which includes NumPy's arrays and slows passes down several times; the
resident set size comes from the operating system, where available. Both are of the whole process: when passes run on
several threads at a time, each pass's numbers include the memory of the others.
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.passes.instrument import PassInstrument
from tilewright.passes.span_report import SpanReport
from tilewright.passes.spans import FAILED, OK, Span, SpanRecorder
from tilewright.passes.tables import format_bytes

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo

_STATM = Path("/proc/self/statm")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_bytes() -> int | None:
    """Return the resident set size of this process in bytes; None where the system does not provide it."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_SIZE
    except (OSError, IndexError, ValueError):
        return None


class PassMemoryInstrument(PassInstrument, SpanReport):
    """Measure the memory of passes; may be read during and after the context, and after a pass that failed.

    Each span of a pass has the attributes ``allocated`` (growth in bytes of Python's memory during the pass), ``peak``
    (its greatest growth at any time during the pass) and ``resident`` (growth of the resident set, None if unknown).
    ``tracemalloc`` is started by the first pass if it does not run already, and then stopped when the context is left.
    """

    kind = "memory"
    header = ("pass", "allocated", "peak", "resident")

    def __init__(self) -> None:
        self._recorder = SpanRecorder()
        self._started_tracing = False
        self._open: list[_Measurement] = []

    @property
    def spans(self) -> list[Span]:
        return list(self._recorder.roots)

    def now(self) -> float:
        return self._recorder.now()

    def reset(self) -> None:
        """Delete the measurements."""
        self._recorder.reset()

    def exit_pass_ctx(self) -> None:
        if self._started_tracing and not self._open:
            tracemalloc.stop()
            self._started_tracing = False

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if not tracemalloc.is_tracing():
            tracemalloc.start()
            self._started_tracing = True
        now, peak = tracemalloc.get_traced_memory()
        for outer in self._open[-1:]:
            outer.peak = max(outer.peak, peak)  # reset_peak resets it for the outer pass as well
        self._recorder.open(info.name, opt_level=info.opt_level)
        self._open.append(_Measurement(now, now, resident_bytes()))
        tracemalloc.reset_peak()

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._close(OK)

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        self._close(FAILED)

    def _close(self, status: str) -> None:
        if not self._open:
            return
        measurement = self._open.pop()
        now, peak = tracemalloc.get_traced_memory()  # (0, 0) if tracing was stopped meanwhile
        peak = max(peak, measurement.peak)
        for outer in self._open[-1:]:
            outer.peak = max(outer.peak, peak)
        resident = resident_bytes()
        span = self._recorder.close(status)
        if span is not None:
            known = resident is not None and measurement.resident is not None
            span.attributes["allocated"] = now - measurement.start
            span.attributes["peak"] = peak - measurement.start
            span.attributes["resident"] = resident - measurement.resident if known else None  # type: ignore[operator]

    def cells(self, span: Span, now: float, whole: float) -> Sequence[str]:
        return [format_bytes(span.attributes.get(key)) for key in ("allocated", "peak", "resident")]


class _Measurement:
    """The memory of the process when a pass began, and the peak since then that is known so far; in bytes."""

    __slots__ = ("peak", "resident", "start")

    def __init__(self, start: int, peak: int, resident: int | None) -> None:
        self.start, self.peak, self.resident = start, peak, resident
