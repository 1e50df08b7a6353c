"""What a build comes down to: the functions of a model, lowered and compiled, and how they were made.

An :class:`~tilewright.runtime.executable.Executable` keeps this, to show what each stage has made, and to make it again
where somebody wants to watch.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.graphir.dims import Dim, dim_equal
from tilewright.graphir.expr import Constant, Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.graphir.visitor import call_nodes
from tilewright.passes.context import PassContext
from tilewright.passes.graph import InferType
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.lower.linearize import model_constants
from tilewright.passes.lower.primitive import flat_types
from tilewright.passes.lower.segments import Segments
from tilewright.passes.pipelines import STAGES, kernel_pipeline
from tilewright.passes.sequential import Sequential
from tilewright.runtime import kept
from tilewright.runtime.compile import Ahead, Code, LoadedCode, MachineCode, code_stages, compile_functions
from tilewright.runtime.signature import Argument, Signature
from tilewright.runtime.steps import Claim, PlacedStep, Runner, Step, Steps
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.expr import Var as SizeVar
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: Makes what a stage of a build has made: modules, or texts of generated code; one for each of a model's functions.
Stage = Callable[[], Sequence[IRModule | str]]


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
        return cls(context.opt_level, context.required_pass, context.disabled_pass, dict(context.config))

    def context(self, instruments: Sequence[PassInstrument] = ()) -> PassContext:
        """A new context with these settings."""
        return PassContext(self.opt_level, self.required_pass, self.disabled_pass, instruments, self.config)


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A model's function after each stage, and as code.

    Attributes:
        modules: by the name of the stage, those of ``pipelines.STAGES``.
        code: what the last of them was compiled to.
        constants: those of the graph, in the order in which ``main`` takes them.
    """

    modules: Mapping[str, IRModule]
    code: Code
    constants: Sequence[Constant]

    @property
    def main(self) -> PrimFunc:
        """The entry point."""
        main = self.modules["lowered"]["main"]
        assert isinstance(main, PrimFunc)
        return main

    def runner(self) -> Runner:
        """What runs the code."""
        return self.code.runner(len(self.main.params), [constant.data for constant in self.constants])


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A model's function.

    Attributes:
        function: as the graph has it, typed.
        runner: what runs it.
        arena_bytes: the memory for intermediate values.
        claims: the sizes that it takes for equal.
        lowered: what it was lowered to, made when it is asked for if the code was kept from an earlier build.
    """

    function: Function
    runner: Runner
    arena_bytes: Dim
    claims: list[Claim]
    lowered: Callable[[], Lowered]

    def step(self, symbols: Sequence[SizeVar], runner: Runner | None = None) -> Step:
        """What runs it, with sizes for ``symbols``; ``runner`` in place of the usual one."""
        types = flat_types(result_of(self.function))
        return Step(symbols, types, self.arena_bytes, runner or self.runner, self.claims)


@dataclasses.dataclass(frozen=True)
class Built:
    """A model that was built, and from what.

    Attributes:
        module: the graph, with parameters bound, after a user's passes over it.
        target: what the code is for.
        settings: those of the context of the build.
        after: a user's passes behind each stage.
        signature: of the model.
        segments: its functions; one, unless sizes become known while the model runs.
        pieces: how the segments follow each other, if there are several.
    """

    module: IRModule
    target: Target
    settings: Settings
    after: Mapping[str, Sequential]
    signature: Signature
    segments: Sequence[Compiled]
    pieces: Segments | None = None

    def step(self, runners: Sequence[Runner] | None = None) -> Step | Steps:
        """What a call runs; ``runners`` in place of the segments' own."""
        symbols = list(self.signature.symbols)
        chosen = runners if runners is not None else [segment.runner for segment in self.segments]
        if self.pieces is None:
            return self.segments[0].step(symbols, chosen[0])
        steps: list[PlacedStep] = []
        for piece, segment, runner in zip(self.pieces.segments, self.segments, chosen, strict=True):
            symbols += [symbol for symbol, _ in piece.sizes]
            steps.append(PlacedStep(segment.step(symbols, runner), piece.args, piece.results, piece.sizes))
        return Steps(steps, self.pieces.results, len(self.signature.inputs))

    def lower_again(self, segment: int, instruments: Sequence[PassInstrument]) -> Lowered:
        """Run the passes on a segment again, with ``instruments`` around them."""
        module = self.module if self.pieces is None else self.pieces.segments[segment].module
        with self.settings.context(instruments):
            return lower(module, self.target, self.after)[0]

    def stages(self) -> dict[str, Stage]:
        """What each stage of the build has made, by the stage's name."""

        def modules(name: str) -> list[IRModule]:
            return [segment.lowered().modules[name] for segment in self.segments]

        def texts(name: str) -> list[str]:
            return [segment.lowered().code.stages()[name]() for segment in self.segments]

        stages: dict[str, Stage] = {"graph": lambda: [self.module]}
        stages.update((name, functools.partial(modules, name)) for name in STAGES)
        stages.update((name, functools.partial(texts, name)) for name in code_stages(self.target))
        return stages


def compile_function(mod: IRModule, target: Target, after: Mapping[str, Sequential]) -> Compiled:
    """Compile one function, ``main``, with the passes ``after`` each stage, or find it where it was kept."""
    context = PassContext.current()
    cache = None if after else kept.open_cache(context)
    key = None if cache is None else kept.key_of(mod, target, context)
    claims = claims_of(mod)
    if cache is None or key is None:
        return _compiled(*lower(mod, target, after), claims)
    typed = InferType()(mod, context)
    given = _constants(typed)
    found = kept.find(cache, key, target, given)
    function = typed["main"]
    assert isinstance(function, Function)
    if found is not None:
        context.repeat(found.remarks)
        settings = Settings.of(context)

        @functools.cache
        def lowered_again() -> Lowered:
            with settings.context():
                return lower(mod, target, {}, found.code)[0]

        runner = found.code.runner(found.num_values, found.constants)
        return Compiled(function, runner, found.arena_bytes, claims, lowered_again)
    with context.collecting_remarks() as remarks:
        lowered, optimized = lower(mod, target, after)
    compiled = _compiled(lowered, optimized, claims)
    same = arguments_of(optimized) == arguments_of(function) and result_of(optimized) == result_of(function)
    if isinstance(lowered.code, MachineCode) and same:
        code, num_values = lowered.code.object_code(), len(lowered.main.params)
        kept.keep(cache, key, code, lowered.constants, given, compiled.arena_bytes, num_values, remarks)
    return compiled


def lower(
    mod: IRModule, target: Target, after: Mapping[str, Sequential], kept: LoadedCode | None = None
) -> tuple[Lowered, Function]:
    """Run the passes on ``mod`` and generate code, unless it was ``kept``; also ``main`` as the last pass over graphs
    left it."""
    context = PassContext.current()
    modules: dict[str, IRModule] = {}
    # A target of its own: as a context, one object must not be entered by two threads.
    with Target(target), Ahead(target) as ahead:
        source = mod
        for stage, pipeline in STAGES.items():
            compiles = pipeline is kernel_pipeline and kept is None
            made = kernel_pipeline(target, ahead.add) if compiles else pipeline(target)
            mod = made(mod, context)
            mod = after[stage](mod, context) if stage in after else mod
            modules[stage] = mod
            if isinstance(mod["main"], Function):
                source = mod
        function = source["main"]
        assert isinstance(function, Function)
        functions = [kernel for kernel in mod.functions.values() if isinstance(kernel, PrimFunc)]
        code = compile_functions(functions, target, ahead) if kept is None else kept.of(functions)
        return Lowered(modules, code, _constants(source)), function


def _constants(mod: IRModule) -> list[Constant]:
    function = mod["main"]
    assert isinstance(function, Function)
    return model_constants(function, mod)


def _compiled(lowered: Lowered, function: Function, claims: list[Claim]) -> Compiled:
    return Compiled(function, lowered.runner(), lowered.main.attrs["arena_bytes"], claims, lambda: lowered)


def claims_of(mod: IRModule) -> list[Claim]:
    """What the calls of ``match_shape`` in ``mod`` say of sizes, each once."""
    found: dict[tuple[str, str], Claim] = {}
    for function in mod.functions.values():
        if not isinstance(function, Function):
            continue
        for call in call_nodes(function):
            if not (isinstance(call.op, Operator) and call.op.name == "match_shape"):
                continue
            argument = call.args[0].type
            assert isinstance(argument, TensorType)
            for axis, (dim, claimed) in enumerate(zip(argument.shape, call.attrs.shape, strict=True)):
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
