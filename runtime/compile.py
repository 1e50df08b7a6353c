"""From lowered functions to code that runs; equal functions for equal targets are compiled once in a process."""

from __future__ import annotations

import collections
import functools
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tilewright.codegen import llvm as llvm_codegen
from tilewright.codegen import numba_ as numba_codegen
from tilewright.runtime.executable import Array, Runner
from tilewright.runtime.runners import MachineCodeRunner, python_runner
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.structural import structural_hash
from tilewright.tensorir.target import Target

#: How many compiled modules a process keeps for models that are built again.
_KEPT_MODULES = 64


class Code(Protocol):
    """Compiled functions, with one entry point ``main``."""

    def runner(self, main: PrimFunc, constants: Sequence[Array]) -> Runner:
        """What runs ``main`` with these constants."""

    def stages(self) -> Mapping[str, Callable[[], str]]:
        """The generated code as text, by stage name."""


class MachineCode:
    """Code of the target ``llvm``."""

    def __init__(self, functions: Sequence[PrimFunc], target: Target) -> None:
        self._module = llvm_codegen.compile_module(functions, target, ("main",))

    def runner(self, main: PrimFunc, constants: Sequence[Array]) -> Runner:
        return MachineCodeRunner(self._module.packed_address("main"), constants, len(main.params))

    def stages(self) -> Mapping[str, Callable[[], str]]:
        module = self._module
        return {"llvm": lambda: str(module.llvm_ir), "assembly": lambda: str(module.assembly)}


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

_modules: collections.OrderedDict[str, Code] = collections.OrderedDict()
_lock = threading.Lock()


def compile_functions(functions: Sequence[PrimFunc], target: Target) -> Code:
    """Code for ``functions``, one of which is ``main``; from memory if equal ones were compiled before.

    Raises:
        CodegenError: the target is another machine, whose code can be read but not run here.
    """
    if not target.is_runnable:
        raise CodegenError(f"code for {target} cannot run on this machine; use codegen.llvm.emit_llvm_ir to read it")
    key = _key(functions, target)
    with _lock:
        found = _modules.get(key)
        if found is not None:
            _modules.move_to_end(key)
            return found
    made = _GENERATORS[target.kind](functions, target)
    with _lock:
        _modules[key] = made
        while len(_modules) > _KEPT_MODULES:
            _modules.popitem(last=False)
    return made


def _key(functions: Sequence[PrimFunc], target: Target) -> str:
    digest = hashlib.blake2b(repr(target.key()).encode(), digest_size=16)
    for function in functions:
        digest.update(f"{function.name}:{structural_hash(function):x};".encode())
    return digest.hexdigest()
