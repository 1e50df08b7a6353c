"""Linking machine code into this process."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import pytest

from tilewright.codegen.llvm.compile import compile_module
from tilewright.tensorir import parse
from tilewright.tensorir.target import Target

COPY = """
primfunc @copy(x: Buffer[(4,), float32], y: Buffer[(4,), float32]) {
  for i in range(4) {
    y[i] = x[i]
  }
}
"""


def test_a_module_whose_linking_was_interrupted_links_at_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    module = compile_module([parse(COPY)], Target("llvm", num_threads=1))
    link = llvm.JITLibraryBuilder.link
    kept: list[Any] = []

    def interrupted(*args: Any) -> Any:
        kept.append(link(*args))  # the library is linked when the interrupt comes
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(llvm.JITLibraryBuilder, "link", interrupted)
        with pytest.raises(KeyboardInterrupt):
            module.address("copy")
    assert module.address("copy") != 0
