"""``tilewright bench``: measure latency and throughput of a model, alone or interleaved with other libraries."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import tilewright as tw
from tilewright.cli.console import DIFFERENT, counting, note, say, say_json, say_table, working
from tilewright.cli.inputs import Array, built_with_inputs, flat_results, note_nonnumbers, sizes_in
from tilewright.cli.models import load_model
from tilewright.cli.options import BuildOptions, InputOptions, with_build, with_inputs, with_model, with_settings
from tilewright.cli.peers import PEERS, NotComparableError, Peer, load_peer
from tilewright.passes.tables import format_seconds

OURS = "tilewright"

#: Calls shorter than this (seconds) follow an untimed one: another library has just filled the caches.
_SHORT = 0.05
#: The least and the greatest number of rounds.
_LEAST, _MOST = 10, 100_000
#: The time that each library runs before it is measured, in seconds: threads start, and the processor gets to speed.
_WARM = 0.1
#: The least time between two updates of the progress, in seconds.
_SHOWN_EVERY = 0.2


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measurements of one library.

    Attributes:
        name: the name of the library.
        version: its version.
        times: the seconds of each call, in order; the n-th calls of all libraries belong to one round.
        items: the number of items in a call.
        difference: the greatest difference from our results, absolute, and relative to the largest of our results.
    """

    name: str
    version: str
    times: Sequence[float]
    items: int
    difference: tuple[float, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the measurements as plain data; times in seconds."""
        mean = statistics.fmean(self.times)
        found: dict[str, Any] = {
            "name": self.name,
            "version": self.version,
            "min": min(self.times),
            "median": statistics.median(self.times),
            "mean": mean,
            "p99": float(np.percentile(self.times, 99)),
            "calls": len(self.times),
            "calls_per_second": 1 / mean,
            "items_per_second": self.items / mean,
        }
        if self.difference is not None:
            for name, value in zip(("max_difference", "relative_difference"), self.difference, strict=True):
                found[name] = value if math.isfinite(value) else None
        return found


@click.command()
@with_model
@with_inputs
@click.option("-c", "--compare", metavar="NAMES", help=f"Other libraries, separated by commas: {', '.join(PEERS)}.")
@click.option(
    "--seconds", type=click.FloatRange(0), default=3.0, show_default=True, help="Approximate time to measure."
)
@click.option("-r", "--repeat", type=click.IntRange(1), help="Calls to time, instead of --seconds.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=1e-2,
    show_default=True,
    help="Largest allowed difference of results, relative to the largest result; beyond it, exit code 3.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times in seconds.")
@with_build
@with_settings
def bench(
    model: tuple[Path, str],
    random_weights: bool,
    inputs: InputOptions,
    compare: str | None,
    seconds: float,
    repeat: int | None,
    tolerance: float,
    as_json: bool,
    build: BuildOptions,
) -> None:
    """Measure latency and throughput of MODEL, alone or interleaved with other libraries.

    Each round calls every library once, in rotating order. items/s counts along the first dimension of the first
    input.

    For a model FILE.py:NAME, define the function NAME_torch (or NAME_onnxruntime) in the same file. It takes no
    arguments and returns the callable to measure: a torch.nn.Module, or a function of the inputs, in order, as NumPy
    arrays.
    """
    names = _peer_names(compare)
    pinned = _pin(build.threads)
    found = load_model(model, inputs.shapes, random_weights, inputs.seed, inputs.values)
    built, building, arrays = built_with_inputs(found, build, inputs)
    given = list(arrays.values())
    threads = built.num_threads
    peers = [Peer(OURS, tw.__version__, lambda: built(*given))]
    absent: dict[str, str] = {}
    for name in names:
        try:
            with working(f"loading {name}"):
                peers.append(load_peer(name, found, arrays, threads))
        except NotComparableError as error:
            absent[name] = str(error)
    with working("first calls"):
        results = {peer.name: _flat(peer.run()) for peer in peers}
    named = flat_results(built.signature, built(*given))
    note_nonnumbers(named)
    expected = list(named.values())
    differences = {peer.name: difference(results[peer.name], expected) for peer in peers[1:]}
    for peer in peers:
        warm_up(peer.run)
    times = in_turns({peer.name: peer.run for peer in peers}, seconds, repeat)
    first = next(iter(arrays.values()), None)
    items = first.shape[0] if first is not None and first.ndim else 1
    measured = [Measured(p.name, p.version, times[p.name], items, differences.get(p.name)) for p in peers]
    facts: dict[str, Any] = {
        "model": found.name,
        "target": str(tw.Target(built.target, num_threads=built.num_threads)),
        "sizes": sizes_in(built.signature, arrays),
        "compile_seconds": building,
        "cores": pinned,
        "load": _load(),
        "results": [each.as_dict() for each in measured],
        "not_compared": absent,
    }
    for each in measured[1:]:
        facts["results"][measured.index(each)]["times_slower"] = ratio(each.times, measured[0].times)
    if as_json:
        say_json(facts)
    else:
        _say(facts)
    wrong = [name for name, (_, relative) in differences.items() if not relative <= tolerance]
    for name in wrong:
        note(f"the results of {name} differ by more than {tolerance:g} of the largest")
    if wrong:
        raise SystemExit(DIFFERENT)
    if absent:
        raise click.exceptions.Exit(1)


def warm_up(run: Callable[[], Any]) -> None:
    """Call a library until its threads run and the processor is at speed."""
    until = time.perf_counter() + _WARM
    while time.perf_counter() < until:
        run()


def in_turns(runs: Mapping[str, Callable[[], Any]], budget: float, repeat: int | None) -> dict[str, list[float]]:
    """Time calls of the libraries in rounds, one call of each in a round; the rounds rotate which library goes first.
    Return the seconds of each library's calls.

    Args:
        budget: the seconds to measure for.
        repeat: the number of rounds, in place of ``budget``.
    """
    names = list(runs)
    once = {name: min(_seconds(run) for _ in range(3)) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in names}
    per_round = sum(2 * each if len(names) > 1 and each < _SHORT else each for each in once.values())
    rounds = repeat or max(_LEAST, min(_MOST, int(budget / max(per_round, 1e-9))))
    shown_at = 0.0
    with counting("measuring", rounds) as show:
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                if len(names) > 1 and once[name] < _SHORT:
                    runs[name]()
                times[name].append(_seconds(runs[name]))
            if time.monotonic() - shown_at > _SHOWN_EVERY:
                shown_at = time.monotonic()
                show(number + 1)
    return times


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Return how many times longer their calls take: the median over the rounds, as the machine's speed changes between
    them."""
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


def difference(found: Sequence[Array], expected: Sequence[Array]) -> tuple[float, float]:
    """Return the greatest difference of an element, absolute, and relative to the largest element of its array;
    infinite if the shapes differ."""
    if [array.shape for array in found] != [array.shape for array in expected]:
        return float("inf"), float("inf")
    greatest = relative = 0.0
    for one, other in zip(found, expected, strict=True):
        if not other.size:
            continue
        a, b = one.astype(np.float64), other.astype(np.float64)
        with np.errstate(invalid="ignore"):
            off = float(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b)).max())
        off = off if np.isfinite(off) else float("inf")
        finite = np.abs(b[np.isfinite(b)])
        largest = float(finite.max()) if finite.size else 0.0
        greatest, relative = max(greatest, off), max(relative, off / (largest or 1.0))
    return greatest, relative


def _pin(threads: int | None) -> list[int]:
    """Restrict this process, and so all libraries in it, to as many cores as it is to use threads; return the cores."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    if threads is not None and threads < len(cores):
        click.get_current_context().call_on_close(functools.partial(os.sched_setaffinity, 0, cores))
        cores = cores[:threads]
        os.sched_setaffinity(0, cores)
    return cores


def _load() -> float | None:
    """Return how many processes wanted a core of the machine in the last minute, on average; None where it does not
    say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _flat(results: Any) -> list[Array]:
    if isinstance(results, (tuple, list)):
        return [array for part in results for array in _flat(part)]
    return [np.asarray(results)]


def _peer_names(compare: str | None) -> list[str]:
    names = [name.strip() for name in (compare or "").split(",") if name.strip()]
    for name in names:
        if name not in PEERS:
            raise click.BadParameter(f"expected {', '.join(PEERS)}; found {name!r}", param_hint="--compare")
    return list(dict.fromkeys(names))


def _say(facts: Mapping[str, Any]) -> None:
    sizes = ", ".join(f"{name}={size}" for name, size in facts["sizes"].items())
    say(f"{facts['model']} for {facts['target']}{f', {sizes}' if sizes else ''}")
    compared = len(facts["results"]) > 1
    where = f"on cores {', '.join(map(str, facts['cores']))}" if facts["cores"] else ""
    load = f"load of the machine before: {facts['load']:g}" if facts["load"] is not None else ""
    say("; ".join(filter(None, (where, load))))
    header = ["", "min", "median", "p99", "calls/s", "items/s", "calls"]
    header += ["times slower", "max difference", "relative"] if compared else []
    rows = []
    for each in facts["results"]:
        name = f"{each['name']} {each['version']}".strip()
        row = [name, *(format_seconds(each[key]) for key in ("min", "median", "p99"))]
        row += [f"{each['calls_per_second']:.1f}", f"{each['items_per_second']:.1f}", str(each["calls"])]
        if compared:
            differs = "max_difference" in each
            row += [_cell(each[key], form) if differs else "" for key, form in _COMPARED]
        rows.append(row)
    say_table("", header, rows, header[1:])
    for name, reason in facts["not_compared"].items():
        say(f"{name}: not compared: {reason}")


def _cell(value: float | None, form: str) -> str:
    return "other" if value is None else f"{value:{form}}"


_COMPARED = (("times_slower", ".2f"), ("max_difference", ".3g"), ("relative_difference", ".3g"))
