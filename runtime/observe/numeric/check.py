"""Run the module after every pass and compare the results: the instrument ``NumericCheck``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.graphir.expr import Function
from tilewright.graphir.interpreter import bind_inputs
from tilewright.graphir.keys import SEGMENT
from tilewright.graphir.module import IRModule
from tilewright.passes.base import Pass
from tilewright.passes.context import PassContext
from tilewright.passes.first_wrong import first_wrong
from tilewright.passes.info import PassInfo
from tilewright.passes.instrument import PassInstrument
from tilewright.runtime.observe.numeric.budget import FAILED, OK, UNCHECKED, ErrorBudget, PassError
from tilewright.runtime.observe.numeric.chains import Chain, Checked, SegmentValues, has_groups, loop_functions
from tilewright.runtime.observe.numeric.compare import ToleranceLike
from tilewright.runtime.observe.numeric.evaluate import (
    ENGINES,
    GRAPH,
    Array,
    Engine,
    Evaluator,
    Inputs,
    kind_of,
    random_inputs,
)
from tilewright.runtime.observe.numeric.failure import Failure, NumericError
from tilewright.runtime.observe.numeric.locate import Suspect, locate
from tilewright.runtime.observe.numeric.reference import ErrorSize, ReferenceLike, make_reference
from tilewright.runtime.observe.numeric.replay import CANNOT_RUN, Problem, Replay, Settings, facts_of
from tilewright.runtime.observe.numeric.reproducer import write_reproducer
from tilewright.tensorir.errors import ArgumentValueError, InputError, TilewrightError
from tilewright.tensorir.target import Target


@dataclasses.dataclass
class _Open:
    """A pass that is running: its input module, its chain, and the result of the last pass inside of it."""

    mod: IRModule
    chain: Chain
    inner: IRModule | None = None


class NumericCheck(PassInstrument, ErrorBudget):
    """Run the module after every pass on the same inputs, and stop at the first pass that changes the results.

    ::

        check = tw.NumericCheck({"x": images})
        with tw.PassContext(opt_level=3, instruments=[check]):
            tw.build(mod)
        print(check.render())       # what each pass adds to the error

    The error that it raises names pass, function, operator and element, and shows the smallest graph that fails; a file
    for pytest with this graph is written. Graphs run by the operators' NumPy references; loop nests run as machine
    code, at any stage of lowering. Machine code that writes outside of its memory is detected by the guards around it,
    or crashes the process; with ``engine="interpreter"`` it is an error.

    A pass that returns its input module is not checked; in place of pipelines, the passes inside are. Where sizes of a
    model become known only while it runs, ``build`` cuts it into segments: each one is checked on the results of the
    previous ones. A module whose ``main`` takes other inputs than these (a pass runs passes on a part of a model) is
    not checked, and neither is one that cannot be run; the table says so.

    Args:
        inputs: arrays for the parameters of ``main``, by name or in order; None: random ones from ``seed``.
        reference: the expected results: ``"float64"``, those of the first pass's input module, computed in double
            precision; ``"original"``, the same in its own types; the results themselves; or a function that takes the
            inputs by name and returns them.
        tolerance: permitted error: a number for both, a pair (rtol, atol), or one of these for each element type by
            name. Default: a few units in the last place, more for long sums, and more where the error of the model
            itself, in its own types, is larger (see :func:`default_tolerance`).
        passes: the names of the passes to check; default: all.
        every: check after every n-th pass that changed the module; where a check fails, the passes since the last one
            are bisected to find the culprit. This saves time for large models.
        on_failure: ``"raise"`` a :class:`NumericError`, or ``"record"`` it in ``failures`` and go on; later passes are
            then compared with the changed results.
        folder: folder of the file for pytest; None: none is written.
        minimize: whether to search for the smallest graph.
        seed: seed of random inputs.
        sizes: sizes of symbolic dimensions, for random inputs, by name (4 for others).
        engine: ``"auto"``, ``"interpreter"`` (interpreters for loop nests too: slow), or ``"compiled"`` (machine code
            for graphs too, at level 0).

    Attributes:
        steps: for each check the errors of the results before and after, in units in the last place.
        failures: the failures found with ``on_failure="record"``, or the one that was raised.

    Raises:
        InputError: the inputs do not fit ``main``.
        NumericError: a pass changed the results.
    """

    def __init__(
        self,
        inputs: Mapping[str, Any] | Sequence[Any] | None = None,
        reference: ReferenceLike = "float64",
        *,
        tolerance: ToleranceLike | None = None,
        passes: Collection[str] | None = None,
        every: int = 1,
        on_failure: str = "raise",
        folder: str | os.PathLike[str] | None = ".",
        minimize: bool = True,
        seed: int = 0,
        sizes: Mapping[str, int] | None = None,
        engine: Engine = "auto",
    ) -> None:
        super().__init__()
        if isinstance(reference, str) and reference not in ("float64", "original"):
            raise ArgumentValueError(
                f"reference: expected 'float64', 'original', results or a function, found {reference!r}"
            )
        if on_failure not in ("raise", "record"):
            raise ArgumentValueError(f"on_failure: expected 'raise' or 'record', found {on_failure!r}")
        if engine not in ENGINES:
            raise ArgumentValueError(f"engine: expected one of {', '.join(ENGINES)}, found {engine!r}")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ArgumentValueError(f"every: expected a positive number, found {every!r}")
        self._given = inputs
        self._reference = reference
        self._tolerance = tolerance
        self._passes = None if passes is None else frozenset(passes)
        self._every = every
        self._on_failure = on_failure
        self._folder = None if folder is None else Path(folder)
        self._minimize = minimize
        self._seed = seed
        self._sizes = dict(sizes or {})
        self._engine: Engine = engine
        self.failures: list[Failure] = []
        self._open: list[_Open] = []
        self._chains: list[Chain] = []
        self._values: SegmentValues | None = None
        self._evaluator: Evaluator | None = None
        self._culprits: list[Pass] = []

    # Events of passes.

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._open.append(_Open(mod, self._chain(mod)))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        *around, ended = self._open  # removed at the end; if this method fails, pass_failed removes it
        if around:
            around[-1].inner = mod
        chain = ended.chain
        if mod is not ended.inner and mod is not ended.mod:
            self._changed(chain, ended.mod, mod, info)
        if not around:
            self._check(chain)
            if chain.known is not None:
                self._run_evaluator().compiled.forget(loop_functions(chain.known))
        self._open.pop()

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        self._open.pop()

    def _changed(self, chain: Chain, before: IRModule, after: IRModule, info: PassInfo) -> None:
        step = PassContext.watched_pass()
        chain.mod = after
        chain.facts = facts_of(after) or chain.facts
        record = Checked(step, info.name, before, after, chain.facts, chain.flat, chain.since)
        if kind_of(after) == GRAPH and not has_groups(after):
            chain.flat, chain.since = after, ()
        elif step is not None:
            chain.since = (*chain.since, step)
        if chain.reference is None:
            self.steps.append(PassError((info.name,), None, None, UNCHECKED, chain.reason))
            return
        if self._passes is not None and info.name not in self._passes:
            return
        if self._passes is not None and chain.known is not before and not chain.pending:
            self._accept(chain, before)
        chain.pending.append(record)
        if len(chain.pending) >= self._every:
            self._check(chain)

    # Models.

    def _run_evaluator(self) -> Evaluator:
        target = Target.current()
        if self._evaluator is None or self._evaluator.target != target:
            self._evaluator = Evaluator(target, self._engine)
        return self._evaluator

    def _chain(self, mod: IRModule) -> Chain:
        """Return the chain that ends in ``mod``; a new one if there is none."""
        for chain in reversed(self._chains):
            if chain.mod is mod:
                return chain
        chain = Chain(mod)
        self._chains = [*self._chains[-7:], chain]  # modules that a pass makes for itself are soon dropped
        try:
            self._begin(chain)
        except InputError as error:
            if len(self._chains) == 1:
                self._chains = []
                raise
            chain.reason = str(error)
        except CANNOT_RUN as error:
            chain.reason = str(error)
        return chain

    def _begin(self, chain: Chain) -> None:
        mod = chain.mod
        if "main" not in mod or not isinstance(main := mod["main"], Function):
            raise InputError("main is not a graph function, so its inputs are not known")
        segment = main.attrs.get(SEGMENT)
        if segment is not None and self._values is not None:
            chain.inputs = self._values.inputs(main, segment)
        else:
            chain.inputs = self._inputs(mod, main)
        chain.facts = facts_of(mod)
        chain.flat = mod if not has_groups(mod) else None
        reference = self._reference if segment is None else "float64" if self._reference == "float64" else "original"
        evaluator = self._run_evaluator()
        chain.reference = make_reference(mod, chain.inputs, evaluator, reference, self._tolerance)
        chain.known, chain.error = mod, chain.reference.error(chain.reference.own)
        if segment is None:
            self._values = SegmentValues(chain.inputs)
        elif self._values is not None:
            self._values.add(segment, chain.reference.own)

    def _inputs(self, mod: IRModule, main: Function) -> Inputs:
        if self._given is None:
            return Inputs(tuple(random_inputs(mod, self._seed, self._sizes).values()))
        if isinstance(self._given, Mapping):
            return Inputs(tuple(bind_inputs(main, (), self._given)))
        return Inputs(tuple(bind_inputs(main, self._given, {})))

    # Checks.

    def _accept(self, chain: Chain, mod: IRModule) -> None:
        """Accept the results of ``mod`` without a check, as it comes from passes that are not to be checked."""
        assert chain.reference is not None
        try:
            found = self._run_evaluator().run(mod, chain.inputs, chain.facts)
        except TilewrightError:
            return
        chain.known, chain.error = mod, chain.reference.error(found)
        if chain.reference.mismatch(found) is not None:
            chain.reference.expected = found

    def _check(self, chain: Chain) -> None:
        """Check the passes that are pending."""
        while chain.pending:
            group, before = chain.pending, chain.error
            problem, found = self._problem(chain, group[-1])
            if isinstance(problem, CANNOT_RUN):
                self._step(group, before, None, UNCHECKED, str(problem))
                chain.pending, chain.error = [], None
                return
            if problem is None:
                assert found is not None and chain.reference is not None
                chain.pending, chain.known, chain.error = [], group[-1].after, chain.reference.error(found)
                self._step(group, before, chain.error, OK)
                return
            first = first_wrong(len(group), partial(self._wrong_after, chain, group), (problem, found))
            self._failed(chain, group, first.count - 1, *first.problem)

    def _problem(self, chain: Chain, record: Checked) -> tuple[Problem | None, list[Array] | None]:
        assert chain.reference is not None
        try:
            found = self._run_evaluator().run(record.after, chain.inputs, record.facts)
        except Exception as error:  # any error comes from running the pass's result
            return error, None
        return chain.reference.mismatch(found), found

    def _wrong_after(
        self, chain: Chain, group: Sequence[Checked], count: int
    ) -> tuple[Problem, list[Array] | None] | None:
        """Return the problem after the first passes of a group, with the results if there are any; None without a
        problem."""
        problem, found = self._problem(chain, group[count - 1])
        return None if problem is None or isinstance(problem, CANNOT_RUN) else (problem, found)

    def _failed(
        self, chain: Chain, group: list[Checked], number: int, problem: Problem, found: list[Array] | None
    ) -> None:
        assert chain.reference is not None
        record = group[number]
        after = None if found is None else chain.reference.error(found)
        if number:
            self._step(group[:number], chain.error, None, UNCHECKED, "only run to find the failure")
        self._step([record], chain.error if not number else None, after, FAILED)
        replay = Replay(Settings.current(), self._run_evaluator(), self._tolerance, self._reference != "original")
        wrong = tuple(step.info.name for step in record.since if step in self._culprits)
        suspect = Suspect(
            record.step,
            record.name,
            record.before,
            record.after,
            problem,
            chain.inputs,
            record.facts,
            None if wrong else record.flat,
            record.since,
            wrong,
        )
        if record.step is not None:
            self._culprits.append(record.step)
        failure, shown = locate(suspect, replay, self._minimize)
        if shown is not None and self._folder is not None:
            failure = dataclasses.replace(failure, reproducer=write_reproducer(self._folder, failure, shown, replay))
        self.failures.append(failure)
        chain.pending = []
        if self._on_failure == "raise":
            raise NumericError(failure) from (problem if isinstance(problem, Exception) else None)
        chain.pending = group[number + 1 :]
        chain.known, chain.error = record.after, after
        if found is None:
            chain.reference, chain.pending, chain.reason = None, [], f"it has not run since pass {record.name}"
        else:
            chain.reference.expected = found

    def _step(
        self,
        group: Sequence[Checked],
        before: ErrorSize | None,
        after: ErrorSize | None,
        status: str,
        reason: str = "",
    ) -> None:
        self.steps.append(PassError(tuple(record.name for record in group), before, after, status, reason))
