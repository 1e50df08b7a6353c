"""Hand in bad input by the hundred thousand: each must be accepted, or refused by a ``TilewrightError``.

    python -m tests.fuzz.bad_input --count 200000 --seed 7        so many where one takes microseconds, fewer elsewhere
    python -m tests.fuzz.bad_input --entry "graph text" --show 1234     one input, with its traceback

Inputs are known by entry point, seed and number. They are handed in within a child process, with little memory and an
alarm for each: what crashes the process or stops it is found by its number, and the others go on in a new one.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import mmap
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from tests.fuzz.entries import ENTRIES, REFUSED
from tests.fuzz.entry import Entry
from tests.onnx.mutants import peak_memory
from tests.onnx.process import LineProcess, ProcessError

#: Seconds of processor time for an input, and seconds for one in which no Python code runs; bytes of address space of a
#: process.
ALARM, PATIENCE, MEMORY = 10.0, 60.0, 6 << 30

#: Inputs of one request to a process.
_BATCH = 500


class SlowInputError(BaseException):
    """An input took too long. No ``Exception``: nothing that is tested may catch it."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise SlowInputError


@dataclasses.dataclass
class Bug:
    """An input that ends as none may.

    Attributes:
        entry: the entry point.
        number: which input of its seed.
        reason: what happened, and where.
    """

    entry: str
    number: int
    reason: str


@dataclasses.dataclass
class Report:
    """The ends of the inputs of an entry point.

    Attributes:
        counts: how many were accepted, and how many each error has refused.
        bugs: what went wrong.
        seconds: of processor time, of all and of the slowest input.
        peak: the most bytes that a process had in memory.
    """

    counts: collections.Counter[str]
    bugs: list[Bug]
    seconds: float = 0.0
    slowest: float = 0.0
    peak: int = 0


def generator(entry: str, seed: int, number: int) -> random.Random:
    """Return the source of the choices of one input."""
    return random.Random(f"{entry}:{seed}:{number}")


def examine(entry: Entry, seed: int, number: int) -> tuple[str, str]:
    """Hand in an input: return ``accepted``, the name of the error that refused it, or ``bug``; and what happened."""
    value = entry.draw(generator(entry.name, seed, number))
    signal.setitimer(signal.ITIMER_PROF, ALARM)
    try:
        entry.run(value)
        return "accepted", ""
    except REFUSED as error:
        str(error)
        return type(error).__name__, ""
    except SlowInputError:
        return "bug", f"no end after {ALARM:.0f} s of processor time"
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "site-packages" not in frame.filename and "/lib/" not in frame.filename]
        last = (ours or list(frames))[-1]
        place = f"{'/'.join(last.filename.split('/')[-2:])}:{last.lineno} {last.name}"
        return "bug", f"{type(error).__name__} in {place}: {str(error)[:120]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def serve(seed: int, place: str) -> None:
    """Answer requests, each an entry point and a range of numbers, with what came of these inputs; write the number of
    each to a file in ``place`` before it. Other files lie there, too."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    tempfile.tempdir = place
    with open(Path(place, "current"), "r+b") as file:
        current = mmap.mmap(file.fileno(), 8)
    signal.signal(signal.SIGPROF, _alarm)
    entries: dict[str, Entry] = {}
    for line in sys.stdin:
        name, first, last = json.loads(line)
        entry = entries[name] = entries.get(name) or ENTRIES[name]()
        counts: collections.Counter[str] = collections.Counter()
        bugs, slowest, started = [], 0.0, time.process_time()
        for number in range(first, last):
            current[:8] = number.to_bytes(8, "little")
            before = time.process_time()
            status, reason = examine(entry, seed, number)
            slowest = max(slowest, time.process_time() - before)
            counts[status] += 1
            if status == "bug":
                bugs.append((number, reason))
        results.write(json.dumps([counts, bugs, time.process_time() - started, slowest, peak_memory()]) + "\n")


class Examiner:
    """Hands in inputs in a process of its own, and in a new one after each that ends the process."""

    def __init__(self, seed: int) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a million files are written
        self._place = tempfile.TemporaryDirectory(prefix="fuzz", dir=memory)
        self._current = Path(self._place.name, "current")
        self._current.write_bytes(bytes(8))
        arguments = ["tests.fuzz.bad_input", "--worker", "--seed", str(seed), "--place", self._place.name]
        self._worker = LineProcess(arguments, PATIENCE)

    def __enter__(self) -> Examiner:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.stop()
        self._place.cleanup()

    def report(self, name: str, numbers: range) -> Report:
        """Hand in the inputs of an entry point."""
        report = Report(collections.Counter(), [])
        waiting = collections.deque(_batches(numbers))
        while waiting:
            first, last = waiting.popleft()
            limit = PATIENCE + ALARM * 5 + (last - first) * 0.5
            try:
                answer = self._worker.ask(json.dumps([name, first, last]), limit)
            except ProcessError as error:
                number = int.from_bytes(self._current.read_bytes(), "little")
                report.counts[error.status] += 1
                report.bugs.append(Bug(name, number, f"{error.status}: {error}"))
                # The others of the batch again: what came of those before has not been told.
                waiting.extendleft(pair for pair in ((number + 1, last), (first, number)) if pair[0] < pair[1])
                continue
            counts, bugs, seconds, slowest, peak = json.loads(answer)
            report.counts.update(counts)
            report.bugs += [Bug(name, number, reason) for number, reason in bugs]
            report.seconds += seconds
            report.slowest = max(report.slowest, slowest)
            report.peak = max(report.peak, peak)
        return report


def _batches(numbers: range) -> Iterator[tuple[int, int]]:
    for first in range(numbers.start, numbers.stop, _BATCH):
        yield first, min(first + _BATCH, numbers.stop)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entry", action="append", choices=list(ENTRIES), help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10000, help="inputs of a cheap entry point; slower ones get fewer")
    parser.add_argument("--show", type=int, metavar="NUMBER")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        serve(options.seed, options.place)
        return
    names = options.entry or list(ENTRIES)
    if options.show is not None:
        entry = ENTRIES[names[0]]()
        value = entry.draw(generator(names[0], options.seed, options.show))
        print(value if isinstance(value, str) else repr(value))
        entry.run(value)
        return
    total = 0
    for name in names:
        count = max(1, options.count // ENTRIES[name].cost)
        with Examiner(options.seed) as examiner:
            report = examiner.report(name, range(options.first, options.first + count))
        total += count
        print(
            f"{name}: {count:,} inputs, {report.seconds:.0f} s, slowest {report.slowest:.2f} s, {report.peak >> 20} MiB"
        )
        print("   ", ", ".join(f"{what} {number:,}" for what, number in report.counts.most_common()), flush=True)
        kinds: dict[str, list[Bug]] = collections.defaultdict(list)
        for bug in report.bugs:
            kinds[bug.reason.partition(": ")[0]].append(bug)
        for bugs in sorted(kinds.values(), key=len, reverse=True):
            print(f"    {len(bugs):6} {[bug.number for bug in bugs[:3]]} {bugs[0].reason}", flush=True)
    print(f"{total:,} inputs")


if __name__ == "__main__":
    main()
