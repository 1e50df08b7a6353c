"""Print a kernel at every stage of its compilation, with the origin of each line."""

from __future__ import annotations

import dataclasses

from tilewright.codegen.analysis import called_names
from tilewright.codegen.llvm.source_lines import trace_code
from tilewright.codegen.numba_ import trace_source
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.pipelines import readable_pipeline, schedule_pipeline
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.lower_model import LoweredFunction
from tilewright.runtime.observe.report.history import MOST_LINES, function_text
from tilewright.runtime.observe.report.source_lines import TRACED, SourceLines, kernel_lines, statement_sources
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.sources import tracing, with_sources
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: For each line of a text the numbers of the lines that it comes from.
Origins = list[list[int]]


@dataclasses.dataclass(frozen=True)
class KernelTexts:
    """The texts of a kernel by stage: ``tensor`` (its loops before scheduling), ``scheduled``, ``lowered``, ``numba``
    (the source for the target numba), and for the target llvm ``llvm`` and ``assembly``.

    Attributes:
        texts: the texts.
        origins: for each line of a text the numbers, from 0, of the lines of the stage before that it comes from; for
            ``tensor``, the numbers of the operators that the kernel computes. The stage before ``numba`` is ``tensor``.
    """

    texts: dict[str, str]
    origins: dict[str, Origins]


def kernel_texts(
    lowered: LoweredFunction, target: Target, settings: BuildSettings, lines: SourceLines
) -> dict[str, KernelTexts]:
    """Print each kernel of a function, by name.

    Args:
        lines: the sources of the lines of all stages, recorded while the function was lowered.
    """
    modules = lowered.modules
    with settings.context() as context, Target(target, num_threads=target.num_threads):
        readable = _readable(modules["tensor"], target, context)
    texts: dict[str, KernelTexts] = {}
    for key, function in modules["lowered"].functions.items():
        if key.name == "main" or not isinstance(function, PrimFunc):
            continue
        made = {"lowered": function_text(key, function)}
        for stage in ("tensor", "scheduled"):
            if key.name in modules[stage]:
                made[stage] = function_text(key, modules[stage][key.name])
        origins = {
            stage: [sorted(sources) for sources in lines.kernels[stage, key.name].sources]
            for stage in TRACED
            if stage in made
        }
        if key.name in readable:
            made["numba"], origins["numba"] = readable[key.name]
        if target.kind == "llvm" and not called_names(function.body):
            code = trace_code([function], target)
            made["llvm"], made["assembly"] = code.llvm_ir, code.assembly
            loops = lines.kernels["lowered", key.name].lines
            origins["llvm"] = [sorted(loops.get(stmt, ())) if stmt else [] for stmt in code.statements]
            begin = _blank_lines(code.llvm_ir)
            origins["assembly"] = [[] if line is None else [line - begin] for line in code.instructions]
        texts[key.name] = KernelTexts(
            {name: _cut(text) for name, text in made.items()},
            {name: found[_blank_lines(made[name]) :][:MOST_LINES] for name, found in origins.items()},
        )
    return texts


def _readable(mod: IRModule, target: Target, context: PassContext) -> dict[str, tuple[str, Origins]]:
    """Print the kernels of stage ``tensor`` as numba source, by name, with the lines that each line comes from."""
    numba = Target("numba", num_threads=target.num_threads)
    kernels = {key: func for key, func in mod.functions.items() if isinstance(func, PrimFunc)}
    lines = {key.name: kernel_lines(func) for key, func in kernels.items()}
    placed = IRModule({key: with_sources(func, lines[key.name].lines) for key, func in kernels.items()})
    with numba, tracing():
        made = readable_pipeline()(schedule_pipeline(numba)(placed, context), context)
    readable: dict[str, tuple[str, Origins]] = {}
    for key, function in made.functions.items():
        if not isinstance(function, PrimFunc) or called_names(function.body):
            continue
        try:
            source = trace_source([function])
        except CodegenError as error:
            readable[key.name] = f"# cannot be expressed in numba: {error}", []
            continue
        before = lines.get(key.name)
        found = {} if before is None else statement_sources(list(walk_statements(function.body)), before)
        origins: Origins = [sorted(found.get(stmt, ())) if stmt is not None else [] for stmt in source.statements]
        readable[key.name] = source.text, origins
    return readable


def _blank_lines(text: str) -> int:
    """Count the blank lines at the beginning, which texts are shown without."""
    return len(text) - len(text.lstrip("\n"))


def _cut(text: str) -> str:
    lines = text.strip("\n").splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"... {len(lines) - MOST_LINES} lines more"]
    return "\n".join(lines)
