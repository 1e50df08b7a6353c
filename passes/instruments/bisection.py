"""``OptBisect``: run only the first passes; ``bisect_passes``: find the first one that makes a model wrong.

Works like LLVM's ``-opt-bisect-limit``: the runs of optional passes are numbered from 1, and those above a limit are
skipped. Passes without which no code can be generated (``PassInfo.essential``) always run and have no number.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from tilewright.passes.first_wrong import first_wrong
from tilewright.passes.instrument import PassInstrument
from tilewright.tensorir.errors import ArgumentValueError, PassError

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo


class OptBisect(PassInstrument):
    """Number the runs of optional passes, and run only those up to ``limit``.

    ::

        with PassContext(opt_level=3, instruments=[OptBisect(limit=12)]):
            model = tw.build(mod)           # prints "BISECT: running pass (1) FuseOps on module", ...

    Pipelines and passes in the context's ``required_pass`` always run and have no number. The numbers start at 1 again
    when a context is entered.

    Args:
        limit: the number of the last pass to run; 0: none, -1: all.
        stream: gets a line for each pass: standard error by default.
        quiet: print nothing.

    Attributes:
        seen: the names of the passes in order of their numbers, whether or not they ran.

    Raises:
        ValueError: ``limit`` is below -1.
    """

    def __init__(self, limit: int = -1, stream: TextIO | None = None, quiet: bool = False) -> None:
        if limit < -1:
            raise ArgumentValueError(
                f"limit: expected the number of the last pass to run, 0 or -1 (all), found {limit}"
            )
        self.limit = limit
        self.seen: list[str] = []
        self._stream = stream
        self._quiet = quiet

    @property
    def count(self) -> int:
        """Return the number of passes counted so far."""
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
    """The pass found by ``bisect_passes``.

    Attributes:
        number: the number of the first pass that makes the model wrong, as ``OptBisect`` counts: the model is right
            with ``limit=number - 1``.
        name: the name of that pass; ``number`` tells which of its runs it is.
        passes: the names of all numbered passes, in order.
        attempts: the number of times that the model was built and tested.
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
    """A failed attempt, and the error that building or testing the model raised, if any."""

    raised: Exception | None


def bisect_passes(
    is_good: Callable[[OptBisect], bool],
    stream: TextIO | None = None,
    on_attempt: Callable[[int, bool], None] | None = None,
) -> Culprit | None:
    """Find the first pass that makes a model wrong by bisection, in about log2(number of passes) attempts.

    ::

        def is_good(bisect):
            with PassContext(opt_level=3, instruments=[bisect]):
                model = tw.build(mod)
            return np.allclose(model(x), expected, atol=1e-4)

        print(bisect_passes(is_good))       # pass (7) FoldScaleAxis of 31 passes

    Args:
        is_good: builds the model under a context with the given instrument and returns whether it is right. An
            exception means that it is not: a pass, or the generated code, failed.
        stream: gets the lines of ``OptBisect`` in each attempt; None: they are not printed.
        on_attempt: called after each attempt with the limit and whether the model was right.

    Returns:
        None if the model is right with all passes.

    Raises:
        PassError: the model is wrong also without these passes; the cause is the exception of ``is_good``, if any.
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
        raise PassError(
            "no pass has a number: expected is_good to run passes in a PassContext with the given instrument"
        )
    without, first = attempt(0)
    if without is not None:
        raise PassError("the model is wrong even without all optional passes") from without.raised
    # A pass that fails ends a build: the passes after it are known from a build without it.
    passes = max(whole.seen, first.seen, key=len)
    found = first_wrong(whole.count, lambda limit: attempt(limit)[0], wrong)
    return Culprit(found.count, passes[found.count - 1], tuple(passes), attempts)
