"""Compile a function of loops and run it: the tensor passes, then the code generator of a target."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.codegen import llvm, numba_
from tilewright.codegen.llvm.call import call_primfunc
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.pipelines import readable_pipeline
from tilewright.passes.tensor import tensor_pipeline
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import IntImm
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target


def run_compiled(target: Target, func: PrimFunc, *args: Any, opt_level: int = 2) -> None:
    """Run ``func`` on arrays and sizes, which are those of its own parameters: compiled for ``target``."""
    with PassContext(opt_level=opt_level), target:
        passes = tensor_pipeline(target) if target.kind == "llvm" else readable_pipeline()
        (lowered,) = passes(IRModule({func.name: func})).functions.values()
    assert isinstance(lowered, PrimFunc)
    count = len(func.buffers)
    sizes = {var: IntImm(int(args[count + number])) for number, var in enumerate(lowered.variables)}
    workspaces = []
    for buffer in lowered.buffers[count:]:
        extents = [Analyzer().simplify(substitute(extent, sizes)) for extent in buffer.shape]
        workspaces.append(np.zeros([extent.value for extent in extents], buffer.dtype.numpy))  # type: ignore[attr-defined]
    given = [*args[:count], *workspaces, *args[count:]]
    if target.kind == "llvm":
        call_primfunc(llvm.compile_module([lowered], target), lowered, *given)
    else:
        numba_.compile_module([lowered], target).call(lowered.name, *given)
