"""Build an executable from a module.

:func:`build` calls :func:`build_executable` and adds what the environment requests: recording of calls, a report.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.graphir.expr import Expr, Function, Var, const
from tilewright.graphir.module import IRModule, UnknownFunctionError
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import substitute
from tilewright.passes.base import Pass
from tilewright.passes.collector import pause_collector, resume_collector
from tilewright.passes.context import PassContext
from tilewright.passes.environment import session
from tilewright.passes.graph import InferType
from tilewright.passes.lower.loop_main import with_graph_main
from tilewright.passes.lower.segments import binds_sizes, cut
from tilewright.passes.pipelines import STAGES
from tilewright.passes.sequential import Sequential
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.built_model import BuiltModel, GivenSource
from tilewright.runtime.compile_model import compile_function
from tilewright.runtime.executable import Executable
from tilewright.runtime.frames import with_frame_memory
from tilewright.runtime.interpreters import check_interpreter
from tilewright.runtime.model_interface import arguments_of, check_result, signature_of
from tilewright.runtime.progress import building
from tilewright.runtime.result_orders import with_ordered_results
from tilewright.runtime.state import without_state
from tilewright.runtime.steps import Place, Wiring
from tilewright.tensorir.errors import ArgumentTypeError, InputError, PassError
from tilewright.tensorir.nesting import check_extent
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: What can be built.
Buildable = IRModule | Function | PrimFunc | Mapping[str, Function | PrimFunc]

#: Numbers the reports that the environment asks for.
_reports = itertools.count(1)


def build(
    mod: Buildable,
    target: Target | str | None = None,
    params: Mapping[str, Any] | None = None,
    passes: Mapping[str, Pass] | None = None,
    *,
    opt_level: int | None = None,
) -> Executable:
    """Compile a model.

    The passes run under :meth:`PassContext.current`, so its optimization level, required and disabled passes,
    configuration and instruments apply.

    Args:
        mod: a module whose function ``main`` is the model, functions by name of which one is ``main``, or the function
            itself. A function of the loop-level IR (``PrimFunc``) takes the buffers that it reads, in its order, and
            then the sizes that no shape tells; it returns the buffers that it writes. One that it reads before it
            writes it, it takes, leaves as it is, and returns as it then would be. Its loops stay as they are written,
            unless its attribute ``schedule`` is ``auto``.
        target: the target to generate code for, or its kind (``"llvm"``, ``"numba"``); default: :meth:`Target.current`.
        params: values for parameters of ``main`` by name; they become constants of the model.
        passes: passes of your own, by the stage after which they run: ``graph`` (the model as given), ``optimized``,
            ``tensor``, ``scheduled`` or ``lowered``, as in :meth:`Executable.ir`. The context enables and disables them
            like the passes of a pipeline.
        opt_level: the optimization level, in place of the context's.

    Returns:
        An executable that takes the remaining parameters. Its calls are recorded if the environment requests it
        (``TILEWRIGHT_PROFILE``, see ``runtime.observe.profile.switch``).

    Raises:
        TypeError: ``mod`` is none of these.
        UnknownFunctionError: the module has no ``main``.
        TypeInferenceError: the model has no types, ``main`` is not a function of tensors, or a call of a loop-level
            function does not fit its parameters.
        VerifyError: a function of the loop-level IR breaks its rules.
        InputError: ``params`` names no parameter, or gives one a value of another type.
        PassError: ``passes`` names an unknown stage.
        CodegenError: the model cannot be expressed on the target.
        MemoryError: LLVM may need more memory than there is.
        ExecutionError: this is a subinterpreter.
        NestingError, BudgetError: a function of the loop-level IR is nested too deeply, or too large.
    """
    check_interpreter()
    context = PassContext.current()
    with contextlib.nullcontext() if opt_level is None else context.at_level(opt_level):
        executable = build_executable(mod, target, params, passes)
    executable.record_if_asked()
    wanted = os.environ.get("TILEWRIGHT_REPORT")
    if wanted:
        from tilewright.runtime.observe.report.write import report  # imported only when it is needed

        number = next(_reports)
        path = Path(wanted)
        report(executable, path if number == 1 else path.with_stem(f"{path.stem}-{number}"))
    return executable


def build_executable(
    mod: Buildable,
    target: Target | str | None = None,
    params: Mapping[str, Any] | None = None,
    passes: Mapping[str, Pass] | None = None,
) -> Executable:
    """Compile a model as :func:`build` does, without the recording and reports that the environment requests."""
    step = PassContext.current().step("build")
    with contextlib.ExitStack() as behind, step, _without_collector(), session(), building():
        return with_frame_memory(_build, mod, target, params, passes, behind)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Disable the cyclic garbage collector inside the ``with`` block. Passes disable it for themselves
    (``passes.base``); between them it would scan all objects that they have made and find next to nothing."""
    pause_collector()
    try:
        yield
    finally:
        resume_collector()


def _build(
    mod: Buildable,
    target: Target | str | None,
    params: Mapping[str, Any] | None,
    passes: Mapping[str, Pass] | None,
    behind: contextlib.ExitStack,
) -> Executable:
    mod = _module_of(mod)
    check_extent("building", [func for func in mod.functions.values() if isinstance(func, PrimFunc)], chains=True)
    after = _passes_by_stage(passes or {})
    # Copy it: two threads must not enter one object as a context.
    target = Target(Target.current() if target is None else target)
    if params:
        mod = bind_params(mod, params)
    mod, state = without_state(mod)
    mod = with_ordered_results(mod)
    if isinstance(mod["main"], Function):
        # Check this before any pass, whose errors would be about internals of the model.
        arguments_of(mod["main"], partial=True)
        check_result(mod["main"].body.type)
    if "graph" in after:
        with target:
            mod = after["graph"](mod)
    settings = BuildSettings.of(PassContext.current())
    if not binds_sizes(mod):
        compiled, function = compile_function(mod, target, after, behind)
        built = BuiltModel(
            GivenSource(mod, [mod]), target, settings, after, signature_of(function), [compiled], state=state
        )
    else:
        typed = InferType()(mod)["main"]
        assert isinstance(typed, Function)
        signature = signature_of(typed)
        pieces = cut(mod, signature.symbols)
        parts = [segment.module for segment in pieces.segments]
        segments = [compile_function(part, target, after, behind)[0] for part in parts]
        places = [Place(segment.args, segment.results, segment.sizes) for segment in pieces.segments]
        wiring = Wiring(places, pieces.results)
        built = BuiltModel(GivenSource(mod, parts), target, settings, after, signature, segments, wiring, state)
    return Executable(built.step(), built)


def _module_of(given: Buildable) -> IRModule:
    """Return the module of what was given, with a graph for its ``main``."""
    if isinstance(given, Function):
        return IRModule.from_expr(given)
    if isinstance(given, PrimFunc):
        given = IRModule({"main": given})
    elif isinstance(given, Mapping):
        given = IRModule(given)
    if not isinstance(given, IRModule):
        raise ArgumentTypeError(f"build takes an IRModule, a Function or a PrimFunc, found {type(given).__name__}")
    if "main" not in given:
        names = ", ".join(key.name for key in given) or "none"
        raise UnknownFunctionError(
            f"build takes a module whose function 'main' is the model, found one without (it has: {names}); to build "
            "one of its functions, give that: build(mod[name])"
        )
    return with_graph_main(given) if isinstance(given["main"], PrimFunc) else given


def _passes_by_stage(passes: Mapping[str, Pass]) -> dict[str, Sequential]:
    """Wrap a user's passes in pipelines, which check whether the context enables them."""
    stages = ("graph", *STAGES)
    for stage in passes:
        if stage not in stages:
            raise PassError(f"passes: unknown stage {stage!r}; expected one of {', '.join(stages)}")
    return {stage: Sequential([added], name=f"after_{stage}") for stage, added in passes.items()}


def bind_params(mod: IRModule, params: Mapping[str, Any]) -> IRModule:
    """Replace parameters of ``main`` by constants.

    Raises:
        InputError: a name is not a parameter, or the value's type is not the parameter's.
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
