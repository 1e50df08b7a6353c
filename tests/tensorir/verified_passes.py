"""Verify what passes of the project return, in every test: given a valid module, a pass returns a valid one."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Iterator

import pytest

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.verify import problems_of
from tilewright.passes.base import Pass
from tilewright.passes.context import PassContext
from tilewright.passes.sequential import Sequential
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.invariants import Known

#: Where the project's own passes are defined. Those of tests break rules on purpose.
_OWN = tuple(f"tilewright.passes.{folder}." for folder in ("graph", "lower", "schedule", "tensor"))


class Cost:
    """The time that verification has taken in this process.

    Attributes:
        seconds: processor time.
        modules: the number of modules that passes returned and that were verified.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.modules = 0


#: The number of nodes about which nothing is kept from pass to pass any more: some megabytes.
_MOST_KNOWN = 50_000


def broken_rules(given: IRModule, returned: IRModule, known: Known | None = None) -> list[str]:
    """Return the rules that a pass has broken, each with the function and its line.

    Loop-level functions that the pass did not change are not verified again; graph functions are, since functions that
    they call may have changed. A rule that the input of the pass breaks is no fault of the pass.

    Args:
        known: what is known of the nodes that earlier passes returned; most are there again after the next.
    """
    before = {function for function in given.functions.values() if not isinstance(function, Function)}
    found = [
        f"@{key.name}: {problem}"
        for key, function in returned.functions.items()
        if function not in before
        for problem in problems_of(returned, key, known)
    ]
    if found and any(problems_of(given, key) for key in given.functions):
        return []
    return found


@contextlib.contextmanager
def passes_verified() -> Iterator[Cost]:
    """Inside the ``with`` block, a pass of the project that breaks a rule of the IR raises a VerifyError.

    Unlike ``VerifyInstrument`` this is no instrument: an instrument that needs whole modules changes how builds run.
    """
    run = Pass._run
    cost = Cost()
    threads = threading.local()  # builds of several threads have few nodes in common

    def known() -> Known:
        if not hasattr(threads, "known") or len(threads.known.extents.depths) > _MOST_KNOWN:
            threads.known = Known()
        return threads.known

    @functools.wraps(run)
    def verified(self: Pass, mod: IRModule, ctx: PassContext) -> IRModule:
        result = run(self, mod, ctx)
        if result is mod or isinstance(self, Sequential) or not type(self).__module__.startswith(_OWN):
            return result
        start = time.thread_time()
        found = broken_rules(mod, result, known())
        cost.seconds += time.thread_time() - start
        cost.modules += 1
        if found:
            lines = "\n".join(found)
            raise VerifyError(f"pass {self.info.name} returned a module that breaks rules of the IR:\n{lines}")
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pass, "_run", verified)
        yield cost
