"""Run a single function of loop nests at any stage of lowering.

To compile it, the passes that code generation requires are run on it at level 0. The interpreter of loop nests runs it
unchanged; it is slow, and serves as the reference for the results of these passes and the code generator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.codegen.analysis import called_names
from tilewright.codegen.llvm.call import call_packed
from tilewright.codegen.llvm.compile import CompiledModule, compile_module
from tilewright.graphir.module import IRModule
from tilewright.passes.base import Pass
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import DecomposeReductions
from tilewright.passes.tensor.pipeline import tensor_pipeline
from tilewright.tensorir.interpreter import interpret
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

Array = np.ndarray[Any, Any]


class KernelRunner(Protocol):
    """An engine that runs functions of loop nests on memory."""

    def prepare(self, functions: Mapping[str, PrimFunc]) -> dict[str, PrimFunc]:
        """Prepare the functions of a module for :meth:`run`."""

    def run(self, func: PrimFunc, views: Sequence[Array], variables: Sequence[int]) -> None:
        """Run ``func`` with a view of the memory of each of its buffers, and values for its variables."""


class Interpreted:
    """Run functions unchanged by the loop interpreter. An access out of bounds is an error."""

    def __init__(self) -> None:
        self._functions: dict[str, PrimFunc] = {}

    def prepare(self, functions: Mapping[str, PrimFunc]) -> dict[str, PrimFunc]:
        self._functions = dict(functions)
        return self._functions

    def run(self, func: PrimFunc, views: Sequence[Array], variables: Sequence[int]) -> None:
        arrays = []
        for buffer, view in zip(func.buffers, views, strict=True):
            flat = buffer.ndim != view.ndim or (not buffer.strides and not view.flags.c_contiguous)
            arrays.append(_spanned(view) if flat else view)
        interpret(func, *arrays, *variables, functions=self._functions)


class Compiled:
    """Run functions as machine code for this machine; each is compiled once."""

    def __init__(self, target: Target) -> None:
        self.target = target if target.kind == "llvm" and target.is_runnable else Target("llvm")
        self.passes = necessary_passes(self.target)
        self._finished: dict[PrimFunc, PrimFunc] = {}
        self._modules: dict[PrimFunc, CompiledModule] = {}

    def prepare(self, functions: Mapping[str, PrimFunc]) -> dict[str, PrimFunc]:
        finished: dict[str, PrimFunc] = {}
        for name, func in functions.items():
            made = self._finished.get(func)
            if made is None:
                made = self._finished[func] = self.finish(func)
            finished[name] = made
        self._compile(finished)
        return finished

    def finish(self, func: PrimFunc, passes: Sequence[Pass] | None = None) -> PrimFunc:
        """Run the necessary passes (or these ``passes``) on ``func``.

        Raises:
            TilewrightError: a pass rejects the function.
        """
        mod = IRModule({func.name: func})
        with self.target, PassContext(opt_level=0):
            for step in self.passes if passes is None else passes:
                mod = step(mod)
        made = mod[func.name]
        assert isinstance(made, PrimFunc)
        return made

    def _compile(self, functions: Mapping[str, PrimFunc]) -> None:
        """Compile functions that have no code, together with those that they call."""
        missing = {name: func for name, func in functions.items() if func not in self._modules}
        pending = list(missing.values())
        while pending:
            for name in called_names(pending.pop().body):
                if name in functions and name not in missing:
                    missing[name] = functions[name]
                    pending.append(functions[name])
        if missing:
            module = compile_module(list(missing.values()), self.target)
            self._modules.update((func, module) for func in missing.values())

    def forget(self, keep: Iterable[PrimFunc]) -> None:
        """Drop the code of all functions but these."""
        kept = set(keep)
        self._finished = {func: made for func, made in self._finished.items() if func in kept}
        living = set(self._finished.values())
        self._modules = {func: module for func, module in self._modules.items() if func in living}

    def run(self, func: PrimFunc, views: Sequence[Array], variables: Sequence[int]) -> None:
        call_packed(self._modules[func], func.name, [*[view.ctypes.data for view in views], *variables])


def necessary_passes(target: Target) -> list[Pass]:
    """List the passes without which no code can be generated. Each is idempotent."""
    return [step for step in (DecomposeReductions(), *tensor_pipeline(target).passes) if step.info.opt_level == 0]


def _spanned(view: Array) -> Array:
    """Return the memory from the first to the last element of a view, as a one-dimensional array."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)) // view.itemsize
    if not view.size:
        return np.empty(0, view.dtype)
    return np.lib.stride_tricks.as_strided(view, (span,), (view.itemsize,))
