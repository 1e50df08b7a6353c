"""Scheduled loop IR to readable Python source that numba compiles."""

from tilewright.codegen.numba_.compile import NumbaModule, compile_module
from tilewright.codegen.numba_.source import emit_source

__all__ = ["NumbaModule", "compile_module", "emit_source"]
