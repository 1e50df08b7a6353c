"""Generate object code of LLVM modules in several threads at once.

llvmlite holds one lock around every call of LLVM, and a single call, code generation, takes nine tenths of LLVM's time.
LLVM itself lets threads generate code at once for modules of different contexts, each with its own target machine. So
this call bypasses the lock; all others, which take microseconds, keep it.

LLVM has locks of its own. A process that is forked while another thread is in LLVM may find one of them locked for
ever. So a fork waits until no thread is.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from tilewright.codegen import threads

_NAME = "LLVMPY_TargetMachineEmitToMemory"

#: The calls of LLVM without llvmlite's lock that are running.
_emitting: set[object] = set()
_entering = threading.Lock()
#: The longest time that a fork waits for them, in seconds: a kernel takes less than one.
_PATIENCE = 30.0


def _leave_llvm() -> None:
    """Wait until no thread is in LLVM, and let none in until :func:`_let_in`."""
    threads.before_fork()
    end = time.monotonic() + _PATIENCE
    _entering.acquire()
    while _emitting and time.monotonic() < end:
        _entering.release()
        time.sleep(1e-3)
        _entering.acquire()
    ffi.lib._lock.__enter__()


def _let_in() -> None:
    """Let threads into LLVM again."""
    ffi.lib._lock.__exit__(None, None, None)
    _entering.release()


def _go_on() -> None:
    """Let threads of the process that forked into LLVM again."""
    _let_in()
    threads.after_fork()


def _let_in_alone() -> None:
    """Let the only thread of a forked process into LLVM."""
    _emitting.clear()
    _let_in()


if hasattr(os, "register_at_fork") and hasattr(getattr(ffi.lib, "_lock", None), "__enter__"):
    os.register_at_fork(before=_leave_llvm, after_in_parent=_go_on, after_in_child=_let_in_alone)


def drop_forgotten_lock() -> None:
    """Give back llvmlite's lock if this thread, which is in no call of LLVM, holds it: an interrupt that comes right
    after the lock is taken leaves it so, and all other threads would wait for it for ever."""
    held = getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
    is_owned = getattr(held, "_is_owned", None)
    while held is not None and is_owned is not None and is_owned():
        held.release()


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
        call = object()
        try:
            with _entering:
                _emitting.add(call)
            memory = emit(machine, module, 1, error)
        finally:
            _emitting.discard(call)
        if not memory:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(memory), ffi.lib.LLVMPY_GetBufferSize(memory))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)
