"""Compile kernels with LLVM in background threads while passes lower the next ones.

LLVM runs without the GIL, and the threads do little else: the thread that runs the passes also emits the text of each
kernel. There are as many threads as the passes leave cores. On one core, where nothing can overlap, the passes' thread
compiles all kernels at the end: passes and LLVM that take turns evict each other's code and data from the caches, which
costs a tenth of a small network's build.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from tilewright.codegen.analysis import uses
from tilewright.codegen.llvm import ModuleText, team
from tilewright.codegen.llvm.emission import drop_forgotten_lock
from tilewright.codegen.llvm.headroom import check_headroom
from tilewright.codegen.threads import ensure_threads, import_pool
from tilewright.passes.collector import collect_young
from tilewright.passes.context import PassContext
from tilewright.passes.tensor.parallelize_loop import ParallelizeLoopConfig
from tilewright.runtime.frames import with_frame_memory
from tilewright.runtime.kernel_cache import Kernel, NamedFunction
from tilewright.runtime.process_caches import process_caches
from tilewright.runtime.switch_interval import short_switch_interval
from tilewright.tensorir import forking
from tilewright.tensorir.cores import available_cores
from tilewright.tensorir.costs import stores
from tilewright.tensorir.dtype import FLOAT32
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: Maximum number of threads: the passes run in one thread, and take as long as LLVM or longer.
_MOST_THREADS = 3


def _prepare_threads() -> None:
    """Do all that takes time of the start of the pool, which is left to the thread that builds."""
    import_pool()
    team.team_functions()


class _Part(NamedTuple):
    """Kernels that are compiled together, their modules as text, and the result."""

    named: Sequence[NamedFunction]
    texts: Mapping[str, ModuleText]
    kernels: Future[dict[str, Kernel]]


class BackgroundCompiler:
    """Compile the kernels of one build in threads of its own. As a context manager, wait for the threads at exit.

    Attributes:
        seconds: processor time that the threads have used.
    """

    def __init__(self, target: Target) -> None:
        self.seconds = 0.0
        self._target = target
        self._named: dict[PrimFunc, NamedFunction] = {}
        self._given: dict[PrimFunc, Kernel | PrimFunc] = {}
        self._parts: list[_Part] = []
        self._lock = forking.Lock()
        # Passes keep a core busy, and LLVM takes about as much time as they do.
        cores = available_cores()
        self._count = max(1, min(cores - 1, _MOST_THREADS))
        #: Whether threads compile while the passes run.
        self._overlaps = cores > 1
        self._workers = ThreadPoolExecutor(self._count, "tilewright-llvm")
        self._starter: ThreadPoolExecutor | None = None
        self._started: Future[object] | None = None
        #: Whether a kernel has a parallel loop.
        self._forks = False
        self._switching = contextlib.ExitStack()

    def expect(self, functions: Sequence[PrimFunc]) -> None:
        """Prepare the threads of parallel loops if one of ``functions``, which are about to be scheduled, stores enough
        elements to be parallelized: scheduling leaves a core idle, LLVM does not."""
        if self._target.kind == "llvm" and self._target.num_threads > 1:
            config: ParallelizeLoopConfig = PassContext.current().get_config("tensorir.ParallelizeLoop")
            work = config.min_work * self._target.lanes(FLOAT32)  # a vector is one operation
            if any(stores(function.body, work) >= work for function in functions):
                self._prepare()

    def _prepare(self) -> None:
        # In a thread of its own: importing numba takes as long as LLVM does for a small model.
        if self._started is None and self._target.is_runnable:
            check_headroom()
            self._starter = ThreadPoolExecutor(1, "tilewright-start")
            self._started = self._starter.submit(_prepare_threads)

    def add(self, functions: Sequence[PrimFunc], known_hash: int | None = None) -> None:
        """Compile those of ``functions`` that call no others. (The others are compiled with the functions that they
        call.)

        Args:
            known_hash: the hash of the only function; see :meth:`NamedFunction.of`.
        """
        if self._target.kind != "llvm":
            return
        alone = [function for function in functions if not uses(function.body).called]
        if alone:
            named = [NamedFunction.of(function, self._target, known_hash) for function in alone]
            if self._overlaps and len(self._parts) < self._count:
                check_headroom()  # a thread that starts without memory may never say that it has
            self._named.update(zip(alone, named, strict=True))
            # Emitted in this thread, as it holds the GIL: threads that take turns with it are slower.
            with PassContext.current().step("code generation"):
                texts = process_caches().kernels.emit_missing(named, self._target)
            kernels: Future[dict[str, Kernel]] = Future()
            if self._overlaps:
                kernels = self._workers.submit(with_frame_memory, self._compile, named, texts)
            self._parts.append(_Part(named, texts, kernels))
            if not self._forks and any(uses(function.body).has_parallel_loop for function in alone):
                self._forks = True
                self._prepare()

    def give(self, function: PrimFunc, kernel: Kernel | PrimFunc) -> None:
        """Use ``kernel`` as the code of ``function``: a compiled kernel, or the code of another function, which is
        added too."""
        self._given[function] = kernel

    def _compile(self, named: Sequence[NamedFunction], texts: Mapping[str, ModuleText]) -> dict[str, Kernel]:
        begin = time.thread_time()
        made = process_caches().kernels.kernels(named, self._target, texts)
        # On one core they are linked together, when all are compiled.
        if self._overlaps and self._target.is_runnable and (self._started is None or self._started.done()):
            for kernel in made.values():
                kernel.module.address(kernel.symbol)  # links it
        with self._lock:
            self.seconds += time.thread_time() - begin
        return made

    def named(self, function: PrimFunc) -> NamedFunction:
        """Return ``function`` with its cache key."""
        return self._named.get(function) or NamedFunction.of(function, self._target)

    def kernels(self) -> dict[PrimFunc, Kernel]:
        """Wait for the kernels and return them by their functions. This thread compiles those that no other thread has
        begun, starting with the last one.

        Raises:
            CodegenError: a function cannot be expressed on the target.
            RuntimeError: there are parallel loops, and what their threads need cannot be loaded.
        """
        for place, part in reversed([*enumerate(self._parts)]):
            if part.kernels.cancel():
                kernels: Future[dict[str, Kernel]] = Future()
                kernels.set_result(self._compile(part.named, part.texts))
                self._parts[place] = part._replace(kernels=kernels)
        # While the other threads finish: the end of a build would do this alone.
        collect_young()
        if self._forks and self._target.is_runnable:
            ensure_threads()
        made = {each.function: part.kernels.result()[each.function.name] for part in self._parts for each in part.named}
        for function, kernel in self._given.items():
            made[function] = made[kernel] if isinstance(kernel, PrimFunc) else kernel
        if self._started is not None:
            self._started.result()
        return made

    def __enter__(self) -> BackgroundCompiler:
        self._switching.enter_context(short_switch_interval())
        return self

    def __exit__(self, *_: object) -> None:
        drop_forgotten_lock()  # of this thread, for which the others may wait
        with self._switching:
            self._workers.shutdown(cancel_futures=True)
            if self._starter is not None:
                self._starter.shutdown()
