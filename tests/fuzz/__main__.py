"""Draw random models for a while, with a fresh seed, and write what is wrong as tests that can be run.

    python -m tests.fuzz --minutes 60                  graphs and ONNX models, in as many processes as there are cores
    python -m tests.fuzz --seed 7 --batches 10         the same models again
    python -m tests.fuzz --large 80 --check-bounds     large tensors, in kernels that check each access
    python -m pytest build/fuzz/test_found_0.py        a reproducer

Each process draws a batch of models, builds each at all levels, on one or two threads, and every now and then through
numba. A process that crashes or hangs leaves the model that it was at, as a reproducer, too.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import json
import os
import random
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.check import Build, Counts, FoundError, check_build, check_onnx, oracles_of
from tests.fuzz.graphs import Model, models
from tests.fuzz.onnx_models import OnnxModel, onnx_models
from tests.fuzz.reproducer import reproducer_text, smallest
from tests.onnx.process import ROOT, LineProcess, ProcessError
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.graphir.origins import operator_origins
from tilewright.passes.tensor.check_bounds import CheckBoundsConfig
from tilewright.tensorir.stmt import PrimFunc

#: Models of a batch, and the seconds that a batch may take.
BATCH, LIMIT = 25, 900.0

#: The bytes of code that are kept, in a folder of this run's own: so few that entries are removed, too.
KEPT = 50_000_000

#: One model in so many is built through numba.
NUMBA_EVERY = 20


def _builds(rng: random.Random) -> list[Build]:
    found = [Build(level, rng.choice((1, 2))) for level in range(4)]
    if rng.randrange(NUMBA_EVERY) == 0:
        found.append(Build(rng.randrange(4), rng.choice((1, 2)), "numba"))
    return found


class _Batch:
    """The models of a batch, one after the other."""

    def __init__(self, number: int, current: Path, known: set[str]) -> None:
        self.rng = random.Random(number)
        self.current = current
        self.known = known
        self.counts = Counts()
        self.found: list[dict[str, str]] = []

    def model(self, model: Model) -> None:
        """Check a model; what is found is noted, and made small if it is the first of its kind."""
        builds = _builds(self.rng)
        calls = [lambda call=call: model.inputs(call) for call in range(len(model.sizes))]
        self.all(model.module, calls, builds)

    def onnx(self, model: OnnxModel) -> None:
        """Check an ONNX model: its import first, then the graph."""
        try:
            check_onnx(model, [], Counts())
        except FoundError as finding:
            row = {"signature": finding.signature, "message": f"{finding}\n{model}"[:6000], "text": ""}
            self.found.append(row)
            return
        module = model.module
        main = module["main"]
        assert isinstance(main, gi.Function)
        names = [param.name for param in main.params]
        calls = [lambda feed=feed: [feed[name] for name in names] for feed in model.feeds]
        self.all(module, calls, _builds(self.rng))

    def all(self, module: IRModule, calls: Sequence[Callable[[], Any]], builds: Sequence[Build]) -> None:
        """Check a module in several builds."""
        main = module["main"]
        assert isinstance(main, gi.Function)
        names = [param.name for param in main.params]
        oracles = oracles_of(module, calls, self.counts)
        for build in builds:
            announce = functools.partial(self.announce, module, build, names)
            try:
                check_build(module, oracles, build, self.counts, announce)
            except FoundError as finding:
                self.note(module, finding)
        self.counts.models += 1

    def announce(self, module: IRModule, build: Build, names: Sequence[str], inputs: Sequence[Any] | None) -> None:
        """Write what comes next, which may end or hang the process: a call with these inputs, or the build (None)."""
        given = None if inputs is None else dict(zip(names, inputs, strict=True))
        self.current.write_text(reproducer_text("crashed or hung", module, build, given), encoding="utf-8")

    def note(self, module: Any, finding: FoundError) -> None:
        """Note a finding; a wrong result counts as the same as another if the smallest graph has the same operators."""
        signature, small = finding.signature, None
        if finding.kind != "error":
            small = smallest(module, finding)
            operators = {name for function in small[0].functions.values() for name in _operators(function)}
            level = "3" if finding.build.level == 3 else "0-2"
            signature += f": {finding.build.target} level {level}: {', '.join(sorted(operators))}"
        row = {"signature": signature, "message": str(finding)[:2000], "text": ""}
        if signature not in self.known:
            self.known.add(signature)
            found, inputs = small or smallest(module, finding)
            row["text"] = reproducer_text(row["message"], found, finding.build, inputs)
        self.found.append(row)


def _operators(function: gi.Function | PrimFunc) -> list[str]:
    return [origin.operator for origin in operator_origins(function)] if isinstance(function, gi.Function) else []


def run_batch(number: int, current: Path, known: set[str], onnx: bool, large: int) -> _Batch:
    """Check a batch of models, so many of a hundred with large tensors."""
    batch = _Batch(number, current, known)
    graphs = models(most=12 if number % 3 else 30, flow=50 if number % 5 == 0 else 12, large=large)
    drawn = given(onnx_models())(batch.onnx) if onnx else given(graphs)(batch.model)
    options: Any = {"suppress_health_check": list(HealthCheck), "phases": [Phase.generate]}
    seed(number)(settings(max_examples=BATCH, database=None, deadline=None, **options)(drawn))()
    return batch


def serve(current: Path, onnx: bool, large: int, check_bounds: bool) -> None:
    """Answer each number of a batch with the findings, in a worker's process."""
    if check_bounds:
        CheckBoundsConfig.__init__.__defaults__ = (True,)
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    known: set[str] = set()
    for line in sys.stdin:
        batch = run_batch(int(line), current, known, onnx, large)
        results.write(json.dumps([dataclasses.asdict(batch.counts), batch.found]) + "\n")


class _Session:
    """The findings of all workers."""

    def __init__(self, folder: Path, first: int, until: float, batches: int) -> None:
        self.folder, self.until, self.batches = folder, until, batches
        self.lock = threading.Lock()
        self.processes: list[LineProcess] = []
        self.next = first
        self.done = 0
        self.ended = False
        self.counts: collections.Counter[str] = collections.Counter()
        self.findings: collections.Counter[str] = collections.Counter()
        self.paths: dict[str, Path] = {}
        self.excess = 0.0

    def take(self) -> int | None:
        """Return the number of the next batch; None at the end."""
        with self.lock:
            if self.ended or time.monotonic() > self.until or (self.batches and self.done >= self.batches):
                return None
            self.next += 1
            self.done += 1
            return self.next

    def work(self, worker: int, onnx: bool, settings: Sequence[str]) -> None:
        """Have a process check batches."""
        current = self.folder / f"current_{worker}.py"
        arguments = ["tests.fuzz", "--worker", str(current), *["--onnx"] * onnx, *settings]
        process = LineProcess(arguments, LIMIT)
        self.processes.append(process)
        try:
            while (number := self.take()) is not None:
                try:
                    counts, found = json.loads(process.ask(str(number)))
                except ProcessError as error:
                    text = current.read_text(encoding="utf-8") if current.exists() else ""
                    found = [{"signature": f"{error.status} in batch {number}", "message": error.reason, "text": text}]
                    counts = {}
                self.add(counts, found)
        finally:
            process.stop()

    def run(self, threads: Sequence[threading.Thread]) -> None:
        """Run the threads of all workers. An interrupt (Ctrl-C, or SIGTERM) ends them in the middle of their batches;
        what is known by then stays."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            for number in (signal.SIGINT, signal.SIGTERM):  # `timeout` sends a second one at once
                signal.signal(number, signal.SIG_IGN)
            with self.lock:
                self.ended = True
            for process in self.processes:
                process.stop()

    def add(self, counts: dict[str, Any], found: Sequence[dict[str, str]]) -> None:
        """Add what a batch has found, unless all was ended before the batch was."""
        with self.lock:
            if self.ended:
                return
            self.excess = max(self.excess, counts.pop("excess", 0.0))
            self.counts.update(counts)
            for row in found:
                signature = row["signature"]
                self.findings[signature] += 1
                if signature in self.paths:
                    continue
                ending = "py" if row["text"] else "txt"  # an ONNX model whose import is wrong is told in words
                path = self.folder / f"test_found_{len(self.paths)}.{ending}"
                path.write_text(row["text"] or row["message"], encoding="utf-8")
                self.paths[signature] = path
                print(f"{path}: {row['message']}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--onnx", action="store_true", help="ONNX models only")
    parser.add_argument("--graphs", action="store_true", help="graphs only")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--batches", type=int, default=0, help=f"at most so many batches of {BATCH} models")
    parser.add_argument("--seed", type=int, help="that of an earlier run; default: a fresh one")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--large", type=int, default=8, help="graphs in a hundred with large tensors")
    parser.add_argument("--check-bounds", action="store_true", help="kernels check the index of each access")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz")
    options = parser.parse_args(arguments)
    if options.worker:
        serve(options.worker, options.onnx, options.large, options.check_bounds)
        return 0
    first = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    print(f"seed {first}", flush=True)
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    code = options.folder / "kept"
    os.environ.update(TILEWRIGHT_CACHE_DIR=str(code), TILEWRIGHT_CACHE_BYTES=str(KEPT))
    session = _Session(options.folder, first, time.monotonic() + 60 * options.minutes, options.batches)

    def kind(worker: int) -> bool:
        return options.onnx or (not options.graphs and worker % 2 == 1)

    kept = ["--large", str(options.large), *["--check-bounds"] * options.check_bounds]
    workers = range(options.workers)
    threads = [threading.Thread(target=session.work, args=(worker, kind(worker), kept)) for worker in workers]
    session.run(threads)
    shutil.rmtree(code, ignore_errors=True)
    print(dict(session.counts), f"greatest error by tolerance {session.excess:.2f}")
    for signature, count in session.findings.most_common():
        print(f"{count:6} {session.paths.get(signature, '')} {signature}")
    return 1 if session.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
