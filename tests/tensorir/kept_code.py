"""Keep the machine code that LLVM generates, by the text that it is generated from.

Tests of operators, passes and models compile many equal kernels: those that levels do not change, copies, references of
one operator in several tests. A fifth of what LLVM gets in a run of all tests it has had before. What a process
generates for a text does not change (tests/runtime/test_determinism.py), so such tests share it. Tests of code
generation itself (tests/codegen) have LLVM generate everything, and so have all tests with ``--all-combinations``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator

import pytest

from tilewright.codegen.llvm import compile as compiler
from tilewright.tensorir.target import Target
from tilewright.tensorir.tensor_intrins import LLVM_SYMBOL

_kept: dict[tuple[bytes, tuple[object, ...], compiler.Effort], bytes] = {}


@contextlib.contextmanager
def code_kept() -> Iterator[None]:
    """Inside the ``with`` block LLVM generates the code of each text once in this process."""
    generate = compiler._object_code

    @functools.wraps(generate)
    def object_code(llvm_ir: str, target: Target, effort: compiler.Effort) -> bytes:
        if LLVM_SYMBOL in llvm_ir:  # the text names instructions, which tests register anew
            return generate(llvm_ir, target, effort)
        key = (hashlib.sha256(llvm_ir.encode()).digest(), compiler._described(target, effort), effort)
        code = _kept.get(key)
        if code is None:
            code = _kept[key] = generate(llvm_ir, target, effort)
        return code

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "_object_code", object_code)
        yield
