"""Work in the time that the other threads of a program leave."""

from __future__ import annotations

import time
from collections.abc import Callable

from tilewright.tensorir.cores import available_cores

#: Seconds of work between two looks at the other threads, and the length of a look: Linux counts the time of a thread
#: that runs on another core at each tick, every 4 milliseconds or 10, so that a shorter look may see nothing.
_WORK, _LOOK = 0.02, 0.04
#: Seconds that a piece of work waits at most, in all.
_PATIENCE = 10.0
#: A core is left if the others use so much less than all cores.
_LEFT = 0.5


class SpareTime:
    """Let the thread that asks work while the other threads of the process leave a core.

    A lower priority would do the same, but a thread of low priority that holds the interpreter's lock, or is given it,
    makes the others wait for as long as other programs keep the cores busy.

    Args:
        is_urgent: says that the work must not wait any more.
        patience: the seconds that it waits at most, in all.
    """

    def __init__(self, is_urgent: Callable[[], bool], patience: float = _PATIENCE) -> None:
        self._is_urgent = is_urgent
        self._patience = patience
        self._worked = 0.0  # the thread's time at the end of the last look

    def wait(self) -> None:
        """Wait while the other threads use all cores; call this often: most calls only read the time."""
        if time.thread_time() - self._worked < _WORK:
            return
        while self._patience > 0 and not self._is_urgent():
            start, used = time.perf_counter(), _others()
            time.sleep(_LOOK)
            took = time.perf_counter() - start
            self._patience -= took
            if _others() - used < (available_cores() - _LEFT) * took:
                break
        self._worked = time.thread_time()


def _others() -> float:
    """Return the processor time that the other threads of the process have used, in seconds."""
    return time.process_time() - time.thread_time()
