"""Within a test process LLVM generates the code of equal kernels once, unless anything of it differs."""

from __future__ import annotations

import pytest
from kept_code import code_kept

from tilewright.codegen.llvm import compile as compiler
from tilewright.codegen.llvm.compile import compile_module
from tilewright.tensorir.expr import Buffer, const
from tilewright.tensorir.stmt import BufferStore, PrimFunc
from tilewright.tensorir.target import Target


def test_equal_kernels_for_equal_machines_share_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    generate, generated = compiler._object_code, []

    def counted(llvm_ir: str, target: Target, effort: compiler.Effort) -> bytes:
        generated.append(target)
        return generate(llvm_ir, target, effort)

    monkeypatch.setattr(compiler, "_object_code", counted)
    y = Buffer("y", (3,), "float32")
    one, again, other = (
        PrimFunc("kept_code", (y,), BufferStore(y, const(value, "float32"), (2,))) for value in (0.1, 0.1, 0.3)
    )
    host = Target("llvm", num_threads=1)
    plain = Target("llvm", mtriple="aarch64-unknown-linux-gnu", num_threads=1)
    with code_kept():
        codes = [compile_module([func], host).object_bytes for func in (one, again, other)]
        assert len(generated) == 2 and codes[0] == codes[1] != codes[2]
        compile_module([one], plain)
        assert generated[2:] == [plain]
    compile_module([one], host)
    assert len(generated) == 4
