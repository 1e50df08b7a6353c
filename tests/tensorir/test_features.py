"""Changes of a target's features (``mattr``): what schedules and passes see of them is what LLVM makes of them."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest

from tilewright.codegen.llvm.compile import create_target_machine
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.features import described_features
from tilewright.tensorir.target import Target

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


def changed(mattr: str, mcpu: str = "x86-64-v4", mtriple: str = X86) -> Target:
    return Target("llvm", mcpu=mcpu, mattr=mattr, mtriple=mtriple)


#: Functions whose code shows what LLVM believes of the processor: the widest register of a sum; whether multiplying and
#: adding is one instruction; whether a conversion from float16 is one.
PROBES = """
define void @add(ptr %a, ptr %b) {
  %x = load <16 x i32>, ptr %a
  %z = load <16 x i32>, ptr %b
  %y = add <16 x i32> %x, %z
  store <16 x i32> %y, ptr %a
  ret void
}
define float @fused(float %a, float %b, float %c) {
  %p = fmul contract float %a, %b
  %s = fadd contract float %p, %c
  ret float %s
}
define <4 x float> @half(<4 x half> %a) {
  %b = fpext <4 x half> %a to <4 x float>
  ret <4 x float> %b
}
"""


def seen_by_llvm(target: Target) -> tuple[int, bool, bool]:
    machine = create_target_machine(target)
    module = llvm.parse_assembly(PROBES)
    module.triple = target.mtriple
    text = machine.emit_assembly(module)
    widest = max({"x": 128, "y": 256, "z": 512}[name] for name in re.findall(r"v?paddd\s.*%([xyz])mm", text))
    return widest, "vfmadd" in text, "vcvtph2ps" in text


@pytest.mark.parametrize(
    ("mcpu", "mattr"),
    [
        ("x86-64-v4", "-avx512f"),
        ("x86-64-v4", "-avx2"),  # takes AVX-512 with it
        ("x86-64-v4", "-fma"),  # AVX-512 needs it
        ("x86-64-v4", "-avx512vl"),
        ("x86-64-v4", "-avx512f,+avx512vnni"),  # brings AVX-512 back
        ("x86-64-v4", "-sse4.2"),
        ("x86-64-v3", "-f16c"),
        ("x86-64-v3", "+avx512bw"),
        ("x86-64-v2", "+avx2"),
        ("x86-64-v2", "+fma"),  # AVX, and no wider integers
        ("x86-64-v2", "+avx10.1"),
    ],
)
def test_a_target_and_llvm_agree_on_changed_features(mcpu: str, mattr: str) -> None:
    target = changed(mattr, mcpu)
    assert (target.vector_bits, target.has_fma, target.has_half_conversions) == seen_by_llvm(target)


def test_changes_apply_in_order() -> None:
    assert changed("+avx512f,-avx512f", "x86-64-v3").vector_bits == 256
    assert changed("-avx512f,+avx512f", "x86-64-v3").vector_bits == 512


def test_changes_of_this_machine_start_from_its_own_features() -> None:
    here = Target("llvm")
    for name in sorted(here.features & {"avx512vnni", "avx2", "sve", "dotprod"}):
        without = Target("llvm", mattr=f"-{name}")
        assert name not in without.features < here.features
        assert without.is_host and without.is_runnable and without != here
        assert [without.cache_bytes(level) for level in (1, 2, 3)] == [here.cache_bytes(level) for level in (1, 2, 3)]


def test_code_for_added_instructions_runs_only_where_they_are() -> None:
    here = Target("llvm")
    lacking = sorted(described_features(here.mtriple).keys() - here.features - {"64bit"})
    assert lacking and not Target("llvm", mattr=f"+{lacking[0]}").is_runnable


def test_a_preference_is_no_instruction_and_limits_vectors() -> None:
    preferring, plain = changed("+prefer-256-bit"), changed("")
    assert preferring.features == plain.features
    assert (preferring.vector_bits, preferring.vector_registers) == (256, 32)
    assert changed("+prefer-256-bit,-prefer-256-bit").vector_bits == 512


def test_a_dot_product_needs_its_feature() -> None:
    kinds = DataType("uint8"), DataType("int8"), DataType("int32")
    assert changed("+avxvnni", "x86-64-v3").dot_products(*kinds) == 4
    assert changed("-avx512vnni", "cascadelake").dot_products(*kinds) == 1


@pytest.mark.parametrize(
    ("mattr", "mtriple", "message"),
    [
        ("+avx3", X86, "mattr: LLVM has no feature 'avx3' for x86_64-unknown-linux-gnu; did you mean 'avx'"),
        ("-AVX2", X86, "did you mean 'avx2'"),
        ("+sve3", ARM, "LLVM has no feature 'sve3' for aarch64-unknown-linux-gnu; did you mean 'sve'"),
        ("+avx2", ARM, "LLVM has no feature 'avx2' for aarch64"),
        ("-sse2", X86, "mattr: code for x86_64-unknown-linux-gnu needs sse2, found '-sse2'"),
        ("-fp-armv8", ARM, "mattr: code for aarch64-unknown-linux-gnu needs neon, found '-fp-armv8'"),
        ("-64bit", X86, "mattr: LLVM generates no code for x86_64-unknown-linux-gnu with '-64bit'"),
        ("avx2", X86, "mattr: expected features as '+avx2,-avx512f', found 'avx2'"),
        ("+", X86, "found '+'"),
    ],
)
def test_features_that_cannot_be_are_refused(mattr: str, mtriple: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Target("llvm", mcpu="generic", mattr=mattr, mtriple=mtriple)


@pytest.mark.skipif(not Target("llvm").mtriple.startswith("x86_64"), reason="LLVM asks this machine")
def test_every_instruction_set_extension_of_llvm_is_described() -> None:
    assert set(llvm.get_host_cpu_features()) <= described_features(X86).keys()
