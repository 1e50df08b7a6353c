"""Make the implementations of users' instructions (:mod:`.tensor_intrins`) part of generated code."""

from __future__ import annotations

import re

import llvmlite.binding as llvm

from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.tensor_intrins import C_SYMBOL, LLVM_SYMBOL, c_address, find_tensor_intrin

_C_FUNCTION = re.compile(re.escape(C_SYMBOL).encode() + rb"([A-Za-z_][A-Za-z0-9_]*)\.[0-9a-f]{16}")
#: Attributes of functions that LLVM does not inline.
_NOT_INLINED = (b"noinline", b"optnone")


def c_functions(object_bytes: bytes) -> dict[str, int]:
    """Return the addresses of the C functions that machine code calls, by symbol.

    Raises:
        CodegenError: one is not registered in this process.
    """
    if C_SYMBOL.encode() not in object_bytes:
        return {}
    symbols = {found[0].decode(): found[1].decode() for found in _C_FUNCTION.finditer(object_bytes)}
    return {symbol: c_address(name, symbol) for symbol, name in symbols.items()}


def link_instructions(module: llvm.ModuleRef, context: llvm.ContextRef, machine: llvm.TargetMachine) -> None:
    """Put the LLVM IR of the instructions that ``module`` calls into it, and inline it into the callers.

    Raises:
        CodegenError: LLVM rejects it.
    """
    names = [found.name for found in module.functions if found.is_declaration and found.name.startswith(LLVM_SYMBOL)]
    for symbol in names:
        intrin = find_tensor_intrin(symbol[len(LLVM_SYMBOL) :])
        if intrin.llvm is None:
            raise CodegenError(f"tensor intrinsic {intrin.name}: it had LLVM IR when the code was generated")
        try:
            with llvm.parse_assembly(intrin.llvm, context) as part:
                for found in part.functions:
                    if found.is_declaration:
                        continue
                    if found.name == intrin.entry:
                        found.name = symbol
                    else:
                        found.linkage = "internal"
                    if not any(word in each for each in found.attributes for word in _NOT_INLINED):
                        found.add_function_attribute("alwaysinline")
                part.triple, part.data_layout = module.triple, module.data_layout
                module.link_in(part)
            module.get_function(symbol).linkage = "internal"
            module.verify()
        except RuntimeError as error:
            raise CodegenError(f"tensor intrinsic {intrin.name}: LLVM rejects its code: {error}") from error
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1)))
