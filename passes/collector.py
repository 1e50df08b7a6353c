"""Pause Python's cyclic garbage collector while passes run.

IR is made of trees, which reference counting frees. The collector would search the hundreds of thousands of nodes of a
large module again and again without finding anything. The switch is shared by the threads of the process: the collector
resumes when the last of them is finished, if it was on when the first one began.
"""

from __future__ import annotations

import gc

from tilewright.tensorir import forking

#: Reentrant: a collection inside of the functions below may run a finalizer that comes back here.
_lock = forking.RLock()
_users = 0
_searched = False


def _begin_anew() -> None:
    """Resume the collector in a forked process, for the users that are not there."""
    global _users
    if _users and _searched:
        gc.enable()
    _users = 0


forking.in_forked_process(_begin_anew)


def pause_collector() -> None:
    """Pause the collector until :func:`resume_collector` has been called as often as this function."""
    global _users, _searched
    with _lock:
        if _users == 0:
            _searched = gc.isenabled()
            gc.disable()
        _users += 1


def resume_collector() -> None:
    """End one :func:`pause_collector`; the last one resumes the collector."""
    global _users
    with _lock:
        _users = max(0, _users - 1)  # a user that forked is not counted in the new process
        if _users == 0 and _searched:
            gc.enable()


def collect_young() -> None:
    """Search what was made since the collector was paused, for a moment in which this thread would wait: otherwise the
    collector does that as soon as it resumes. Does nothing if the collector was off before.

    Threads that build one model after the other may overlap for hours, in which the collector hardly resumes. Then the
    older objects are searched, too, which hold the garbage of earlier builds: about as often as it would."""
    if not (_users and _searched):
        return
    _, young, middle = gc.get_count()  # searches of the next younger objects since the last one of these
    _, most_young, most_middle = gc.get_threshold()
    generation = 0
    if young > 2 * most_young:  # where the collector resumes after each build, there are no more than `most_young`
        generation = 2 if middle > most_middle else 1
    gc.collect(generation)
