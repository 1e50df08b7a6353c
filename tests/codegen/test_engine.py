"""Linked code reaches its constants, however full the address space around it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Leaves holes of one page in the address space, and the next room 8 GiB below them. In three runs of four, a section
#: of some model takes the last hole; sections that are mapped one by one are then too far apart.
_CROWDED = """
import mmap
import numpy as np
import tilewright as tw
from tilewright import graphir as gi

def model(size):
    x = gi.var("x", shape=(size,))
    return tw.build(gi.Function([x], gi.exp(x)))

model(100)(np.ones(100, "float32"))
settings = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, "prot": 0}  # 0x4000: MAP_NORESERVE
kept = [mmap.mmap(-1, mmap.PAGESIZE, **settings) for _ in range(18000)]
for number in range(4):
    pages = [mmap.mmap(-1, mmap.PAGESIZE, **settings) for _ in range(2000)]
    kept += [mmap.mmap(-1, 1 << 33, **settings), *pages]
    for page in pages[-39 - 2 * number :: 2]:
        page.close()
    for size in range(25 * number, 25 * number + 25):
        kept.append(model(size))
        kept[-1](np.ones(size, "float32"))
print("linked")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the layout of the address space is that of Linux")
def test_sections_lie_together_in_a_crowded_address_space() -> None:
    done = subprocess.run([sys.executable, "-c", _CROWDED], capture_output=True, text=True, timeout=300)
    assert done.stdout == "linked\n", done.stderr
