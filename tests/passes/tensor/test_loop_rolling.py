"""Bodies of which few copies run become loops again, but for what chooses formulas and what lies outside of them."""

from __future__ import annotations

import pytest

from tilewright.passes.tensor.loop_partition import partition_loops
from tilewright.passes.tensor.loop_rolling import rolled_up
from tilewright.tensorir import parse
from tilewright.tensorir.functor import loads_and_stores, walk
from tilewright.tensorir.stmt import Allocate, BufferStore, For

ROLLED = """
primfunc @f(A: Buffer[(COUNT, 4), float32], B: Buffer[(COUNT, 4), float32]) attrs {"num_outputs": 1} {
  for i in range(COUNT) annotations {"roll_tail": True} {
    allocate t: Buffer[(2, 4), float32, register]
    for y in unrolled(2) {
      for x in unrolled(4) {
        t[y, x] = select(i * 2 + y >= 1, A[i, x], 0.0)
      }
    }
    for y in unrolled(4) annotations {"chooses": True} {
      B[i, y] = select(y == 0, t[0, 0] - t[1, 1], select(y == 1, t[0, 2] * t[1, 3], t[1, y]))
    }
  }
}
"""


@pytest.mark.parametrize("count", [3, 5])
def test_the_tail_of_a_loop_stays_loops_where_the_schedule_says_so(keeps_results, count):
    text = ROLLED.replace("COUNT", str(count))
    keeps_results(partition_loops, text)
    first, main = [node for node in partition_loops(parse(text)).body.stmts if isinstance(node, For)]
    assert [(first.extent.value, main.extent.value)] == [(1, count - 1)]
    kinds = [node.kind for node in walk(first.body) if isinstance(node, For)]
    scopes = [node.buffer.scope for node in walk(first.body) if isinstance(node, Allocate)]
    assert kinds == ["serial", "serial", "unrolled"]
    assert scopes == ["stack"]
    assert {node.kind for node in walk(main.body) if isinstance(node, For)} == {"unrolled"}


def test_registers_from_outside_of_a_rolled_body_stay_what_they_are():
    func = parse("""
primfunc @f(A: Buffer[(8, 4), float32], B: Buffer[(4,), float32]) attrs {"num_outputs": 1} {
  allocate T: Buffer[(4,), float32, register]
  for i in range(8) {
    allocate R: Buffer[(4,), float32, register]
    for j in unrolled(4) {
      R[j] = A[i, j]
    }
    for j in unrolled(4) {
      T[j] = R[j]
    }
  }
}
""")
    (outer,) = [node for node in walk(func.body) if isinstance(node, For) and node.var.name == "i"]
    body = rolled_up(outer.body)
    assert {node.buffer.scope for node in walk(body) if isinstance(node, Allocate)} == {"stack"}
    kinds = [node.kind for node in walk(body) if isinstance(node, For)]
    assert sorted(kinds) == ["serial", "unrolled"]
    assert {
        store.buffer.name: store.buffer.scope for store in loads_and_stores(body) if isinstance(store, BufferStore)
    } == {
        "R": "stack",
        "T": "register",
    }
