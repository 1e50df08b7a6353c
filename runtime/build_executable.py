"""From a module to a callable model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tilewright.graphir.expr import Expr, Function, Var, const
from tilewright.graphir.keys import RESULTS
from tilewright.graphir.module import IRModule
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import substitute
from tilewright.passes.base import Pass
from tilewright.passes.collector import pause_collector, resume_collector
from tilewright.passes.context import PassContext
from tilewright.passes.environment import session
from tilewright.passes.graph import InferType
from tilewright.passes.lower.segments import binds_sizes, cut
from tilewright.passes.pipelines import STAGES
from tilewright.passes.sequential import Sequential
from tilewright.runtime.built_model import (
    Built,
    GivenSource,
    Settings,
    arguments_of,
    check_result,
    compile_function,
    result_of,
)
from tilewright.runtime.executable import Executable
from tilewright.runtime.frames import with_room
from tilewright.runtime.progress import building
from tilewright.runtime.signature import Signature
from tilewright.runtime.steps import Place, Wiring
from tilewright.tensorir.errors import InputError, PassError
from tilewright.tensorir.target import Target


def build_executable(
    mod: IRModule | Function,
    target: Target | str | None = None,
    params: Mapping[str, Any] | None = None,
    passes: Mapping[str, Pass] | None = None,
) -> Executable:
    """What :func:`tilewright.build` makes, and nothing that the environment asks for besides."""
    with contextlib.ExitStack() as behind, _without_collector(), session(), building():
        return with_room(_build, mod, target, params, passes, behind)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Python does not search for cyclic garbage meanwhile. Passes say so for themselves (``passes.base``), but between
    them it would look through all that they have made, again at each stage, to find next to nothing."""
    pause_collector()
    try:
        yield
    finally:
        resume_collector()


def _build(
    mod: IRModule | Function,
    target: Target | str | None,
    params: Mapping[str, Any] | None,
    passes: Mapping[str, Pass] | None,
    behind: contextlib.ExitStack,
) -> Executable:
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
        arguments_of(mod["main"], partial=True)
        check_result(mod["main"].body.type)
    if "graph" in after:
        with target:
            mod = after["graph"](mod)
    settings = Settings.of(PassContext.current())
    if not binds_sizes(mod):
        compiled, function = compile_function(mod, target, after, behind)
        built = Built(GivenSource(mod, [mod]), target, settings, after, signature_of(function), [compiled])
    else:
        typed = InferType()(mod)["main"]
        assert isinstance(typed, Function)
        signature = signature_of(typed)
        pieces = cut(mod, signature.symbols)
        parts = [segment.module for segment in pieces.segments]
        segments = [compile_function(part, target, after, behind)[0] for part in parts]
        places = [Place(segment.args, segment.results, segment.sizes) for segment in pieces.segments]
        wiring = Wiring(places, pieces.results)
        built = Built(GivenSource(mod, parts), target, settings, after, signature, segments, wiring)
    return Executable(built.step(), built)


def signature_of(function: Function) -> Signature:
    """What ``function`` takes and gives. The attribute ``results`` names its results, as the importer of ONNX says."""
    return Signature(arguments_of(function), result_of(function), function.attrs.get(RESULTS, ()))


def _passes_by_stage(passes: Mapping[str, Pass]) -> dict[str, Sequential]:
    """A user's passes as pipelines, which ask the context whether they are enabled."""
    stages = ("graph", *STAGES)
    for stage in passes:
        if stage not in stages:
            raise PassError(f"passes: unknown stage {stage!r}; expected one of {', '.join(stages)}")
    return {stage: Sequential([added], name=f"after_{stage}") for stage, added in passes.items()}


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
