"""The garbage collector while passes and builds run."""

from __future__ import annotations

import gc
import weakref

from tilewright.passes.collector import collect_young, pause_collector, resume_collector


class Cycle:
    """Garbage that reference counting does not free, once it is dropped."""

    def __init__(self) -> None:
        self.me = self


def test_garbage_of_earlier_builds_is_found_while_others_always_run() -> None:
    pause_collector()  # by a build that does not end
    try:
        cycle = Cycle()
        gc.collect(1)  # it survives all searches of younger objects
        freed = weakref.ref(cycle)
        del cycle
        _, young, middle = gc.get_threshold()
        for _ in range(4 * (young + 1) * (middle + 1)):
            collect_young()
            if freed() is None:
                break
        assert freed() is None and not gc.isenabled()
    finally:
        resume_collector()


def test_a_build_alone_searches_what_it_made() -> None:
    gc.collect()
    pause_collector()
    try:
        old = Cycle()
        gc.collect(0)
        freed_old, freed = weakref.ref(old), weakref.ref(Cycle())
        del old
        collect_young()
        assert freed() is None and freed_old() is not None
    finally:
        resume_collector()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        pause_collector()
        freed = weakref.ref(Cycle())
        collect_young()
        resume_collector()
        assert freed() is not None and not gc.isenabled()
    finally:
        gc.enable()
