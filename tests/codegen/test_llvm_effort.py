"""How much LLVM does for a module: what only calls others is compiled in an eighth of the time."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from tilewright.codegen.llvm.compile import Effort, compile_module
from tilewright.tensorir import parse
from tilewright.tensorir.target import Target

CALLS = """
primfunc @main(x: Buffer[(n,), float32], y: Buffer[(n,), float32], n: int64) {
  let half: int64 = n // 2
  if half >= 1 { @work(address_of(x[0]), address_of(y[0]), half) }
}
"""
WORKS = """
primfunc @main(x: Buffer[(4,), float32], y: Buffer[(4,), float32]) {
  y[0] = x[0] * 2.0
}
"""
LOOPS = """
primfunc @main(x: Buffer[(4,), float32], y: Buffer[(4,), float32]) {
  for i in range(4) { @work(address_of(x[i]), address_of(y[i]), 1) }
}
"""


@pytest.mark.parametrize(
    ("text", "effort"), [(CALLS, Effort.CALLS), (WORKS, Effort.SCHEDULED), (LOOPS, Effort.SCHEDULED)]
)
def test_functions_that_only_call_others_need_little(text: str, effort: Effort) -> None:
    func = parse(text)
    assert Effort.of([func]) is effort
    assert Effort.of([func, parse(WORKS).with_attr("llvm_vectorize", True)]) is Effort.FULL


SUMS = """
primfunc @main(x: Buffer[(4,), float32], y: Buffer[(4,), float32]) {
  allocate s: Buffer[(1,), float32, register]
  s[0] = 0.0
  for i in range(4) { s[0] = s[0] + x[i] }
  y[0] = s[0]
}
"""


@pytest.mark.parametrize("text", [WORKS, LOOPS, SUMS])
def test_only_what_has_stack_slots_needs_a_pass(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[llvm.ModulePassManager] = []
    create = llvm.create_new_module_pass_manager

    def noting() -> llvm.ModulePassManager:
        made.append(create())
        return made[-1]

    monkeypatch.setattr(llvm, "create_new_module_pass_manager", noting)
    module = compile_module([parse(text)], Target("llvm", num_threads=1))
    assert bool(made) is ("alloca" in module.llvm_ir)
    if text is SUMS:
        assert made and "rsp" not in module.assembly, "the sum is in a register"
