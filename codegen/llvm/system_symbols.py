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

from tilewright.codegen.llvm.intrinsics import LIBRARY_FUNCTIONS
from tilewright.tensorir.target import process_triple

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


def system_addresses(object_bytes: bytes) -> dict[str, int]:
    """Return the addresses in this process of those :func:`system_symbols` that occur in object code."""
    occurring = [name for name, text in _texts() if text in object_bytes]
    return {name: address for name in occurring if (address := _address(name))}


@functools.cache
def _texts() -> tuple[tuple[str, bytes], ...]:
    """Return the symbols that are looked for in object code, also as they are written there."""
    return tuple([(name, name.encode()) for name in sorted(system_symbols(process_triple()))])


@functools.cache
def _address(name: str) -> int:
    """Return the address of a symbol of the system; zero if this process does not have it."""
    if name == _FLOATS_USED:
        return ctypes.addressof(_floats_used)
    library, exported = None, name
    if sys.platform == "win32":
        touches = name in _TOUCH_PAGES.values()
        library, exported = ("ntdll", _TOUCH_PAGES["msvc"]) if touches else ("ucrtbase", name)
    function = getattr(ctypes.CDLL(library), exported, None)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0
