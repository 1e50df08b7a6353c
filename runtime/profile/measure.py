"""Measures a model: calls it, with and without the clock in it, in turns."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.passes.spans import OK, Span
from tilewright.runtime.compiled import Built
from tilewright.runtime.profile.arena import Allocation, allocations
from tilewright.runtime.profile.facts import CallFacts, call_facts
from tilewright.runtime.profile.profile import CallProfile, Profile
from tilewright.runtime.profile.recording import Recording, Records
from tilewright.runtime.profile.roofs import Roofs
from tilewright.runtime.steps import Array, Step, Steps
from tilewright.tensorir.profiling import BEGIN, BUSY, END, RUNS, TOTAL

#: Calls of each kind before the clock counts: caches and threads are warm then.
_WARM_UP = 2


def profile(built: Built, step: Step | Steps, inputs: Sequence[Array], sizes: tuple[int, ...], repeat: int) -> Profile:
    """Call a model ``repeat`` times as it is and ``repeat`` times with the clock in it.

    Args:
        step: the model as it is.
        inputs: as the signature wants them.
        sizes: of the inputs' symbolic dimensions.

    Raises:
        ValueError: ``repeat`` is not positive.
        InputError, ExecutionError: as a call of the model does.
    """
    if repeat < 1:
        raise ValueError(f"repeat: expected a positive number, found {repeat}")
    recording = Recording(built)
    plain: list[float] = []
    recorded: list[float] = []
    for _ in range(repeat + _WARM_UP):
        for run, times in ((step, plain), (recording.step, recorded)):
            start = time.perf_counter()
            run(inputs, sizes)
            times.append(time.perf_counter() - start)
    times, with_clock = plain[_WARM_UP:], recorded[_WARM_UP:]
    usual = statistics.median(times)
    overhead = statistics.median(with_clock) / usual - 1 if usual else 0.0
    return report(recording, built, _WARM_UP, (min(times), usual), overhead)


def report(recording: Recording, built: Built, skipped: int, latency: tuple[float, float], overhead: float) -> Profile:
    """The profile of the runs of ``recording`` but for the first ``skipped``, which had inputs of the same sizes."""
    threads = built.target.num_threads
    functions = recording.functions
    runs = [[run.records for run in function.runs[skipped:]] for function in functions]
    totals = [sum(int(records[:, TOTAL].sum()) for records in run) for run in zip(*runs, strict=True)]
    typical = int(np.argsort(totals)[len(totals) // 2])
    taken = [function.runs[skipped + typical].sizes for function in functions]
    known = [
        call_facts(function.lowered, sizes, built.target.kind) for function, sizes in zip(functions, taken, strict=True)
    ]
    roofs = Roofs(threads, [fact.dtype for facts in known for fact in facts])
    calls: list[CallProfile] = []
    spans: list[Span] = []
    values: list[Allocation] = []
    before = 0
    for function, records, facts, sizes in zip(functions, runs, known, taken, strict=True):
        made = [_call(fact, [record[n] for record in records], threads, roofs) for n, fact in enumerate(facts)]
        for number, (call, record) in enumerate(zip(made, records[typical], strict=True)):
            if call is not None:
                calls.append(call)
                start, end = int(record[BEGIN]) / 1e9, int(record[END]) / 1e9
                spans.append(Span(call.kernel, start, end - start, OK, {"number": before + number}))
        for value in allocations(function.lowered, sizes):
            value.first, value.last = value.first + before, value.last + before
            values.append(value)
        before += len(facts)
    calls = _with_shares(calls)
    for span, call in zip(spans, calls, strict=True):
        span.attributes |= call.as_dict()
    facts_of_all: dict[str, Any] = {
        "target": str(built.target),
        "sizes": {symbol.name: size for symbol, size in zip(recording.step.symbols, taken[-1], strict=True)},
        "machine": roofs.as_dict(),
    }
    arena = recording.step.arena_bytes(*taken[-1])[0]
    return Profile([_root(spans)], calls, latency, overhead, len(totals), arena, values, before, facts_of_all)


def _root(spans: list[Span]) -> Span:
    """The model, from its first kernel to its last; times count from there."""
    start = min((span.start for span in spans), default=0.0)
    end = max((span.start + (span.duration or 0.0) for span in spans), default=0.0)
    for span in spans:
        span.start -= start
    return Span("main", 0.0, end - start, OK, {}, sorted(spans, key=lambda span: span.start))


def _call(facts: CallFacts, records: list[Records], threads: int, roofs: Roofs) -> CallProfile | None:
    """What the runs say of one call; None if it never ran."""
    runs = int(statistics.median_low(int(record[RUNS]) for record in records))
    times = [int(record[TOTAL]) / 1e9 for record in records if record[RUNS]]
    if not times or runs == 0:
        return None
    busy = np.median([record[BUSY : BUSY + threads] for record in records], axis=0)
    worked = int(np.count_nonzero(busy))
    operations, size = facts.operations * runs, facts.bytes * runs
    roof = roofs.roof(facts.operations, facts.dtype, facts.bytes)
    return CallProfile(
        kernel=facts.kernel,
        origins=facts.origins,
        runs=runs,
        minimum=min(times),
        median=statistics.median(times),
        share=0.0,
        operations=operations,
        dtype=str(facts.dtype),
        bytes=size,
        roof=roof.seconds * runs,
        bound=roof.bound,
        level=roofs.level(facts.bytes),
        vector_bits=facts.vector_bits,
        threads=max(1, worked),
        imbalance=float(busy.max() / busy.mean()) if worked else None,
    )


def _with_shares(calls: list[CallProfile]) -> list[CallProfile]:

    whole = sum(call.median for call in calls)
    return [dataclasses.replace(call, share=call.median / whole if whole else 0.0) for call in calls]
