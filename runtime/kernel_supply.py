"""Where a build gets its kernels from: from memory, from disk, or from the passes, each distinct one once.

A kernel that is found stands in the lowered module as an outline (``codegen.forks``), which is enough to plan memory
and to compile ``main``. Whoever wants to see the module gets the real functions (:meth:`KernelSupply.whole`): those
that were kept, or, where names differ, those that the passes make again.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping

from tilewright.codegen.analysis import called_names
from tilewright.codegen.forks import outline
from tilewright.codegen.llvm.compile import CompiledModule
from tilewright.graphir.expr import Function, GlobalVar
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.diagnostics import Remark
from tilewright.passes.tensor.part_by_part import RunPart
from tilewright.passes.tensor.pipeline import tensor_pipeline
from tilewright.runtime.compile import Ahead, Kernel
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.made_kernels import (
    KernelKeys,
    KernelMemory,
    KnownKernel,
    MadeKernel,
    find_kernel,
    keep_kernel,
    made_of,
    repeated,
)
from tilewright.runtime.progress import Progress
from tilewright.tensorir.encoding import Encoded, encode
from tilewright.tensorir.errors import EncodingError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

_LOG = logging.getLogger("tilewright.cache")


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A scheduled kernel of a module.

    Attributes:
        encoded: it as text.
        key: what it depends on.
    """

    name: GlobalVar
    function: PrimFunc
    encoded: Encoded
    key: str


@dataclasses.dataclass(frozen=True)
class Fresh:
    """A kernel that the passes have made in this build."""

    wanted: Wanted
    lowered: PrimFunc
    remarks: tuple[Remark, ...]


class KernelSupply:
    """The kernels of one build, for :class:`~tilewright.passes.tensor.part_by_part.PartByPart`.

    Args:
        keys: of the kernels.
        memory: what this process knows; None: nothing, and it shall not know more.
        disk: where kernels are kept; None: nowhere.
        ahead: what compiles kernels meanwhile; None: code is there already.
        context: makes a new context with the settings of the build.
        progress: is told of kernels that are through.
    """

    def __init__(
        self,
        target: Target,
        keys: KernelKeys,
        memory: KernelMemory | None,
        disk: DiskCache | None,
        ahead: Ahead | None,
        context: Callable[[], PassContext],
        progress: Progress,
    ) -> None:
        self._target, self._keys, self._memory, self._disk = target, keys, memory, disk
        self._ahead, self._context, self._progress = ahead, context, progress
        self._fresh: dict[str, Fresh] = {}
        #: What the outlines that this build has made stand for.
        self._stand_for: dict[PrimFunc, Callable[[], PrimFunc]] = {}

    def __call__(
        self, kernels: Mapping[GlobalVar, PrimFunc], run: RunPart, ctx: PassContext
    ) -> Mapping[GlobalVar, PrimFunc]:
        """What stands for each kernel behind the passes; see ``part_by_part.Supply``."""
        if any(called_names(function.body) for function in kernels.values()):
            # Those that call each other are compiled together.
            return dict(self._run(IRModule(dict(kernels)), run, ctx))
        made: dict[GlobalVar, PrimFunc] = {}
        found = {"in memory": 0, "on disk": 0, "twice": 0}
        for name, function in kernels.items():
            wanted = self._wanted(name, function)
            if wanted is None:
                made |= self._run(IRModule({name: function}), run, ctx)
                continue
            known, where = self._known(wanted.key)
            if known is not None:
                found[where] += 1
                made[name] = self._found(wanted, known, ctx)
            elif wanted.key in self._fresh:
                found["twice"] += 1
                made[name] = self._again(wanted, self._fresh[wanted.key], ctx)
            else:
                made[name] = self._make(wanted, run, ctx)
        _LOG.debug(
            "found in the cache: %d of %d kernels (%s)",
            sum(found.values()),
            len(kernels),
            ", ".join(f"{where}: {count}" for where, count in found.items()),
        )
        return made

    def _wanted(self, name: GlobalVar, function: PrimFunc) -> Wanted | None:
        """A kernel with its key; None if it holds what cannot be written down."""
        try:
            encoded = encode(function)
        except EncodingError as error:
            _LOG.debug("kernel %s is not looked for: %s", name.name, error)
            return None
        return Wanted(name, function, encoded, self._keys.key(encoded))

    def _known(self, key: str) -> tuple[KnownKernel | None, str]:
        """The kernel of a key, and where it was."""
        known = self._memory.find(key) if self._memory is not None else None
        if known is not None:
            return known, "in memory"
        kept = find_kernel(self._disk, key) if self._disk is not None else None
        if kept is None:
            return None, ""
        known = KnownKernel(kept, CompiledModule.from_object(kept.code, self._target))
        if self._memory is not None:
            self._memory.keep(key, known)
        return known, "on disk"

    def _found(self, wanted: Wanted, known: KnownKernel, ctx: PassContext) -> PrimFunc:
        """The outline of a kernel that is known."""
        made = known.made
        ctx.repeat(repeated(made.remarks, made.names, wanted.encoded.names))
        stub = made_of(wanted.function, made.outline.decode(), wanted.key)
        if self._ahead is not None:
            self._ahead.give(stub, Kernel(stub, made.symbol, known.module))
        self._stand_for[stub] = functools.partial(self._lowered, wanted, made)
        self._progress.done(found=True)
        return stub

    def _again(self, wanted: Wanted, fresh: Fresh, ctx: PassContext) -> PrimFunc:
        """The outline of a kernel that is equal to one which this build has made."""
        ctx.repeat(repeated(fresh.remarks, fresh.wanted.encoded.names, wanted.encoded.names))
        stub = made_of(wanted.function, outline(fresh.lowered), wanted.key)
        if self._ahead is not None:
            self._ahead.give(stub, fresh.lowered)
        self._stand_for[stub] = functools.partial(self._lowered, wanted, None)
        self._progress.done()
        return stub

    def _make(self, wanted: Wanted, run: RunPart, ctx: PassContext) -> PrimFunc:
        """Run the passes on a kernel."""
        with ctx.collecting_remarks() as remarks:
            made = self._run(IRModule({wanted.name: wanted.function}), run, ctx)[wanted.name]
        self._fresh[wanted.key] = Fresh(wanted, made, tuple(remarks))
        return made

    def _run(self, mod: IRModule, run: RunPart, ctx: PassContext) -> dict[GlobalVar, PrimFunc]:
        through = {key: made for key, made in run(mod, ctx).functions.items() if isinstance(made, PrimFunc)}
        if self._ahead is not None:
            self._ahead.add(list(through.values()))
        self._progress.done(len(through))
        return through

    def keep(self, kernels: Mapping[PrimFunc, Kernel]) -> None:
        """Keep what this build has made for those to come.

        Args:
            kernels: the code of the lowered functions.
        """
        if self._memory is None:
            return
        for key, fresh in self._fresh.items():
            kernel = kernels.get(fresh.lowered)
            if kernel is None:
                continue
            try:
                texts = encode(outline(fresh.lowered)), encode(fresh.lowered, merged=False)
            except EncodingError:
                continue
            names = fresh.wanted.encoded.names
            made = MadeKernel(names, *texts, fresh.remarks, kernel.symbol, kernel.module.object_bytes)
            self._memory.keep(key, KnownKernel(made, kernel.module))
            if self._disk is not None:
                keep_kernel(self._disk, key, made)

    def whole(self, mod: IRModule) -> IRModule:
        """``mod``, a lowered module, with the functions that outlines stand for."""
        updates: dict[GlobalVar, Function | PrimFunc] = {
            name: self._stand_for[function]()
            for name, function in mod.functions.items()
            if isinstance(function, PrimFunc) and function in self._stand_for
        }
        return mod.with_functions(updates) if updates else mod

    def _lowered(self, wanted: Wanted, made: MadeKernel | None) -> PrimFunc:
        """What the passes make of a kernel."""
        kept = made.lowered_for(wanted.function, wanted.encoded.names) if made is not None else None
        if kept is not None:
            return kept
        with self._context() as context, Target(self._target):
            pipeline = tensor_pipeline(self._target)
            through = pipeline(IRModule({wanted.name: wanted.function}), context)[wanted.name]
        assert isinstance(through, PrimFunc)
        return through
