"""``ApplyPassToFunction``: apply a pass to the functions whose names match a regular expression."""

from __future__ import annotations

import re

from tilewright.graphir.expr import Function
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.types import Type
from tilewright.passes.base import ModulePass, Pass
from tilewright.passes.context import RUNNING, PassContext
from tilewright.passes.graph.call_graph import callees, reachable
from tilewright.passes.info import PassInfo
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError, PassError


class ApplyPassToFunction(ModulePass):
    """Apply ``transform`` to some functions of a module, and leave the others as they are.

    Function passes, those inside a pipeline too, run on the chosen functions only. A module pass sees the whole module;
    then the functions that were not chosen, and those that they call, are put back. Functions that it adds stay where
    chosen functions call them.

    Args:
        transform: the pass: of functions, of loop-level functions, of modules, or a pipeline.
        func_name_regex: matches, from the start, the names of functions to transform (as ``re.match``).
        error_if_no_function_matches_regex: whether a module without such functions is an error.

    Raises:
        ArgumentTypeError: ``transform`` is no pass.
        ArgumentValueError: ``func_name_regex`` is no regular expression.

    From ``tvm.transform`` of Apache TVM, with its names of the arguments.
    """

    def __init__(self, transform: Pass, func_name_regex: str, error_if_no_function_matches_regex: bool = False) -> None:
        if not isinstance(transform, Pass):
            raise ArgumentTypeError(f"ApplyPassToFunction: expected a pass, found {transform!r}")
        try:
            self._pattern = re.compile(func_name_regex)
        except re.error as error:
            raise ArgumentValueError(
                f"ApplyPassToFunction: {func_name_regex!r} is no regular expression: {error}"
            ) from None
        self.transform = transform
        self.must_match = error_if_no_function_matches_regex
        info = transform.info
        # What the pass provides holds for some functions only, and so is not stated.
        self.info = PassInfo(
            f"ApplyPassToFunction({info.name}, {func_name_regex!r})",
            0,
            requires=info.requires,
            invalidates=info.invalidates,
        )

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return ``mod`` with the chosen functions transformed; ``mod`` itself if they did not change.

        Raises:
            PassError: no function matches, and one must; or the type of one changed that others call.
        """
        chosen = {gv.name for gv in mod if self._pattern.match(gv.name)}
        if not chosen:
            if self.must_match:
                names = ", ".join(f"@{gv.name}" for gv in mod) or "none"
                raise PassError(f"{self.info.name}: no function matches; the module has {names}")
            return mod
        outer = RUNNING.chosen
        RUNNING.chosen = chosen if outer is None else chosen & outer
        try:
            result = self.transform(mod, ctx)
        finally:
            RUNNING.chosen = outer
        return mod if result is mod else self._merged(mod, result, chosen)

    def _merged(self, mod: IRModule, result: IRModule, chosen: set[str]) -> IRModule:
        """Return the functions of ``result`` that are chosen or new, and the others of ``mod``."""
        merged = IRModule()
        for gv, function in mod.functions.items():
            if gv.name not in chosen:
                merged[gv] = function
            elif gv in result:
                key = result.get_global_var(gv.name)
                merged[key] = result[key]
        for key, function in result.functions.items():
            if key not in mod:
                merged[key] = function
        called = [name for gv in mod if gv.name not in chosen for name in callees(mod[gv]) if name in chosen]
        while called:  # what the pass removed, as it saw no caller, or changed them all
            name = called.pop()
            if name not in merged:
                merged[mod.get_global_var(name)] = mod[name]
                called += callees(mod[name])
            elif _type_of(merged[name]) != _type_of(mod[name]):
                raise PassError(
                    f"{self.info.name}: the type of @{name} was {_type_of(mod[name])}, and is "
                    f"{_type_of(merged[name])}, but it is called by functions that are not transformed"
                )
        used = reachable(merged, [gv.name for gv in mod])
        return merged.without([gv for gv in merged if gv.name not in used])


def _type_of(function: AnyFunction) -> Type | None:
    return function.type if isinstance(function, Function) else None
