"""Apply changes of a processor's features, such as ``+avx2,-avx512f``, as LLVM does.

A feature brings those that it needs: with AVX-512 comes AVX2. One that is taken away takes with it those that need it:
without AVX2 there is no AVX-512. LLVM's tables (``llvm/lib/Target/X86/X86.td`` and
``llvm/lib/Target/AArch64/AArch64Features.td``) have these relations, but no interface to them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from tilewright.tensorir.errors import ArgumentTypeError, TargetError
from tilewright.tensorir.processors import AARCH64, X86_64, architecture_of

_AVX10_1 = (
    *("avx512cd", "avx512vbmi", "avx512ifma", "avx512vnni", "avx512bf16", "avx512vpopcntdq", "avx512vbmi2"),
    *("avx512bitalg", "avx512fp16"),
)

#: Features of x86-64, each with those that it needs directly.
_X86_64: dict[str, tuple[str, ...]] = {
    "sse": (),
    "sse2": ("sse",),
    "sse3": ("sse2",),
    "ssse3": ("sse3",),
    "sse4.1": ("ssse3",),
    "sse4.2": ("sse4.1",),
    "sse4a": ("sse3",),
    "aes": ("sse2",),
    "pclmul": ("sse2",),
    "gfni": ("sse2",),
    "sha": ("sse2",),
    "avx": ("sse4.2",),
    "f16c": ("avx",),
    "fma": ("avx",),
    "fma4": ("avx", "sse4a"),
    "xop": ("fma4",),
    "vaes": ("avx2", "aes"),
    "vpclmulqdq": ("avx", "pclmul"),
    "avx2": ("avx",),
    "avxifma": ("avx2",),
    "avxneconvert": ("avx2",),
    "avxvnni": ("avx2",),
    "avxvnniint8": ("avx2",),
    "avxvnniint16": ("avx2",),
    "sha512": ("avx2",),
    "sm3": ("avx",),
    "sm4": ("avx2",),
    "avx512f": ("avx2", "fma", "f16c"),
    "avx512cd": ("avx512f",),
    "avx512dq": ("avx512f",),
    "avx512bw": ("avx512f",),
    "avx512vl": ("avx512f",),
    "avx512ifma": ("avx512f",),
    "avx512vnni": ("avx512f",),
    "avx512vpopcntdq": ("avx512f",),
    "avx512vp2intersect": ("avx512f",),
    "avx512vbmi": ("avx512bw",),
    "avx512vbmi2": ("avx512bw",),
    "avx512bitalg": ("avx512bw",),
    "avx512bf16": ("avx512bw",),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"),
    "avx10.1": _AVX10_1,
    "avx10.2": ("avx10.1",),
    "amx-bf16": ("amx-tile",),
    "amx-complex": ("amx-tile",),
    "amx-fp16": ("amx-tile",),
    "amx-fp8": ("amx-tile",),
    "amx-int8": ("amx-tile",),
    "amx-movrs": ("amx-tile",),
    "amx-tf32": ("amx-tile",),
    "amx-avx512": ("amx-tile",),
    "kl": ("sse2",),
    "widekl": ("kl",),
    "xsaveopt": ("xsave",),
    "xsavec": ("xsave",),
    "xsaves": ("xsave",),
    "cx16": ("cx8",),
    **dict.fromkeys(
        (
            *("64bit", "adx", "amx-tile", "bmi", "bmi2", "ccmp", "cf", "cldemote", "clflushopt", "clwb", "clzero"),
            *("cmov", "cmpccxadd", "crc32", "cx8", "egpr", "enqcmd", "fsgsbase", "fxsr", "hreset", "invpcid", "lwp"),
            *("lzcnt", "mmx", "movbe", "movdir64b", "movdiri", "movrs", "mwaitx", "ndd", "nf", "pconfig", "pku"),
            *("popcnt", "ppx", "prefetchi", "prfchw", "ptwrite", "push2pop2", "raoint", "rdpid", "rdpru", "rdrnd"),
            *("rdseed", "rtm", "sahf", "serialize", "sgx", "shstk", "tbm", "tsxldtrk", "uintr", "usermsr"),
            *("waitpkg", "wbnoinvd", "xsave", "zu"),
        ),
        (),
    ),
}

#: Features of AArch64 that code needs; of others it is not known which come with which.
_AARCH64: dict[str, tuple[str, ...]] = {"fp-armv8": (), "neon": ("fp-armv8",)}


def parse_changes(mattr: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the changes in a text such as ``+avx2,-avx512f``, or in a list of them, each a sign and a name.

    Raises:
        ArgumentTypeError: it is neither a text nor a list of texts.
        TargetError: one has no sign, or no name.
    """
    is_list = isinstance(mattr, (list, tuple)) and all(isinstance(part, str) for part in mattr)
    if mattr is not None and not isinstance(mattr, str) and not is_list:
        raise ArgumentTypeError(f"mattr: expected features as '+avx2,-avx512f', found {mattr!r:.80}")
    parts = mattr.split(",") if isinstance(mattr, str) else list(mattr or ())
    changes = tuple([part.strip() for part in parts if part.strip()])
    for change in changes:
        if change[0] not in "+-" or len(change.split()) > 1 or "," in change or len(change) < 2:
            raise TargetError(f"mattr: expected features as '+avx2,-avx512f', found {change!r}")
    return changes


def described_features(mtriple: str) -> dict[str, tuple[str, ...]]:
    """Return the instruction set extensions that are described here, each with those that it needs directly."""
    return {X86_64: _X86_64, AARCH64: _AARCH64}.get(architecture_of(mtriple), {})


def changed_features(features: frozenset[str], changes: Iterable[str], mtriple: str) -> frozenset[str]:
    """Return ``features`` after ``changes``, in their order: with a feature, those that it needs; without one, none of
    those that need it.

    Features that choose between equal instructions (``prefer-256-bit``) stay out: what is returned is what a processor
    must have. Where features are not described here, all are taken to be instructions.

    Raises:
        TargetError: code for the architecture would lack a feature that it needs.
    """
    table = described_features(mtriple)
    found = set(features)
    for change in changes:
        name = change[1:]
        if change[0] == "+":
            found |= _needed(name, mtriple) if name in table or table is not _X86_64 else set()
        else:
            found -= {other for other in {*table, *found, name} if name in _needed(other, mtriple)}
    lacking = architecture_of(mtriple).features - found
    if lacking:
        raise TargetError(f"mattr: code for {mtriple} needs {', '.join(sorted(lacking))}, found {','.join(changes)!r}")
    return frozenset(found)


def preferred_bits(changes: Iterable[str]) -> int:
    """Return the width of the longest vectors that ``changes`` prefer on x86-64; 512, the longest of all, where they
    have no preference."""
    chosen = {change[1:]: change[0] == "+" for change in changes}
    return next((bits for bits in (128, 256) if chosen.get(f"prefer-{bits}-bit")), 512)


@functools.cache
def _needed(name: str, mtriple: str) -> frozenset[str]:
    """Return a feature and all that it needs."""
    parts = described_features(mtriple).get(name, ())
    return frozenset({name}.union(*(_needed(part, mtriple) for part in parts)))
