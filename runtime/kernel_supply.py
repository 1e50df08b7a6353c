"""Supply a build with its kernels, each distinct one once: from memory, disk, worker processes or the passes.

A kernel that is found in a cache is represented in the lowered module by an outline (``codegen.forks``), which suffices
to plan memory and to compile ``main``. To show the module, :meth:`KernelSupply.whole` inserts the lowered functions:
those that were stored or, where names differ, those that the passes make again.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future

from tilewright.codegen.analysis import called_names
from tilewright.codegen.forks import outline
from tilewright.codegen.llvm.compile import CompiledModule
from tilewright.graphir.expr import Function, GlobalVar
from tilewright.graphir.module import IRModule
from tilewright.passes.context import RUNNING, PassContext
from tilewright.passes.diagnostics import Remark
from tilewright.passes.tensor.part_by_part import RunPart
from tilewright.passes.tensor.pipeline import tensor_pipeline
from tilewright.runtime.background_compile import BackgroundCompiler
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.kernel_cache import Kernel
from tilewright.runtime.progress import Progress
from tilewright.runtime.stored_kernels import (
    KernelKeys,
    KernelMemory,
    LinkedKernel,
    StoredKernel,
    decode_for,
    load_kernel,
    renamed_remarks,
    store_kernel,
)
from tilewright.runtime.worker import answer_request, decode_answer, encode_request
from tilewright.runtime.worker_pool import WorkerEstimate, can_start, pool, start_ahead
from tilewright.tensorir.encoding import Encoded, encode
from tilewright.tensorir.errors import EncodingError
from tilewright.tensorir.keys import KIND
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

_LOG = logging.getLogger("tilewright.cache")


@dataclasses.dataclass(frozen=True)
class ScheduledKernel:
    """A scheduled kernel of a module.

    Attributes:
        encoded: the kernel as text; None if it contains something that cannot be encoded.
        key: a digest of everything that the kernel depends on.
    """

    name: GlobalVar
    function: PrimFunc
    encoded: Encoded | None
    key: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kernel's variables and buffers, and its own."""
        return self.encoded.names if self.encoded is not None else (self.name.name,)

    @property
    def size(self) -> int:
        """The length of the text, in characters, to which the passes' work is proportional."""
        return len(self.encoded.records) if self.encoded is not None else 0

    @property
    def hash(self) -> int | None:
        """The hash of the text. It is also used for the lowered kernel: hashing that would make the passes a twentieth
        slower."""
        return int(self.encoded.digest()[:16], 16) if self.encoded is not None else None


@dataclasses.dataclass(frozen=True)
class FreshKernel:
    """A kernel that the passes have made in this build."""

    wanted: ScheduledKernel
    lowered: PrimFunc
    remarks: tuple[Remark, ...]


class KernelSupply:
    """The kernels of one build, for :class:`~tilewright.passes.tensor.part_by_part.PartByPart`.

    Args:
        keys: computes the keys of kernels.
        memory: the kernels of this process; None: kernels are neither looked up nor kept in memory.
        disk: the folder of kernels; None: they are neither looked up nor kept on disk.
        background: compiles kernels in the background; None: the code exists already.
        context: makes a new context with the settings of the build.
        progress: counts the kernels that are lowered.
        workers: the maximum number of processes that compile kernels, this one included, or an executor for them.
    """

    def __init__(
        self,
        target: Target,
        keys: KernelKeys,
        memory: KernelMemory | None,
        disk: DiskCache | None,
        background: BackgroundCompiler | None,
        context: Callable[[], PassContext],
        progress: Progress,
        workers: int | Executor,
    ) -> None:
        self._target, self._keys, self._memory, self._disk = target, keys, memory, disk
        self._pipeline = tensor_pipeline(target)
        self._background, self._context, self._progress = background, context, progress
        self._cores = workers if isinstance(workers, int) else 1
        self._executor = None if isinstance(workers, int) else workers
        #: The number of worker processes that were started for kernels expected later.
        self._processes = 0
        self._fresh: dict[str, FreshKernel] = {}
        #: Kernels that were found in a cache, or that worker processes have compiled.
        self._ready: dict[str, LinkedKernel] = {}
        #: Kernels that were lowered, here or in worker processes, and will be written to disk.
        self._unwritten: dict[str, LinkedKernel] = {}
        #: Functions that return the lowered kernels, by the outlines that represent them.
        self._stand_for: dict[PrimFunc, Callable[[], PrimFunc]] = {}

    def expect(self, kernels: int) -> None:
        """Start worker processes for kernels that are about to be scheduled, where that saves time."""
        if self._background is not None:
            self._processes = start_ahead(kernels, self._cores)

    def __call__(
        self, kernels: Mapping[GlobalVar, PrimFunc], run: RunPart, ctx: PassContext
    ) -> Mapping[GlobalVar, PrimFunc]:
        """Return the lowered kernels, or outlines of those that were found in a cache; see ``part_by_part.Supply``."""
        if any(called_names(function.body) for function in kernels.values()):
            # Kernels that call each other are compiled together.
            made = self._run(IRModule(dict(kernels)), run, ctx)
            if self._background is not None:
                self._background.add(list(made.values()))
            return dict(made)
        wanted = [self._with_key(name, function) for name, function in kernels.items()]
        places = {"in memory": 0, "on disk": 0}
        missing: dict[str, ScheduledKernel] = {}
        for each in wanted:
            if each.key not in self._ready and each.key not in missing:
                known, where = self._look_up(each.key)
                if known is None:
                    missing[each.key] = each
                    continue
                self._ready[each.key] = known
                places[where] += 1
                self._progress.done(found=True)
        if places["in memory"] or places["on disk"]:
            told = ", ".join(f"{where}: {count}" for where, count in places.items() if count)
            _LOG.debug("found in the cache: %d of %d kernels (%s)", sum(places.values()), len(wanted), told)
        try:
            self._make_all(list(missing.values()), run)
        except Exception:
            for each in wanted:  # repeat the remarks that come before the kernel that failed
                if each.key not in self._ready and each.key not in self._fresh:
                    break
                self._resolve(each, ctx)
            raise
        return {each.name: self._resolve(each, ctx) for each in wanted}

    def _with_key(self, name: GlobalVar, function: PrimFunc) -> ScheduledKernel:
        """Compute the key of a kernel."""
        try:
            encoded = encode(function)
        except EncodingError as error:
            _LOG.debug("kernel %s is not looked up: %s", name.name, error)
            return ScheduledKernel(name, function, None, f"@{name.name}")
        return ScheduledKernel(name, function, encoded, self._keys.key(encoded))

    def _resolve(self, wanted: ScheduledKernel, ctx: PassContext) -> PrimFunc:
        """Wait for a kernel and return it or its outline, and repeat its remarks. Calls are in the order of the
        module."""
        known, fresh = self._ready.get(wanted.key), self._fresh.get(wanted.key)
        if known is not None:
            return self._outline_of_found(wanted, known, ctx)
        assert fresh is not None
        if fresh.wanted is not wanted:
            return self._outline_of_equal(wanted, fresh, ctx)
        ctx.repeat(fresh.remarks)
        return fresh.lowered

    def _make_all(self, wanted: Sequence[ScheduledKernel], run: RunPart) -> None:
        """Lower kernels, here and, where that saves time or an executor was given, in worker processes, which begin
        with the last one."""
        shared = self._executor is not None or self._processes > 0
        wanted = _for_processes(wanted) if shared else _for_threads(wanted)
        estimate = WorkerEstimate(self._cores)
        answers: dict[str, Future[bytes]] = {}
        size = sum(each.size for each in wanted)
        try:
            if self._executor is not None:
                executor = self._executor
                answers = self._request(wanted, lambda request: executor.submit(answer_request, request))
            elif self._processes:
                answers = self._request_from_processes(wanted[1:], self._processes)
            left = collections.deque(wanted)
            while left:
                each = left.popleft()
                size -= each.size
                if each.key in answers and not answers[each.key].cancel():
                    continue
                begin = time.thread_time()
                self._make(each, run)
                estimate.made(each.size, time.thread_time() - begin)
                count = 0 if answers or self._background is None else estimate.processes(size, self._background.seconds)
                if count and can_start():
                    left = collections.deque(_for_processes(left))
                    answers = self._request_from_processes(left, count)
            for each in wanted:
                if each.key not in self._fresh and not self._take_answer(each, answers[each.key]):
                    self._make(each, run)
        finally:
            for answer in answers.values():
                answer.cancel()

    def _request_from_processes(self, wanted: Collection[ScheduledKernel], count: int) -> dict[str, Future[bytes]]:
        """Request kernels from ``count`` worker processes."""
        answers = self._request(wanted, pool(count).submit)
        _LOG.debug("requested %d kernels of workers: %d processes in all", len(answers), count + 1)
        return answers

    def _request(
        self, wanted: Collection[ScheduledKernel], submit: Callable[[bytes], Future[bytes]]
    ) -> dict[str, Future[bytes]]:
        """Request kernels, the last one first; this process lowers them from the first one on."""
        answers: dict[str, Future[bytes]] = {}
        with self._context() as context:
            for each in reversed([*wanted]):
                request = encode_request(each.encoded, self._target, context) if each.encoded is not None else None
                if request is not None:
                    answers[each.key] = submit(request)
        return answers

    def _take_answer(self, wanted: ScheduledKernel, answer: Future[bytes]) -> bool:
        """Take over a kernel from another process; return whether it succeeded."""
        try:
            made = decode_answer(answer.result())
        except Exception as error:
            _LOG.debug("kernel %s is made here: %s", wanted.name.name, error)
            return False
        known = LinkedKernel(made, CompiledModule.from_object(made.code, self._target))
        self._ready[wanted.key] = known
        self._remember(wanted.key, known)
        self._progress.done()
        return True

    def _look_up(self, key: str) -> tuple[LinkedKernel | None, str]:
        """Find a kernel by its key; return it and where it was found."""
        known = self._memory.find(key) if self._memory is not None else None
        if known is not None and known.made is not None:
            return known, "in memory"
        kept = load_kernel(self._disk, key) if self._disk is not None else None
        if kept is None:
            return None, ""
        known = LinkedKernel(kept, CompiledModule.from_object(kept.code, self._target))
        if self._memory is not None:
            self._memory.keep(key, known)
        return known, "on disk"

    def _outline_of_found(self, wanted: ScheduledKernel, known: LinkedKernel, ctx: PassContext) -> PrimFunc:
        """Return the outline of a kernel that was found in a cache."""
        made = known.made
        assert made is not None, "those that cannot be written down are not found"
        ctx.repeat(renamed_remarks(made.remarks, made.names, wanted.names))
        stub = decode_for(wanted.function, made.outline, wanted.key)
        if self._background is not None:
            self._background.give(stub, Kernel(stub, made.symbol, known.module))
        self._stand_for[stub] = functools.partial(self._lowered, wanted, made)
        return stub

    def _outline_of_equal(self, wanted: ScheduledKernel, fresh: FreshKernel, ctx: PassContext) -> PrimFunc:
        """Return the outline of a kernel that equals another one of this build."""
        ctx.repeat(renamed_remarks(fresh.remarks, fresh.wanted.names, wanted.names))
        stub = decode_for(wanted.function, encode(outline(fresh.lowered)), wanted.key)
        if self._background is not None:
            self._background.give(stub, fresh.lowered)
        self._stand_for[stub] = functools.partial(self._lowered, wanted, None)
        self._progress.done()
        return stub

    def _make(self, wanted: ScheduledKernel, run: RunPart) -> None:
        """Run the passes on a kernel; keep their remarks until the kernel's turn in the module's order."""
        outer, RUNNING.collecting = RUNNING.collecting, []
        try:
            with self._context() as context:
                made = self._run(IRModule({wanted.name: wanted.function}), run, context)[wanted.name]
        finally:
            RUNNING.collecting = outer
        if self._background is not None:
            self._background.add([made], wanted.hash)
        self._fresh[wanted.key] = FreshKernel(wanted, made, tuple(context.remarks))

    def _run(self, mod: IRModule, run: RunPart, ctx: PassContext) -> dict[GlobalVar, PrimFunc]:
        through = {key: made for key, made in run(mod, ctx).functions.items() if isinstance(made, PrimFunc)}
        self._progress.done(len(through))
        return through

    def _remember(self, key: str, known: LinkedKernel) -> None:
        """Keep a kernel for later builds."""
        if self._memory is not None:
            self._memory.keep(key, known)
        if self._disk is not None:
            self._unwritten[key] = known

    def keep(self, kernels: Mapping[PrimFunc, Kernel]) -> Callable[[], None] | None:
        """Keep the kernels of this build in memory for later builds.

        Args:
            kernels: the code of the lowered functions.

        Returns:
            a function that writes them to disk; None if there is nothing to write.
        """
        if self._memory is not None:
            for key, fresh in self._fresh.items():
                kernel = kernels.get(fresh.lowered)
                if kernel is not None and fresh.wanted.encoded is not None:
                    self._remember(key, LinkedKernel(functools.partial(_encoded, fresh, kernel), kernel.module))
        disk = self._disk
        return None if disk is None or not self._unwritten else functools.partial(_store_all, disk, self._unwritten)

    def whole(self, mod: IRModule) -> IRModule:
        """Replace the outlines in ``mod``, a lowered module, by the functions that they represent."""
        updates: dict[GlobalVar, Function | PrimFunc] = {
            name: self._stand_for[function]()
            for name, function in mod.functions.items()
            if isinstance(function, PrimFunc) and function in self._stand_for
        }
        return mod.with_functions(updates) if updates else mod

    def _lowered(self, wanted: ScheduledKernel, made: StoredKernel | None) -> PrimFunc:
        """Return the lowered function of a kernel: the stored one or, where names differ, one made by running the
        passes."""
        kept = made.lowered_for(wanted.function, wanted.names) if made is not None else None
        if kept is not None:
            return kept
        with self._context() as context, Target(self._target):
            through = self._pipeline(IRModule({wanted.name: wanted.function}), context)[wanted.name]
        assert isinstance(through, PrimFunc)
        return through


def _for_processes(kernels: Collection[ScheduledKernel]) -> list[ScheduledKernel]:
    """Order kernels for processes that lower them from both ends: the smallest first, as LLVM is idle until then; then
    the others from the largest on, so that no core waits long for another at the end."""
    found = sorted(kernels, key=_size, reverse=True)
    return [*found[-1:], *found[:-1]]


def _for_threads(kernels: Collection[ScheduledKernel]) -> list[ScheduledKernel]:
    """Order kernels for the thread that runs the passes and another one, in which LLVM compiles each afterwards: first
    those for which LLVM takes longer, from the smallest on, so that it begins early; then products and convolutions,
    for which the passes take longer, from the largest on, so that little is left at the end (Johnson, Optimal Two- and
    Three-Stage Production Schedules with Setup Times Included, 1954)."""
    products = [each for each in kernels if _is_product(each)]
    others = [each for each in kernels if not _is_product(each)]
    return [*sorted(others, key=_size), *sorted(products, key=_size, reverse=True)]


def _is_product(kernel: ScheduledKernel) -> bool:
    return kernel.function.attrs.get(KIND) == "contraction"


def _size(kernel: ScheduledKernel) -> int:
    return kernel.size


def _encoded(fresh: FreshKernel, kernel: Kernel) -> StoredKernel | None:
    """Encode a kernel of this process; None if it contains something that cannot be encoded."""
    try:
        texts = encode(outline(fresh.lowered)), encode(fresh.lowered)
    except EncodingError:
        return None
    return StoredKernel(fresh.wanted.names, *texts, fresh.remarks, kernel.symbol, kernel.module.object_bytes)


def _store_all(disk: DiskCache, kernels: Mapping[str, LinkedKernel]) -> None:
    """Encode kernels and write them to disk."""
    for key, known in kernels.items():
        made = known.made
        if made is not None:
            store_kernel(disk, key, made)
