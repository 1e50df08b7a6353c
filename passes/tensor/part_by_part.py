"""``PartByPart``: a pipeline of function passes that takes a few functions at a time.

Code can be generated of the first functions while passes work on the next ones. What comes out is the same.
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

#: Is told of functions that are through.
Announce = Callable[[Sequence[PrimFunc]], None]

#: Runs the pipeline on a part of a module.
RunPart = Callable[[IRModule, PassContext], IRModule]

#: Makes what stands for a module's functions behind the pipeline, of its functions by their names, which are given,
#: and a way to run the pipeline on some of them: on those that it does not know from elsewhere.
Supply = Callable[[Mapping[GlobalVar, PrimFunc], RunPart, PassContext], Mapping[GlobalVar, PrimFunc]]

#: So many functions go through a pipeline together.
_TOGETHER = 4


class TensorPipeline(Sequential):
    """A pipeline of function passes, which share what they find out about a function."""

    def _transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        with sharing():
            return super()._transform(mod, ctx)


class PartByPart(TensorPipeline):
    """``pipeline``, whose passes each look at one function, for a few functions at a time; tells ``done`` when they are
    through. Where somebody watches whole modules, or one of the passes looks at the module, each pass runs on all.

    Args:
        supply: decides which functions go through the pipeline at all; nobody must watch then.
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
