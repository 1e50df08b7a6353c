"""Generate machine code from scheduled loop IR through LLVM."""

from tilewright.codegen.llvm.call import call_primfunc
from tilewright.codegen.llvm.compile import CompiledModule, compile_module
from tilewright.codegen.llvm.module import emit_llvm_ir

__all__ = ["CompiledModule", "call_primfunc", "compile_module", "emit_llvm_ir"]
