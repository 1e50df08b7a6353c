"""Test that programs may keep errors of LLVM: an error holds the frames that raised it, and objects of LLVM in them."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Code that parses, and is refused afterwards: a value is used before it is defined.
REFUSED = """
define void @tile(ptr %a, i64 %x) {
  %y = add i64 %z, 1
  %z = add i64 %x, 1
  ret void
}
"""

KEPT = """
import gc
import sys

from tilewright.codegen.llvm.compile import Effort, assembly_of
from tilewright.tensorir.errors import TilewrightError
from tilewright.tensorir.target import Target
from tilewright.tensorir.tensor_intrins import _check_llvm

kind, text = sys.argv[1:]
gc.disable()
try:
    if kind == "generated":
        assembly_of(text, Target("llvm"), Effort.SCHEDULED)
    else:
        _check_llvm("tile", text, None)
except TilewrightError as error:
    kept = [error]
    kept.append(kept)
    print(type(error).__name__)
del kept
gc.collect()
print("goes on")
"""


@pytest.mark.parametrize(("kind", "error"), [("generated", "CodegenError"), ("instruction", "TensorIntrinError")])
def test_the_collection_of_a_kept_error_ends_no_process(kind: str, error: str) -> None:
    done = subprocess.run([sys.executable, "-c", KEPT, kind, REFUSED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split("\n")) == (0, [error, "goes on", ""]), done.stderr
