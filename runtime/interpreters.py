"""Refuse subinterpreters: code, threads and caches are those of the process, and NumPy supports one interpreter."""

from __future__ import annotations

import ctypes
import functools

from tilewright.tensorir.errors import ExecutionError


@functools.cache
def is_main_interpreter() -> bool:
    """Return whether this is the first interpreter of the process; also where Python does not tell."""
    try:
        current, main = ctypes.pythonapi.PyInterpreterState_Get, ctypes.pythonapi.PyInterpreterState_Main
    except AttributeError:  # another implementation of Python
        return True
    current.restype = main.restype = ctypes.c_void_p
    return bool(current() == main())


def check_interpreter() -> None:
    """Check that models may be built and loaded here.

    Raises:
        ExecutionError: this is a subinterpreter.
    """
    if not is_main_interpreter():
        raise ExecutionError(
            "expected the main interpreter of the process, found a subinterpreter: NumPy and the threads of parallel "
            "loops do not support them; start a process instead (multiprocessing)"
        )
