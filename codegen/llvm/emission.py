"""Generate object code of LLVM modules in several threads at once.

llvmlite holds one lock around every call of LLVM, and a single call, code generation, takes nine tenths of LLVM's time.
LLVM itself lets threads generate code at once for modules of different contexts, each with its own target machine. So
this call bypasses the lock; all others, which take microseconds, keep it.
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
    """Return llvmlite's function without the lock; None if llvmlite is built differently and only its own way
    remains."""
    try:
        locked = getattr(ffi.lib, _NAME)
        # A separate library object: argument types set here do not affect other users of the handle.
        function = getattr(ctypes.CDLL(ffi.lib._name, handle=ffi.lib._handle), _NAME)
        function.argtypes, function.restype = locked.argtypes, locked.restype
    except AttributeError:
        return None
    return function  # type: ignore[no-any-return]


def emit_object(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """Return the object code of ``module``.

    Args:
        machine: a machine that no other thread uses meanwhile.
        module: a module in a context of its own.

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
