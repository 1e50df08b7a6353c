"""What a target says of its processor."""

from __future__ import annotations

import contextvars

import llvmlite.binding as llvm
import pytest

from tilewright.tensorir.dtype import FLOAT32, DataType
from tilewright.tensorir.processors import features_of
from tilewright.tensorir.target import Target


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
    claimed = features_of(llvm.get_host_cpu_name(), llvm.get_process_triple())
    assert claimed <= present | {"neon"}


def test_unknown_processor_gets_what_all_have() -> None:
    assert features_of("made-up", "x86_64-unknown-linux-gnu") == {"sse2"}


def test_a_target_does_not_wait_for_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks LLVM waits for the kernel that another thread compiles."""
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
    with pytest.raises(RuntimeError, match="is left where it was never entered"):
        inner.__exit__(None, None, None)
