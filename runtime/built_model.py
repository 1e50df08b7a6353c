"""Hold the results of a build and its source, to run the model, to show its stages, and to run the passes again.

An :class:`~tilewright.runtime.executable.Executable` holds a :class:`BuiltModel`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.graphir.dims import Dim
from tilewright.graphir.module import IRModule
from tilewright.graphir.printer import to_text
from tilewright.graphir.printer_graph import Constants
from tilewright.graphir.types import Type
from tilewright.passes.context import PassContext
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.lower.primitive import flat_types
from tilewright.passes.pipelines import STAGES
from tilewright.passes.sequential import Sequential
from tilewright.runtime import build_cache, lower_model
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.generated_code import code_stages
from tilewright.runtime.loaded_code import LoadedCode
from tilewright.runtime.lower_model import LoweredFunction
from tilewright.runtime.runners import MachineCodeRunner
from tilewright.runtime.signature import Signature
from tilewright.runtime.steps import Claim, PlacedStep, Runner, Step, Steps, Wiring
from tilewright.runtime.stored_function import StoredFunction
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Var as SizeVar
from tilewright.tensorir.keys import ARENA_BYTES
from tilewright.tensorir.target import Target

#: Returns the text of a stage of a build, for each of a model's functions.
Stage = Callable[[Constants], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class CompiledFunction:
    """A compiled function of a model.

    Attributes:
        result: the type of its result.
        runner: runs it.
        arena_bytes: the memory for intermediate values.
        claims: the sizes that it assumes to be equal.
        stored: returns the function as data; raises a CodegenError if it is not machine code.
        lowered: returns the stages of its lowering; runs the passes first if the code comes from an earlier build.
    """

    result: Type
    runner: Runner
    arena_bytes: Dim
    claims: list[Claim]
    stored: Callable[[], StoredFunction]
    lowered: Callable[[], LoweredFunction]

    @classmethod
    def from_lowered(cls, lowered: LoweredFunction, result: Type, claims: list[Claim]) -> CompiledFunction:
        """Wrap a function that was lowered in this build."""
        arena_bytes = lowered.main.attrs[ARENA_BYTES]
        return cls(result, lowered.runner(), arena_bytes, claims, lowered.stored, lambda: lowered)

    @classmethod
    def from_stored(
        cls,
        stored: StoredFunction,
        target: Target,
        result: Type,
        claims: list[Claim],
        module: Callable[[], IRModule],
        settings: BuildSettings,
    ) -> CompiledFunction:
        """Load a stored function. ``module`` returns its graph, in case the passes must run again."""
        code = LoadedCode(stored.code, target)

        @functools.cache
        def lowered_again() -> LoweredFunction:
            graph = module()
            with settings.context():
                return lower_model.lower(graph, target, {}, code, build_cache.open_cache(PassContext.current()))[0]

        runner = code.runner(stored.num_values, stored.constants)
        return cls(result, runner, stored.arena_bytes, claims, lambda: stored, lowered_again)

    def step(self, symbols: Sequence[SizeVar], runner: Runner | None = None) -> Step:
        """Return the step of a call that runs the function.

        Args:
            symbols: the symbolic dimensions whose sizes the function takes.
            runner: replaces the function's own runner.
        """
        return Step(symbols, flat_types(self.result), self.arena_bytes, runner or self.runner, self.claims)


class Source(Protocol):
    """The graph that a model was built from."""

    def module(self) -> IRModule:
        """Return the graph, to run the passes on.

        Raises:
            ArtifactError: the graph is not available, or the passes would not give the same model.
        """

    def modules(self) -> Sequence[IRModule]:
        """Return the graph of each of the model's functions; raises as ``module``."""

    def text(self, constants: Constants) -> str:
        """Return the graph as text.

        Raises:
            ArtifactError: the text must hold constants that are not available.
        """


@dataclasses.dataclass(frozen=True)
class GivenSource:
    """A graph that was passed to ``build``, and the parts that it was cut into."""

    whole: IRModule
    parts: Sequence[IRModule]

    def module(self) -> IRModule:
        return self.whole

    def modules(self) -> Sequence[IRModule]:
        return self.parts

    def text(self, constants: Constants) -> str:
        return to_text(self.whole, constants)


@dataclasses.dataclass(frozen=True)
class BuiltModel:
    """The functions of a model, and everything that they were built from.

    Attributes:
        source: the graph, with parameters bound, after a user's passes over it.
        target: the machine that the code is for.
        settings: settings of the build.
        after: the user's passes after each stage.
        signature: signature of the model.
        segments: functions of the model; one, unless sizes become known only while the model runs.
        wiring: connects the segments, if there are several.
        state: the values of inputs that are state before the first call, by name.
    """

    source: Source
    target: Target
    settings: BuildSettings
    after: Mapping[str, Sequential]
    signature: Signature
    segments: Sequence[CompiledFunction]
    wiring: Wiring | None = None
    state: Mapping[str, np.ndarray[Any, Any]] = dataclasses.field(default_factory=dict)

    @property
    def module(self) -> IRModule:
        """The graph; see :class:`Source`."""
        return self.source.module()

    def step(self, runners: Sequence[Runner] | None = None) -> Step | Steps:
        """Return the step that a call runs; ``runners`` replace the segments' own."""
        symbols = list(self.signature.symbols)
        chosen = runners if runners is not None else [segment.runner for segment in self.segments]
        if self.wiring is None:
            return self.segments[0].step(symbols, chosen[0])
        steps: list[PlacedStep] = []
        for place, segment, runner in zip(self.wiring.places, self.segments, chosen, strict=True):
            symbols += [symbol for symbol, _ in place.sizes]
            steps.append(PlacedStep(segment.step(symbols, runner), place))
        return Steps(steps, self.wiring.results, len(self.signature.inputs))

    def limit_threads(self, number: int) -> None:
        """Run later calls on at most so many threads.

        Raises:
            ValueError: the code is for fewer threads, or cannot be limited.
        """
        if number > self.target.num_threads:
            raise ArgumentValueError(
                f"num_threads is {number}, and the model is compiled for at most {self.target.num_threads}: build it "
                f"for more, as with Target({self.target.kind!r}, num_threads={number})"
            )
        runners = [segment.runner for segment in self.segments]
        if not all(isinstance(runner, MachineCodeRunner) for runner in runners):
            raise ArgumentValueError(
                "num_threads of a model can be set for the target llvm on a machine that runs its code"
            )
        for runner in runners:
            assert isinstance(runner, MachineCodeRunner)
            runner.limit_threads(number if number < self.target.num_threads else None)

    def lower_again(
        self,
        segment: int,
        instruments: Sequence[PassInstrument],
        between: Callable[[str, IRModule], IRModule] | None = None,
    ) -> LoweredFunction:
        """Run the passes on a segment again, with ``instruments`` around them.

        Args:
            between: gets the module after each stage (:func:`.lower_model.lower`).

        Raises:
            ArtifactError: its graph is not available; see :class:`Source`.
        """
        module = self.source.modules()[segment]
        with self.settings.context(instruments):
            return lower_model.lower(module, self.target, self.after, between=between)[0]

    def stages(self) -> dict[str, Stage]:
        """Return functions that make the text of each stage, by the name of the stage."""

        def modules(name: str, constants: Constants) -> list[str]:
            return [to_text(segment.lowered().modules[name], constants) for segment in self.segments]

        def texts(name: str, _: Constants) -> list[str]:
            return [segment.lowered().code_stages()[name]() for segment in self.segments]

        stages: dict[str, Stage] = {"graph": lambda constants: [self.source.text(constants)]}
        stages.update((name, functools.partial(modules, name)) for name in STAGES)
        stages.update((name, functools.partial(texts, name)) for name in code_stages(self.target))
        return stages
