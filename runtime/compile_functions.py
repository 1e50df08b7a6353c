"""Compile the lowered functions of a model, or find the code of an equal model in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.runtime.background_compile import BackgroundCompiler
from tilewright.runtime.generated_code import Code, MachineCode, PythonCode, Ready
from tilewright.runtime.kernel_cache import KernelCache, NamedFunction
from tilewright.runtime.process_caches import process_caches
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: Compilers by the kind of target: they wait for kernels compiled in the background and take others from the cache.
_GENERATORS: dict[str, Callable[[Sequence[NamedFunction], Target, Ready, KernelCache], Code]] = {
    "llvm": MachineCode.compiled,
    "numba": PythonCode.compiled,
}


def compile_functions(
    functions: Sequence[PrimFunc], target: Target, background: BackgroundCompiler | None = None
) -> Code:
    """Compile ``functions``, one of which is ``main``; an equal model is compiled once in a process.

    Args:
        background: the compiler that may have compiled some of the functions already.

    Returns:
        code that can be shown and stored, and run if the target is this machine.

    Raises:
        CodegenError: the target is ``numba`` for another machine than this one, the only one that it compiles for.
    """
    if not target.is_runnable and target.kind != "llvm":
        raise CodegenError(f"{target.kind} compiles for this machine only, found the target {target}")
    named = [
        NamedFunction.of(function, target) if background is None else background.named(function)
        for function in functions
    ]
    ready: Ready = dict if background is None else background.kernels
    caches = process_caches()
    return caches.models.code(named, lambda: _GENERATORS[target.kind](named, target, ready, caches.kernels))
