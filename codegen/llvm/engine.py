"""Create what links object code into this process, and compiles the functions that generated code shares."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from tilewright.tensorir import forking
from tilewright.tensorir.target import process_triple

_lock = forking.Lock()


def native_machine() -> llvm.TargetMachine:
    """Create a target machine for this process that generates code quickly, at level 0, for any processor of its
    architecture. Only one thread at a time may use it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(process_triple()).create_target_machine(
        opt=0, reloc="pic", codemodel="small", jit=False
    )


def process_engine() -> llvm.LLJIT:
    """Return the engine that links all object code of this process, by JITLink. Each module is a library of its own in
    it, which sees no other: creating an engine takes as long as linking ten kernels.

    Code refers to its constants by 32-bit distances (the small code model). JITLink maps the sections of an object in
    one piece. RuntimeDyld, which LLVM uses otherwise on x86-64, maps each where the operating system finds room; if
    they are more than 2 GiB apart, as happens in processes that map much memory, LLVM ends the process. Windows keeps
    RuntimeDyld: JITLink does not have all of its kinds of references.
    """
    with _lock:
        return _made()


@functools.cache
def _made() -> llvm.LLJIT:
    return llvm.create_lljit_compiler(native_machine(), use_jit_link="windows" not in process_triple())
