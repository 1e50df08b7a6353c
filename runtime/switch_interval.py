"""Shorten Python's thread switch interval while a build waits for LLVM.

A thread that returns from LLVM needs the GIL for a moment, to start the next step, and the thread that runs passes
holds it for 5 ms at a time (``sys.getswitchinterval``). LLVM takes about as long for a kernel, in several steps: so it
waited for more than half of its time, and two cores were hardly faster than one.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from tilewright.tensorir import forking
from tilewright.tensorir.cores import available_cores

#: Seconds after which a thread releases the GIL that another one waits for.
INTERVAL = 5e-5

_lock = forking.Lock()
_users = 0
_before = 0.0


def _begin_anew() -> None:
    """Restore the interval in a forked process, for the users that are not there."""
    global _users
    if _users:
        sys.setswitchinterval(_before)
    _users = 0


forking.in_forked_process(_begin_anew)


@contextlib.contextmanager
def short_switch_interval() -> Iterator[None]:
    """Set the switch interval to :data:`INTERVAL` inside the ``with`` block, where there are several cores. The
    interval is global to the program: the last block that ends restores it."""
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
            _users = max(0, _users - 1)  # a user that forked is not counted in the new process
            if _users == 0:
                sys.setswitchinterval(_before)
