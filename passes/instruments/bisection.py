"""``OptBisect``: run only the first passes; ``bisect_passes``: find the first one that makes a model wrong.

As LLVM's ``-opt-bisect-limit``: every run of a pass that may be left out has a number, counted from 1, and those above
a limit do not run. Passes without which no code could be made (``PassInfo.essential``) always run and have no number.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from tilewright.passes.first_wrong import first_wrong
from tilewright.passes.instrument import PassInstrument
from tilewright.tensorir.errors import PassError

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo


class OptBisect(PassInstrument):
    """Numbers the runs of passes that may be left out, and runs those up to ``limit``.

    ::

        with PassContext(opt_level=3, instruments=[OptBisect(limit=12)]):
            model = tw.build(mod)           # prints "BISECT: running pass (1) FuseOps on module", ...

    Passes in the context's ``required_pass`` are not asked about and have no number, nor have pipelines. The numbers
    begin anew when a context is entered.

    Args:
        limit: the number of the last pass to run; 0: none, -1: all.
        stream: where a line for each pass goes: standard error by default.
        quiet: print nothing.

    Attributes:
        seen: the names of the passes in order of their numbers, whether or not they ran.

    Raises:
        ValueError: ``limit`` is below -1.
    """

    def __init__(self, limit: int = -1, stream: TextIO | None = None, quiet: bool = False) -> None:
        if limit < -1:
            raise ValueError(f"limit: expected the number of the last pass to run, 0 or -1 (all), found {limit}")
        self.limit = limit
        self.seen: list[str] = []
        self._stream = stream
        self._quiet = quiet

    @property
    def count(self) -> int:
        """The number of passes counted so far."""
        return len(self.seen)

    def enter_pass_ctx(self) -> None:
        self.seen = []

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        if info.essential or info.pipeline:
            return True
        self.seen.append(info.name)
        runs = self.limit == -1 or self.count <= self.limit
        if not self._quiet:
            line = f"BISECT: {'running' if runs else 'NOT running'} pass ({self.count}) {info.name} on module"
            print(line, file=self._stream if self._stream is not None else sys.stderr)
        return runs


@dataclasses.dataclass(frozen=True)
class Culprit:
    """The pass that ``bisect_passes`` has found.

    Attributes:
        number: of the first pass whose running makes a model wrong, as ``OptBisect`` counts: it is right with
            ``limit=number - 1``.
        name: of that pass; which of its runs it is the number says.
        passes: the names of all passes that have a number, in order.
        attempts: how often the model was made and tested.
    """

    number: int
    name: str
    passes: tuple[str, ...]
    attempts: int

    def __str__(self) -> str:
        run = self.passes[: self.number].count(self.name)
        which = f", run {run} of {self.passes.count(self.name)}" if self.passes.count(self.name) > 1 else ""
        return f"pass ({self.number}) {self.name}{which} of {len(self.passes)} passes"


@dataclasses.dataclass(frozen=True)
class _Wrong:
    """A model that is not right, and the error that making or testing it raised, if any."""

    raised: Exception | None


def bisect_passes(
    is_good: Callable[[OptBisect], bool],
    stream: TextIO | None = None,
    on_attempt: Callable[[int, bool], None] | None = None,
) -> Culprit | None:
    """The first pass whose running makes a model wrong, found by halving: in log2 of the number of passes attempts.

    ::

        def is_good(bisect):
            with PassContext(opt_level=3, instruments=[bisect]):
                model = tw.build(mod)
            return np.allclose(model(x), expected, atol=1e-4)

        print(bisect_passes(is_good))       # pass (7) FoldScaleAxis of 31 passes

    Args:
        is_good: makes the model under a context with the given instrument and says whether it is right. An exception
            that it raises means that it is not: a pass, or the code that it led to, failed.
        stream: where each attempt prints what runs; by default nowhere.
        on_attempt: told of each attempt: the limit, and whether the model was right.

    Returns:
        None if the model is right with all passes.

    Raises:
        PassError: the model is wrong without any of these passes too; the cause is what ``is_good`` raised, if it did.
    """
    attempts = 0

    def attempt(limit: int) -> tuple[_Wrong | None, OptBisect]:
        nonlocal attempts
        attempts += 1
        bisect = OptBisect(limit, stream, quiet=stream is None)
        try:
            wrong = None if is_good(bisect) else _Wrong(None)
        except Exception as error:
            wrong = _Wrong(error)
        if on_attempt is not None:
            on_attempt(limit, wrong is None)
        return wrong, bisect

    wrong, whole = attempt(-1)
    if wrong is None:
        return None
    if not whole.count and wrong.raised is None:
        raise PassError("no pass has a number: did the function enter a PassContext with the instrument it was given?")
    without, first = attempt(0)
    if without is not None:
        raise PassError("the model is wrong also without any pass that may be left out") from without.raised
    # A pass that fails ends a build: the passes behind it are known from a build without it.
    passes = max(whole.seen, first.seen, key=len)
    found = first_wrong(whole.count, lambda limit: attempt(limit)[0], wrong)
    return Culprit(found.count, passes[found.count - 1], tuple(passes), attempts)
