"""Keep a process usable that was forked while other threads of its parent were at work.

A forked process has the memory of its parent, but only the thread that forked. A lock that another thread held stays
locked in it for ever, and what that thread had begun is never finished. So locks of this project are those of this
module, which a forked process finds unlocked, and what counts on other threads registers a function that forgets them
(:func:`in_forked_process`).

What such a lock guards may have been left in the middle of a change. So changes under a lock are made by single steps
of the interpreter, each of which leaves a valid state: an entry is stored, or is not.
"""

from __future__ import annotations

import os
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_actions: list[Callable[[], Callable[[], Any] | None]] = []


def Lock() -> threading.Lock:
    """Return a lock that is free in a forked process.

    It is one of Python's own: no interrupt comes between the moment at which ``with`` takes such a lock, and the block
    that gives it back.
    """
    made = threading.Lock()
    _locks.add(made)
    return made


def RLock() -> Any:
    """Return a reentrant lock that is free in a forked process."""
    made = threading.RLock()
    _locks.add(made)
    return made


def in_forked_process(action: Callable[[], Any]) -> None:
    """Call ``action`` in each process that is forked from now on. A method is not called once its object is gone."""
    method = isinstance(action, types.MethodType)
    _actions.append(weakref.WeakMethod(action) if method else lambda: action)
    if method:
        _actions[:] = [each for each in _actions if each() is not None]


def _renew() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # what threading, logging and concurrent.futures call for their own locks
    for found in list(_actions):
        action = found()
        if action is not None:
            action()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
