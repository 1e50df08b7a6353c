"""Call one compiled PrimFunc on NumPy arrays, for tests, tuning and benchmarks."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.codegen.llvm.bounds import reported_accesses
from tilewright.codegen.threads import parallel_lock
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.expr import Buffer, IntImm
from tilewright.tensorir.stmt import PrimFunc


class HasAddresses(Protocol):
    """An object that holds machine code."""

    @property
    def reports_accesses(self) -> bool: ...

    def start_threads(self) -> None: ...

    def packed_address(self, name: str) -> int: ...


def check_arguments(func: PrimFunc, args: Sequence[Any]) -> None:
    """Check number, types and constant extents of the arguments of ``func``: arrays for buffers, integers for
    variables.

    Raises:
        InputError: an argument does not fit: the message names it, what was expected and what was found.
    """
    if len(args) != len(func.params):
        raise InputError(f"{func.name}: expected {len(func.params)} arguments, found {len(args)}")
    for param, arg in zip(func.params, args, strict=True):
        if not isinstance(param, Buffer):
            if not isinstance(arg, (int, np.integer)):
                raise InputError(f"{func.name}: {param.name}: expected an integer, found {type(arg).__name__}")
            continue
        if not isinstance(arg, np.ndarray) or arg.dtype != param.dtype.numpy:
            found = str(arg.dtype) if isinstance(arg, np.ndarray) else type(arg).__name__
            raise InputError(f"{func.name}: {param.name}: expected an array of {param.dtype!s}, found {found}")
        if not param.strides and not arg.flags.c_contiguous:
            raise InputError(f"{func.name}: {param.name}: expected a contiguous array, found strides {arg.strides}")
        extents = [extent.value for extent in param.shape if isinstance(extent, IntImm)]
        known = len(extents) == len(param.shape) and not param.strides
        if known and arg.size != math.prod(extents):
            raise InputError(f"{func.name}: {param.name}: expected shape {tuple(extents)}, found {arg.shape}")


def call_primfunc(compiled: HasAddresses, func: PrimFunc, *args: Any) -> None:
    """Run ``func`` of ``compiled``; it writes results into the arrays.

    Raises:
        InputError: an argument does not fit.
    """
    check_arguments(func, args)
    call_packed(compiled, func.name, [arg.ctypes.data if isinstance(arg, np.ndarray) else int(arg) for arg in args])


def call_packed(compiled: HasAddresses, name: str, values: Sequence[int]) -> None:
    """Run the function ``name`` with addresses for its buffers and numbers for its variables, unchecked. The memory
    must outlive the call.

    Raises:
        OutOfBoundsError: the code checks its accesses, and one was outside of a buffer.
    """
    compiled.start_threads()
    packed = (ctypes.c_int64 * max(1, len(values)))(*values)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(compiled.packed_address(name))
    with parallel_lock(), reported_accesses() if compiled.reports_accesses else contextlib.nullcontext():
        function(ctypes.addressof(packed))
