"""Interleave calls: one process for each library and model, one of them awake at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.peers import networks, programs
from bench.peers.kernels import Model
from bench.peers.others import Others
from bench.peers.suite import PROGRAMS, Case
from bench.peers.worker import Job

Array = np.ndarray[Any, Any]

ROOT = Path(__file__).resolve().parents[2]
OURS, LIMIT = "tilewright", "limit"
#: Tilewright with ``mode="max-autotune"``: shown for PyTorch programs, and part of no ratio.
MOST = "tilewright_most"
#: A backend of ``torch.compile`` that computes nothing: what a call costs in any case.
EMPTY = "torch_empty"
#: Tilewright of another checkout, treated as another library.
BEFORE = "before"

#: The seconds that a worker may take to load a model and make its first call, and for every later request.
LOAD_SECONDS, CALL_SECONDS = 120.0, 30.0
#: The seconds for the load of a PyTorch program: compilers that run a C++ compiler take long, and longer beside others.
PROGRAM_SECONDS = 400.0
#: The processes for a time that each process can measure once; the others of a slow library are spared.
PROCESSES, SLOW = 3, 30.0
LEAST_ROUNDS, MOST_ROUNDS = 5, 300
#: A turn of a call shorter than ``LONG`` seconds begins with untimed ones, for ``WARM`` seconds: other processes have
#: just filled the caches. Several threads also have to wake up, sometimes all on one core until the system migrates
#: one: they get ``WARM_THREADS`` seconds, or one call, if that is shorter than ``LONG_THREADS``. Calls under ``TURN``
#: are repeated for as long.
LONG, WARM, LONG_THREADS, WARM_THREADS, TURN = 0.05, 0.002, 0.5, 0.008, 0.001
#: The most multiply-adds of a probe: only its rate counts.
MOST_OPERATIONS = 5e8

# No library's threads spin while they wait; OpenMP, which PyTorch uses, reads that from the environment.
QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}


def takes_part(library: str, case: Case) -> bool:
    """Return whether the library can run the model of the case."""
    if case.program:
        is_call = case.group == PROGRAMS
        return library in (OURS, BEFORE) or library in case.libraries or (library == MOST and is_call)
    return library not in (MOST, EMPTY) and (bool(case.torch) or not library.startswith("torch"))


class WorkerError(Exception):
    """A worker failed; the message gives the reason."""


def python_of(root: Path) -> Path:
    """Return the interpreter of a checkout; for this one, the running interpreter."""
    return Path(sys.executable) if root == ROOT else root / ".venv/bin/python"


class Worker:
    """A process that has loaded a model. It is stopped while it is idle.

    Args:
        root: the checkout whose worker to run; any but this one has its own interpreter, in ``.venv``.
    """

    def __init__(self, job: Job, root: Path = ROOT) -> None:
        self.job = job
        self.version, self.load, self.amount = "", 0.0, 0.0
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the worker)
        self._cache = tempfile.TemporaryDirectory(prefix="peers-cache-")
        environment = {**os.environ, **QUIET, "OMP_NUM_THREADS": str(job.threads)}
        if job.program and programs.kind(job.program) in programs.ONCE:  # every process compiles for itself
            environment.update(TORCHINDUCTOR_CACHE_DIR=self._cache.name, TILEWRIGHT_CACHE="off")
        self._process = subprocess.Popen(
            [str(python_of(root)), "-m", "bench.peers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=root,
            env=environment,
            bufsize=0,
        )
        self._send(dataclasses.asdict(job))

    @property
    def process(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ready(self) -> None:
        """Wait until the model is loaded.

        Raises:
            WorkerError: the model cannot be loaded.
        """
        limit = PROGRAM_SECONDS if self.job.program else LOAD_SECONDS
        reply = self._receive(limit, "was not loaded, and called once, within")
        self.version, self.load, self.amount = reply["version"], reply["load"], reply["amount"]
        self._process.send_signal(signal.SIGSTOP)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the reply to a request.

        Raises:
            WorkerError: the call failed, or took too long.
        """
        self._send(request)
        self._process.send_signal(signal.SIGCONT)
        reply = self._receive(CALL_SECONDS, "no answer within")
        self._process.send_signal(signal.SIGSTOP)
        return reply

    def seconds(self, calls: int = 1, warm: float = 0.0) -> float:
        """Return the mean time of a call."""
        return float(self.ask(calls=calls, warm=warm)["seconds"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()
        with contextlib.suppress(OSError):  # a compiler that the process had started may still write
            self._cache.cleanup()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # _receive reports the reason
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def _receive(self, timeout: float, late: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            raise WorkerError(f"{late} {timeout:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            last = self._errors.read().strip().splitlines()[-1:] or [""]
            raise WorkerError(f"ended with status {self._process.wait()}: {last[0][:200]}")
        reply: dict[str, Any] = json.loads(line)
        if "failed" in reply:
            raise WorkerError(reply["failed"])
        return reply


@dataclasses.dataclass
class Row:
    """The measurements of a case on a number of threads.

    Attributes:
        times: the seconds of each round, by library; a round of the probe is the time for as much work.
        errors: the largest difference from the reference, relative to its largest element.
        reference: the origin of the reference results.
        failed: the reason why a library is not among the times.
        loads: the seconds until a library had the model ready.
        operations: the floating-point operations of a call, or 0.
        others: the cores that other programs kept busy meanwhile, if known.
    """

    case: Case
    threads: int
    times: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    errors: dict[str, float] = dataclasses.field(default_factory=dict)
    reference: str = ""
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    loads: dict[str, float] = dataclasses.field(default_factory=dict)
    operations: float = 0.0
    others: float | None = None

    def median(self, library: str) -> float:
        return statistics.median(self.times[library])

    def spread(self, library: str) -> float:
        """Return half of the interquartile range of the times, relative to their median."""
        times = self.times[library]
        low, _, high = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
        return (high - low) / 2 / self.median(library)

    def peers(self) -> list[str]:
        """The other libraries that were measured, fastest first."""
        return sorted((name for name in self.times if name not in (OURS, MOST, LIMIT, EMPTY)), key=self.median)

    def ratio(self, library: str) -> float:
        """Return our time relative to the library's: the median over the rounds."""
        ours, theirs = self.times[OURS], self.times[library]
        if len(ours) != len(theirs):  # no rounds: each time is that of a process
            return self.median(OURS) / self.median(library)
        return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))

    def above(self, library: str) -> float:
        """Return our time less the library's: the median over the rounds."""
        return statistics.median(a - b for a, b in zip(self.times[OURS], self.times[library], strict=True))

    def share(self) -> float | None:
        """Return the share of the machine's limit that we reach."""
        if LIMIT not in self.times or OURS not in self.times:
            return None
        return statistics.median(b / a for a, b in zip(self.times[OURS], self.times[LIMIT], strict=True))


def _difference(found: Sequence[Array], expected: Sequence[Array]) -> float:
    if len(found) != len(expected):
        return float("inf")
    worst = 0.0
    for one, other in zip(found, expected, strict=True):
        if one.shape[1:] != other.shape[1:] or len(one) < len(other):
            return float("inf")
        largest = float(np.abs(other).max()) or 1.0
        difference = float(np.abs(one[: len(other)].astype(np.float64) - other).max()) / largest
        worst = max(worst, difference if np.isfinite(difference) else float("inf"))
    return worst


class Prepared:
    """The files of a case, and its expected results."""

    def __init__(self, case: Case, model: Model, folder: Path) -> None:
        self.case, self.model, self.folder = case, model, folder
        self.operations = 0.0
        self.inputs = str(folder / "inputs.npz")
        np.savez(self.inputs, **model.inputs)
        if isinstance(model.onnx, str):
            self.path = model.onnx  # of a program: none
        else:
            self.path = str(folder / "model.onnx")
            onnx.save(model.onnx, self.path)
            if case.limit == "fma":
                self.operations = networks.operations(model.onnx)
        self.expected = None if model.expected is None else model.expected()

    def job(self, library: str, threads: int, spinning: bool) -> Job:
        if library == LIMIT:
            amount = min(self.operations, MOST_OPERATIONS) if self.case.limit == "fma" else self.case.amount
            return Job(library, self.case.torch, "", "", threads, limit=(self.case.limit, amount))
        library = OURS if library == BEFORE else library
        return Job(
            library, self.case.torch, self.path, self.inputs, threads, self.model.real, ("", 0.0), spinning,
            self.case.program,
        )  # fmt: skip


@contextlib.contextmanager
def _workers(
    prepared: Prepared, row: Row, libraries: Sequence[str], spinning: bool, before: Path | None
) -> Iterator[dict[str, Worker]]:
    """Return the processes that could load the model; ``row.failed`` has the reasons of the others."""
    wanted = [name for name in libraries if takes_part(name, prepared.case)]
    wanted += [LIMIT] if prepared.case.limit else []
    started: dict[str, Worker] = {}
    try:
        for name in wanted:
            root = before if name == BEFORE and before is not None else ROOT
            started[name] = Worker(prepared.job(name, row.threads, spinning), root)
        usable = dict(started)
        for name, worker in started.items():
            try:
                worker.ready()
                row.versions[name], row.loads[name] = worker.version, worker.load
            except WorkerError as error:
                _drop(name, str(error), row, usable)
        yield usable
    finally:
        for worker in started.values():
            worker.close()


def _drop(name: str, reason: str, row: Row, workers: dict[str, Worker]) -> None:
    """Exclude a library; it may still be in a call, and keep a core busy."""
    row.failed[name] = reason
    workers.pop(name).close()


def _check(prepared: Prepared, row: Row, workers: dict[str, Worker]) -> None:
    """Compare all results; exclude workers with wrong ones."""
    results: dict[str, list[Array]] = {}
    for name in [name for name in workers if name != LIMIT]:
        path = prepared.folder / f"{name}.npz"
        try:
            workers[name].ask(save=str(path))
        except WorkerError as error:
            _drop(name, str(error), row, workers)
            continue
        with np.load(path) as file:
            results[name] = [file[key] for key in file.files]
        path.unlink()
    if prepared.expected is not None:
        row.reference, expected = prepared.model.reference, prepared.expected
    else:
        others = [name for name in ("onnxruntime", *results) if name in results and name != OURS]
        if not others:
            return
        row.reference, expected = others[0], results[others[0]]
    for name, found in results.items():
        row.errors[name] = _difference(found, expected)
        if row.errors[name] > row.case.tolerance:
            _drop(name, f"wrong results: {row.errors[name]:.1e} from {row.reference}", row, workers)


def _measure(row: Row, workers: dict[str, Worker], budget: float) -> None:
    turns: dict[str, tuple[int, float]] = {}
    for name, worker in list(workers.items()):
        try:
            once = min(worker.seconds(calls=1, warm=1e-6) for _ in range(2))
        except WorkerError as error:
            _drop(name, str(error), row, workers)
            continue
        long, warm = (LONG, WARM) if row.threads == 1 else (LONG_THREADS, WARM_THREADS)
        warm = 0.0 if once > long else warm
        turns[name] = max(1, min(1000, round(TURN / max(once, 1e-7)))), warm
    names = list(workers)
    times: dict[str, list[float]] = {name: [] for name in names}
    others = Others([os.getpid(), *(worker.process for worker in workers.values())])
    start, rounds = time.perf_counter(), 0
    while rounds < LEAST_ROUNDS or (rounds < MOST_ROUNDS and time.perf_counter() - start < budget):
        for name in names[rounds % len(names) :] + names[: rounds % len(names)]:
            times[name].append(workers[name].seconds(*turns[name]))
        rounds += 1
    row.times, row.others = times, others.cores()
    if LIMIT in times:
        scale = (row.operations or row.case.amount) / workers[LIMIT].amount
        times[LIMIT] = [seconds * scale for seconds in times[LIMIT]]


def _measure_once(prepared: Prepared, row: Row, libraries: Sequence[str]) -> None:
    """Measure what a process does once, in one process at a time."""
    for name in [name for name in libraries if takes_part(name, prepared.case) and name != BEFORE]:
        times: list[float] = []
        while len(times) < PROCESSES and sum(times) < SLOW:
            alone = Row(row.case, row.threads)
            with _workers(prepared, alone, [name], False, None) as workers:
                if name in workers:
                    _check(prepared, alone, workers)
                row.failed.update(alone.failed)
                row.errors.update(alone.errors)
                row.versions.update(alone.versions)
                row.loads.update(alone.loads)
                row.reference = alone.reference
                if name not in workers:
                    break
                times.append(workers[name].seconds())
        if times and name not in row.failed:
            row.times[name] = times


def measure(
    case: Case,
    libraries: Sequence[str],
    threads: Sequence[int],
    budget: float,
    spinning: bool = False,
    before: Path | None = None,
) -> list[Row]:
    """Return the rows of a case, one for each number of threads; each takes about ``budget`` seconds after loading.

    Args:
        before: the checkout of the library ``BEFORE``.
    """
    rows = [Row(case, number) for number in threads]
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        try:
            prepared = Prepared(case, case.make(), Path(folder))
        except ImportError as error:
            missing = isinstance(error, ModuleNotFoundError)
            for row in rows:
                row.failed["model"] = f"{error.name} is not installed" if missing else str(error)
            return rows
        for row in rows:
            row.operations = prepared.operations
            if case.program and programs.kind(case.program) in programs.ONCE:
                _measure_once(prepared, row, libraries)
                continue
            with _workers(prepared, row, libraries, spinning, before) as workers:
                try:
                    _check(prepared, row, workers)
                    if set(workers) - {LIMIT}:
                        _measure(row, workers, budget)
                except WorkerError as error:
                    row.failed["measuring"] = str(error)
    return rows
