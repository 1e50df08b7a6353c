"""Python's search for cyclic garbage, which rests while passes run.

IR is made of trees, which go when they are dropped. The search through the hundreds of thousands of nodes of a large
module would find nothing, again and again. There is one switch for the process, which threads share: the search goes on
when the last of them is through, if it went on when the first one came.
"""

from __future__ import annotations

import gc
import threading

#: Reentrant: a collection inside of the functions below may run a finalizer that comes back here.
_lock = threading.RLock()
_users = 0
_searched = False


def pause_collector() -> None:
    """Let nobody search from now on, until :func:`resume_collector` was called as often as this was."""
    global _users, _searched
    with _lock:
        if _users == 0:
            _searched = gc.isenabled()
            gc.disable()
        _users += 1


def resume_collector() -> None:
    """Say that whoever called :func:`pause_collector` is through."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0 and _searched:
            gc.enable()
