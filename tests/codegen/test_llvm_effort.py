"""Test the effort of LLVM for a module: one that only calls others is compiled in an eighth of the time."""

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


@pytest.mark.parametrize("text", [WORKS, LOOPS])
def test_tiles_of_products_need_less_than_other_loops(text: str) -> None:
    product = parse(text).with_attr("kind", "contraction")
    assert Effort.of([product]) is Effort.TILES
    assert Effort.of([parse(CALLS).with_attr("kind", "contraction")]) is Effort.CALLS
    assert Effort.of([product, parse(WORKS).with_attr("kind", "reduction")]) is Effort.SCHEDULED


SUMS = """
primfunc @main(x: Buffer[(4,), float32], y: Buffer[(4,), float32]) {
  allocate s: Buffer[(1,), float32, register]
  s[0] = 0.0
  for i in range(4) { s[0] = s[0] + x[i] }
  y[0] = s[0]
}
"""


#: A vector, and pairs of which one lies across two halves of it.
CROSSING = """
primfunc @main(x: Buffer[(4,), float32], y: Buffer[(4,), float32]) {
  allocate t: Buffer[(4,), float32, register]
  t[ramp(0, 1, 4)] = x[ramp(0, 1, 4)]
  y[ramp(0, 1, 2)] = t[ramp(1, 1, 2)]
  y[ramp(2, 1, 2)] = t[ramp(0, 1, 2)]
}
"""
#: Memory for whose elements there are no registers.
INDEXED = """
primfunc @main(x: Buffer[(4,), float32], y: Buffer[(4,), float32]) {
  allocate t: Buffer[(4,), float32, register]
  for i in range(4) { t[3 - i] = x[i] }
  for i in range(4) { y[i] = t[i] }
}
"""


@pytest.mark.parametrize(
    ("text", "passes", "slots"),
    [(WORKS, 0, 0), (LOOPS, 0, 0), (SUMS, 0, 0), (CROSSING, 1, 1), (INDEXED, 0, 1)],
    ids=["no memory", "loops", "sums", "crossing", "indexed"],
)
def test_only_stack_slots_that_llvm_can_take_apart_need_a_pass(
    text: str, passes: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[llvm.ModulePassManager] = []
    create = llvm.create_new_module_pass_manager

    def noting() -> llvm.ModulePassManager:
        made.append(create())
        return made[-1]

    monkeypatch.setattr(llvm, "create_new_module_pass_manager", noting)
    module = compile_module([parse(text)], Target("llvm", num_threads=1))
    assert (len(made), module.llvm_ir.count(" = alloca ")) == (passes, slots)
    assert "rsp" not in module.assembly or text is INDEXED
