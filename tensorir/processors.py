"""What named x86-64 processors can do, as far as schedules and passes ask: LLVM knows it, but does not tell.

The levels are those of the psABI (https://gitlab.com/x86-psABIs/x86-64-ABI); the rest is what LLVM's table of
processors (``llvm/lib/TargetParser/X86TargetParser.cpp``) says of them. A name that is not here gets what every
processor of its architecture has: code for it is right, with shorter vectors than it may have.
"""

from __future__ import annotations

_BASE = frozenset({"sse2"})
_SSE42 = _BASE | {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"}
_AVX2 = _SSE42 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
#: Sums of four products of bytes, of two products of 16-bit integers.
_VNNI = _AVX512 | {"avx512vnni"}
#: Sums of two products of bfloat16.
_BF16 = _VNNI | {"avx512bf16"}

_NAMES = {
    _SSE42: ("x86-64-v2", "nehalem", "westmere", "silvermont", "goldmont"),
    _AVX2: ("x86-64-v3", "haswell", "broadwell", "skylake", "znver1", "znver2", "znver3"),
    _AVX2 | {"avxvnni"}: ("alderlake", "raptorlake", "meteorlake", "gracemont"),
    _AVX512: ("x86-64-v4", "skylake-avx512"),
    _VNNI: ("cascadelake", "icelake-client", "icelake-server", "tigerlake", "rocketlake"),
    _BF16: ("cooperlake", "znver4"),
    _BF16 | {"avxvnni"}: ("sapphirerapids", "emeraldrapids", "graniterapids", "znver5"),
}

#: What no compiler uses unless a program asks for it by name: cryptography, random numbers, state of the machine.
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

_FEATURES = {name: features for features, names in _NAMES.items() for name in names}

#: Types of two factors and of the sum, for which processors have an instruction that adds several neighbouring
#: products to each lane: how many, and what the processor must have for vectors of 512 bits and for shorter ones.
_DOT_PRODUCTS = {
    ("uint8", "int8", "int32"): (4, ({"avx512vnni"},), ({"avxvnni"}, {"avx512vnni", "avx512vl"})),
    ("int16", "int16", "int32"): (2, ({"avx512vnni"},), ({"avxvnni"}, {"avx512vnni", "avx512vl"})),
    ("bfloat16", "bfloat16", "float32"): (2, ({"avx512bf16"},), ({"avx512bf16", "avx512vl"},)),
}


def dot_products(left: str, right: str, total: str, bits: int, features: frozenset[str]) -> int:
    """How many neighbouring products of elements of type ``left`` and ``right`` one instruction on vectors of ``bits``
    adds to each element of type ``total``: 1 where there is no such instruction."""
    found = _DOT_PRODUCTS.get((left, right, total)) or _DOT_PRODUCTS.get((right, left, total))
    if found is None or bits not in (128, 256, 512):
        return 1
    count, wide, narrow = found
    return count if any(needed <= features for needed in (wide if bits == 512 else narrow)) else 1


def features_of(mcpu: str, mtriple: str) -> frozenset[str]:
    """The features of a processor by LLVM's name of it, by LLVM's names of them; on AArch64 those of every one."""
    if mtriple.startswith(("aarch64", "arm64")):
        return frozenset({"neon"})
    return _FEATURES.get(mcpu, _BASE)


def used_features(features: frozenset[str]) -> frozenset[str]:
    """Those that code which is generated for a processor with ``features`` may use."""
    return features - _NEVER_GENERATED
