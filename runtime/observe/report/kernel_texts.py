"""Print a kernel at every stage of its compilation."""

from __future__ import annotations

from tilewright.codegen.analysis import called_names
from tilewright.codegen.llvm import compile_module, emit_llvm_ir
from tilewright.codegen.numba_ import emit_source
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.pipelines import readable_pipeline, schedule_pipeline
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.lower_model import LoweredFunction
from tilewright.runtime.observe.report.history import MOST_LINES, function_text
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target


def kernel_texts(lowered: LoweredFunction, target: Target, settings: BuildSettings) -> dict[str, dict[str, str]]:
    """Print each kernel of a function: ``tensor`` (its loops before scheduling), ``scheduled``, ``lowered``, ``numba``
    (the source for the target numba), and for the target llvm ``llvm`` and ``assembly``."""
    modules = lowered.modules
    with settings.context() as context, Target(target, num_threads=target.num_threads):
        readable = _readable(modules["tensor"], target, context)
    texts: dict[str, dict[str, str]] = {}
    for key, function in modules["lowered"].functions.items():
        if key.name == "main" or not isinstance(function, PrimFunc):
            continue
        made = {"lowered": function_text(key, function)}
        for stage in ("tensor", "scheduled"):
            if key.name in modules[stage]:
                made[stage] = function_text(key, modules[stage][key.name])
        if key.name in readable:
            made["numba"] = readable[key.name]
        if target.kind == "llvm" and not called_names(function.body):
            made["llvm"] = emit_llvm_ir([function], target)
            made["assembly"] = compile_module([function], target).assembly
        texts[key.name] = {name: _cut(text) for name, text in made.items()}
    return texts


def _readable(mod: IRModule, target: Target, context: PassContext) -> dict[str, str]:
    """Print the kernels as numba source, by name, except those that cannot be expressed in it."""
    numba = Target("numba", num_threads=target.num_threads)
    kernels = IRModule({key: func for key, func in mod.functions.items() if isinstance(func, PrimFunc)})
    with numba:
        made = readable_pipeline()(schedule_pipeline(numba)(kernels, context), context)
    sources = {}
    for key, function in made.functions.items():
        if isinstance(function, PrimFunc) and not called_names(function.body):
            try:
                sources[key.name] = emit_source([function])
            except CodegenError as error:
                sources[key.name] = f"# cannot be expressed in numba: {error}"
    return sources


def _cut(text: str) -> str:
    lines = text.strip("\n").splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"... {len(lines) - MOST_LINES} lines more"]
    return "\n".join(lines)
