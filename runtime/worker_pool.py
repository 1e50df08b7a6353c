"""Run worker processes that compile kernels on the other cores.

A process of the pool is a fresh interpreter that runs :func:`.worker.serve` and nothing of the program that started it:
no ``__main__`` is imported, and threads of this process do not matter, as they would for a fork. Its imports determine
its start-up time, which :class:`WorkerEstimate` takes into account. It ends with this process, or after being idle for
long.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from tilewright.passes.tensor import simplify
from tilewright.runtime.worker import read_message, write_message
from tilewright.tensorir import forking

#: Initial estimate of the seconds to start a process, which imports Python, NumPy and the passes.
_FIRST_GUESS = 0.6
#: Processes are started if the build is expected to take at most this fraction of its time without them.
_WORTH = 0.8
#: No time is estimated before kernels have taken this fraction of the time to start a process: contractions take ten
#: times as long as other kernels of equal text length, and may come first.
_LEARNING = 0.5

#: Environment that keeps a linear algebra library from starting threads when NumPy is imported: a worker multiplies no
#: matrices, and starting these threads takes as long as importing the rest of NumPy.
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

#: Minimum number of kernels per process that starts while they are scheduled: passes and LLVM take a second or more for
#: these. (With fewer, 19 of magika and, on the accelerated wheel, 36 of SqueezeNet, builds took a sixth longer.)
_KERNELS_EACH = 48 if Path(simplify.__file__).suffix in EXTENSION_SUFFIXES else 24

_start_seconds = _FIRST_GUESS
#: Whether starting a process has failed; then no other is started.
_refused = False


class WorkerError(Exception):
    """A process could not be started, has ended, or could not make a kernel."""


class _Process:
    """One process of the pool, used by one thread at a time; ``running`` is None until it is started."""

    def __init__(self) -> None:
        self.running: subprocess.Popen[bytes] | None = None

    def answer(self, request: bytes) -> bytes:
        """Send a request and return the answer.

        Raises:
            WorkerError: there is no answer.
        """
        global _refused
        fresh = self.running is None
        if fresh and _refused:
            raise WorkerError("worker processes cannot be started here")
        try:
            answer = self._exchange(request)
        except (OSError, WorkerError) as error:
            self.end()
            if fresh:
                _refused = True
                raise WorkerError(f"no worker process can be used: {error}") from error
            answer = self._exchange(request)  # the old process was idle for long and has ended
        if not answer:
            raise WorkerError("the worker process did not compile the kernel")
        return answer

    def start(self) -> None:
        """Start the process for later requests if it does not run; if it cannot be started, these fail."""
        global _refused
        if self.running is not None or _refused:
            return
        try:
            self._start()
        except (OSError, WorkerError):
            self.end()
            _refused = True

    def _exchange(self, request: bytes) -> bytes:
        process = self.running if self.running is not None else self._start()
        assert process.stdin is not None and process.stdout is not None
        write_message(process.stdin, request)  # type: ignore[arg-type]
        answer = read_message(process.stdout)  # type: ignore[arg-type]
        if answer is None:
            raise WorkerError("the process has ended")
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        global _start_seconds
        begin = time.perf_counter()
        program = f"import sys; sys.path[:] = {sys.path!r}; from tilewright.runtime.worker import serve; serve()"
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,  # an interrupt from the keyboard must reach this process only
        )
        self.running = process
        assert process.stdout is not None
        if read_message(process.stdout) is None:  # type: ignore[arg-type]
            raise WorkerError("the process did not start")
        _start_seconds = time.perf_counter() - begin
        return process

    def end(self) -> None:
        """End the process."""
        process, self.running = self.running, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.kill()
        process.wait()


class WorkerPool:
    """A pool of worker processes, each with a thread that communicates with it. ``submit`` is as in an executor."""

    def __init__(self) -> None:
        #: Requests; a job without one only starts a process.
        self._jobs: queue.SimpleQueue[tuple[Future[bytes], bytes | None] | None] = queue.SimpleQueue()
        self._processes: list[_Process] = []
        self._threads: list[threading.Thread] = []

    def grow(self, count: int) -> None:
        """Grow the pool to ``count`` worker processes; they start at their first requests, if not earlier."""
        while len(self._threads) < count:
            process = _Process()
            # Make it a daemon, so that the program does not wait for it at exit.
            thread = threading.Thread(target=self._work, args=(process,), name="tilewright-worker", daemon=True)
            self._processes.append(process)
            self._threads.append(thread)
            thread.start()

    def start(self, count: int) -> None:
        """Start worker processes until ``count`` run, so that the next requests wait less."""
        for _ in range(count - len(self.processes())):
            self._jobs.put((Future(), None))

    def submit(self, request: bytes) -> Future[bytes]:
        """Send a request to any process; the future fails with a WorkerError where none answers."""
        future: Future[bytes] = Future()
        self._jobs.put((future, request))
        return future

    def _work(self, process: _Process) -> None:
        while (job := self._jobs.get()) is not None:
            future, request = job
            if future.set_running_or_notify_cancel():
                if request is None:
                    process.start()
                    continue
                try:
                    future.set_result(process.answer(request))
                except Exception as error:
                    future.set_exception(error)
        process.end()

    def processes(self) -> list[subprocess.Popen[bytes]]:
        """List the worker processes that were started."""
        return [process.running for process in self._processes if process.running is not None]

    def end(self) -> None:
        """End all worker processes after their requests are answered."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()


_pool = WorkerPool()
_lock = forking.Lock()


def pool(count: int) -> WorkerPool:
    """Return the pool of this process, with at least ``count`` worker processes."""
    with _lock:
        _pool.grow(count)
        return _pool


def _forget() -> None:
    """Drop the pool in a forked process, where its threads do not exist."""
    global _pool
    _pool = WorkerPool()


forking.in_forked_process(_forget)


def can_start() -> bool:
    """Return whether there is an interpreter to start: a program that embeds Python, or is frozen, may have none."""
    if _refused:
        return False
    name = Path(sys.executable or "").name.lower()
    return ("python" in name or "pypy" in name) and not getattr(sys, "frozen", False)


def start_ahead(kernels: int, cores: int) -> int:
    """Start worker processes for a build that is about to schedule ``kernels`` kernels; return their number.

    Scheduling keeps one core busy and takes longer than starting a process, so that starting them on the other, idle
    cores is free. (Processes that start later take time from LLVM, which :class:`WorkerEstimate` takes into account.)

    Args:
        cores: the number of cores that may be busy at once.
    """
    count = min(cores - 1, kernels // _KERNELS_EACH)
    if count < 1 or not can_start():
        return 0
    pool(count).start(count)
    return count


class WorkerEstimate:
    """Estimate whether worker processes save time, from the times of the kernels so far.

    Args:
        cores: the number of cores that may be busy at once.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._size = self._seconds = 0.0

    def made(self, size: int, seconds: float) -> None:
        """Record that passes took ``seconds`` for a kernel whose text has ``size`` characters."""
        self._size += size
        self._seconds += seconds

    def processes(self, size: int, code_seconds: float) -> int:
        """Return the number of worker processes to use for kernels of ``size`` characters in total; 0: none.
        Each must have at least as much work as starting it takes.

        Args:
            code_seconds: the time of code generation for the kernels so far, in another thread.
        """
        if self._cores < 2 or self._seconds < _start_seconds * _LEARNING:
            return 0
        alone = size * self._seconds / self._size  # code is generated in another thread at the same time
        work = alone * (1 + code_seconds / self._seconds)
        count = min(self._cores - 1, int(work / _start_seconds))
        start = _start_seconds if len(_pool.processes()) < count else 0.0
        if count < 1 or alone <= start:
            return 0
        together = start + work * (1 - start / alone) / (count + 1)
        return count if together < _WORTH * alone else 0
