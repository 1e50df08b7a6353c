"""Start the threads of parallel loops: numba's threading layer, TBB first.

When another process keeps a core busy, a parallel loop under OpenMP waits for its descheduled thread, while TBB's other
threads steal that work; workqueue takes 100 microseconds to start and admits only one thread of the program at a time.

The pool is numba's, shared with the program's own numba functions. Its size is NUMBA_NUM_THREADS, or else the number of
cores in the process's affinity mask when numba is imported. Without NUMBA_NUM_THREADS, generated code uses at most as
many threads as the process may use cores when the pool starts: numba knows neither the quota of a control group nor an
affinity mask that was narrowed after its import.

A forked process has a copy of the pool's memory, but none of its threads. numba ends TBB's threads before a fork, so
that both processes start their own, if the thread that forks has started the pool and no other thread uses it.
Otherwise the copy may hold a lock of TBB that nobody gives back. OpenMP (GNU's) ends a forked process that enters it,
and workqueue one in whose parent a loop was running. So a forked process uses its pool only if that is safe; all other
loops run on one thread, without the pool (:func:`pool_is_lost`).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import llvmlite.binding as llvm

from tilewright.tensorir import forking
from tilewright.tensorir.cores import available_cores, chosen_threads

#: numba's name of the function that runs a parallel loop.
_PARALLEL_FOR = "numba_parallel_for"

#: The number of threads of the pool that generated code may use; the code reads it before it forks.
_limit = ctypes.c_int32(1)
#: The address of numba's function for parallel loops, which code with a limit above 1 calls.
_parallel_for = ctypes.c_void_p()
_lock = forking.Lock()
_workqueue_lock = forking.RLock()
_layer: str | None = None
#: The thread that started the pool, whether the thread that forks leaves a pool that the new process may use, and
#: whether this process was forked without one.
_starter: int | None = None
_pool_survives = True
_pool_is_lost = False
#: The number of threads of the pool that the process may use, and the lower limits of the calls that run now.
_most = 1
_limits: list[int] = []


def before_fork() -> None:
    """Decide whether the new process may use the pool, and let no thread start it until :func:`after_fork`.
    :mod:`~tilewright.codegen.llvm.emission` calls this before it closes LLVM, which starting the pool needs."""
    global _pool_survives
    _lock.acquire()
    alone = len(sys._current_frames()) == 1
    if _layer == "tbb":
        _pool_survives = alone and _starter == threading.get_ident()
    else:
        _pool_survives = _layer is None or (_layer == "workqueue" and alone)


def _begin_anew() -> None:
    """Forget, in a forked process, the limits of calls that are not in it, and a pool that it can't use."""
    global _most, _pool_is_lost
    _limits.clear()
    if not _pool_survives:
        _most, _pool_is_lost = 1, True
    _limit.value = _most


def after_fork() -> None:
    """Let threads of the process that forked start the pool again."""
    _lock.release()


forking.in_forked_process(_begin_anew)


def _load_tbb() -> None:
    """Load the library of the ``tbb`` wheel: numba does not look for it in a virtual environment."""
    names = {"linux": "lib/libtbb.so.12", "darwin": "lib/libtbb.12.dylib", "win32": "Library/bin/tbb12.dll"}
    name = names.get(sys.platform)
    if name is None:
        return
    path = Path(sys.prefix, name)
    if not path.exists():
        return
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        warnings.warn(f"the threading library {path} cannot be loaded: {error}", RuntimeWarning, stacklevel=3)


def import_pool() -> None:
    """Import what starts the pool, in any thread: most of the time that :func:`ensure_threads` takes."""
    with _lock:
        _numba()
        importlib.import_module("multiprocessing.synchronize")  # of numba's lock


def _numba() -> types.ModuleType:
    """Return numba's module of the pool; TBB is found before numba looks for it."""
    if os.environ.get("NUMBA_THREADING_LAYER", "default") in ("default", "tbb"):
        _load_tbb()
    # Importing numba takes a quarter of a second; programs without parallel loops should not pay for it.
    return importlib.import_module("numba.np.ufunc.parallel")


def ensure_threads() -> str:
    """Start the thread pool if it does not run yet; return the name of its layer: ``tbb``, ``omp`` or ``workqueue``.

    Processes that the calling thread forks may use the pool, those of other threads may not. Several threads may call
    this at once. The environment variables NUMBA_NUM_THREADS and NUMBA_THREADING_LAYER are respected.

    Raises:
        RuntimeError: no layer starts.
    """
    global _layer, _most, _starter
    with _lock:
        if _layer is not None:
            return _layer
        parallel = _numba()
        parallel._launch_threads()
        _parallel_for.value = llvm.address_of_symbol(_PARALLEL_FOR)
        if _parallel_for.value is None:
            raise RuntimeError(f"numba's threading layer {parallel.threading_layer()} does not provide {_PARALLEL_FOR}")
        layer = str(parallel.threading_layer())
        if layer == "tbb":
            # numba gives TBB an empty task, and the end of the program waits for it. On a single core TBB has no
            # worker: the task stays queued for this thread, and if this thread has ended, nobody runs it.
            pool = importlib.import_module("numba.np.ufunc.tbbpool")
            ctypes.CFUNCTYPE(None)(pool.synchronize)()
        size = int(parallel.NUM_THREADS)
        _most = size if chosen_threads() else min(size, available_cores())
        _limit.value = min([_most, *_limits])
        if layer == "workqueue":
            warnings.warn(
                "numba's threading layer is workqueue: parallel loops start slowly, and only one runs at a time; "
                "install tbb (pip install tbb)",
                RuntimeWarning,
                stacklevel=2,
            )
        _layer, _starter = layer, threading.get_ident()
        return layer


def pool_is_lost() -> bool:
    """Return whether this process was forked from one with a pool that it can't use: its loops run on one thread."""
    return _pool_is_lost


def thread_limit() -> int:
    """Return the number of threads that generated code may use, whatever its target asks for: 1 before the pool
    starts."""
    return _limit.value


def thread_limit_address() -> int:
    """Return the address of the 32-bit integer that holds :func:`thread_limit`; generated code reads it."""
    return ctypes.addressof(_limit)


def parallel_for_address() -> int:
    """Return the address of the pointer to the function that splits a loop among the pool's threads, null before the
    pool starts."""
    return ctypes.addressof(_parallel_for)


def needs_lock() -> bool:
    """Return whether only one thread of the program at a time may run code with parallel loops. workqueue requires it:
    it ends the process otherwise."""
    return _layer == "workqueue"


def parallel_lock() -> AbstractContextManager[object]:
    """Return the context to hold while code with parallel loops runs: a lock for layers that need one."""
    return _workqueue_lock if needs_lock() else contextlib.nullcontext()


@contextlib.contextmanager
def limited_calls(most: int) -> Iterator[None]:
    """Limit generated code to ``most`` threads, of those that it may use. Calls of other threads that begin meanwhile
    run on as few: code reads one number, and its results do not depend on it."""
    with _lock:
        _limits.append(most)
        _limit.value = min([_most, *_limits])
    try:
        yield
    finally:
        with _lock:
            with contextlib.suppress(ValueError):  # of a call that forked, which is not in the new process
                _limits.remove(most)
            _limit.value = min([_most, *_limits])


@contextlib.contextmanager
def limited_threads(most: int) -> Iterator[None]:
    """Limit numba's own parallel loops in this thread to ``most`` threads, of those that generated code may use. The
    pool must run."""
    numba = importlib.import_module("numba")
    before = numba.get_num_threads()
    numba.set_num_threads(min(before, most, thread_limit()))
    try:
        yield
    finally:
        numba.set_num_threads(before)
