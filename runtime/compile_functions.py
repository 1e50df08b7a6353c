"""From lowered functions to code that runs. Equal models for equal targets are compiled once in a process, and so are
equal kernels of different models.

LLVM lets other threads run Python: kernels are compiled while passes make the next ones (:class:`Ahead`), by as many
threads as the passes leave cores. Each is a module of its own, which takes a fifteenth longer than four together: so
its object code can be kept, and belong to several models.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from tilewright.codegen import llvm as llvm_codegen
from tilewright.codegen import numba_ as numba_codegen
from tilewright.codegen.analysis import called_names, has_parallel_loop
from tilewright.codegen.llvm import team
from tilewright.codegen.llvm.compile import CompiledModule
from tilewright.codegen.threads import ensure_threads
from tilewright.passes.context import PassContext
from tilewright.passes.tensor.parallelize_loop import ParallelizeLoopConfig
from tilewright.runtime.address import data_address
from tilewright.runtime.frames import with_room
from tilewright.runtime.made_kernels import KernelMemory
from tilewright.runtime.runners import MachineCodeRunner, python_runner
from tilewright.runtime.steps import Array, Runner
from tilewright.runtime.turns import short_turns
from tilewright.tensorir.cores import available_cores
from tilewright.tensorir.costs import stores
from tilewright.tensorir.dtype import FLOAT32
from tilewright.tensorir.errors import CodegenError, ExecutionError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.structural import structural_equal, structural_hash
from tilewright.tensorir.target import Target

_LOG = logging.getLogger("tilewright.cache")

#: How many compiled models and kernels a process keeps for what is built later.
_KEPT_MODELS = 64
_KEPT_KERNELS = 1024

#: So many threads compile ahead at most: passes are made by one, and take as long as LLVM or longer.
_MOST_THREADS = 3

#: The name that every kernel has in the cache, where its own does not matter.
_ANY_NAME = "kernel"

#: Functions are hashed by so many of their nodes: what comes out equal is compared in full.
_HASHED_NODES = 200

#: The target that a function is compiled for, and the hash of what it computes; different functions may share it.
Key = tuple[Target, int]


class Code(Protocol):
    """Compiled functions, with one entry point ``main``.

    Attributes:
        records_threads: whether a profile says how long each thread worked.
    """

    records_threads: bool

    def runner(self, num_values: int, constants: Sequence[Array]) -> Runner:
        """What runs ``main``, which takes that many values in all, with these constants."""

    def profiled_runner(self, main: PrimFunc, num_values: int, constants: Sequence[Array]) -> ProfiledRunner:
        """The same with ``main`` as the pass ``ProfileCalls`` makes it, which takes one value more,
        between arena and sizes."""

    def seconds_per_tick(self) -> float:
        """How long a tick of the records is that profiled code writes."""

    def vector_bits(self, kernel: str, of_loops: int) -> int:
        """The width of the vectors that a kernel uses, whose loops are written for vectors of ``of_loops`` bits; 0 if
        it has none, or has not been compiled so far."""

    def stages(self, functions: Sequence[PrimFunc]) -> Mapping[str, Callable[[], str]]:
        """The generated code as text, by stage name; ``functions`` are what it was made of."""


#: Waits for kernels that are compiled already, and gives them by their functions.
Ready = Callable[[], Mapping[PrimFunc, "Kernel"]]

#: Runs code that is profiled: as a ``Runner``, and with an array of records.
ProfiledRunner = Callable[[Sequence[Array], Sequence[Array], tuple[int, Array], int, Sequence[int], Array], None]


@dataclasses.dataclass(frozen=True)
class Named:
    """A function of a model: what it computes, whatever its name (``unnamed``), and a key for that."""

    function: PrimFunc
    unnamed: PrimFunc
    key: Key

    @classmethod
    def of(cls, function: PrimFunc, target: Target, known_hash: int | None = None) -> Named:
        """``function`` with its key.

        Args:
            known_hash: a number that functions share which are equal up to names, if there is one; it may be that of
                what they were made from.
        """
        unnamed = PrimFunc(_ANY_NAME, function.params, function.body, function.attrs)
        found = structural_hash(unnamed, _HASHED_NODES) if known_hash is None else known_hash
        return cls(function, unnamed, (target, found))


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its function under the name that all have, and the module that holds it as ``symbol``."""

    unnamed: PrimFunc
    symbol: str
    module: CompiledModule

    @property
    def address(self) -> int:
        """Of the machine code; valid as long as the module lives."""
        return self.module.address(self.symbol)


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A kernel of the cache, which some thread may still compile."""

    unnamed: PrimFunc
    kernel: Future[Kernel]


class KernelCache:
    """Compiled kernels by what they compute; their names do not matter. Several threads may use it: what one of them
    compiles the others wait for."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._kernels: collections.OrderedDict[Key, _Entry] = collections.OrderedDict()

    def kernels(self, functions: Sequence[Named], target: Target) -> dict[str, Kernel]:
        """The kernel of each of ``functions``, none of which calls others, by name. New ones are compiled.

        Raises:
            CodegenError: a function cannot be expressed.
        """
        found: dict[str, _Entry] = {}
        missing: dict[Key, tuple[Named, _Entry]] = {}
        with self._lock:
            for named in functions:
                key = named.key
                known = self._kernels.get(key)
                while known is not None and not structural_equal(known.unnamed, named.unnamed):
                    key = (target, key[1] + 1)  # a hash that two functions share: take the next
                    known = self._kernels.get(key)
                if known is None:
                    known = self._kernels[key] = _Entry(named.unnamed, Future())
                    missing[key] = named, known
                self._kernels.move_to_end(key)
                found[named.function.name] = known
            while len(self._kernels) > self._capacity:
                self._kernels.popitem(last=False)
        try:
            for named, entry in missing.values():
                module = llvm_codegen.compile_module([named.function], target, packed=False)
                entry.kernel.set_result(Kernel(named.unnamed, named.function.name, module))
        except BaseException as error:
            self._give_up(missing, error)
            raise
        if len(missing) < len(found):
            _LOG.debug("in memory: the code of %d of %d kernels", len(found) - len(missing), len(found))
        # Waits for other threads only now, which may wait for what this one has compiled.
        return {name: entry.kernel.result() for name, entry in found.items()}

    def _give_up(self, missing: Mapping[Key, tuple[Named, _Entry]], error: BaseException) -> None:
        """Nobody is to wait for the kernels of ``missing`` that are not there, or to find them."""
        with self._lock:
            for key, (_, entry) in missing.items():
                if not entry.kernel.done():
                    entry.kernel.set_exception(error)
                    if self._kernels.get(key) is entry:
                        del self._kernels[key]


@dataclasses.dataclass(frozen=True)
class ObjectCode:
    """Machine code that can be kept: linked anew, it runs in another process.

    Attributes:
        objects: object files; the last one holds ``main``, the others what it calls.
        symbols: for each kernel in the others its name, the place of its file, and its name there.
    """

    objects: list[bytes]
    symbols: list[tuple[str, int, str]]


def _apart(functions: Sequence[PrimFunc]) -> list[PrimFunc]:
    """Those of ``functions`` that are compiled apart from ``main``. What calls others, or is called by others than
    ``main``, stays together with it."""
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
        functions: what it was compiled of; outlines of those that were found in the cache.
        kernels: those of them that may be shared with other models, by name.
        module: the others, with the entry ``main``.
    """

    records_threads = True

    def __init__(
        self, functions: Sequence[PrimFunc], target: Target, kernels: Mapping[str, Kernel], module: CompiledModule
    ) -> None:
        self._target = target
        self._kernels = kernels  # all that main may jump to, kept alive as long as it may
        self._module = module
        self._own = [function for function in functions if function.name not in kernels]
        self._elsewhere = [function for function in functions if function.name in kernels]

    @classmethod
    def compiled(cls, named: Sequence[Named], target: Target, ready: Ready) -> MachineCode:
        """The code of functions of which some are compiled already, or just now."""
        functions = [each.function for each in named]
        apart = set(_apart(functions))
        shared = [each for each in named if each.function in apart]
        own = [function for function in functions if function not in apart]
        elsewhere = [each.function for each in shared]
        # The addresses of kernels are not in the code of ``main``: it is made while other threads are at the kernels.
        module = llvm_codegen.compile_module(own, target, ("main",), elsewhere=elsewhere)
        known = ready()
        kernels = {each.function.name: known[each.function] for each in shared if each.function in known}
        missing = [each for each in shared if each.function not in known]
        if missing:
            with _threads_starting(elsewhere if target.is_runnable else []):
                kernels |= _kernels.kernels(missing, target)
        # What cannot run here is not linked: its addresses mean nothing.
        module.resolve({name: kernel.address if target.is_runnable else 0 for name, kernel in kernels.items()})
        return cls(functions, target, kernels, module)

    def runner(self, num_values: int, constants: Sequence[Array]) -> Runner:
        if not self._target.is_runnable:
            return _refusing_runner(self._target)
        return MachineCodeRunner(self._module.packed_address("main"), constants, num_values, owner=self)

    def profiled_runner(self, main: PrimFunc, num_values: int, constants: Sequence[Array]) -> ProfiledRunner:
        if not self._target.is_runnable:
            raise ExecutionError(_not_here(self._target))
        modules = {kernel.module: kernel.module.for_profiling() for kernel in self._kernels.values()}
        addresses = {name: modules[kernel.module].address(kernel.symbol) for name, kernel in self._kernels.items()}
        own = [main if function.name == "main" else function for function in self._own]
        module = llvm_codegen.compile_module(own, self._target, ("main",), addresses, self._elsewhere)
        owner = (module, modules)
        entry = MachineCodeRunner(module.packed_address("main"), constants, num_values + 1, owner)

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
        """The code to be kept."""
        places: dict[CompiledModule, int] = {}
        symbols = [
            (name, places.setdefault(kernel.module, len(places)), kernel.symbol)
            for name, kernel in self._kernels.items()
        ]
        return ObjectCode([module.object_bytes for module in (*places, self._module)], symbols)

    def seconds_per_tick(self) -> float:
        return team.seconds_per_tick()

    def vector_bits(self, kernel: str, of_loops: int) -> int:
        return min(of_loops, self._target.vector_bits)  # what is wider takes several instructions

    def stages(self, functions: Sequence[PrimFunc]) -> Mapping[str, Callable[[], str]]:
        # The whole model as one module, with the names that its kernels have in it.
        return {
            "llvm": lambda: llvm_codegen.emit_llvm_ir(functions, self._target, ("main",)),
            "assembly": lambda: llvm_codegen.compile_module(functions, self._target, ("main",)).assembly,
        }


class LoadedCode:
    """Machine code that was kept."""

    def __init__(self, code: ObjectCode, target: Target) -> None:
        *others, main = code.objects
        self._target = target
        self._modules = [CompiledModule.from_object(content, target) for content in others]
        self._symbols = list(code.symbols)
        addresses = {
            name: self._modules[place].address(symbol) if target.is_runnable else 0
            for name, place, symbol in code.symbols
        }
        self._main = CompiledModule.from_object(main, target, addresses)

    def runner(self, num_values: int, constants: Sequence[Array]) -> Runner:
        """What runs ``main``, which takes that many values in all, with these constants."""
        if not self._target.is_runnable:
            return _refusing_runner(self._target)
        return MachineCodeRunner(self._main.packed_address("main"), constants, num_values, owner=self)

    def of(self, functions: Sequence[PrimFunc]) -> Code:
        """The code as that of ``functions``, of which the same passes have made it in an earlier program. (If their
        names are others, nobody knows what has happened: they are compiled.)"""
        names = {name for name, _, _ in self._symbols}
        if names != {function.name for function in _apart(functions)}:
            return compile_functions(functions, self._target)
        by_name = {function.name: function for function in functions}
        kernels = {
            name: Kernel(Named.of(by_name[name], self._target).unnamed, symbol, self._modules[place])
            for name, place, symbol in self._symbols
        }
        return MachineCode(functions, self._target, kernels, self._main)


def _not_here(target: Target) -> str:
    return (
        f"code for {target} cannot run on this machine, {Target('llvm').mcpu}; model.export(path) writes it for one "
        "that can, model.ir('assembly') shows it"
    )


def _refusing_runner(target: Target) -> Runner:
    """Stands for code of another machine."""

    def run(*_: object) -> None:
        raise ExecutionError(_not_here(target))

    return run


@contextlib.contextmanager
def _threads_starting(functions: Sequence[PrimFunc]) -> Iterator[None]:
    """The threads of parallel loops start meanwhile, if ``functions`` have such loops: numba's import takes as long as
    LLVM, which lets other threads run."""
    if not any(has_parallel_loop(function.body) for function in functions):
        yield
        return
    with ThreadPoolExecutor(1, "tilewright-start") as starter:
        started = starter.submit(ensure_threads)
        yield
        started.result()


class PythonCode:
    """Code of the target ``numba``."""

    records_threads = False

    def __init__(self, functions: Sequence[Named], target: Target, ready: Ready) -> None:
        self._module = numba_codegen.compile_module([named.function for named in functions], target)

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


_GENERATORS: dict[str, Callable[[Sequence[Named], Target, Ready], Code]] = {
    "llvm": MachineCode.compiled,
    "numba": PythonCode,
}

#: The names of the texts that ``Code.stages`` gives, by the kind of the target.
_CODE_STAGES = {"llvm": ("llvm", "assembly"), "numba": ("numba",)}


def code_stages(target: Target) -> tuple[str, ...]:
    """The names of the texts of generated code for ``target``."""
    return _CODE_STAGES[target.kind]


_kernels = KernelCache(_KEPT_KERNELS)
_memory = KernelMemory(_KEPT_KERNELS)
_models: collections.OrderedDict[tuple[tuple[str, Key], ...], tuple[Sequence[Named], Code]] = collections.OrderedDict()
_lock = threading.Lock()


@contextlib.contextmanager
def fresh_caches() -> Iterator[None]:
    """Inside the ``with`` block nothing that this process has compiled before is found, and nothing is kept for later:
    to see what a first build takes. (Other threads that build meanwhile share that.)"""
    global _kernels, _memory, _models
    with _lock:
        before = _kernels, _memory, _models
        _kernels, _memory = KernelCache(_KEPT_KERNELS), KernelMemory(_KEPT_KERNELS)
        _models = collections.OrderedDict()
    try:
        yield
    finally:
        with _lock:
            _kernels, _memory, _models = before


def kernel_memory() -> KernelMemory:
    """The kernels that this process has made or found, by what was scheduled."""
    return _memory


class Ahead:
    """Compiles kernels in threads of its own while passes make the next ones. As a context it waits for the threads.

    Attributes:
        seconds: how long the threads have worked.
    """

    def __init__(self, target: Target) -> None:
        self.seconds = 0.0
        self._target = target
        self._named: dict[PrimFunc, Named] = {}
        self._given: dict[PrimFunc, Kernel | PrimFunc] = {}
        self._parts: list[tuple[Sequence[Named], Future[dict[str, Kernel]]]] = []
        self._lock = threading.Lock()
        # Passes keep a core busy, and LLVM takes about as long as they do.
        cores = available_cores()
        count = max(1, min(cores - 1, _MOST_THREADS))
        self._helps = cores > 1  # on one core it would only need a target machine and memory of its own
        self._workers = ThreadPoolExecutor(count, "tilewright-llvm")
        self._starter: ThreadPoolExecutor | None = None
        self._started: Future[object] | None = None
        self._turns = contextlib.ExitStack()

    def expect(self, functions: Sequence[PrimFunc]) -> None:
        """``functions`` are about to be scheduled. If one of them stores so much that its loops will be parallel, the
        threads that run such loops start now: scheduling leaves a core idle, LLVM won't."""
        if self._target.kind == "llvm" and self._target.num_threads > 1:
            config: ParallelizeLoopConfig = PassContext.current().get_config("tensorir.ParallelizeLoop")
            work = config.min_work * self._target.lanes(FLOAT32)  # a vector is one operation
            if any(stores(function.body, work) >= work for function in functions):
                self._start_threads()

    def _start_threads(self) -> None:
        # In a thread of their own: numba's import takes as long as LLVM does for a small model.
        if self._started is None and self._target.is_runnable:
            self._starter = ThreadPoolExecutor(1, "tilewright-start")
            self._started = self._starter.submit(team.team_functions)

    def add(self, functions: Sequence[PrimFunc], known_hash: int | None = None) -> None:
        """Compile those of ``functions`` that call no others (those stay together with what they call).

        Args:
            known_hash: that of the only one; see :meth:`Named.of`.
        """
        alone = [function for function in functions if not called_names(function.body)]
        if self._target.kind == "llvm" and alone:
            named = [Named.of(function, self._target, known_hash) for function in alone]
            self._named.update(zip(alone, named, strict=True))
            self._parts.append((named, self._workers.submit(with_room, self._compile, named)))
            if self._started is None and any(has_parallel_loop(function.body) for function in alone):
                self._start_threads()

    def give(self, function: PrimFunc, kernel: Kernel | PrimFunc) -> None:
        """The code of ``function`` is known: this, or that of another one, which is added."""
        self._given[function] = kernel

    def _compile(self, named: Sequence[Named]) -> dict[str, Kernel]:
        begin = time.thread_time()
        made = _kernels.kernels(named, self._target)
        if self._target.is_runnable and (self._started is None or self._started.done()):
            for kernel in made.values():
                kernel.module.address(kernel.symbol)  # links it
        with self._lock:
            self.seconds += time.thread_time() - begin
        return made

    def named(self, function: PrimFunc) -> Named:
        """``function`` with its key."""
        return self._named.get(function) or Named.of(function, self._target)

    def kernels(self) -> dict[PrimFunc, Kernel]:
        """What was compiled, by the function. Where there are cores, kernels that no
        thread has begun this one compiles, from the last one on.

        Raises:
            CodegenError: a function cannot be expressed.
            RuntimeError: there are parallel loops, and no threads start.
        """
        for place in reversed(range(len(self._parts))):
            named, part = self._parts[place]
            if self._helps and part.cancel():
                part = Future()
                part.set_result(self._compile(named))
                self._parts[place] = named, part
        made = {each.function: part.result()[each.function.name] for named, part in self._parts for each in named}
        for function, kernel in self._given.items():
            made[function] = made[kernel] if isinstance(kernel, PrimFunc) else kernel
        if self._started is not None:
            self._started.result()
        return made

    def __enter__(self) -> Ahead:
        self._turns.enter_context(short_turns())
        return self

    def __exit__(self, *_: object) -> None:
        with self._turns:
            self._workers.shutdown(cancel_futures=True)
            if self._starter is not None:
                self._starter.shutdown()


def compile_functions(functions: Sequence[PrimFunc], target: Target, ahead: Ahead | None = None) -> Code:
    """Code for ``functions``, one of which is ``main``; from memory if equal ones were compiled before.

    Args:
        ahead: what has compiled some of them already.

    Returns:
        code that can be read and kept, and run if the target is this machine.

    Raises:
        CodegenError: the target is ``numba``, which compiles for this machine only, on another one.
    """
    if not target.is_runnable and target.kind != "llvm":
        raise CodegenError(f"{target.kind} compiles for this machine only, found the target {target}")
    named = [Named.of(function, target) if ahead is None else ahead.named(function) for function in functions]
    ready: Ready = dict if ahead is None else ahead.kernels
    key = tuple((each.function.name, each.key) for each in named)
    with _lock:  # held while compiling: another thread that builds the same model waits for this one's code
        found = _models.get(key)
        if found is not None and all(
            structural_equal(a.unnamed, b.unnamed) for a, b in zip(found[0], named, strict=True)
        ):
            _models.move_to_end(key)
            _LOG.debug("hit: an equal model is in memory")
            return found[1]
        made = _GENERATORS[target.kind](named, target, ready)
        _models[key] = (named, made)
        while len(_models) > _KEPT_MODELS:
            _models.popitem(last=False)
        return made
