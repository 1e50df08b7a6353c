"""Describe processors, all in this file: features, vectors, caches, and instructions that are called by name.

LLVM has most of these facts but no interface to them. Features are those of the psABI's levels
(https://gitlab.com/x86-psABIs/x86-64-ABI) and of LLVM's table of processors
(``llvm/lib/TargetParser/X86TargetParser.cpp``).

Sizes of caches are the makers': Intel's "64 and IA-32 Architectures Optimization Reference Manual" (chapter 2) for the
first two levels and its product pages (ark.intel.com) for the third, AMD's "Software Optimization Guide" of each family
(17h, 19h, 1Ah), Arm's technical reference manuals of the Neoverse cores with what Amazon says of its Graviton machines
where the manuals leave a choice, and what macOS reports for Apple's (``sysctl hw.perflevel0``). The size of the third
level differs between products: given is the part that one core can use in a common product, named beside it. A
processor without a third level has the size of its second level there.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

_KIB, _MIB = 1 << 10, 1 << 20


class Architecture(NamedTuple):
    """The properties that all processors of an instruction set share.

    Attributes:
        names: the first parts of LLVM's triples for it.
        features: features that every processor has.
        vector_registers: number of registers of at most 256 bits, and of 512 bits.
        pause: declaration and call, as LLVM text, of the instruction for a spin loop; empty if there is none.
        typical: the processor whose caches an unknown processor is assumed to have.
    """

    names: tuple[str, ...]
    features: frozenset[str]
    vector_registers: tuple[int, int]
    pause: tuple[str, str]
    typical: str


class Processor(NamedTuple):
    """A processor, or a feature level that many processors have.

    Attributes:
        features: LLVM's names of the features that schedules and passes use.
        caches: bytes of the data caches that one core can use, of the first three levels.
    """

    features: frozenset[str]
    caches: tuple[int, int, int]


class DotProduct(NamedTuple):
    """An instruction that adds several neighbouring products to each lane of a vector.

    Attributes:
        left, right, total: types of the elements of its factors and of the sum.
        products: number of products added to each lane.
        wide, short: sets of features; a processor with one of them has the instruction for vectors of 512 bits (wide),
            or of 256 and 128 bits (short).
        instruction: LLVM's name of it, without the number of bits.
        factor: the element type of its factors in LLVM, and the number of them for each element of the sum.
    """

    left: str
    right: str
    total: str
    products: int
    wide: tuple[frozenset[str], ...]
    short: tuple[frozenset[str], ...]
    instruction: str
    factor: tuple[str, int]


_SSE2 = frozenset({"sse2"})
_SSE42 = _SSE2 | {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"}
_AVX2 = _SSE42 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt"}
_AVX_VNNI = _AVX2 | {"avxvnni"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_VNNI = _AVX512 | {"avx512vnni"}
_BF16 = _VNNI | {"avx512bf16"}
_BOTH_VNNI = _BF16 | {"avxvnni"}
_NEON = frozenset({"neon"})

X86_64 = Architecture(
    names=("x86_64", "amd64"),
    features=_SSE2,
    vector_registers=(16, 32),
    pause=("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    typical="x86-64",
)
AARCH64 = Architecture(
    names=("aarch64", "arm64"),
    features=_NEON,
    vector_registers=(32, 32),
    pause=("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    typical="neoverse-n1",
)
#: An instruction set that is not described here.
OTHER = Architecture((), frozenset(), (16, 16), ("", ""), "x86-64")

#: Caches of an unknown x86-64 processor. Code for a feature level mostly runs on newer processors than the first that
#: had it: these are sizes of servers (Skylake, Zen 4), more than the 256 KiB of Haswell's second level.
_TYPICAL_X86_64 = (32 * _KIB, 1 * _MIB, 32 * _MIB)

_PROCESSORS = {
    "x86-64": Processor(_SSE2, _TYPICAL_X86_64),
    "x86-64-v2": Processor(_SSE42, _TYPICAL_X86_64),
    "x86-64-v3": Processor(_AVX2, _TYPICAL_X86_64),
    "x86-64-v4": Processor(_AVX512, _TYPICAL_X86_64),
    # Intel, without AVX-512.
    "nehalem": Processor(_SSE42, (32 * _KIB, 256 * _KIB, 8 * _MIB)),  # Core i7-920
    "westmere": Processor(_SSE42, (32 * _KIB, 256 * _KIB, 12 * _MIB)),  # Xeon X5650
    "silvermont": Processor(_SSE42, (24 * _KIB, 1 * _MIB, 1 * _MIB)),  # two cores share the second level
    "goldmont": Processor(_SSE42, (24 * _KIB, 1 * _MIB, 1 * _MIB)),  # as do these
    "haswell": Processor(_AVX2, (32 * _KIB, 256 * _KIB, 8 * _MIB)),  # Core i7-4770
    "broadwell": Processor(_AVX2, (32 * _KIB, 256 * _KIB, 6 * _MIB)),  # Core i7-5775C
    "skylake": Processor(_AVX2, (32 * _KIB, 256 * _KIB, 8 * _MIB)),  # Core i7-6700
    "alderlake": Processor(_AVX_VNNI, (48 * _KIB, 1280 * _KIB, 30 * _MIB)),  # Core i9-12900, a performance core
    "raptorlake": Processor(_AVX_VNNI, (48 * _KIB, 2 * _MIB, 36 * _MIB)),  # Core i9-13900, a performance core
    "meteorlake": Processor(_AVX_VNNI, (48 * _KIB, 2 * _MIB, 24 * _MIB)),  # Core Ultra 7 155H, a performance core
    "gracemont": Processor(_AVX_VNNI, (32 * _KIB, 2 * _MIB, 6 * _MIB)),  # Core i3-N305: four share the second level
    # Intel, with AVX-512.
    "skylake-avx512": Processor(_AVX512, (32 * _KIB, 1 * _MIB, 27 * _MIB + 512 * _KIB)),  # Xeon Gold 6148
    "cascadelake": Processor(_VNNI, (32 * _KIB, 1 * _MIB, 27 * _MIB + 512 * _KIB)),  # Xeon Gold 6248
    "cooperlake": Processor(_BF16, (32 * _KIB, 1 * _MIB, 38 * _MIB + 512 * _KIB)),  # Xeon Platinum 8380H
    "icelake-client": Processor(_VNNI, (48 * _KIB, 512 * _KIB, 8 * _MIB)),  # Core i7-1065G7
    "tigerlake": Processor(_VNNI, (48 * _KIB, 1280 * _KIB, 12 * _MIB)),  # Core i7-1185G7
    "rocketlake": Processor(_VNNI, (48 * _KIB, 512 * _KIB, 16 * _MIB)),  # Core i9-11900
    "icelake-server": Processor(_VNNI, (48 * _KIB, 1280 * _KIB, 60 * _MIB)),  # Xeon Platinum 8380
    "sapphirerapids": Processor(_BOTH_VNNI, (48 * _KIB, 2 * _MIB, 105 * _MIB)),  # Xeon Platinum 8480+
    "emeraldrapids": Processor(_BOTH_VNNI, (48 * _KIB, 2 * _MIB, 320 * _MIB)),  # Xeon Platinum 8592+
    "graniterapids": Processor(_BOTH_VNNI, (48 * _KIB, 2 * _MIB, 504 * _MIB)),  # Xeon 6980P
    # AMD: cores of one complex share the third level.
    "znver1": Processor(_AVX2, (32 * _KIB, 512 * _KIB, 8 * _MIB)),
    "znver2": Processor(_AVX2, (32 * _KIB, 512 * _KIB, 16 * _MIB)),
    "znver3": Processor(_AVX2, (32 * _KIB, 512 * _KIB, 32 * _MIB)),
    "znver4": Processor(_BF16, (32 * _KIB, 1 * _MIB, 32 * _MIB)),
    "znver5": Processor(_BOTH_VNNI, (48 * _KIB, 1 * _MIB, 32 * _MIB)),
    # Arm. Generated code has vectors of 128 bits, also on processors with SVE.
    "neoverse-n1": Processor(_NEON, (64 * _KIB, 1 * _MIB, 32 * _MIB)),  # Graviton2
    "neoverse-v1": Processor(_NEON, (64 * _KIB, 1 * _MIB, 32 * _MIB)),  # Graviton3
    "neoverse-n2": Processor(_NEON, (64 * _KIB, 1 * _MIB, 64 * _MIB)),  # Yitian 710
    "neoverse-v2": Processor(_NEON, (64 * _KIB, 2 * _MIB, 36 * _MIB)),  # Graviton4
    # Apple: a performance core; those of a cluster share the second level.
    "apple-m1": Processor(_NEON, (128 * _KIB, 12 * _MIB, 12 * _MIB)),
    "apple-m2": Processor(_NEON, (128 * _KIB, 16 * _MIB, 16 * _MIB)),
    "apple-m3": Processor(_NEON, (128 * _KIB, 16 * _MIB, 16 * _MIB)),
    "apple-m4": Processor(_NEON, (128 * _KIB, 16 * _MIB, 16 * _MIB)),
}

#: Sums of four products of bytes, of two of 16-bit integers, and of two of bfloat16.
DOT_PRODUCTS = (
    DotProduct(
        "uint8", "int8", "int32", 4,
        (frozenset({"avx512vnni"}),), (frozenset({"avxvnni"}), frozenset({"avx512vnni", "avx512vl"})),
        "llvm.x86.avx512.vpdpbusd", ("i32", 1),
    ),
    DotProduct(
        "int16", "int16", "int32", 2,
        (frozenset({"avx512vnni"}),), (frozenset({"avxvnni"}), frozenset({"avx512vnni", "avx512vl"})),
        "llvm.x86.avx512.vpdpwssd", ("i32", 1),
    ),
    DotProduct(
        "bfloat16", "bfloat16", "float32", 2,
        (frozenset({"avx512bf16"}),), (frozenset({"avx512bf16", "avx512vl"}),),
        "llvm.x86.avx512bf16.dpbf16ps", ("bfloat", 2),
    ),
)  # fmt: skip

_DOT_PRODUCTS = {(found.left, found.right, found.total): found for found in DOT_PRODUCTS}

#: Features that compilers use only for intrinsics named in a program: cryptography, random numbers, machine state.
_NEVER_GENERATED = frozenset(
    {
        *("aes", "pclmul", "sha", "sha512", "sm3", "sm4", "vaes", "vpclmulqdq", "kl", "widekl"),
        *("amx-avx512", "amx-bf16", "amx-complex", "amx-fp16", "amx-fp8", "amx-int8", "amx-movrs", "amx-tf32"),
        *("amx-tile", "amx-transpose", "crc32", "lwp", "ptwrite", "rdpid", "rdpru", "rdrnd", "rdseed", "hreset"),
        *("cldemote", "clflushopt", "clwb", "clzero", "invpcid", "wbnoinvd", "fsgsbase", "fxsr", "pconfig", "pku"),
        *("enqcmd", "mwaitx", "rtm", "serialize", "sgx", "shstk", "tsxldtrk", "uintr", "usermsr", "waitpkg"),
        *("xsave", "xsavec", "xsaveopt", "xsaves"),
    }
)


_AVAILABLE = frozenset(name for processor in _PROCESSORS.values() for name in processor.features)


@functools.cache
def architecture_of(mtriple: str) -> Architecture:
    """The instruction set that LLVM's triple begins with; :data:`OTHER` for one that is not known."""
    first = mtriple.split("-")[0]
    return next((found for found in (X86_64, AARCH64) if first in found.names), OTHER)


def processor_of(mcpu: str, mtriple: str) -> Processor:
    """Return the processor of LLVM's name. An unknown one gets the features that all of its architecture have, and the
    caches of a typical one: code for it is correct, but its vectors may be shorter than the processor's."""
    architecture = architecture_of(mtriple)
    if is_described(mcpu, mtriple):
        return _PROCESSORS[mcpu]
    return Processor(architecture.features, _PROCESSORS[architecture.typical].caches)


def is_plain_feature(name: str, mtriple: str) -> bool:
    """Return whether code can do with or without a feature: a processor that this file describes has it, and another of
    the same architecture does not."""
    architecture = architecture_of(mtriple)
    return name in _AVAILABLE and name not in architecture.features and architecture is X86_64


def is_described(mcpu: str, mtriple: str) -> bool:
    """Return whether this file describes a processor of LLVM's name, for the instruction set of the triple."""
    architecture = architecture_of(mtriple)
    found = _PROCESSORS.get(mcpu)
    return found is not None and architecture is not OTHER and architecture.features <= found.features


def dot_product(left: str, right: str, total: str, bits: int, features: frozenset[str]) -> DotProduct | None:
    """The instruction on vectors of ``bits`` for factors of elements of type ``left`` and ``right``, in either order,
    and a sum of type ``total``; None where there is none."""
    found = _DOT_PRODUCTS.get((left, right, total)) or _DOT_PRODUCTS.get((right, left, total))
    if found is None or bits not in (128, 256, 512):
        return None
    choices = found.wide if bits == 512 else found.short
    return found if any(needed <= features for needed in choices) else None


def vector_bits(features: frozenset[str]) -> int:
    """Width of a vector register in bits."""
    if "avx512f" in features:
        return 512
    return 256 if "avx2" in features else 128


def masked_bits(features: frozenset[str]) -> int | None:
    """Bits of the shortest elements that a masked load or store can leave out; None where there is none."""
    if {"avx512bw", "avx512vl"} <= features:
        return 8
    return 32 if "avx2" in features else None


def has_fma(features: frozenset[str]) -> bool:
    """Return whether fused multiply-add is one instruction."""
    return bool(features & {"fma", "neon", "avx512f"})


def has_half_conversions(features: frozenset[str]) -> bool:
    """Return whether converting float16 to float32 and back is one instruction."""
    return bool(features & {"f16c", "neon", "avx512f"})


def used_features(features: frozenset[str]) -> frozenset[str]:
    """Return those of ``features`` that generated code may use."""
    return features - _NEVER_GENERATED
