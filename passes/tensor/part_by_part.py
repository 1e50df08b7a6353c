"""``PartByPart``: a pipeline of function passes that takes a few functions at a time.

Code can be generated for the first functions while passes work on the next ones. The result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.graphir.expr import Function, GlobalVar
from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import RUNNING, PassContext
from tilewright.passes.environment import needs_whole_modules
from tilewright.passes.sequential import Sequential
from tilewright.passes.tensor.findings import sharing
from tilewright.tensorir.stmt import PrimFunc

#: Called with functions that have passed through the pipeline.
Announce = Callable[[Sequence[PrimFunc]], None]

#: Runs the pipeline on a part of a module.
RunPart = Callable[[IRModule, PassContext], IRModule]

#: Supplies the lowered functions of a module. It is given the functions by name and a callable that runs the pipeline
#: on some of them, for those that it cannot take from elsewhere (a cache).
Supply = Callable[[Mapping[GlobalVar, PrimFunc], RunPart, PassContext], Mapping[GlobalVar, PrimFunc]]

#: The number of functions that go through a pipeline together.
_TOGETHER = 4


class TensorPipeline(Sequential):
    """A pipeline of function passes that share the facts that they derive about a function."""

    def _transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        with sharing():
            return super()._transform(mod, ctx)


class PartByPart(TensorPipeline):
    """Run ``pipeline``, whose passes each process one function, on a few functions at a time; call ``done`` with those
    that are finished. If an instrument needs whole modules, or a pass is a module pass, each pass runs on all of them.

    Args:
        supply: decides which functions go through the pipeline at all; no instrument may watch then.
    """

    def __init__(self, pipeline: Sequential, done: Announce, supply: Supply | None = None) -> None:
        info = pipeline.info
        super().__init__(pipeline.passes, info.opt_level, info.name, info.required, pipeline.given)
        self._done = done
        self._supply = supply

    def _transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        single = all(isinstance(child, PrimFuncPass) and not child.info.required for child in self.passes)
        if needs_whole_modules(ctx) or not single:
            return super()._transform(mod, ctx)
        kernels = [(key, function) for key, function in mod.functions.items() if isinstance(function, PrimFunc)]
        updates: dict[GlobalVar, Function | PrimFunc] = {}
        if self._supply is not None:
            updates.update(self._supply(dict(kernels), super()._transform, ctx))
            return mod.with_functions(updates) if updates else mod
        try:
            for part, start in enumerate(range(0, len(kernels), _TOGETHER)):
                RUNNING.part = part
                through = super()._transform(IRModule(dict(kernels[start : start + _TOGETHER])), ctx)
                updates.update(through.functions)
                self._done([function for function in through.functions.values() if isinstance(function, PrimFunc)])
        finally:
            RUNNING.part = None
        return mod.with_functions(updates) if updates else mod
