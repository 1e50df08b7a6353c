"""Generate machine code from scheduled loop IR through LLVM.

Processors and their caches are described in ``tensorir/processors.py``; approximations of ``exp`` and other functions
are in ``passes/tensor/intrin``; vectors and unrolled loops are made by ``passes/tensor``.
"""

from tilewright.codegen.llvm.call import call_primfunc
from tilewright.codegen.llvm.compile import CompiledModule, ModuleText, compile_module, emit_module
from tilewright.codegen.llvm.module import emit_llvm_ir

__all__ = ["CompiledModule", "ModuleText", "call_primfunc", "compile_module", "emit_llvm_ir", "emit_module"]
