"""Show the cost of each kernel call of a model, as a table, as data, and as a trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.op import FUSION_KINDS, OPERATORS
from tilewright.graphir.origins import Origin
from tilewright.passes.span_report import SpanReport, trace_events
from tilewright.passes.spans import Span
from tilewright.passes.tables import format_bytes, format_seconds, html_table, table
from tilewright.runtime.observe.profile.arena import Allocation, live_bytes
from tilewright.runtime.observe.profile.fitting import fitted
from tilewright.tensorir.errors import ArgumentValueError

ORDERS = ("time", "run", "kernel")


@dataclasses.dataclass(frozen=True)
class CallProfile:
    """One call of a kernel in ``main``, over all runs.

    Attributes:
        number: number of the call, in the order of ``main``'s text.
        kernel: name of the kernel.
        origins: the operators of the graph that the call computes.
        runs: its runs in a run of the model (more than one in loops).
        minimum: minimum of its seconds in a run of the model.
        median: median of its seconds in a run of the model.
        share: ``median`` as a fraction of the sum over all calls.
        operations: arithmetic operations in a run of the model.
        dtype: the type of most of the operations.
        bytes: bytes read and written in a run of the model.
        roof: seconds that it would take at the machine's peak rates.
        bound: the limiting rate then: ``"compute"`` or ``"memory"``.
        level: the smallest level that its data fit into: ``"L1"``, ``"L2"``, ``"L3"`` or ``"memory"``.
        vector_bits: width of its vectors; 0 if unknown.
        threads: median number of threads that worked on it; None if unknown, as for parallel loops compiled by numba.
        imbalance: median time of the busiest thread, as a multiple of the mean over all threads that may run; None for
            a kernel that one thread runs.
    """

    number: int
    kernel: str
    origins: tuple[Origin, ...]
    runs: int
    minimum: float
    median: float
    share: float
    operations: int
    dtype: str
    bytes: int
    roof: float
    bound: str
    level: str
    vector_bits: int
    threads: int | None
    imbalance: float | None

    @property
    def operations_per_second(self) -> float:
        """Operations per second, by the median."""
        return self.operations / self.median if self.median else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second, by the median."""
        return self.bytes / self.median if self.median else 0.0

    @property
    def of_roof(self) -> float:
        """The fraction of the machine's peak rate that it reaches, by the median."""
        return self.roof / self.median if self.median else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the call as plain data."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        found["origins"] = [dataclasses.asdict(origin) for origin in self.origins]
        for name in ("operations_per_second", "bytes_per_second", "of_roof"):
            found[name] = getattr(self, name)
        return found


class Profile(SpanReport):
    """The cost of a model's calls, made by :meth:`tilewright.Executable.profile`.

    The spans are those of the run of median time: the model, the kernel calls in it, and in a call that several threads
    may work on a span for the time that each of them worked. (Their times are sums, drawn from the begin of the call.)
    The attributes of calls, and :attr:`calls`, summarize all runs.

    Attributes:
        calls: the kernel calls that ran, in order.
        latency: minimum and median of the seconds of a call of the model without the profile (with it, where
            ``overhead`` is None).
        overhead: the time that the profile adds, as a fraction of ``latency``; None if it was not measured.
        repeat: number of runs.
        arena_bytes: memory for intermediate values.
        allocations: the values in the arena; calls are numbered in the order of ``main``'s text.
        facts: the conditions: target, sizes of symbolic dimensions, the machine's limits.
    """

    kind = "profile"
    header = ("kernel", "min", "median", "share", "Gop/s", "GB/s", "of roof", "vector", "threads", "imbalance", "of")

    def __init__(
        self,
        spans: list[Span],
        calls: Sequence[CallProfile],
        latency: tuple[float, float],
        overhead: float | None,
        repeat: int,
        arena_bytes: int,
        allocations: Sequence[Allocation],
        num_calls: int,
        facts: dict[str, Any],
    ) -> None:
        self._spans = spans
        self.calls = list(calls)
        self.latency = latency
        self.overhead = overhead
        self.repeat = repeat
        self.arena_bytes = arena_bytes
        self.allocations = list(allocations)
        self.facts = facts
        self._num_calls = num_calls
        self._by_number = {call.number: call for call in self.calls}

    @property
    def spans(self) -> list[Span]:
        return list(self._spans)

    def now(self) -> float:
        return max((span.start + (span.duration or 0.0) for span in self._spans), default=0.0)

    def cells(self, span: Span, now: float, whole: float) -> Sequence[str]:
        call = self._by_number.get(span.attributes.get("number", -1))
        return _cells(call) if call is not None else [""] * (len(self.header) - 1)

    def rows(self, order: str = "time") -> list[list[str]]:
        """Return the lines of the table: one for each call of a kernel, or (``order="kernel"``) for each kernel.

        Raises:
            ValueError: another order than :meth:`render` knows.
        """
        if order not in ORDERS:
            raise ArgumentValueError(f"order: expected one of {', '.join(ORDERS)}, found {order!r}")
        calls = _by_kernel(self.calls) if order == "kernel" else self.calls
        if order != "run":
            calls = sorted(calls, key=lambda call: -call.median)
        return [[call.kernel, *_cells(call)] for call in calls]

    def render(self, order: str = "time", limit: int | None = None, width: int | None = None) -> str:
        """Write the calls as text.

        Args:
            order: ``"time"``: the longest calls first; ``"run"``: in the order of execution; ``"kernel"``: all calls of
                a kernel in one line, the longest first.
            limit: maximum number of lines.
            width: maximum number of characters in a line of the table; columns are left out where it takes that.

        Raises:
            ValueError: the order is unknown, or the limit is negative.
        """
        if limit is not None and limit < 0:
            raise ArgumentValueError(f"limit: expected a number of lines, found {limit}")
        rows = self.rows(order)
        shown = rows if limit is None else rows[:limit]
        more = [] if len(shown) == len(rows) else [f"({len(rows) - len(shown)} more)"]
        shown_table = table(self.header, shown) if width is None else table(*fitted(self.header, shown, width))
        return "\n".join([shown_table, *more, "", *self.summary()])

    def totals(self) -> list[list[str]]:
        """Return a line for each type of operator, the longest first: its name, the number of kernel calls, their
        median seconds in all, and their share. A kernel of several operators counts for the one that is hardest to
        fuse, as a rule the one that takes longest."""
        groups: dict[str, list[CallProfile]] = {}
        for call in self.calls:
            groups.setdefault(_main_operator(call), []).append(call)
        sums = [(name, len(group), merged(group)) for name, group in groups.items()]
        return [
            [name, str(number), format_seconds(whole.median), f"{100 * whole.share:.1f} %"]
            for name, number, whole in sorted(sums, key=lambda each: -each[2].median)
        ]

    def render_totals(self) -> str:
        """Write :meth:`totals` as text."""
        return table(("operator", "calls", "median", "share"), self.totals())

    def summary(self) -> list[str]:
        """Return lines that summarize the whole model."""
        least, median = self.latency
        overhead = "" if self.overhead is None else f"; with the profile {100 * self.overhead:+.1f} %"
        kernels = sum(call.median for call in self.calls)
        operations = sum(call.operations for call in self.calls)
        roof = sum(call.roof for call in self.calls)
        return [
            f"a call takes {format_seconds(median)} (median of {self.repeat}, least {format_seconds(least)}), of which "
            f"{format_seconds(kernels)} are in kernels{overhead}",
            f"{operations / 1e9:.3f} Gop, {operations / kernels / 1e9 if kernels else 0:.1f} Gop/s; at the machine's "
            f"best the kernels would take {format_seconds(roof)}",
            f"arena: {format_bytes(self.arena_bytes, signed=False)}, at most "
            f"{format_bytes(max(self.live_bytes(), default=0), signed=False)} of it in use at a time",
        ]

    def live_bytes(self) -> list[int]:
        """Return the live bytes of the arena during each call, in the order of ``main``'s text."""
        return live_bytes(self.allocations, self._num_calls)

    def attributes(self) -> dict[str, Any]:
        return {
            **self.facts,
            "repeat": self.repeat,
            "latency": {"min": self.latency[0], "median": self.latency[1]},
            "overhead": self.overhead,
            "calls": [call.as_dict() for call in self.calls],
            "arena": {
                "bytes": self.arena_bytes,
                "allocations": [dataclasses.asdict(value) for value in self.allocations],
                "live_bytes": self.live_bytes(),
            },
        }

    def events(self, process: int = 1) -> list[dict[str, Any]]:
        """Return the events of the trace: the kernel calls of a run, below them a lane for each thread with its work on
        parallel loops, and the live bytes of the arena."""
        lanes: dict[int, int] = {}
        work = trace_events(self._spans, self.now(), self.kind, process, lanes)
        live = self.live_bytes()
        fills = [
            (span.start, live[span.attributes["number"]])
            for root in self._spans
            for span in root.children
            if "number" in span.attributes
        ]
        return [
            *work,
            *(
                {
                    "name": "thread_name",
                    "ph": "M",
                    "pid": process,
                    "tid": lane,
                    "args": {"name": f"thread {thread - 1}" if thread else "kernel calls"},
                }
                for thread, lane in lanes.items()
            ),
            *(
                {"name": "arena", "ph": "C", "ts": start * 1e6, "pid": process, "args": {"bytes": size}}
                for start, size in [*fills, (self.now(), 0)]
            ),
        ]

    def _repr_html_(self) -> str:
        return html_table(self.header, self.rows()) + "".join(f"<div>{line}</div>" for line in self.summary())


def _main_operator(call: CallProfile) -> str:
    names = [origin.operator for origin in call.origins]
    return max(names, key=_hardness) if names else "copy"


def _hardness(name: str) -> int:
    return FUSION_KINDS.index(OPERATORS[name].kind) if name in OPERATORS else -1


def _cells(call: CallProfile) -> list[str]:
    limits = f"{100 * call.of_roof:.0f} % {call.bound}"
    return [
        format_seconds(call.minimum),
        format_seconds(call.median),
        f"{100 * call.share:.1f} %",
        f"{call.operations_per_second / 1e9:.1f}" if call.operations else "-",
        f"{call.bytes_per_second / 1e9:.1f}",
        limits if call.roof else "-",
        str(call.vector_bits) if call.vector_bits else "-",
        "-" if call.threads is None else str(call.threads),
        "-" if call.imbalance is None else f"{call.imbalance:.2f}",
        _shortened(", ".join(map(str, call.origins))),
    ]


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 4] + " ..."


def _by_kernel(calls: Sequence[CallProfile]) -> list[CallProfile]:
    """Merge the calls of each kernel: sums, and the largest imbalance."""
    groups: dict[str, list[CallProfile]] = {}
    for call in calls:
        groups.setdefault(call.kernel, []).append(call)
    return [
        dataclasses.replace(merged(group), kernel=f"{name} (x{len(group)})" if len(group) > 1 else name)
        for name, group in groups.items()
    ]


def merged(group: Sequence[CallProfile]) -> CallProfile:
    """Merge calls: sums, and the largest imbalance; the rest is that of the longest call."""
    sums = {
        field: sum(getattr(call, field) for call in group)
        for field in ("runs", "minimum", "median", "share", "operations", "bytes", "roof")
    }
    return dataclasses.replace(
        max(group, key=lambda call: call.median),
        **sums,
        origins=tuple(dict.fromkeys(Origin(origin.operator) for call in group for origin in call.origins)),
        threads=max((call.threads for call in group if call.threads is not None), default=None),
        imbalance=max((call.imbalance for call in group if call.imbalance is not None), default=None),
    )
