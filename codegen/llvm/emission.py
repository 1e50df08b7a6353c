"""Object code of LLVM modules, by several threads at once.

llvmlite holds one lock around every call of LLVM, and nine tenths of LLVM's time are one call: code generation. LLVM
itself lets threads generate code at once for modules of different contexts, with a target machine for each thread. So
this call goes around the lock; all others, which take microseconds, keep it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

_NAME = "LLVMPY_TargetMachineEmitToMemory"


@functools.cache
def _without_lock() -> Callable[..., Any] | None:
    """llvmlite's function; None where llvmlite is made otherwise, and only its own way is left."""
    try:
        locked = getattr(ffi.lib, _NAME)
        # A library object of our own: types of arguments are not shared with other users of the handle.
        function = getattr(ctypes.CDLL(ffi.lib._name, handle=ffi.lib._handle), _NAME)
        function.argtypes, function.restype = locked.argtypes, locked.restype
    except AttributeError:
        return None
    return function  # type: ignore[no-any-return]


def emit_object(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """The object code of ``module``.

    Args:
        machine: no other thread generates code with it meanwhile.
        module: in a context of its own.

    Raises:
        RuntimeError: LLVM can't generate code for it.
    """
    emit = _without_lock()
    if emit is None:
        return bytes(machine.emit_object(module))
    with ffi.OutputString() as error:
        memory = emit(machine, module, 1, error)
        if not memory:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(memory), ffi.lib.LLVMPY_GetBufferSize(memory))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)
