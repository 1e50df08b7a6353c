"""From lowered functions to code that runs. Equal models for equal targets are compiled once in a process, and so are
equal kernels of different models.

LLVM is entered by one thread at a time (llvmlite holds a lock around every call of it), so the kernels of a model that
are not known yet are compiled as one module, which is faster than a module each.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tilewright.codegen import llvm as llvm_codegen
from tilewright.codegen import numba_ as numba_codegen
from tilewright.codegen.analysis import called_names
from tilewright.codegen.llvm.compile import CompiledModule
from tilewright.runtime.executable import Array, Runner
from tilewright.runtime.runners import MachineCodeRunner, python_runner
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.structural import structural_equal, structural_hash
from tilewright.tensorir.target import Target

#: How many compiled models and kernels a process keeps for what is built later.
_KEPT_MODELS = 64
_KEPT_KERNELS = 1024

#: The name that every kernel has in the cache, where its own does not matter.
_ANY_NAME = "kernel"


class Code(Protocol):
    """Compiled functions, with one entry point ``main``."""

    def runner(self, main: PrimFunc, constants: Sequence[Array]) -> Runner:
        """What runs ``main`` with these constants."""

    def stages(self) -> Mapping[str, Callable[[], str]]:
        """The generated code as text, by stage name."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its function under the name that all have, and the module that holds it as ``symbol``."""

    function: PrimFunc
    symbol: str
    module: CompiledModule

    @property
    def address(self) -> int:
        """Of the machine code; valid as long as the module lives."""
        return self.module.address(self.symbol)


class KernelCache:
    """Compiled kernels by what they compute; their names do not matter. The caller sees to it that one thread at a
    time uses it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kernels: collections.OrderedDict[str, Kernel] = collections.OrderedDict()

    def kernels(self, functions: Iterable[PrimFunc], target: Target) -> dict[str, Kernel]:
        """The kernel of each of ``functions``, which call none of each other, by name. New ones are compiled."""
        keys: dict[str, str] = {}
        wanted: dict[str, PrimFunc] = {}
        missing: dict[str, PrimFunc] = {}
        for function in functions:
            unnamed = PrimFunc(_ANY_NAME, function.params, function.body, function.attrs)
            key = _key((unnamed,), target)
            known = self._kernels.get(key)
            first = known.function if known is not None else wanted.get(key)
            if first is not None and not structural_equal(first, unnamed):
                key += function.name  # another function with the same hash, or one that a hash cannot tell apart
                known = None
            keys[function.name] = key
            wanted.setdefault(key, unnamed)
            if known is None:
                missing.setdefault(key, function)
        if missing:
            module = llvm_codegen.compile_module(list(missing.values()), target)
            for key, function in missing.items():
                self._kernels[key] = Kernel(wanted[key], function.name, module)
        found = {name: self._kernels[key] for name, key in keys.items()}
        for key in wanted:
            self._kernels.move_to_end(key)
        while len(self._kernels) > self._capacity:
            self._kernels.popitem(last=False)
        return found


class MachineCode:
    """Code of the target ``llvm``: kernels that may be shared with other models, and the entry that calls them."""

    def __init__(self, functions: Sequence[PrimFunc], target: Target) -> None:
        self._functions = list(functions)
        self._target = target
        inner = {name for function in functions if function.name != "main" for name in called_names(function.body)}
        shared, own = [], []
        for function in functions:  # what calls others, or is called by others than main, stays together with main
            alone = function.name != "main" and function.name not in inner and not called_names(function.body)
            (shared if alone else own).append(function)
        kernels = _kernels.kernels(shared, target)
        # Kept alive for as long as main may jump to them.
        self._kernels = kernels
        addresses = {name: kernel.address for name, kernel in kernels.items()}
        self._module = llvm_codegen.compile_module(own, target, ("main",), addresses)

    def runner(self, main: PrimFunc, constants: Sequence[Array]) -> Runner:
        return MachineCodeRunner(self._module.packed_address("main"), constants, len(main.params), owner=self)

    def stages(self) -> Mapping[str, Callable[[], str]]:
        return {"llvm": self._llvm_ir, "assembly": self._assembly}

    def _llvm_ir(self) -> str:
        """The whole model as one module, with the names that its kernels have in it."""
        return llvm_codegen.emit_llvm_ir(self._functions, self._target, ("main",))

    def _assembly(self) -> str:
        return llvm_codegen.compile_module(self._functions, self._target, ("main",)).assembly


class PythonCode:
    """Code of the target ``numba``."""

    def __init__(self, functions: Sequence[PrimFunc], target: Target) -> None:
        self._module = numba_codegen.compile_module(functions, target)

    def runner(self, main: PrimFunc, constants: Sequence[Array]) -> Runner:
        return python_runner(functools.partial(self._module.call, "main"), constants)

    def stages(self) -> Mapping[str, Callable[[], str]]:
        module = self._module
        return {"numba": lambda: str(module.source)}


_GENERATORS: dict[str, Callable[[Sequence[PrimFunc], Target], Code]] = {"llvm": MachineCode, "numba": PythonCode}

_kernels = KernelCache(_KEPT_KERNELS)
_models: collections.OrderedDict[str, tuple[Sequence[PrimFunc], Code]] = collections.OrderedDict()
_lock = threading.Lock()


def compile_functions(functions: Sequence[PrimFunc], target: Target) -> Code:
    """Code for ``functions``, one of which is ``main``; from memory if equal ones were compiled before.

    Raises:
        CodegenError: the target is another machine, whose code can be read but not run here.
    """
    if not target.is_runnable:
        raise CodegenError(f"code for {target} cannot run on this machine; use codegen.llvm.emit_llvm_ir to read it")
    key = _key(functions, target)
    with _lock:  # held while compiling: another thread that builds the same model waits for this one's code
        found = _models.get(key)
        if found is not None and _all_equal(found[0], functions):
            _models.move_to_end(key)
            return found[1]
        made = _GENERATORS[target.kind](functions, target)
        _models[key] = (functions, made)
        while len(_models) > _KEPT_MODELS:
            _models.popitem(last=False)
        return made


def _all_equal(left: Sequence[PrimFunc], right: Sequence[PrimFunc]) -> bool:
    return len(left) == len(right) and all(structural_equal(a, b) for a, b in zip(left, right, strict=True))


def _key(functions: Sequence[PrimFunc], target: Target) -> str:
    digest = hashlib.blake2b(repr(target.key()).encode(), digest_size=16)
    for function in functions:
        digest.update(f"{function.name}:{structural_hash(function):x};".encode())
    return digest.hexdigest()
