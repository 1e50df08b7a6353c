"""The functions of the system that object code may call, and their addresses in this process.

They are functions of the C library, for intrinsics and for instructions that a processor lacks, and what LLVM's code
for some systems refers to besides:

- Windows: ``_fltused``, which Microsoft's linker takes to see that a program computes with floats. Its value is not
  read. And the function that touches the pages of a large frame one after the other, since only the next page below the
  stack grows it: ``__chkstk``, or ``___chkstk_ms`` in MinGW's ABI. ``ntdll`` exports it under the first name.
- macOS: ``bzero``, for memory that is set to zero.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterable

import llvmlite.binding as llvm

from tilewright.codegen.llvm.intrinsics import LIBRARY_FUNCTIONS

#: Functions that LLVM calls for instructions that a processor lacks (float64 versions have no suffix).
_ROUNDINGS = ("fma", "floor", "ceil", "trunc", "rint", "sqrt")
_C_LIBRARY = (*LIBRARY_FUNCTIONS, *_ROUNDINGS, *(f"{name}f" for name in _ROUNDINGS), "memcpy", "memset", "memmove")

_FLOATS_USED = "_fltused"
#: Names of the function that touches a frame's pages.
_TOUCH_PAGES = {"msvc": "__chkstk", "gnu": "___chkstk_ms"}
_SET_TO_ZERO = ("bzero", "__bzero")

#: What :data:`_FLOATS_USED` refers to.
_floats_used = ctypes.c_int32(0)


def system_symbols(mtriple: str) -> frozenset[str]:
    """Return every symbol of the system that object code for a triple may refer to, as the system's C compiler writes
    it (Mach-O's names have one more underscore in front)."""
    found = set(_C_LIBRARY)
    if "windows" in mtriple:
        found |= {_TOUCH_PAGES["gnu" if mtriple.endswith("gnu") else "msvc"]}
        found |= set() if mtriple.endswith("gnu") else {_FLOATS_USED}
    elif "darwin" in mtriple or "macos" in mtriple:
        found |= set(_SET_TO_ZERO)
    return frozenset(found)


@functools.cache
def system_addresses() -> dict[str, int]:
    """Return the addresses of the :func:`system_symbols` of this process."""
    if sys.platform != "win32":
        return _addresses(ctypes.CDLL(None), sorted(system_symbols(llvm.get_process_triple())))
    found = _addresses(ctypes.CDLL("ucrtbase"), _C_LIBRARY)
    touch = _addresses(ctypes.CDLL("ntdll"), [_TOUCH_PAGES["msvc"]])
    found |= {name: address for name in _TOUCH_PAGES.values() for address in touch.values()}
    found[_FLOATS_USED] = ctypes.addressof(_floats_used)
    return found


def _addresses(library: ctypes.CDLL, names: Iterable[str]) -> dict[str, int]:
    """Return the addresses of those functions that a library has."""
    found = {name: getattr(library, name, None) for name in names}
    return {
        name: ctypes.cast(function, ctypes.c_void_p).value or 0
        for name, function in found.items()
        if function is not None
    }
