"""Read the vector width of machine code from its assembly text.

A compiler behind this one (numba's LLVM) decides for itself whether and how wide it vectorizes a loop; only its
instructions tell. Instructions that move data do not count: scalar code uses them too, to save registers and unpack
arrays.
"""

from __future__ import annotations

import re
from collections import Counter

# In AT&T syntax: vaddps, vfmadd213pd, vpaddd, pmulld ...; the scalar ones end in ss and sd.
_X86 = re.compile(
    r"^\s+v?(?:(?:add|sub|mul|div|min|max|sqrt|fn?m(?:add|sub)\d*)p[hsd]|p(?:add|sub|mul|madd|min|max|abs|avg|dp)\w*)"
    r"\s[^#\n]*%([xyz])mm",
    re.MULTILINE,
)
_X86_BITS = {"x": 128, "y": 256, "z": 512}

# fadd v0.4s, v1.4s, v2.4s; on Apple's systems fadd.4s v0, v1, v2.
_ARM = re.compile(
    r"^\s+[fsu]?q?(?:add|sub|mul|div|min|max|mla|mls|abs|neg|sqrt|dot)\w*(?:\.|\s+v\d+\.)(\d+)([bhsd])\b", re.MULTILINE
)
_ARM_BITS = {"b": 8, "h": 16, "s": 32, "d": 64}


def vector_bits(assembly: str) -> int:
    """Return the width in bits of most vector arithmetic instructions, of x86 or of AArch64; 0 if there are none."""
    widths = Counter(_X86_BITS[register] for register in _X86.findall(assembly))
    widths.update(int(lanes) * _ARM_BITS[kind] for lanes, kind in _ARM.findall(assembly))
    return max(widths, key=lambda bits: (widths[bits], bits), default=0)
