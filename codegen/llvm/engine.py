"""Create LLVM's engines, which link object code into this process."""

from __future__ import annotations

import llvmlite.binding as llvm


def create_engine(machine: llvm.TargetMachine) -> llvm.LLJIT:
    """Create an engine for object code of ``machine``, linked by JITLink.

    Code refers to its constants by 32-bit distances (the small code model). JITLink maps the sections of an object in
    one piece. RuntimeDyld, which LLVM uses otherwise on x86-64, maps each where the operating system finds room; if
    they are more than 2 GiB apart, as happens in processes that map much memory, LLVM ends the process. Windows keeps
    RuntimeDyld: JITLink does not have all of its kinds of references.
    """
    return llvm.create_lljit_compiler(machine, use_jit_link="windows" not in machine.triple)
