"""What nodes keep of what occurs in them, against a walk over all that they hold."""

from __future__ import annotations

import pytest

from tilewright.tensorir import functor, parse
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Call, Compare, Expr, Select, Var
from tilewright.tensorir.functor import Visitor, kinds, leaves, walk
from tilewright.tensorir.stmt import BufferStore

PROGRAM = """
primfunc @f(A: Buffer[(64,), float32], H: Buffer[(64,), float16], B: Buffer[(64,), float32], n: int64) {
  for i in range(n) {
    let q: int64 = i // 3
    if i < n - 1 {
      B[i] = select(q == 2, A[i], exp(A[i + 1]))
    }
    B[ramp(i, 1, 4) where broadcast(q < n, 4)] = A[ramp(q % 2, 1, 4) where broadcast(i < 8, 4)]
    H[i] = H[i] + H[q]
    B[i + 2] = cast(float32, H[i])
  }
}
"""


def occurring(node):
    """The kinds of what is in ``node``, found by looking at all of it."""
    found = 0
    for part in walk(node):
        found |= functor.COMPARISONS if isinstance(part, Compare) else 0
        found |= functor.SELECTIONS if isinstance(part, Select) else 0
        found |= functor.CALLS if isinstance(part, Call) else 0
        if isinstance(part, BufferLoad):
            found |= functor.LOADS if part.predicate is None else functor.LOADS | functor.MASKED_LOADS
        if isinstance(part, BinaryOp) and part.op in ("floordiv", "floormod", "truncdiv", "truncmod"):
            found |= functor.DIVISIONS
        if isinstance(part, Expr) and part.dtype.element in ("float16", "bfloat16"):
            found |= functor.HALVES
    return found


def test_kinds_and_leaves_are_those_of_all_that_is_inside():
    body = parse(PROGRAM).body
    bits = set()
    for node in walk(body):
        assert kinds(node) == occurring(node)
        bits.add(kinds(node))
        inside = {part for part in walk(node) if isinstance(part, Var)}
        accessed = {part.buffer for part in walk(node) if isinstance(part, (BufferLoad, BufferStore))}
        assert leaves(node) == inside | accessed
    assert 0 in bits and kinds(body) == 127 and len(bits) > 8


@pytest.mark.parametrize("looks_at_buffers", [False, True])
def test_visitors_meet_all_nodes_in_the_order_of_the_fields(looks_at_buffers):
    class Order(Visitor):
        def __init__(self):
            self.found = []

        def visit(self, node):
            self.found.append(node)
            super().visit(node)

    class OrderAndBuffers(Order):
        def __init__(self):
            super().__init__()
            self.buffers = set()

        def visit_buffer(self, buffer):
            self.buffers.add(buffer)

    body = parse(PROGRAM).body
    visitor = OrderAndBuffers() if looks_at_buffers else Order()
    visitor.visit(body)
    assert visitor.found == list(walk(body))
    if looks_at_buffers:
        assert visitor.buffers == {leaf for leaf in leaves(body) if isinstance(leaf, Buffer)}
