"""Test the description of a target's processor."""

from __future__ import annotations

import contextvars
import os
import re
import subprocess
import sys
from typing import Any

import llvmlite.binding as llvm
import pytest

from tilewright.tensorir import processors
from tilewright.tensorir import target as targets
from tilewright.tensorir.dtype import FLOAT32, DataType
from tilewright.tensorir.errors import ArgumentTypeError, TargetError
from tilewright.tensorir.processors import DOT_PRODUCTS, architecture_of, processor_of
from tilewright.tensorir.target import Target

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(
    ("mcpu", "bits", "registers", "has_fma"),
    [
        ("x86-64", 128, 16, False),
        ("x86-64-v2", 128, 16, False),
        ("x86-64-v3", 256, 16, True),
        ("skylake", 256, 16, True),
        ("x86-64-v4", 512, 32, True),
        ("sapphirerapids", 512, 32, True),
    ],
)
def test_vectors_of_a_named_processor(mcpu: str, bits: int, registers: int, has_fma: bool) -> None:
    target = Target("llvm", mcpu=mcpu, mtriple="x86_64-unknown-linux-gnu")
    assert (target.vector_bits, target.vector_registers, target.has_fma) == (bits, registers, has_fma)
    assert target.lanes(FLOAT32) == bits // 32
    assert target.lanes(DataType("int8")) == bits // 8


def test_every_aarch64_processor_has_neon() -> None:
    target = Target("llvm", mtriple="aarch64-unknown-linux-gnu")
    assert (target.vector_bits, target.vector_registers, target.has_fma) == (128, 32, True)
    assert not target.is_runnable or llvm.get_process_triple().startswith("aarch64")


def test_product_takes_a_register_where_multiply_and_add_are_two_instructions() -> None:
    assert [Target("llvm", mcpu=f"x86-64-v{level}").tile_registers for level in (2, 3, 4)] == [15, 16, 32]


def test_table_claims_nothing_that_this_processor_lacks() -> None:
    present = {name for name, has in llvm.get_host_cpu_features().items() if has}
    claimed = processor_of(llvm.get_host_cpu_name(), llvm.get_process_triple()).features
    assert claimed <= present | {"neon"}


def test_unknown_processor_gets_what_all_have() -> None:
    assert processor_of("made-up", X86).features == {"sse2"}
    assert processor_of("made-up", ARM).features == {"neon"}
    assert processor_of("made-up", "riscv64-unknown-linux-gnu").features == set()


def test_a_processor_of_another_architecture_is_unknown() -> None:
    assert processor_of("znver4", ARM) == processor_of("made-up", ARM)
    assert processor_of("neoverse-v2", X86) == processor_of("made-up", X86)


KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("mcpu", "mtriple", "sizes"),
    [
        ("x86-64-v2", X86, (32 * KIB, 1 * MIB, 32 * MIB)),
        ("x86-64-v3", X86, (32 * KIB, 1 * MIB, 32 * MIB)),
        ("x86-64-v4", X86, (32 * KIB, 1 * MIB, 32 * MIB)),
        ("skylake-avx512", X86, (32 * KIB, 1 * MIB, 28160 * KIB)),
        ("skylake", X86, (32 * KIB, 256 * KIB, 8 * MIB)),
        ("icelake-server", X86, (48 * KIB, 1280 * KIB, 60 * MIB)),
        ("sapphirerapids", X86, (48 * KIB, 2 * MIB, 105 * MIB)),
        ("znver2", X86, (32 * KIB, 512 * KIB, 16 * MIB)),
        ("znver3", X86, (32 * KIB, 512 * KIB, 32 * MIB)),
        ("neoverse-n1", ARM, (64 * KIB, 1 * MIB, 32 * MIB)),
        ("neoverse-v2", ARM, (64 * KIB, 2 * MIB, 36 * MIB)),
        ("apple-m1", "arm64-apple-darwin", (128 * KIB, 12 * MIB, 12 * MIB)),
    ],
)
def test_a_named_processor_has_its_own_caches(mcpu: str, mtriple: str, sizes: tuple[int, ...]) -> None:
    target = Target("llvm", mcpu=mcpu, mtriple=mtriple)
    assert target.is_host or tuple(map(target.cache_bytes, (1, 2, 3))) == sizes


def test_an_unknown_processor_has_the_caches_of_a_typical_one() -> None:
    for mtriple, typical in ((X86, "x86-64"), (ARM, "neoverse-n1")):
        assert processor_of("made-up", mtriple).caches == processor_of(typical, mtriple).caches


def test_this_machine_has_the_caches_that_the_system_reports() -> None:
    root = "/sys/devices/system/cpu/cpu0/cache/index0"
    if not os.path.isdir(root):
        pytest.skip("the system does not report caches")
    with open(f"{root}/size") as size, open(f"{root}/level") as level:
        assert Target("llvm").cache_bytes(int(level.read())) == int(size.read().strip().removesuffix("K")) * KIB


def test_this_machine_has_the_described_caches_where_the_system_reports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_host_cpu", lambda: ("znver2", processor_of("znver2", X86).features))
    monkeypatch.setattr(targets, "process_triple", lambda: X86)
    monkeypatch.setattr(targets, "reported_caches", dict)
    assert targets._host_caches.__wrapped__() == (32 * KIB, 512 * KIB, 16 * MIB)


def test_the_host_by_its_name_is_this_machine() -> None:
    named = Target("llvm", mcpu=Target("llvm").mcpu)
    assert [named.cache_bytes(level) for level in (1, 2, 3)] == [Target("llvm").cache_bytes(n) for n in (1, 2, 3)]


@pytest.mark.parametrize("mcpu", processors._PROCESSORS)
def test_caches_of_a_processor_grow(mcpu: str) -> None:
    first, second, third = processors._PROCESSORS[mcpu].caches
    assert first < second <= third


def test_every_described_processor_is_one_that_llvm_knows() -> None:
    """LLVM reports unknown names on the standard error."""
    program = f"""if True:
        import llvmlite.binding as llvm
        llvm.initialize_all_targets()
        for mtriple, names in {names_by_triple()!r}.items():
            for name in names:
                llvm.Target.from_triple(mtriple).create_target_machine(cpu=name)
    """
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    assert not said


def names_by_triple() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {X86: [], ARM: []}
    for name, processor in processors._PROCESSORS.items():
        found[ARM if "neon" in processor.features else X86].append(name)
    return found


@pytest.mark.parametrize(("mcpu", "bits"), [("x86-64-v2", None), ("x86-64-v3", 32), ("x86-64-v4", 8)])
def test_elements_that_a_masked_access_can_leave_out(mcpu: str, bits: int | None) -> None:
    assert Target("llvm", mcpu=mcpu, mtriple=X86).masked_bits == bits


@pytest.mark.parametrize("instruction", DOT_PRODUCTS, ids=lambda found: f"{found.left}_{found.right}")
def test_factors_of_a_dot_product_fill_the_sum(instruction: processors.DotProduct) -> None:
    left, total = DataType(instruction.left), DataType(instruction.total)
    assert instruction.products * left.bits == total.bits


@pytest.mark.parametrize("mtriple", [X86, ARM, "arm64-apple-darwin", "amd64-unknown-freebsd"])
def test_a_waiting_thread_pauses_by_an_instruction_of_its_architecture(mtriple: str) -> None:
    declaration, call = architecture_of(mtriple).pause
    name = re.search(r"@[\w.]+", declaration)
    assert name is not None and f"{name[0]}(" in call


def test_a_target_does_not_wait_for_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call into LLVM waits for the kernel that another thread compiles."""
    assert Target("llvm").is_runnable

    def busy() -> str:
        raise AssertionError("LLVM is asked")

    for name in ("get_process_triple", "get_host_cpu_name", "get_host_cpu_features"):
        monkeypatch.setattr(llvm, name, busy)
    assert Target("llvm").is_runnable and Target(Target("llvm"), num_threads=1).is_host


def test_one_target_is_entered_by_several_tasks_at_once() -> None:
    target = Target("llvm", num_threads=3)
    first, second = contextvars.copy_context(), contextvars.copy_context()
    first.run(target.__enter__)
    second.run(target.__enter__)
    first.run(target.__exit__, None, None, None)
    assert second.run(Target.current) is target
    second.run(target.__exit__, None, None, None)
    assert first.run(Target.current) is not target and second.run(Target.current) is not target


def test_targets_may_be_left_in_any_order() -> None:
    outer, inner = Target("llvm", num_threads=3), Target("llvm", num_threads=3)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert Target.current() is inner
    inner.__exit__(None, None, None)
    assert Target.current() not in (inner, outer)
    with pytest.raises(RuntimeError, match="was exited but never entered"):
        inner.__exit__(None, None, None)


@pytest.mark.parametrize(
    "target",
    [
        Target("llvm"),
        Target("numba", num_threads=3),
        Target("llvm", mcpu="x86-64-v3", num_threads=2),
        Target("llvm", mcpu="neoverse-v2", mtriple=ARM),
        Target("llvm", mcpu="x86-64-v4", mattr="-avx512f,+avx512vnni", mtriple=X86),
        Target("llvm", mcpu="x86-64-v3", mattr=["+avxvnni", "+prefer-128-bit"], mtriple=X86),
    ],
    ids=str,
)
def test_a_target_reads_what_it_prints(target: Target) -> None:
    read = Target(str(target))
    assert read == target and str(read) == str(target) and repr(target) == f"Target({str(target)!r})"
    assert read.is_host == target.is_host


def test_a_text_may_leave_out_options_and_write_them_in_several_ways() -> None:
    expected = Target("llvm", mcpu="x86-64-v3", num_threads=2)
    for text in ("llvm -mcpu=x86-64-v3 -num-threads=2", "llvm --num-threads 2  --mcpu x86-64-v3"):
        assert Target(text) == expected
    assert Target("llvm -mcpu=x86-64-v3", num_threads=2) == expected
    assert Target("llvm -mcpu=x86-64-v2 -num-threads=4", mcpu="x86-64-v3", num_threads=2) == expected
    reduced = Target("llvm", mcpu="x86-64-v4", mattr=("-avx512f", "+fma"), mtriple=X86)
    assert Target(f"llvm -mattr=-avx512f,+fma --mtriple {X86} -mcpu=x86-64-v4") == reduced


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuda -mcpu=x", "unknown target kind 'cuda'; expected one of llvm, numba"),
        ("llvm -mcup=x86-64", "unknown option '-mcup'; did you mean -mcpu?"),
        ("llvm -opt=3", "unknown option '-opt'; expected -mcpu, -mattr, -mtriple, -num-threads"),
        ("llvm znver4", "unknown option 'znver4'"),
        ("llvm -mcpu", "option -mcpu has no value"),
        ("llvm -mcpu -num-threads=2", "option -mcpu has no value"),
        ("llvm -num-threads=two", "-num-threads is a number, found 'two'"),
        ("llvm -num-threads=0", "num_threads must be at least 1, found 0"),
        ("llvm -mcpu=x86-64 -mcpu=znver4", "option -mcpu is given twice"),
        ("", "unknown target kind ''"),
        ("llvm -mattr=avx2", "mattr: expected features as '+avx2,-avx512f', found 'avx2'"),
        ("llvm -mattr=", "option -mattr has no value"),
    ],
)
def test_a_wrong_text_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=re.escape(message)):
        Target(text)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": None}, ArgumentTypeError, "target: expected a kind or a Target, found NoneType"),
        ({"mcpu": 5}, ArgumentTypeError, "mcpu: expected a name of LLVM's, found int"),
        ({"mtriple": b"x86_64"}, ArgumentTypeError, "mtriple: expected a name of LLVM's, found bytes"),
        ({"mcpu": ""}, TargetError, "mcpu: expected a name of LLVM's, found ''"),
        ({"mcpu": "znver4 "}, TargetError, "mcpu: expected a name of LLVM's, found 'znver4 '"),
        ({"mcpu": "a; import os"}, TargetError, "LLVM has no processor 'a; import os'"),
        ({"num_threads": "2"}, ArgumentTypeError, "num_threads must be an integer, found str"),
        ({"num_threads": True}, ArgumentTypeError, "num_threads must be an integer, found bool"),
        ({"num_threads": -1}, TargetError, "num_threads must be at least 1"),
        ({"num_threads": 2**63}, TargetError, "num_threads must be at most 65536, found 9223372036854775808"),
        ({"num_threads": 10**6000}, TargetError, "found a number of 19932 bits"),
    ],
)
def test_a_wrong_option_says_what_is_wrong(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        Target(**options)
