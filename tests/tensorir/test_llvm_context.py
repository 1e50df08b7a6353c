"""A context of LLVM outlives its modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tilewright.tensorir import llvm_context
from tilewright.tensorir.llvm_context import fresh_context

TEXT = "define void @f() { ret void }"

#: A module that was made when the interrupt came, in a cycle with its context, as in the frames of an error.
INTERRUPTED = f"""
import gc
import llvmlite.binding as llvm
from tilewright.tensorir.llvm_context import fresh_context

def interrupted(error):
    with fresh_context() as context:
        cycle = [context, llvm.parse_assembly({TEXT!r}, context)]
        cycle.append(cycle)
        raise error

for error in (KeyboardInterrupt, MemoryError):
    for _ in range(20):
        try:
            interrupted(error)
        except error:
            gc.collect()
print("goes on")
"""


def test_a_module_that_an_interrupt_leaves_can_be_collected_after_its_context() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done


@pytest.mark.parametrize("text", [TEXT, "no module"])
def test_no_context_is_kept_once_its_modules_are_closed(text: str) -> None:
    before = len(llvm_context._contexts)
    try:
        with fresh_context() as context, llvm.parse_assembly(text, context) as module:
            assert len(llvm_context._contexts) == before + 1
            module.verify()
    except RuntimeError:
        assert text != TEXT
    assert len(llvm_context._contexts) == before
