"""Run the compiled code of a model, profile it, show it as text, and return its object files."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.codegen import llvm as llvm_codegen
from tilewright.codegen import numba_ as numba_codegen
from tilewright.codegen.analysis import called_names, has_parallel_loop
from tilewright.codegen.llvm import team
from tilewright.codegen.llvm.compile import CompiledModule
from tilewright.codegen.threads import import_pool
from tilewright.passes.context import PassContext
from tilewright.runtime.address import data_address
from tilewright.runtime.kernel_cache import Kernel, KernelCache, NamedFunction
from tilewright.runtime.runners import python_runner, runner_of
from tilewright.runtime.steps import Array, Runner
from tilewright.tensorir.errors import ExecutionError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

if TYPE_CHECKING:
    from tilewright.codegen.numba_ import NumbaModule

#: Runs profiled code: like a ``Runner``, with an array of records as its last argument.
ProfiledRunner = Callable[[Sequence[Array], Sequence[Array], tuple[int, Array], int, Sequence[int], Array], None]

#: Waits for the kernels that are compiled in the background, and returns them by their functions.
Ready = Callable[[], Mapping[PrimFunc, Kernel]]


class Code(Protocol):
    """Compiled functions with one entry point, ``main``.

    Attributes:
        records_threads: whether a profile records the working time of each thread.
    """

    records_threads: bool

    def runner(self, num_values: int, constants: Sequence[Array]) -> Runner:
        """Return a runner of ``main``, which takes ``num_values`` values in total, with ``constants`` bound."""

    def profiled_runner(self, main: PrimFunc, num_values: int, constants: Sequence[Array]) -> ProfiledRunner:
        """Return a runner of ``main`` as transformed by the pass ``ProfileCalls``: it takes one more value, the
        records, between arena and sizes."""

    def seconds_per_tick(self) -> float:
        """Return the length of a tick of the clock in the records."""

    def vector_bits(self, kernel: str, of_loops: int) -> int:
        """Return the width in bits of the vectors that a kernel uses, where its loops are scheduled for vectors of
        ``of_loops`` bits; 0 if it uses none, or has not been compiled yet."""

    def stages(self, functions: Sequence[PrimFunc]) -> Mapping[str, Callable[[], str]]:
        """Return functions that make the generated code of ``functions`` as text, by stage name."""


@dataclasses.dataclass(frozen=True)
class ObjectCode:
    """Machine code as object files, which another process can link and run.

    Attributes:
        objects: object files; the last one defines ``main``, the others the kernels that it calls.
        symbols: for each of these kernels its name, the index of its file, and its symbol there.
    """

    objects: list[bytes]
    symbols: list[tuple[str, int, str]]


def separate_kernels(functions: Sequence[PrimFunc]) -> list[PrimFunc]:
    """Return those of ``functions`` that are compiled separately from ``main``: those that call no others and are
    called by ``main`` only."""
    calls = {function.name: called_names(function.body) for function in functions}
    inner = {name for caller, called in calls.items() if caller != "main" for name in called}
    return [
        function
        for function in functions
        if not (function.name == "main" or function.name in inner or calls[function.name])
    ]


class MachineCode:
    """Code of the target ``llvm``.

    Args:
        functions: the functions that were compiled; kernels found in a cache are represented by outlines.
        kernels: the kernels that may be shared with other models, by name.
        module: the other functions, with the entry point ``main``.
    """

    records_threads = True

    def __init__(
        self, functions: Sequence[PrimFunc], target: Target, kernels: Mapping[str, Kernel], module: CompiledModule
    ) -> None:
        self._target = target
        self._kernels = kernels  # keeps the kernels that main calls alive
        self._module = module
        self._own = [function for function in functions if function.name not in kernels]
        self._elsewhere = [function for function in functions if function.name in kernels]

    @classmethod
    def compiled(cls, named: Sequence[NamedFunction], target: Target, ready: Ready, cache: KernelCache) -> MachineCode:
        """Compile ``main``, and take its kernels from the background compiler or, where it lacks them, from
        ``cache``."""
        functions = [each.function for each in named]
        separate = set(separate_kernels(functions))
        shared = [each for each in named if each.function in separate]
        own = [function for function in functions if function not in separate]
        elsewhere = [each.function for each in shared]
        # The code of ``main`` holds no addresses of kernels, so it can be compiled while other threads compile these.
        module = llvm_codegen.compile_module(own, target, ("main",), elsewhere=elsewhere)
        known = ready()
        kernels = {each.function.name: known[each.function] for each in shared if each.function in known}
        missing = [each for each in shared if each.function not in known]
        if missing:
            with _threads_prepared(elsewhere if target.is_runnable else []):
                kernels |= cache.kernels(missing, target)
        # Code for another machine is not linked: addresses of this process mean nothing there.
        with PassContext.current().step("linking"):
            module.resolve({name: kernel.address if target.is_runnable else 0 for name, kernel in kernels.items()})
        return cls(functions, target, kernels, module)

    def runner(self, num_values: int, constants: Sequence[Array]) -> Runner:
        if not self._target.is_runnable:
            return refusing_runner(self._target)
        modules = [*(kernel.module for kernel in self._kernels.values()), self._module]
        return runner_of(modules, self._module.packed_address("main"), constants, num_values, self)

    def profiled_runner(self, main: PrimFunc, num_values: int, constants: Sequence[Array]) -> ProfiledRunner:
        if not self._target.is_runnable:
            raise ExecutionError(_not_runnable(self._target))
        modules = {kernel.module: kernel.module.for_profiling() for kernel in self._kernels.values()}
        addresses = {name: modules[kernel.module].address(kernel.symbol) for name, kernel in self._kernels.items()}
        own = [main if function.name == "main" else function for function in self._own]
        module = llvm_codegen.compile_module(own, self._target, ("main",), addresses, self._elsewhere)
        owner = (module, modules)
        entry = runner_of([*modules, module], module.packed_address("main"), constants, num_values + 1, owner)

        def run(
            inputs: Sequence[Array],
            outputs: Sequence[Array],
            arena: tuple[int, Array],
            arena_bytes: int,
            sizes: Sequence[int],
            records: Array,
        ) -> None:
            entry(inputs, outputs, arena, arena_bytes, (data_address(records), *sizes))

        return run

    def object_code(self) -> ObjectCode:
        """Return the code as object files."""
        places: dict[CompiledModule, int] = {}
        symbols = [
            (name, places.setdefault(kernel.module, len(places)), kernel.symbol)
            for name, kernel in self._kernels.items()
        ]
        return ObjectCode([module.object_bytes for module in (*places, self._module)], symbols)

    def seconds_per_tick(self) -> float:
        return team.seconds_per_tick()

    def vector_bits(self, kernel: str, of_loops: int) -> int:
        return min(of_loops, self._target.vector_bits)  # wider vectors take several instructions

    def stages(self, functions: Sequence[PrimFunc]) -> Mapping[str, Callable[[], str]]:
        # Show the whole model as one module, with the names that its kernels have in it.
        return {
            "llvm": lambda: llvm_codegen.emit_llvm_ir(functions, self._target, ("main",)),
            "assembly": lambda: llvm_codegen.compile_module(functions, self._target, ("main",)).assembly,
        }


def refusing_runner(target: Target) -> Runner:
    """Return a runner that raises an ExecutionError: code for ``target`` cannot run on this machine."""

    def run(*_: object) -> None:
        raise ExecutionError(_not_runnable(target))

    return run


def _not_runnable(target: Target) -> str:
    return (
        f"code for {target} cannot run on this machine, {Target('llvm').mcpu}; model.export(path) writes it for one "
        "that can, model.ir('assembly') shows it"
    )


@contextlib.contextmanager
def _threads_prepared(functions: Sequence[PrimFunc]) -> Iterator[None]:
    """Prepare the threads of parallel loops during the ``with`` block if ``functions`` have such loops: importing numba
    takes as long as LLVM, which releases the GIL."""
    if not any(has_parallel_loop(function.body) for function in functions):
        yield
        return
    with ThreadPoolExecutor(1, "tilewright-start") as starter:
        imported = starter.submit(import_pool)
        yield
        imported.result()


class PythonCode:
    """Code of the target ``numba``: Python functions, compiled when they are called."""

    records_threads = False

    def __init__(self, module: NumbaModule) -> None:
        self._module = module

    @classmethod
    def compiled(cls, named: Sequence[NamedFunction], target: Target, _: Ready, __: KernelCache) -> PythonCode:
        """Generate Python source. Nothing is compiled in the background, or shared with other models."""
        return cls(numba_codegen.compile_module([each.function for each in named], target))

    def runner(self, num_values: int, constants: Sequence[Array]) -> Runner:
        return python_runner(functools.partial(self._module.call, "main"), constants)

    def profiled_runner(self, main: PrimFunc, num_values: int, constants: Sequence[Array]) -> ProfiledRunner:
        module = self._module.with_function(main)
        entry = python_runner(functools.partial(module.call, "main"), constants)

        def run(
            inputs: Sequence[Array],
            outputs: Sequence[Array],
            arena: tuple[int, Array],
            arena_bytes: int,
            sizes: Sequence[Any],
            records: Array,
        ) -> None:
            entry(inputs, outputs, arena, arena_bytes, (records, *sizes))  # type: ignore[arg-type]  # before the sizes

        return run

    def seconds_per_tick(self) -> float:
        return 1e-9  # of Python's clock

    def vector_bits(self, kernel: str, of_loops: int) -> int:
        return self._module.vector_bits(kernel)

    def stages(self, functions: Sequence[PrimFunc]) -> Mapping[str, Callable[[], str]]:
        module = self._module
        return {"numba": lambda: str(module.source)}


#: The names of the texts that ``Code.stages`` makes, by the kind of the target.
_CODE_STAGES = {"llvm": ("llvm", "assembly"), "numba": ("numba",)}


def code_stages(target: Target) -> tuple[str, ...]:
    """Return the names of the texts of generated code for ``target``."""
    return _CODE_STAGES[target.kind]
