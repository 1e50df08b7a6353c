"""``build``: from a module to a callable model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, dim_equal
from tilewright.graphir.expr import Constant, Expr, Function, Var, const
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.graphir.visitor import call_nodes, substitute
from tilewright.passes.base import Pass
from tilewright.passes.context import PassContext
from tilewright.passes.graph import InferType
from tilewright.passes.lower.linearize import model_constants
from tilewright.passes.lower.primitive import flat_types
from tilewright.passes.lower.segments import binds_sizes, cut
from tilewright.passes.pipelines import STAGES, kernel_pipeline
from tilewright.passes.sequential import Sequential
from tilewright.runtime import kept
from tilewright.runtime.compile import Ahead, Code, MachineCode, code_stages, compile_functions
from tilewright.runtime.executable import Executable, Stage
from tilewright.runtime.signature import Argument, Signature
from tilewright.runtime.steps import Claim, PlacedStep, Runner, Step, Steps
from tilewright.tensorir.errors import InputError, PassError, TypeInferenceError
from tilewright.tensorir.expr import Var as SizeVar
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target


def build(
    mod: IRModule | Function,
    target: Target | str | None = None,
    params: Mapping[str, Any] | None = None,
    passes: Mapping[str, Pass] | None = None,
) -> Executable:
    """Compile a model.

    The passes run under :meth:`PassContext.current`, so its optimization level, required and disabled passes,
    configuration and instruments apply.

    Args:
        mod: a module whose function ``main`` is the model, or the function itself.
        target: what to generate code for, or its kind (``"llvm"``, ``"numba"``); default: :meth:`Target.current`.
        params: values for parameters of ``main`` by name; they become constants of the model.
        passes: passes of your own, by the stage whose result they take: ``graph`` (the model as given), ``optimized``,
            ``tensor``, ``scheduled`` or ``lowered``, as in :meth:`Executable.ir`. The context enables and disables them
            as it does those of a pipeline.

    Returns:
        An executable that takes the remaining parameters.

    Raises:
        TypeInferenceError: the model has no types, or ``main`` is no function of tensors.
        InputError: ``params`` names no parameter, or gives one a value of another type.
        PassError: ``passes`` names no stage.
        CodegenError: the model cannot be expressed on the target.
    """
    if isinstance(mod, Function):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise TypeError(f"build takes an IRModule or a Function, found {type(mod).__name__}")
    after = _passes_by_stage(passes or {})
    # A target of its own: as a context, one object must not be entered by two threads.
    target = Target(Target.current() if target is None else target)
    if params:
        mod = bind_params(mod, params)
    if isinstance(mod["main"], Function):
        # Before any pass: its errors would speak of what is inside.
        _arguments(mod["main"], partial=True)
        _check_result(mod["main"].body.type)
    if "graph" in after:
        with target:
            mod = after["graph"](mod)
    if not binds_sizes(mod):
        compiled = _compile(mod, target, after)
        signature = Signature(_arguments(compiled.function), _result(compiled.function))
        return Executable(signature, compiled.step(signature.symbols), target, _stages(mod, target, [compiled]))
    function = InferType()(mod)["main"]
    assert isinstance(function, Function)
    signature = Signature(_arguments(function), _result(function))
    pieces = cut(mod, signature.symbols)
    symbols = list(signature.symbols)
    steps: list[PlacedStep] = []
    segments: list[_Compiled] = []
    for segment in pieces.segments:
        symbols += [symbol for symbol, _ in segment.sizes]
        compiled = _compile(segment.module, target, after)
        steps.append(PlacedStep(compiled.step(symbols), segment.args, segment.results, segment.sizes))
        segments.append(compiled)
    step = Steps(steps, pieces.results, len(signature.inputs))
    return Executable(signature, step, target, _stages(mod, target, segments))


@dataclasses.dataclass(frozen=True)
class _Lowered:
    """A model's function after each stage, and as code."""

    modules: Mapping[str, IRModule]
    code: Code

    @property
    def main(self) -> PrimFunc:
        main = self.modules["lowered"]["main"]
        assert isinstance(main, PrimFunc)
        return main


@dataclasses.dataclass(frozen=True)
class _Compiled:
    """A model's function, typed, and what runs it; the sizes that it takes for equal, and what it was lowered to, which
    is made when it is asked for if the code was kept from an earlier build."""

    function: Function
    runner: Runner
    arena_bytes: Dim
    claims: list[Claim]
    lowered: Callable[[], _Lowered]

    def step(self, symbols: Sequence[SizeVar]) -> Step:
        """What runs it, with sizes for ``symbols``."""
        return Step(symbols, flat_types(_result(self.function)), self.arena_bytes, self.runner, self.claims)


def _compile(mod: IRModule, target: Target, after: Mapping[str, Sequential]) -> _Compiled:
    """Compile one function, ``main``, with the passes ``after`` each stage, or find it where it was kept."""
    context = PassContext.current()
    cache = None if after else kept.open_cache(context)
    key = None if cache is None else kept.key_of(mod, target, context)
    claims = claims_of(mod)
    if cache is None or key is None:
        return _compiled(*_lower(mod, target, after), claims)
    typed = InferType()(mod, context)
    given = _constants(typed)
    found = kept.find(cache, key, target, given)
    function = typed["main"]
    assert isinstance(function, Function)
    if found is not None:
        context.repeat(found.remarks)
        settings = PassContext(context.opt_level, context.required_pass, context.disabled_pass, config=context.config)

        @functools.cache
        def lowered_again() -> _Lowered:
            with settings:
                return _lower(mod, target, {})[0]

        runner = found.code.runner(found.num_values, found.constants)
        return _Compiled(function, runner, found.arena_bytes, claims, lowered_again)
    with context.collecting_remarks() as remarks:
        lowered, optimized, constants = _lower(mod, target, after)
    compiled = _compiled(lowered, optimized, constants, claims)
    same = _arguments(optimized) == _arguments(function) and _result(optimized) == _result(function)
    if isinstance(lowered.code, MachineCode) and same:
        code, num_values = lowered.code.object_code(), len(lowered.main.params)
        kept.keep(cache, key, code, constants, given, compiled.arena_bytes, num_values, remarks)
    return compiled


def _lower(mod: IRModule, target: Target, after: Mapping[str, Sequential]) -> tuple[_Lowered, Function, list[Constant]]:
    """Run the passes on ``mod`` and generate code; also ``main`` as the last pass over graphs left it, and its
    constants."""
    context = PassContext.current()
    modules: dict[str, IRModule] = {}
    with target, Ahead(target) as ahead:
        source = mod
        for stage, pipeline in STAGES.items():
            made = kernel_pipeline(target, ahead.add) if pipeline is kernel_pipeline else pipeline(target)
            mod = made(mod, context)
            mod = after[stage](mod, context) if stage in after else mod
            modules[stage] = mod
            if isinstance(mod["main"], Function):
                source = mod
        function = source["main"]
        assert isinstance(function, Function)
        functions = [kernel for kernel in mod.functions.values() if isinstance(kernel, PrimFunc)]
        return _Lowered(modules, compile_functions(functions, target, ahead)), function, _constants(source)


def _constants(mod: IRModule) -> list[Constant]:
    function = mod["main"]
    assert isinstance(function, Function)
    return model_constants(function, mod)


def _compiled(lowered: _Lowered, function: Function, constants: list[Constant], claims: list[Claim]) -> _Compiled:
    main = lowered.main
    runner = lowered.code.runner(len(main.params), [constant.data for constant in constants])
    return _Compiled(function, runner, main.attrs["arena_bytes"], claims, lambda: lowered)


def _stages(mod: IRModule, target: Target, segments: Sequence[_Compiled]) -> dict[str, Stage]:
    """What each stage of a build has made, by the stage's name: modules, or generated code."""

    def modules(name: str) -> list[IRModule]:
        return [segment.lowered().modules[name] for segment in segments]

    def texts(name: str) -> list[str]:
        return [segment.lowered().code.stages()[name]() for segment in segments]

    stages: dict[str, Stage] = {"graph": lambda: [mod]}
    stages.update((name, functools.partial(modules, name)) for name in STAGES)
    stages.update((name, functools.partial(texts, name)) for name in code_stages(target))
    return stages


def _passes_by_stage(passes: Mapping[str, Pass]) -> dict[str, Sequential]:
    """A user's passes as pipelines, which ask the context whether they are enabled."""
    stages = ("graph", *STAGES)
    for stage in passes:
        if stage not in stages:
            raise PassError(f"passes: unknown stage {stage!r}; expected one of {', '.join(stages)}")
    return {stage: Sequential([added], name=f"after_{stage}") for stage, added in passes.items()}


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


def bind_params(mod: IRModule, params: Mapping[str, Any]) -> IRModule:
    """``mod`` with parameters of ``main`` replaced by constants.

    Raises:
        InputError: a name is no parameter, or the value's type is not the parameter's.
    """
    main = mod["main"]
    if not isinstance(main, Function):
        raise InputError("parameters are bound in a graph-level main, but main is lowered already")
    by_name = {param.name: param for param in main.params}
    bound: dict[Expr, Expr] = {}
    for name, value in params.items():
        if name not in by_name:
            raise InputError(f"params: main has no parameter {name!r} (it has: {', '.join(by_name) or 'none'})")
        found = const(np.asarray(value))
        expected = by_name[name].type
        if isinstance(expected, TensorType) and found.type != expected:
            raise InputError(f"params: {name}: expected {expected}, found {found.type}")
        bound[by_name[name]] = found
    rest: list[Var] = [param for param in main.params if param not in bound]
    function = Function(rest, substitute(main.body, bound), attrs=main.attrs)
    return mod.with_functions({mod.get_global_var("main"): function})


def _arguments(function: Function, partial: bool = False) -> list[Argument]:
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


def _result(function: Function) -> Type:
    if not isinstance(function.type, FuncType):
        raise TypeInferenceError("the type of main is not known; a parameter lacks its type")
    _check_result(function.type.result)
    return function.type.result


def _check_result(found: Type | None) -> None:
    """Raises a TypeInferenceError if a result, or a part of it, is no tensor."""
    if isinstance(found, TupleType):
        for field in found.fields:
            _check_result(field)
    elif not (found is None or isinstance(found, TensorType)):
        raise TypeInferenceError(f"result of main: expected tensors, found {found}")
