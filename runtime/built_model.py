"""What a build comes down to: the functions of a model, lowered and compiled, and how they were made.

An :class:`~tilewright.runtime.executable.Executable` keeps this, to show what each stage has made, and to make it again
where somebody wants to watch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tilewright.graphir.dims import Dim, dim_equal
from tilewright.graphir.expr import Constant, Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary, to_text
from tilewright.graphir.printer_graph import Constants
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.graphir.visitor import call_nodes
from tilewright.passes.build_config import BUILD
from tilewright.passes.context import PassContext
from tilewright.passes.environment import is_watched, session
from tilewright.passes.graph import InferType
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.lower.kernel_calls import kernel_calls
from tilewright.passes.lower.linearize import model_constants
from tilewright.passes.lower.primitive import flat_types
from tilewright.passes.pipelines import STAGES, graph_pipeline, kernel_pipeline, schedule_pipeline
from tilewright.passes.sequential import Sequential
from tilewright.runtime import build_cache
from tilewright.runtime.compile_functions import (
    Ahead,
    Code,
    LoadedCode,
    MachineCode,
    code_stages,
    compile_functions,
    kernel_memory,
)
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.kernel_supply import KernelSupply
from tilewright.runtime.made_kernels import KernelKeys
from tilewright.runtime.progress import Progress, progress
from tilewright.runtime.signature import Argument, Signature
from tilewright.runtime.steps import Array, Claim, PlacedStep, Runner, Step, Steps, Wiring
from tilewright.runtime.stored_function import KernelUse, StoredFunction
from tilewright.runtime.values import ValuesAhead
from tilewright.tensorir.cores import available_cores
from tilewright.tensorir.errors import CodegenError, TypeInferenceError
from tilewright.tensorir.expr import Var as SizeVar
from tilewright.tensorir.keys import ARENA_BYTES
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: Makes the texts of what a stage of a build has made, one for each of a model's functions.
Stage = Callable[[Constants], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What of a ``PassContext`` decides what a build makes."""

    opt_level: int
    required_pass: tuple[str, ...]
    disabled_pass: tuple[str, ...]
    config: Mapping[str, Any]

    @classmethod
    def of(cls, context: PassContext) -> Settings:
        """Those of ``context``."""
        config = {key: value for key, value in context.config.items() if key != BUILD}
        return cls(context.opt_level, context.required_pass, context.disabled_pass, config)

    def context(self, instruments: Sequence[PassInstrument] = ()) -> PassContext:
        """A new context with these settings."""
        return PassContext(self.opt_level, self.required_pass, self.disabled_pass, instruments, self.config)


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A model's function after each stage, and as code.

    Attributes:
        before: by the name of the stage, those of ``pipelines.STAGES`` but the last one.
        last: after the last one, with outlines in place of kernels that were found in the cache.
        whole: puts the kernels into it.
        code: what it was compiled to.
        constants: those of the graph, in the order in which ``main`` takes them.
    """

    before: Mapping[str, IRModule]
    last: IRModule
    whole: Callable[[IRModule], IRModule]
    code: Code
    constants: Sequence[Constant]

    @functools.cached_property
    def modules(self) -> Mapping[str, IRModule]:
        """By the name of the stage, all of ``pipelines.STAGES``."""
        return {**self.before, "lowered": self.whole(self.last)}

    def code_stages(self) -> Mapping[str, Callable[[], str]]:
        """The generated code as text, by stage name."""
        return self.code.stages(_prim_funcs(self.modules["lowered"]))

    @property
    def main(self) -> PrimFunc:
        """The entry point."""
        main = self.last["main"]
        assert isinstance(main, PrimFunc)
        return main

    def runner(self) -> Runner:
        """What runs the code."""
        return self.code.runner(len(self.main.params), self.values())

    def values(self) -> list[Array]:
        """Those of the constants."""
        return [constant.data for constant in self.constants]

    def stored(self) -> StoredFunction:
        """The code as data.

        Raises:
            CodegenError: it is no machine code.
        """
        if not isinstance(self.code, MachineCode):
            raise CodegenError("only machine code, of the target llvm, can be kept; this is Python source")
        return StoredFunction(
            self.code.object_code(),
            self.values(),
            self.main.attrs[ARENA_BYTES],
            len(self.main.params),
            [KernelUse(call.kernel, call.origins) for call in kernel_calls(self.last)],
        )


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A model's function.

    Attributes:
        result: the type of what it gives.
        runner: what runs it.
        arena_bytes: the memory for intermediate values.
        claims: the sizes that it takes for equal.
        stored: it as data. Raises a CodegenError if it is no machine code.
        lowered: what it was lowered to, made when it is asked for if the code was kept from an earlier build.
    """

    result: Type
    runner: Runner
    arena_bytes: Dim
    claims: list[Claim]
    stored: Callable[[], StoredFunction]
    lowered: Callable[[], Lowered]

    @classmethod
    def from_stored(
        cls,
        stored: StoredFunction,
        target: Target,
        result: Type,
        claims: list[Claim],
        module: Callable[[], IRModule],
        settings: Settings,
    ) -> Compiled:
        """The function that ``stored`` is; its graph, ``module``, is asked for when passes are to run again."""
        code = LoadedCode(stored.code, target)

        @functools.cache
        def lowered_again() -> Lowered:
            graph = module()
            with settings.context():
                return lower(graph, target, {}, code, build_cache.open_cache(PassContext.current()))[0]

        runner = code.runner(stored.num_values, stored.constants)
        return cls(result, runner, stored.arena_bytes, claims, lambda: stored, lowered_again)

    def step(self, symbols: Sequence[SizeVar], runner: Runner | None = None) -> Step:
        """What runs it, with sizes for ``symbols``; ``runner`` in place of the usual one."""
        return Step(symbols, flat_types(self.result), self.arena_bytes, runner or self.runner, self.claims)


class Source(Protocol):
    """The graph that a model was built from."""

    def module(self) -> IRModule:
        """The graph, to run the passes on.

        Raises:
            ArtifactError: it is not there, or the passes would not make the same model of it.
        """

    def modules(self) -> Sequence[IRModule]:
        """The graph of each of the model's functions; raises as ``module``."""

    def text(self, constants: Constants) -> str:
        """The graph as text.

        Raises:
            ArtifactError: the text must hold constants that are not there.
        """


@dataclasses.dataclass(frozen=True)
class GivenSource:
    """A graph that was given to ``build``, and what it was cut into."""

    whole: IRModule
    parts: Sequence[IRModule]

    def module(self) -> IRModule:
        return self.whole

    def modules(self) -> Sequence[IRModule]:
        return self.parts

    def text(self, constants: Constants) -> str:
        return to_text(self.whole, constants)


@dataclasses.dataclass(frozen=True)
class Built:
    """A model that was built, and from what.

    Attributes:
        source: the graph, with parameters bound, after a user's passes over it.
        target: what the code is for.
        settings: those of the context of the build.
        after: a user's passes behind each stage.
        signature: of the model.
        segments: its functions; one, unless sizes become known while the model runs.
        wiring: how the segments follow each other, if there are several.
    """

    source: Source
    target: Target
    settings: Settings
    after: Mapping[str, Sequential]
    signature: Signature
    segments: Sequence[Compiled]
    wiring: Wiring | None = None

    @property
    def module(self) -> IRModule:
        """The graph; see :class:`Source`."""
        return self.source.module()

    def step(self, runners: Sequence[Runner] | None = None) -> Step | Steps:
        """What a call runs; ``runners`` in place of the segments' own."""
        symbols = list(self.signature.symbols)
        chosen = runners if runners is not None else [segment.runner for segment in self.segments]
        if self.wiring is None:
            return self.segments[0].step(symbols, chosen[0])
        steps: list[PlacedStep] = []
        for place, segment, runner in zip(self.wiring.places, self.segments, chosen, strict=True):
            symbols += [symbol for symbol, _ in place.sizes]
            steps.append(PlacedStep(segment.step(symbols, runner), place))
        return Steps(steps, self.wiring.results, len(self.signature.inputs))

    def lower_again(self, segment: int, instruments: Sequence[PassInstrument]) -> Lowered:
        """Run the passes on a segment again, with ``instruments`` around them.

        Raises:
            ArtifactError: its graph is not there; see :class:`Source`.
        """
        module = self.source.modules()[segment]
        with self.settings.context(instruments):
            return lower(module, self.target, self.after)[0]

    def stages(self) -> dict[str, Stage]:
        """What each stage of the build has made, by the stage's name."""

        def modules(name: str, constants: Constants) -> list[str]:
            return [to_text(segment.lowered().modules[name], constants) for segment in self.segments]

        def texts(name: str, _: Constants) -> list[str]:
            return [segment.lowered().code_stages()[name]() for segment in self.segments]

        stages: dict[str, Stage] = {"graph": lambda constants: [self.source.text(constants)]}
        stages.update((name, functools.partial(modules, name)) for name in STAGES)
        stages.update((name, functools.partial(texts, name)) for name in code_stages(self.target))
        return stages


def compile_function(
    mod: IRModule, target: Target, after: Mapping[str, Sequential], behind: contextlib.ExitStack
) -> tuple[Compiled, Function]:
    """Compile one function, ``main``, with the passes ``after`` each stage, or find it where it was kept; also
    ``main``, typed, as a caller sees it.

    Args:
        behind: is closed behind the build: what is kept for later ones is written then.
    """
    context = PassContext.current()
    cache = None if after else build_cache.open_cache(context)
    graph = None if cache is None else build_cache.graph_key(mod, target, context)
    claims = claims_of(mod)
    if cache is None or graph is None:
        lowered, optimized = lower(mod, target, after, None, cache, behind)
        return _compiled(lowered, optimized, claims), optimized
    begin = time.perf_counter()
    typed = InferType()(mod, context)
    given = _constants(typed)
    found = build_cache.find(cache, graph, mod, given)
    function = typed["main"]
    assert isinstance(function, Function)
    if found is not None:
        context.repeat(found.remarks)
        progress().found()
        settings = Settings.of(context)
        return Compiled.from_stored(
            found.function, target, result_of(function), claims, lambda: mod, settings
        ), function
    with context.collecting_remarks() as remarks:
        lowered, optimized = lower(mod, target, after, None, cache, behind)
    same = arguments_of(optimized) == arguments_of(function) and result_of(optimized) == result_of(function)
    if same and build_cache.pays(mod, lowered.constants, given, time.perf_counter() - begin):
        work = functools.partial(build_cache.keep, cache, graph, mod, lowered.stored, given, remarks)
        behind.callback(cache.later, work)
    return _compiled(lowered, optimized, claims), optimized


def lower(
    mod: IRModule,
    target: Target,
    after: Mapping[str, Sequential],
    loaded: LoadedCode | None = None,
    cache: DiskCache | None = None,
    behind: contextlib.ExitStack | None = None,
) -> tuple[Lowered, Function]:
    """Run the passes on ``mod`` and generate code, unless it was ``loaded``; also ``main`` as the last pass over graphs
    left it. Kernels are looked for in ``cache``, and kept there when ``behind`` is closed."""
    context = PassContext.current()
    modules: dict[str, IRModule] = {}
    with session(), target, Ahead(target) as ahead, ValuesAhead() as values:
        shown = progress()
        supply = _supply(context, target, after, cache, ahead if loaded is None else None, shown)
        source = mod

        def compile_some(functions: Sequence[PrimFunc]) -> None:
            ahead.add(functions)
            shown.done(len(functions))

        for stage, pipeline in STAGES.items():
            kernels = pipeline is kernel_pipeline and (loaded is None or supply is not None)
            made = kernel_pipeline(target, compile_some, supply) if kernels else pipeline(target)
            shown.stage(stage)
            if pipeline is schedule_pipeline and loaded is None:
                ahead.expect(_prim_funcs(mod))
                if supply is not None:
                    supply.expect(len(_prim_funcs(mod)))
            if pipeline is kernel_pipeline:
                shown.kernels(len(_prim_funcs(mod)))
            mod = made(mod, context)
            mod = after[stage](mod, context) if stage in after else mod
            modules[stage] = mod
            if pipeline is graph_pipeline and loaded is None:
                values.start(_constants(mod))
            if isinstance(mod["main"], Function):
                source = mod
        function = source["main"]
        assert isinstance(function, Function)
        last = modules.pop("lowered")
        shown.stage("code")
        code = compile_functions(_prim_funcs(last), target, ahead) if loaded is None else loaded.of(_prim_funcs(last))
        if supply is not None and loaded is None:
            work = supply.keep(ahead.kernels())
            if work is not None and cache is not None and behind is not None:
                behind.callback(cache.later, work)
        values.finish()
        whole = supply.whole if supply is not None else _as_it_is
        return Lowered(modules, last, whole, code, _constants(source)), function


def _supply(
    context: PassContext,
    target: Target,
    after: Mapping[str, Sequential],
    cache: DiskCache | None,
    ahead: Ahead | None,
    shown: Progress,
) -> KernelSupply | None:
    """Where kernels come from; None: from the passes, which somebody watches or adds to."""
    if after or target.kind != "llvm" or is_watched(context):
        return None
    # Keys that nothing is kept under tell the kernels of one build apart.
    version = build_cache.source_version() if cache is not None else None
    keys = KernelKeys(version or "", build_cache.settings_text(target, context))
    memory = kernel_memory() if version is not None else None
    disk = cache if version is not None else None
    workers = context.get_config(BUILD).workers
    if workers is None:
        workers = min(target.num_threads, available_cores())
    return KernelSupply(target, keys, memory, disk, ahead, Settings.of(context).context, shown, workers)


def _as_it_is(mod: IRModule) -> IRModule:
    return mod


def _prim_funcs(mod: IRModule) -> list[PrimFunc]:
    return [function for function in mod.functions.values() if isinstance(function, PrimFunc)]


def _constants(mod: IRModule) -> list[Constant]:
    function = mod["main"]
    assert isinstance(function, Function)
    return model_constants(function, mod)


def _compiled(lowered: Lowered, function: Function, claims: list[Claim]) -> Compiled:
    runner, arena_bytes = lowered.runner(), lowered.main.attrs[ARENA_BYTES]
    return Compiled(result_of(function), runner, arena_bytes, claims, lowered.stored, lambda: lowered)


def claims_of(mod: IRModule) -> list[Claim]:
    """The sizes that calls in ``mod`` claim without a proof (``Operator.claimed_shape``), each once."""
    found: dict[tuple[str, str], Claim] = {}
    for function in mod.functions.values():
        if not isinstance(function, Function):
            continue
        for call in call_nodes(function):
            shape = call.op.claimed_shape(call.attrs) if isinstance(call.op, Operator) else None
            if shape is None:
                continue
            argument = call.args[0].type
            assert isinstance(argument, TensorType)
            for axis, (dim, claimed) in enumerate(zip(argument.shape, shape, strict=True)):
                if not dim_equal(dim, claimed):
                    label = f"dimension {axis} of {call.span or summary(call)}"
                    found.setdefault((str(dim), str(claimed)), Claim(dim, claimed, label))
    return list(found.values())


def arguments_of(function: Function, partial: bool = False) -> list[Argument]:
    """What a call takes: a tensor for each parameter, and for each field of a parameter that is a tuple.

    Args:
        partial: whether types may be unknown so far.

    Raises:
        TypeInferenceError: a parameter is no tensor, or two have one name.
    """
    arguments: list[Argument] = []

    def add(name: str, found: Type | None) -> None:
        if isinstance(found, TupleType):
            for number, field in enumerate(found.fields):
                add(f"{name}_{number}", field)
        elif isinstance(found, TensorType):
            arguments.append(Argument(name, found))
        elif not (found is None and partial):
            raise TypeInferenceError(f"parameter {name!r} of main: expected a tensor, found {found}")

    for param in function.params:
        add(param.name, param.type)
    names = [argument.name for argument in arguments]
    if len(set(names)) != len(names):
        raise TypeInferenceError(f"main has two parameters of one name: {', '.join(names)}")
    return arguments


def result_of(function: Function) -> Type:
    """The type of what ``function`` gives.

    Raises:
        TypeInferenceError: it is not known, or no tensor or tuple of such.
    """
    if not isinstance(function.type, FuncType):
        raise TypeInferenceError("the type of main is not known; a parameter lacks its type")
    check_result(function.type.result)
    return function.type.result


def check_result(found: Type | None) -> None:
    """Raises a TypeInferenceError if a result, or a part of it, is no tensor."""
    if isinstance(found, TupleType):
        for field in found.fields:
            check_result(field)
    elif not (found is None or isinstance(found, TensorType)):
        raise TypeInferenceError(f"result of main: expected tensors, found {found}")
