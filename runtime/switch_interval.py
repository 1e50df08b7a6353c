"""Shorten Python's thread switch interval while a build waits for LLVM.

A thread that comes back from LLVM needs Python's lock for a moment, to go on to the next step, and the thread that runs
passes keeps it for 5 ms at a time (``sys.getswitchinterval``). A kernel takes LLVM as long, in several steps: so LLVM
waited for more than half of its time, and two cores did hardly more than one.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from tilewright.tensorir.cores import available_cores

#: Seconds after which a thread releases the lock that another one waits for.
INTERVAL = 1e-4

_lock = threading.Lock()
_users = 0
_before = 0.0


@contextlib.contextmanager
def short_switch_interval() -> Iterator[None]:
    """Inside the ``with`` block, threads wait for Python's lock no longer than :data:`INTERVAL`, where there are cores
    to run them. The interval belongs to the whole program: the last block that ends restores it."""
    global _users, _before
    if available_cores() < 2:
        yield
        return
    with _lock:
        if _users == 0:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_before, INTERVAL))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                sys.setswitchinterval(_before)
