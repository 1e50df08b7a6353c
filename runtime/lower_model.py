"""Lower a graph to code: run the pipelines stage by stage, with kernels and constants computed in the background."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

from tilewright.graphir.expr import Constant, Function
from tilewright.graphir.module import IRModule
from tilewright.passes.build_config import BUILD
from tilewright.passes.context import PassContext
from tilewright.passes.environment import is_watched, session
from tilewright.passes.left_out import naming_left_out
from tilewright.passes.lower.kernel_calls import kernel_calls
from tilewright.passes.lower.linearize import model_constants
from tilewright.passes.pipelines import STAGES, graph_pipeline, kernel_pipeline, schedule_pipeline
from tilewright.passes.sequential import Sequential
from tilewright.passes.tensor.check_bounds import checks_bounds
from tilewright.runtime import build_cache
from tilewright.runtime.background_compile import BackgroundCompiler
from tilewright.runtime.background_constants import BackgroundConstants
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.compile_functions import compile_functions
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.generated_code import Code, MachineCode
from tilewright.runtime.kernel_supply import KernelSupply
from tilewright.runtime.loaded_code import LoadedCode
from tilewright.runtime.process_caches import process_caches
from tilewright.runtime.progress import Progress, progress
from tilewright.runtime.steps import Array, Runner
from tilewright.runtime.stored_function import KernelUse, StoredFunction
from tilewright.runtime.stored_kernels import KernelKeys
from tilewright.tensorir.cores import available_cores
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.keys import ARENA_BYTES
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class LoweredFunction:
    """A function of a model after each stage, and its code.

    Attributes:
        before: the modules after all of ``pipelines.STAGES`` but the last one, by the name of the stage.
        last: the module after the last stage; kernels found in a cache are represented by outlines.
        whole: replaces outlines in ``last`` by the kernels.
        code: the compiled code.
        constants: the constants of the optimized graph, in the order in which ``main`` takes them.
    """

    before: Mapping[str, IRModule]
    last: IRModule
    whole: Callable[[IRModule], IRModule]
    code: Code
    constants: Sequence[Constant]

    @functools.cached_property
    def modules(self) -> Mapping[str, IRModule]:
        """The modules after all of ``pipelines.STAGES``, by the name of the stage."""
        return {**self.before, "lowered": self.whole(self.last)}

    def code_stages(self) -> Mapping[str, Callable[[], str]]:
        """Return functions that make the generated code as text, by stage name."""
        return self.code.stages(prim_funcs(self.modules["lowered"]))

    @property
    def main(self) -> PrimFunc:
        """The entry point."""
        main = self.last["main"]
        assert isinstance(main, PrimFunc)
        return main

    def runner(self) -> Runner:
        """Return a runner of the code, with the constants bound."""
        with PassContext.current().step("linking"):
            return self.code.runner(len(self.main.params), self.values())

    def values(self) -> list[Array]:
        """Return the values of the constants."""
        return [constant.data for constant in self.constants]

    def stored(self) -> StoredFunction:
        """Return the compiled function as data.

        Raises:
            CodegenError: the code is Python source, not machine code.
        """
        if not isinstance(self.code, MachineCode):
            raise CodegenError("only machine code, of the target llvm, can be kept; this is Python source")
        return StoredFunction(
            self.code.object_code(),
            self.values(),
            self.main.attrs[ARENA_BYTES],
            len(self.main.params),
            [KernelUse(call.kernel, call.origins) for call in kernel_calls(self.last)],
        )


def lower(
    mod: IRModule,
    target: Target,
    after: Mapping[str, Sequential],
    loaded: LoadedCode | None = None,
    cache: DiskCache | None = None,
    behind: contextlib.ExitStack | None = None,
    between: Callable[[str, IRModule], IRModule] | None = None,
) -> tuple[LoweredFunction, Function]:
    """Run the passes on ``mod`` and compile it.

    Args:
        after: the user's passes after each stage, by the name of the stage.
        loaded: the code, if it exists already; then nothing is compiled.
        cache: the cache in which kernels are looked up.
        behind: exit stack whose callbacks write new kernels to ``cache`` when it is closed, after the build.
        between: gets the module after each stage and returns one that is equal but for the sources of its statements.

    Returns:
        the lowered function, and ``main`` as the last pass over graphs left it.

    Raises:
        CodegenError: the model cannot be expressed on the target, or a pass was left out that is needed to.
    """
    context = PassContext.current()
    modules: dict[str, IRModule] = {}
    naming = naming_left_out(context, target)
    with session(), naming, target, BackgroundCompiler(target) as background, BackgroundConstants() as values:
        shown = progress()
        supply = _kernel_supply(context, target, after, cache, background if loaded is None else None, shown)
        graph = mod

        def compile_some(functions: Sequence[PrimFunc]) -> None:
            background.add(functions)
            shown.done(len(functions))

        for stage, pipeline in STAGES.items():
            takes_kernels = pipeline is kernel_pipeline and (loaded is None or supply is not None)
            passes = kernel_pipeline(target, compile_some, supply) if takes_kernels else pipeline(target)
            shown.stage(stage)
            if pipeline is schedule_pipeline and loaded is None:
                background.expect(prim_funcs(mod))
                if supply is not None:
                    supply.expect(len(prim_funcs(mod)))
            if pipeline is kernel_pipeline:
                shown.kernels(len(prim_funcs(mod)))
            mod = passes(mod, context)
            mod = after[stage](mod, context) if stage in after else mod
            mod = between(stage, mod) if between is not None else mod
            modules[stage] = mod
            if pipeline is graph_pipeline and loaded is None:
                values.start(constants_of(mod))
            if isinstance(mod["main"], Function):
                graph = mod
        function = graph["main"]
        assert isinstance(function, Function)
        last = modules.pop("lowered")
        if not isinstance(last["main"], PrimFunc):
            raise CodegenError("main is no loop-level function after the last stage")
        shown.stage("code")
        functions = prim_funcs(last)
        with context.step("code generation"):
            code = compile_functions(functions, target, background) if loaded is None else loaded.of(functions)
        if supply is not None and loaded is None:
            work = supply.keep(background.kernels())
            if work is not None and cache is not None and behind is not None:
                behind.callback(cache.later, work)
        values.finish()
        whole = supply.whole if supply is not None else _as_it_is
        return LoweredFunction(modules, last, whole, code, constants_of(graph)), function


def _kernel_supply(
    context: PassContext,
    target: Target,
    after: Mapping[str, Sequential],
    cache: DiskCache | None,
    background: BackgroundCompiler | None,
    shown: Progress,
) -> KernelSupply | None:
    """Make the supply of kernels; None where the passes must run on whole modules, because the user observes or adds
    passes."""
    if after or target.kind != "llvm" or is_watched(context):
        return None
    # Without a version nothing is looked up or stored: keys only distinguish the kernels of this build.
    version = build_cache.source_version() if cache is not None else None
    # Kernels that check their accesses name themselves, and their buffers, in what they report.
    names = checks_bounds(context)
    keys = KernelKeys(version or "", build_cache.settings_text(target, context), with_names=names)
    memory = process_caches().lowered if version is not None else None
    disk = cache if version is not None else None
    workers = context.get_config(BUILD).workers
    if workers is None:
        workers = min(target.num_threads, available_cores())
    settings = BuildSettings.of(context)
    return KernelSupply(target, keys, memory, disk, background, settings.context, shown, workers)


def _as_it_is(mod: IRModule) -> IRModule:
    return mod


def prim_funcs(mod: IRModule) -> list[PrimFunc]:
    """List the loop-level functions of ``mod``."""
    return [function for function in mod.functions.values() if isinstance(function, PrimFunc)]


def constants_of(mod: IRModule) -> list[Constant]:
    """List the constants of the graph ``mod``, in the order in which the lowered ``main`` takes them."""
    function = mod["main"]
    assert isinstance(function, Function)
    return model_constants(function, mod)
