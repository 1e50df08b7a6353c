"""How much LLVM does for a module: what only calls others is compiled in an eighth of the time."""

from __future__ import annotations

import pytest

from tilewright.codegen.llvm.compile import Effort
from tilewright.tensorir import parse

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
