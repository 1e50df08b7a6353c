"""Compile one function of a model: find it on disk, or lower it and store it there."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Mapping

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.graph import InferType
from tilewright.passes.sequential import Sequential
from tilewright.runtime import build_cache, lower_model
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.built_model import CompiledFunction
from tilewright.runtime.lower_model import constants_of
from tilewright.runtime.model_interface import arguments_of, claims_of, result_of
from tilewright.runtime.progress import progress
from tilewright.tensorir.target import Target


def compile_function(
    mod: IRModule, target: Target, after: Mapping[str, Sequential], behind: contextlib.ExitStack
) -> tuple[CompiledFunction, Function]:
    """Compile the function ``main`` of ``mod``, or find its code on disk.

    Args:
        after: the user's passes after each stage, by the name of the stage.
        behind: exit stack whose callbacks write to disk when it is closed, after the build.

    Returns:
        the compiled function, and ``main`` with its type, as a caller sees it.
    """
    context = PassContext.current()
    cache = None if after else build_cache.open_cache(context)
    graph = None if cache is None else build_cache.graph_key(mod, target, context)
    claims = claims_of(mod)
    if cache is None or graph is None:
        lowered, optimized = lower_model.lower(mod, target, after, None, cache, behind)
        if "optimized" in after:  # a user's pass may have added calls
            claims += claims_of(lowered.before["optimized"])
        return CompiledFunction.from_lowered(lowered, result_of(optimized), claims), optimized
    begin = time.perf_counter()
    typed = InferType()(mod, context)
    given = constants_of(typed)
    found = build_cache.find(cache, graph, mod, given)
    function = typed["main"]
    assert isinstance(function, Function)
    if found is not None:
        context.repeat(found.remarks)
        progress().found()
        result, settings = result_of(function), BuildSettings.of(context)
        return CompiledFunction.from_stored(found.function, target, result, claims, lambda: mod, settings), function
    with context.collecting_remarks() as remarks:
        lowered, optimized = lower_model.lower(mod, target, after, None, cache, behind)
    same = arguments_of(optimized) == arguments_of(function) and result_of(optimized) == result_of(function)
    if same and build_cache.is_worth_keeping(mod, lowered.constants, given, time.perf_counter() - begin):
        work = functools.partial(build_cache.keep, cache, graph, mod, lowered.stored, given, remarks)
        behind.callback(cache.later, work)
    return CompiledFunction.from_lowered(lowered, result_of(optimized), claims), optimized
