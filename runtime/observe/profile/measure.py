"""Profile a model: call it in turns with and without clock reads around its kernels."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.threads import thread_limit
from tilewright.passes.spans import OK, Span
from tilewright.runtime.built_model import BuiltModel
from tilewright.runtime.observe.profile.arena import Allocation, allocations
from tilewright.runtime.observe.profile.facts import CallFacts, call_facts
from tilewright.runtime.observe.profile.profile import CallProfile, Profile
from tilewright.runtime.observe.profile.recording import RecordedCall, Recording, Records
from tilewright.runtime.observe.profile.roofs import Roofs
from tilewright.runtime.steps import Array, Step, Steps
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.profiling import BEGIN, BUSY, END, RUNS, TOTAL

#: Warm-up calls of each kind, before the measurement, that warm caches and threads up.
WARM_UP = 2


def profile(
    built: BuiltModel, step: Step | Steps, inputs: Sequence[Array], sizes: tuple[int, ...], repeat: int
) -> Profile:
    """Call a model ``repeat`` times unchanged and ``repeat`` times with clock reads around its kernels.

    Args:
        step: the unchanged model.
        inputs: the inputs, in the form of the signature.
        sizes: sizes of the inputs' symbolic dimensions.

    Raises:
        ValueError: ``repeat`` is not positive.
        InputError, ExecutionError: as a call of the model does.
    """
    if repeat < 1:
        raise ArgumentValueError(f"repeat: expected a positive number, found {repeat}")
    # The report measures them once more: other programs on this machine may disturb either measurement.
    Roofs(min(built.target.num_threads, thread_limit()))
    recording = Recording(built)
    plain: list[float] = []
    for _ in range(WARM_UP):
        step(inputs, sizes)
        recording(inputs, sizes)
    recording.forget()
    for _ in range(repeat):
        start = time.perf_counter()
        step(inputs, sizes)
        plain.append(time.perf_counter() - start)
        recording(inputs, sizes)
    # Equal inputs give equal sizes, including those that the model computes itself, unless it draws random numbers.
    calls = max(recording.calls().values(), key=len)
    return report(recording, calls, plain)


def report(
    recording: Recording,
    recorded: Sequence[RecordedCall],
    plain: Sequence[float] = (),
    again: bool = True,
    facts: Mapping[str, Any] | None = None,
) -> Profile:
    """Make the profile of ``recorded`` calls, whose inputs had the same sizes.

    Args:
        plain: seconds of calls without clock reads; by default unknown.
        again: whether to measure the machine's limits again if this process has done so before.
        facts: additional facts, plain data.
    """
    threads = min(recording.built.target.num_threads, thread_limit())
    functions = recording.functions
    runs = [[call.runs[number].records for call in recorded] for number in range(len(functions))]
    typical = _typical([np.concatenate(call, axis=1) for call in zip(*runs, strict=True)])
    taken = [run.sizes for run in recorded[typical].runs]
    known = [call_facts(function.lowered, sizes) for function, sizes in zip(functions, taken, strict=True)]
    roofs = Roofs(threads, [fact.dtype for found in known for fact in found], again)
    calls: list[CallProfile] = []
    spans: list[Span] = []
    values: list[Allocation] = []
    before = 0
    # Use one factor for all: ticks count from the start of the machine, and times are compared across functions.
    tick = functions[0].lowered.code.seconds_per_tick()
    for function, records, found, sizes in zip(functions, runs, known, taken, strict=True):
        for number, fact in enumerate(found):
            columns = [record[:, number] for record in records]
            call = _call(before + number, fact, columns, tick, threads, roofs)
            if call is not None:
                calls.append(call)
                spans += _span(call, columns[typical], tick, threads)
        values += [
            dataclasses.replace(value, first=value.first + before, last=value.last + before)
            for value in allocations(function.lowered.main, sizes)
        ]
        before += len(found)
    calls = _with_shares(calls)
    of_number = {call.number: call for call in calls}
    for span in spans:
        span.attributes = of_number[span.attributes["number"]].as_dict()
    sizes = recorded[typical].sizes
    with_clock = [call.seconds for call in recorded]
    usual = statistics.median(plain or with_clock)
    return Profile(
        spans=[_root(spans)],
        calls=calls,
        latency=(min(plain or with_clock), usual),
        overhead=statistics.median(with_clock) / usual - 1 if plain else None,
        repeat=len(recorded),
        arena_bytes=recording.arena_bytes(*sizes)[0],
        allocations=values,
        num_calls=before,
        facts={
            "target": str(recording.built.target),
            "signature": str(recording.built.signature),
            "sizes": {symbol.name: size for symbol, size in zip(recording.symbols, sizes, strict=True)},
            "machine": roofs.as_dict(),
            **(facts or {}),
        },
    )


def _typical(runs: Sequence[Records]) -> int:
    """Return the number of the run of median time among those that call exactly the kernels that most runs call."""
    called = np.array([records[RUNS] > 0 for records in runs])
    usual = np.median(called, axis=0) > 0.5
    alike = [number for number, row in enumerate(called) if (row == usual).all()]
    by_time = sorted(alike or range(len(runs)), key=lambda number: int(runs[number][TOTAL].sum()))
    return by_time[len(by_time) // 2]


def _span(call: CallProfile, record: Records, tick: float, threads: int) -> list[Span]:
    """Make the span of a call; none if its branch was not taken. (In a loop, it is that of the last iteration, in which
    threads worked their mean time.) Inside are the spans of threads, whose ``thread`` counts from 1."""
    if not record[RUNS]:
        return []
    start, end = int(record[BEGIN]) * tick, int(record[END]) * tick
    busy = [int(ticks) * tick / int(record[RUNS]) for ticks in record[BUSY : BUSY + threads]]
    work = [
        Span(call.kernel, start, min(seconds, end - start), OK, {"worked": seconds}, thread=number)
        for number, seconds in enumerate(busy, 1)
        if seconds
    ]
    return [Span(call.kernel, start, end - start, OK, {"number": call.number}, work)]


def _root(spans: list[Span]) -> Span:
    """Make the span of the model, from its first kernel to its last; times are relative to its beginning."""
    start = min((span.start for span in spans), default=0.0)
    end = max((span.start + (span.duration or 0.0) for span in spans), default=0.0)
    for span in spans:
        for _, part in span.walk():
            part.start -= start
    return Span("main", 0.0, end - start, OK, {}, sorted(spans, key=lambda span: span.start))


def _call(
    number: int, facts: CallFacts, records: list[Records], tick: float, threads: int, roofs: Roofs
) -> CallProfile | None:
    """Summarize the runs of one call; None if it does not run in most runs of the model."""
    runs = int(statistics.median_low(int(record[RUNS]) for record in records))
    if runs == 0:
        return None
    ran = [record for record in records if record[RUNS]]
    times = [int(record[TOTAL]) * tick for record in ran]
    busy = np.array([record[BUSY : BUSY + threads] for record in ran])
    worked = int(np.median(np.count_nonzero(busy, axis=1)))
    shared = busy[busy.any(axis=1)]
    operations, size = facts.operations * runs, facts.bytes * runs
    roof = roofs.roof(facts.operations, facts.dtype, facts.bytes)
    return CallProfile(
        number=number,
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
        threads=max(1, worked) if facts.tells_threads else None,
        imbalance=float(np.median(shared.max(axis=1) / shared.mean(axis=1))) if worked else None,
    )


def _with_shares(calls: list[CallProfile]) -> list[CallProfile]:
    whole = sum(call.median for call in calls)
    return [dataclasses.replace(call, share=call.median / whole if whole else 0.0) for call in calls]
