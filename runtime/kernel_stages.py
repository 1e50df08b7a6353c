"""Print one kernel of a model after a stage of its compilation."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tilewright.codegen.analysis import called_names
from tilewright.codegen.llvm import compile_module, emit_llvm_ir
from tilewright.codegen.numba_ import emit_source
from tilewright.graphir.module import IRModule
from tilewright.graphir.printer import to_text
from tilewright.passes.lower.kernel_calls import kernel_calls
from tilewright.passes.pipelines import STAGES
from tilewright.runtime.generated_code import code_stages
from tilewright.runtime.lower_model import LoweredFunction
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: The stages at which a model has kernels, but for those of generated code.
_LOOPS = tuple(stage for stage in STAGES if stage != "optimized")
#: The most names of kernels in a message.
_MOST_NAMES = 10


def kernel_text(functions: Sequence[LoweredFunction], kernel: str, stage: str, target: Target) -> str:
    """Return the text of one kernel: of loops, or of the code that is generated from them.

    Kernels that differ in constants are merged after they are scheduled (``MergeKernels``): the name that a kernel had
    before means the merged one from then on, and the name of the merged one means all of those before.

    Args:
        functions: the functions of the model.
        kernel: its name, as profiles and explanations show it.
        stage: a stage that has kernels.
        target: the target of the code.

    Raises:
        ValueError: the stage has no kernels, or the model has no such kernel.
    """
    stages = (*_LOOPS, *code_stages(target))
    if stage not in stages:
        raise ArgumentValueError(f"the stage {stage!r} has no kernels; expected one of {', '.join(stages)}")
    names: dict[str, None] = {}
    texts: list[str] = []
    for function in functions:
        merged = {call.formula: call.kernel for call in kernel_calls(function.modules["lowered"]) if call.formula}
        own = kernels_of(function.modules[stage if stage in _LOOPS else "lowered"])
        names.update(dict.fromkeys((*own, *kernels_of(function.modules["tensor"]))))
        wanted = [kernel, *(formula for formula, name in merged.items() if name == kernel)]
        present = [own[name] for name in dict.fromkeys(wanted) if name in own]
        if not present and merged.get(kernel) in own:
            present = [own[merged[kernel]]]
        texts += [_text(found, own, stage, target) for found in present]
    if not texts:
        close = difflib.get_close_matches(kernel, names, 3)
        some = ", ".join(list(names)[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        hint = f"did you mean {' or '.join(close)}?" if close else f"it has {some or 'none'}"
        raise ArgumentValueError(f"the model has no kernel {kernel!r}; {hint}")
    return "\n".join(texts)


def kernels_of(mod: IRModule) -> dict[str, PrimFunc]:
    """Return the kernels of a module by name."""
    return {
        key.name: function
        for key, function in mod.functions.items()
        if isinstance(function, PrimFunc) and key.name != "main"
    }


def _text(kernel: PrimFunc, kernels: dict[str, PrimFunc], stage: str, target: Target) -> str:
    """Return the text of a kernel; generated code comes with the functions that the kernel calls."""
    if stage in _LOOPS:
        return to_text(IRModule({kernel.name: kernel}))
    functions = _with_called(kernel, kernels)
    if stage == "numba":
        return emit_source(functions)
    if stage == "llvm":
        return emit_llvm_ir(functions, target, (kernel.name,), packed=False)
    return compile_module(functions, target, (kernel.name,), packed=False).assembly


def _with_called(kernel: PrimFunc, kernels: dict[str, PrimFunc]) -> list[PrimFunc]:
    """Return a kernel and the functions that it calls, these first."""
    found: dict[str, PrimFunc] = {kernel.name: kernel}
    waiting = [kernel]
    while waiting:
        for name in sorted(called_names(waiting.pop().body)):
            if name in kernels and name not in found:
                found[name] = kernels[name]
                waiting.append(kernels[name])
    return [*reversed(found.values())]
