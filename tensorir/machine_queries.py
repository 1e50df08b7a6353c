"""Ask the operating system about this machine: sizes of the data caches, and cores that threads may use.

Linux has files (``/sys/devices/system/cpu``), macOS named numbers (``sysctlbyname``), Windows a table of records
(``GetLogicalProcessorInformation``). Reading them and understanding them are separate functions: the latter take the
answer of a system, of this one or a recorded one.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

#: Returns the number of a name that the system has, None for other names.
ReadNumber = Callable[[str], "int | None"]

#: The folder of Linux that describes the first processor's caches.
LINUX_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

#: SYSTEM_LOGICAL_PROCESSOR_INFORMATION of 64-bit Windows: the mask of the processors, the kind of the record, and of a
#: cache level, associativity, bytes of a line, bytes, kind.
_WINDOWS_RECORD = struct.Struct("<Q I4x BBHII4x")
_RELATION_CACHE = 2
#: Kinds of caches that hold data: unified, and data alone.
_DATA_CACHES = (0, 2)


def system_text(path: str) -> str:
    """Return the text of a file of the system. A build reads twenty, and a buffered file takes three times as long."""
    with open(path, "rb", buffering=0) as file:
        return file.readall().decode()


def reported_caches() -> dict[int, int]:
    """Return the bytes of this machine's data caches by level, as far as the system reports them."""
    if sys.platform == "darwin":
        return macos_caches(sysctl)
    if sys.platform == "win32":
        return windows_caches(logical_processor_information())
    return linux_caches(LINUX_CACHES)


def linux_caches(folder: Path) -> dict[int, int]:
    """Return the bytes of data caches by level: ``folder`` has a folder for each cache, with files ``type``, ``level``
    and ``size`` (``"512K"``)."""
    sizes: dict[int, int] = {}
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        cache = f"{folder!s}/{name}"
        try:
            if system_text(f"{cache}/type").strip() == "Instruction":
                continue
            level, size = system_text(f"{cache}/level").strip(), system_text(f"{cache}/size").strip()
        except OSError:
            continue  # an entry that is no cache (uevent, power)
        unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
        sizes[int(level)] = int(size.rstrip("KM")) * unit
    return sizes


def macos_caches(read: ReadNumber) -> dict[int, int]:
    """Return the bytes of data caches by level, of the fastest cores.

    Names without ``perflevel`` describe the slowest cores of a processor that has several kinds; before macOS 12 there
    are no others. Apple's processors report no third level: what threads share is the second.
    """
    sizes: dict[int, int] = {}
    for level, name in ((1, "l1dcachesize"), (2, "l2cachesize"), (3, "l3cachesize")):
        size = read(f"hw.perflevel0.{name}") or read(f"hw.{name}")
        if size:
            sizes[level] = size
    if 2 in sizes:
        sizes.setdefault(3, sizes[2])
    return sizes


def windows_caches(records: bytes) -> dict[int, int]:
    """Return the bytes of the first processor's data caches by level.

    Args:
        records: result of ``GetLogicalProcessorInformation``.
    """
    sizes: dict[int, int] = {}
    whole = len(records) - len(records) % _WINDOWS_RECORD.size
    for mask, relation, level, _, _, size, kind in _WINDOWS_RECORD.iter_unpack(records[:whole]):
        if relation == _RELATION_CACHE and kind in _DATA_CACHES and mask & 1:
            sizes[level] = size
    return sizes


def usable_processors() -> int:
    """Return the number of logical processors that this process may use, at least one: those of its affinity mask, on
    macOS those of the fastest kind."""
    count = os.cpu_count() or 1
    if sys.platform == "darwin":
        return macos_processors(sysctl, count)
    if sys.platform == "win32":
        return windows_processors(*affinity_masks(), count)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count


def macos_processors(read: ReadNumber, count: int) -> int:
    """Return how many of ``count`` processors are of the fastest kind. The sizes of tiles follow their caches, and an
    item of a loop takes one of the others two to three times as long, for which the rest would wait."""
    return min(count, read("hw.perflevel0.logicalcpu") or count)


def windows_processors(process: int, system: int, count: int) -> int:
    """Return how many of ``count`` processors a process may use.

    Args:
        process: its affinity mask.
        system: the mask of all processors of its group. Threads of a process that is not restricted may run in all
            groups (since Windows 11), of 64 processors each; both masks are zero if some run in several.
    """
    return count if process == system else max(1, bin(process).count("1"))


def sysctl(name: str) -> int | None:
    """Return a number that macOS has under ``name``; None if it has none."""
    function = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if function is None:
        return None
    value, size = ctypes.c_uint64(0), ctypes.c_size_t(8)
    nothing = ctypes.c_void_p(None)
    status = function(name.encode(), ctypes.byref(value), ctypes.byref(size), nothing, ctypes.c_size_t(0))
    # A number of four bytes fills the lower half: both architectures are little-endian.
    return None if status else value.value


def logical_processor_information() -> bytes:
    """Return Windows' records of cores, caches and packages; nothing if it refuses."""
    function = ctypes.CDLL("kernel32").GetLogicalProcessorInformation
    size = ctypes.c_uint32(0)
    function(ctypes.c_void_p(None), ctypes.byref(size))  # fails, and stores the size
    buffer = ctypes.create_string_buffer(size.value)
    return buffer.raw[: size.value] if function(buffer, ctypes.byref(size)) else b""


def affinity_masks() -> tuple[int, int]:
    """Return Windows' affinity masks of this process and of the system; zeros if it refuses."""
    kernel = ctypes.CDLL("kernel32")
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    process, system = ctypes.c_uint64(0), ctypes.c_uint64(0)
    handle = ctypes.c_void_p(kernel.GetCurrentProcess())
    kernel.GetProcessAffinityMask(handle, ctypes.byref(process), ctypes.byref(system))
    return process.value, system.value
