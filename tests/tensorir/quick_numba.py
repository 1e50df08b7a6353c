"""Let numba compile without LLVM's optimizations, which take a third of its time.

Tests of operators, passes and models compile thousands of small kernels for numba and run each once, to see that the
source means what it should. Those that are about numba's machine code (tests/codegen, and files marked ``optimized``)
have it as users have it, and so have all tests with ``--all-combinations``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.codegen.numba_.compile import NumbaModule


@functools.cache
def _engine() -> Any:
    """Return an engine that makes code for numba without optimizations. Numba has one for a process, at the level
    that NUMBA_OPT has when it is made. Even at level 0 it would run passes over each function and each module."""
    from numba.core.codegen import JITCodeLibrary, JITCPUCodegen

    class Library(JITCodeLibrary):  # type: ignore[misc]
        def _optimize_functions(self, ll_module: Any) -> None:
            ll_module.data_layout = self._codegen._data_layout

        def _optimize_final_module(self) -> None:
            pass

    class Engine(JITCPUCodegen):  # type: ignore[misc]
        _library_class = Library

    return Engine("numba.exec.quick")


@contextlib.contextmanager
def compiled_without_optimizations() -> Iterator[None]:
    """Inside the ``with`` block numba optimizes no function that it compiles; numba is imported when it is needed."""
    make = NumbaModule.__init__
    with pytest.MonkeyPatch.context() as patch:

        @functools.wraps(make)
        def made(module: NumbaModule, *args: Any) -> None:
            make(module, *args)  # imports numba, after it has seen to its threads
            from numba.core import config
            from numba.core.registry import cpu_target

            if config.OPT != 0:
                patch.setattr(config, "OPT", type(config.OPT)(0))
                patch.setattr(cpu_target.target_context, "_internal_codegen", _engine())

        patch.setattr(NumbaModule, "__init__", made)
        yield
