"""Emit readable Python source from scheduled loop IR; numba compiles it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.codegen.numba_.compile import NumbaModule, compile_module
    from tilewright.codegen.numba_.functions import TracedSource, emit_source, trace_source

__all__ = ["NumbaModule", "TracedSource", "compile_module", "emit_source", "trace_source"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
