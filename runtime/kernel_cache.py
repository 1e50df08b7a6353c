"""Compile each kernel once in a process: equal kernels of different models share their machine code.

Each kernel is a module of its own, so that its object code can be stored and shared by several models. (LLVM takes a
fifteenth longer for this than for modules of four kernels.)
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from tilewright.codegen import llvm as llvm_codegen
from tilewright.codegen.llvm.compile import CompiledModule, ModuleText
from tilewright.tensorir import forking
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.structural import structural_equal, structural_hash
from tilewright.tensorir.target import Target

_LOG = logging.getLogger("tilewright.cache")

#: The name of every kernel in the cache, and its symbol in its object file. Its own name does not matter there: code
#: must not depend on which model had it compiled first.
ANY_NAME = "kernel"

#: Number of nodes, from the first on, that enter the hash of a function; functions with equal hashes are compared in
#: full.
_HASHED_NODES = 200

#: The target that a function is compiled for, and the structural hash of the function, which others may share.
Key = tuple[Target, int]


@dataclasses.dataclass(frozen=True)
class NamedFunction:
    """A function of a model, the same function without its own name (``unnamed``), and the cache key of that."""

    function: PrimFunc
    unnamed: PrimFunc
    key: Key

    @classmethod
    def of(cls, function: PrimFunc, target: Target, known_hash: int | None = None) -> NamedFunction:
        """Compute the key of ``function``.

        Args:
            known_hash: a number shared by functions that are equal up to names, if there is one, such as the hash of
                the scheduled function that the passes lowered.
        """
        unnamed = PrimFunc(ANY_NAME, function.params, function.body, function.attrs)
        found = structural_hash(unnamed, _HASHED_NODES) if known_hash is None else known_hash
        return cls(function, unnamed, (target, found))


def emit_kernel(function: PrimFunc, target: Target) -> ModuleText:
    """Emit a kernel that calls no other function as a module, under the name that all kernels have.

    Raises:
        CodegenError: it cannot be expressed on the target; the error names it as all kernels are named.
    """
    unnamed = PrimFunc(ANY_NAME, function.params, function.body, function.attrs)
    return llvm_codegen.emit_module([unnamed], target, packed=False)


def compile_kernel(function: PrimFunc, target: Target, text: ModuleText | None = None) -> CompiledModule:
    """Compile a kernel that calls no other function, under the name that all kernels have.

    Args:
        text: its module, if it was emitted before.

    Raises:
        CodegenError: it cannot be expressed on the target; the error names it as ``function`` is named.
    """
    try:
        return (emit_kernel(function, target) if text is None else text).compile(target)
    except CodegenError:
        llvm_codegen.emit_module([function], target, packed=False).compile(target)  # raises the same about its own name
        raise


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its function under the common name, and the module that defines it as ``symbol``."""

    unnamed: PrimFunc
    symbol: str
    module: CompiledModule

    @property
    def address(self) -> int:
        """Return the address of the machine code; it is valid as long as the module lives."""
        return self.module.address(self.symbol)


@dataclasses.dataclass(eq=False)
class _Entry:
    """A kernel of the cache, which a thread may still be compiling.

    Attributes:
        unnamed: its function.
        kernel: what other threads wait for.
        compiled: the kernel, once there is one. A forked process reads it alone: another thread may have held the lock
            of ``kernel`` when the process was forked, and nothing releases that there.
    """

    unnamed: PrimFunc
    kernel: Future[Kernel]
    compiled: Kernel | None = None


class KernelCache:
    """A cache of compiled kernels by structure, regardless of names. Threads share the cache: one compiles a kernel,
    the others wait for it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = forking.Lock()
        self._kernels: collections.OrderedDict[Key, _Entry] = collections.OrderedDict()

        forking.in_forked_process(self._drop_unfinished)

    def _drop_unfinished(self) -> None:
        """Drop the kernels that other threads are compiling, which are not in a forked process."""
        for key in [key for key, entry in self._kernels.items() if entry.compiled is None]:
            del self._kernels[key]

    def _find(self, named: NamedFunction, target: Target) -> tuple[Key, _Entry | None]:
        """Find the entry of a function; without one, the key that it would have."""
        key = named.key
        known = self._kernels.get(key)
        while known is not None and not structural_equal(known.unnamed, named.unnamed):
            key = (target, key[1] + 1)  # another function has this hash: try the next one
            known = self._kernels.get(key)
        return key, known

    def emit_missing(self, functions: Sequence[NamedFunction], target: Target) -> dict[str, ModuleText]:
        """Emit those of ``functions`` that are new, by name, for :meth:`kernels`, which other threads may then call
        without holding the GIL for long. It emits, and raises the errors of, what is not emitted here."""
        with self._lock:
            missing = [named.function for named in functions if self._find(named, target)[1] is None]
        texts: dict[str, ModuleText] = {}
        for function in missing:
            with contextlib.suppress(CodegenError):
                texts[function.name] = emit_kernel(function, target)
        return texts

    def kernels(
        self, functions: Sequence[NamedFunction], target: Target, texts: Mapping[str, ModuleText] | None = None
    ) -> dict[str, Kernel]:
        """Return the kernels of ``functions`` by name, compiling those that are new. None of them may call others.

        Args:
            texts: their modules, as :meth:`emit_missing` returned them.

        Raises:
            CodegenError: a function cannot be expressed on the target.
        """
        found: dict[str, _Entry] = {}
        missing: dict[Key, tuple[NamedFunction, _Entry]] = {}
        with self._lock:
            for named in functions:
                key, known = self._find(named, target)
                if known is None:
                    known = self._kernels[key] = _Entry(named.unnamed, Future())
                    missing[key] = named, known
                self._kernels.move_to_end(key)
                found[named.function.name] = known
            while len(self._kernels) > self._capacity:
                self._kernels.popitem(last=False)
        try:
            for named, entry in missing.values():
                text = None if texts is None else texts.get(named.function.name)
                entry.compiled = Kernel(named.unnamed, ANY_NAME, compile_kernel(named.function, target, text))
                entry.kernel.set_result(entry.compiled)
        except BaseException as error:
            self._give_up(missing, error)
            raise
        if len(missing) < len(found):
            _LOG.debug("in memory: the code of %d of %d kernels", len(found) - len(missing), len(found))
        # Wait for other threads only now: they may wait for kernels that this thread has compiled.
        return {name: entry.compiled or entry.kernel.result() for name, entry in found.items()}

    def _give_up(self, missing: Mapping[Key, tuple[NamedFunction, _Entry]], error: BaseException) -> None:
        """Remove kernels that were not compiled, and pass ``error`` on to the threads that wait for them."""
        with self._lock:
            for key, (_, entry) in missing.items():
                if entry.kernel.done():
                    continue
                if entry.compiled is not None:  # interrupted before other threads were told
                    entry.kernel.set_result(entry.compiled)
                else:
                    entry.kernel.set_exception(error)
                    if self._kernels.get(key) is entry:
                        del self._kernels[key]
