"""Test what is read out of the answers of operating systems: those of this machine, and recorded ones."""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright.tensorir import machine_queries
from tilewright.tensorir.machine_queries import (
    linux_caches,
    macos_caches,
    macos_processors,
    sysctl,
    windows_caches,
    windows_processors,
)

KIB, MIB = 1 << 10, 1 << 20

#: An Apple M1 Pro (https://github.com/Dr-Noob/cpufetch/issues/139), in the order of ``sysctl -a``. The names without a
#: level are those of its slow cores (https://github.com/google/benchmark/issues/1310).
M1_PRO = """
hw.ncpu: 10
hw.byteorder: 1234
hw.activecpu: 10
hw.perflevel1.cpusperl2: 2
hw.perflevel1.l1dcachesize: 65536
hw.perflevel1.l1icachesize: 131072
hw.perflevel1.l2cachesize: 4194304
hw.perflevel1.logicalcpu: 2
hw.perflevel1.physicalcpu: 2
hw.perflevel0.cpusperl2: 4
hw.perflevel0.l1dcachesize: 131072
hw.perflevel0.l1icachesize: 196608
hw.perflevel0.l2cachesize: 12582912
hw.perflevel0.logicalcpu: 8
hw.perflevel0.logicalcpu_max: 8
hw.perflevel0.physicalcpu: 8
hw.l1dcachesize: 65536
hw.l2cachesize: 4194304
"""
#: An Intel Core i5-8500B under macOS 12 (https://github.com/dotnet/runtime/pull/75854), and a Mac of 2019 under macOS
#: 10.15, which has no levels (https://github.com/apache/arrow/pull/7408).
I5_8500B = """
hw.perflevel0.l2cachesize: 262144
hw.perflevel0.l3cachesize: 9437184
hw.l1dcachesize: 32768
hw.l3cachesize: 9437184
"""
MAC_OF_2019 = """
hw.l1dcachesize: 32768
hw.l2cachesize: 262144
hw.l3cachesize: 12582912
"""


def recorded(text: str) -> Callable[[str], int | None]:
    """Answers with what ``sysctl`` printed."""
    known = {name: int(value) for name, value in re.findall(r"^(\S+): (\d+)$", text, re.MULTILINE)}
    return known.get


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (M1_PRO, {1: 128 * KIB, 2: 12 * MIB, 3: 12 * MIB}),
        (I5_8500B, {1: 32 * KIB, 2: 256 * KIB, 3: 9 * MIB}),
        (MAC_OF_2019, {1: 32 * KIB, 2: 256 * KIB, 3: 12 * MIB}),
        ("", {}),
    ],
    ids=["M1 Pro", "i5-8500B", "Mac of 2019", "nothing"],
)
def test_caches_of_a_mac_are_those_of_its_fastest_cores(text: str, sizes: dict[int, int]) -> None:
    assert macos_caches(recorded(text)) == sizes


@pytest.mark.parametrize(("text", "count", "usable"), [(M1_PRO, 10, 8), (MAC_OF_2019, 12, 12), (M1_PRO, 4, 4)])
def test_threads_of_a_mac_run_on_its_fastest_cores(text: str, count: int, usable: int) -> None:
    assert macos_processors(recorded(text), count) == usable


#: The records of a machine of two cores, an AMD EPYC, as Wine's ``GetLogicalProcessorInformation`` gave them.
EPYC = bytes.fromhex(
    """
    0300000000000000030000000000000000000000000000000000000000000000
    0100000000000000000000000000000000000000000000000000000000000000
    0100000000000000020000000000000001084000008000000200000000000000
    0100000000000000020000000000000001084000008000000100000000000000
    0100000000000000020000000000000002084000000008000000000000000000
    0300000000000000020000000000000003104000000000020000000000000000
    0200000000000000000000000000000000000000000000000100000000000000
    0200000000000000020000000000000001084000008000000200000000000000
    0200000000000000020000000000000001084000008000000100000000000000
    0200000000000000020000000000000002084000000008000000000000000000
    0300000000000000010000000000000000000000000000000000000000000000
    """
)
#: Part of what Coreinfo, which prints these records, says of an AMD Ryzen 5 2600 under Windows 7
#: (https://github.com/open-mpi/hwloc/issues/360).
RYZEN_2600 = """
*-----------  Data Cache          0, Level 1,   32 KB, Assoc   8, LineSize  64
*-----------  Instruction Cache   0, Level 1,   64 KB, Assoc   4, LineSize  64
*-----------  Unified Cache       0, Level 2,  512 KB, Assoc   8, LineSize  64
*-----------  Unified Cache       1, Level 3,   16 MB, Assoc  16, LineSize  64
-*----------  Data Cache          1, Level 1,   32 KB, Assoc   8, LineSize  64
-*----------  Instruction Cache   1, Level 1,   64 KB, Assoc   4, LineSize  64
-*----------  Unified Cache       2, Level 2,  512 KB, Assoc   8, LineSize  64
-*----------  Unified Cache       3, Level 3,   16 MB, Assoc  16, LineSize  64
"""


def records(text: str) -> bytes:
    """The records of caches that Coreinfo printed (``winnt.h``: SYSTEM_LOGICAL_PROCESSOR_INFORMATION)."""
    found = b""
    line = re.compile(r"^([*-]+)\s+(\w+) Cache\s+\d+, Level (\d),\s+(\d+) (KB|MB), Assoc\s+(\d+), LineSize\s+(\d+)$")
    for each in filter(None, map(line.match, text.splitlines())):
        mask = sum(1 << place for place, sign in enumerate(each[1]) if sign == "*")
        kind = {"Unified": 0, "Instruction": 1, "Data": 2}[each[2]]
        size = int(each[4]) * {"KB": KIB, "MB": MIB}[each[5]]
        found += struct.pack("<QIIBBHIII", mask, 2, 0, int(each[3]), int(each[6]), int(each[7]), size, kind, 0)
    return found


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (EPYC, {1: 32 * KIB, 2: 512 * KIB, 3: 32 * MIB}),
        (records(RYZEN_2600), {1: 32 * KIB, 2: 512 * KIB, 3: 16 * MIB}),
        (EPYC[6 * 32 : 9 * 32], {}),  # records of the second core
        (EPYC[:100], {1: 32 * KIB}),  # cut off
        (b"", {}),
    ],
    ids=["EPYC", "Ryzen 5 2600", "another core", "cut off", "nothing"],
)
def test_caches_under_windows_are_the_first_processor_s_data_caches(given: bytes, sizes: dict[int, int]) -> None:
    assert windows_caches(given) == sizes


@pytest.mark.parametrize(
    ("process", "system", "count", "usable"),
    [(0xFFF, 0xFFF, 12, 12), (0x0F3, 0xFFF, 12, 6), (2**64 - 1, 2**64 - 1, 96, 96), (0, 0, 128, 128), (0, 0xF, 4, 1)],
    ids=["all", "some", "all of two groups", "threads in two groups", "refused"],
)
def test_processors_under_windows_are_those_of_the_affinity_mask(
    process: int, system: int, count: int, usable: int
) -> None:
    assert windows_processors(process, system, count) == usable


def test_caches_of_linux_are_read_from_files(tmp_path: Path) -> None:
    caches = {
        "index0": ("Data", "1", "32K"),
        "index1": ("Instruction", "1", "64K"),
        "index2": ("Unified", "2", "1024K"),
    }
    caches["index3"] = ("Unified", "3", "32M")
    for folder, content in caches.items():
        (tmp_path / folder).mkdir()
        for name, text in zip(("type", "level", "size"), content, strict=True):
            (tmp_path / folder / name).write_text(text + "\n")
    (tmp_path / "uevent").write_text("")
    assert linux_caches(tmp_path) == {1: 32 * KIB, 2: 1 * MIB, 3: 32 * MIB}
    assert linux_caches(tmp_path / "missing") == {}


@pytest.mark.parametrize(
    ("stored", "expected"), [((65536).to_bytes(4, "little"), 65536), (bytes([0, 0, 0, 0, 1, 0, 0, 0]), 1 << 32)]
)
def test_sysctl_reads_numbers_of_both_sizes(monkeypatch: pytest.MonkeyPatch, stored: bytes, expected: int) -> None:
    """The function has the C declaration of macOS: the numbers of arguments, and the types, must be right."""
    declared = ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_size_t),
        ctypes.c_void_p,
        ctypes.c_size_t,
    )

    @declared
    def sysctlbyname(
        name: bytes, old: int, size: ctypes._Pointer[ctypes.c_size_t], new: int | None, new_size: int
    ) -> int:
        assert (size.contents.value, new, new_size) == (8, None, 0)
        if name != b"hw.memsize":
            return -1
        ctypes.memmove(old, stored, len(stored))
        size.contents.value = len(stored)
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(sysctlbyname=sysctlbyname))
    assert (sysctl("hw.memsize"), sysctl("hw.other")) == (expected, None)


@pytest.mark.parametrize(("platform", "used"), [("darwin", 8), ("win32", 6), ("linux", 5)])
def test_the_system_that_runs_is_asked(monkeypatch: pytest.MonkeyPatch, platform: str, used: int) -> None:
    monkeypatch.setattr(machine_queries, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(machine_queries, "sysctl", recorded(M1_PRO))
    monkeypatch.setattr(machine_queries, "affinity_masks", lambda: (0x3F, 0xFFF))
    monkeypatch.setattr(machine_queries, "logical_processor_information", lambda: records(RYZEN_2600))
    monkeypatch.setattr(machine_queries, "LINUX_CACHES", Path("missing"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(5)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert machine_queries.usable_processors() == used
    third = {"darwin": 12 * MIB, "win32": 16 * MIB}.get(platform)
    assert machine_queries.reported_caches().get(3) == third
