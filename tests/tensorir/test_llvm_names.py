"""Names of a target are LLVM's: an unknown one is an error with near names, and never ends the process."""

from __future__ import annotations

import sys

import pytest

from tilewright.tensorir.llvm_names import ask
from tilewright.tensorir.processors import _PROCESSORS, DOT_PRODUCTS, is_described
from tilewright.tensorir.target import Target

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(
    ("mcpu", "mtriple", "message"),
    [
        ("znver44", X86, "LLVM has no processor 'znver44' for x86_64-unknown-linux-gnu; did you mean 'znver4'"),
        ("Skylake-AVX512", X86, "did you mean 'skylake-avx512'"),
        ("neoverse-v3x", ARM, "did you mean 'neoverse-v3'"),
        ("znver4", ARM, "LLVM has no processor 'znver4' for aarch64"),
        ("pentium3", X86, "LLVM generates no code for x86_64-unknown-linux-gnu on processor 'pentium3'"),
        (None, "x86-64-linux", "LLVM generates no code for 'x86-64-linux'; did you mean 'x86_64'"),
        ("qqq", X86, "it has alderlake, amdfam10"),
    ],
)
def test_names_that_llvm_lacks_are_refused_with_the_nearest(mcpu: str | None, mtriple: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^m(cpu|triple): ") as error:
        Target("llvm", mcpu=mcpu, mtriple=mtriple)
    assert message in str(error.value)


@pytest.mark.parametrize(("mcpu", "mtriple"), [("lunarlake", X86), ("cortex-a76", ARM), (None, "riscv64-linux-gnu")])
def test_processors_that_only_llvm_knows_are_accepted(mcpu: str | None, mtriple: str) -> None:
    assert Target("llvm", mcpu=mcpu, mtriple=mtriple).mcpu == (mcpu or "generic")


@pytest.mark.parametrize("mtriple", [X86, ARM])
def test_what_is_described_here_is_in_the_lists_of_llvm(mtriple: str) -> None:
    answer = ask("generic", mtriple)
    assert answer is not None and answer.generates
    described = [name for name in _PROCESSORS if is_described(name, mtriple)]
    assert {*described, "generic"} <= {*answer.processors}
    used = {feature for name in described for feature in _PROCESSORS[name].features}
    if mtriple == X86:
        used |= {name for product in DOT_PRODUCTS for each in (*product.wide, *product.short) for name in each}
    assert used <= {*answer.features}


def test_names_are_not_checked_where_no_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    ask.cache_clear()
    try:
        assert Target("llvm", mcpu="unheard-of", mtriple=X86).mcpu == "unheard-of"
    finally:
        ask.cache_clear()
