"""Test the cached kinds and leaves of nodes, and the walks, against a walk over all their parts."""

from __future__ import annotations

import pytest

from tilewright.tensorir import functor, parse
from tilewright.tensorir.expr import (
    BinaryOp,
    Buffer,
    BufferLoad,
    Call,
    Choose,
    Compare,
    Expr,
    Select,
    Var,
    address_of,
    as_expr,
)
from tilewright.tensorir.functor import (
    Mutator,
    Visitor,
    copy_with_fresh_definitions,
    free_vars,
    kinds,
    leaves,
    substitute,
    walk,
    walk_once,
    walk_statements,
    walk_to,
    walk_to_loads,
)
from tilewright.tensorir.occurrences import BRANCHES
from tilewright.tensorir.stmt import BufferStore, Evaluate, For, IfThenElse, Stmt, sequence

PROGRAM = """
primfunc @f(A: Buffer[(64,), float32], H: Buffer[(64,), float16], B: Buffer[(64,), float32], n: int64) {
  for i in range(n) {
    let q: int64 = i // 3
    if i < n - 1 {
      B[i] = select(q == 2, A[i], choose(i % 2, exp(A[i + 1]), A[i + 1]))
    }
    B[ramp(i, 1, 4) where broadcast(q < n, 4)] = A[ramp(q % 2, 1, 4) where broadcast(i < 8, 4)]
    H[i] = H[i] + H[q]
    B[i + 2] = cast(float32, H[i]) / A[i]
  }
}
"""


def occurring(node):
    """The kinds of what is in ``node``, found by looking at all of it."""
    found = 0
    for part in walk(node):
        found |= functor.COMPARISONS if isinstance(part, Compare) else 0
        found |= functor.SELECTIONS if isinstance(part, Select) else 0
        found |= functor.CHOICES if isinstance(part, Choose) else 0
        found |= functor.CALLS if isinstance(part, Call) else 0
        if isinstance(part, BufferLoad):
            found |= functor.LOADS if part.predicate is None else functor.LOADS | functor.MASKED_LOADS
        if isinstance(part, BinaryOp) and part.op in ("floordiv", "floormod", "truncdiv", "truncmod"):
            found |= functor.DIVISIONS
        if isinstance(part, BinaryOp) and part.op == "div":
            found |= functor.FLOAT_DIVISIONS
        found |= BRANCHES if isinstance(part, IfThenElse) else 0
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
    assert 0 in bits and kinds(body) == 1023 and len(bits) > 8


def test_leaves_of_a_chain_that_is_longer_than_recursion_may_be_deep():
    start, end = Var("start", "int64"), Var("end", "int64")
    chain = as_expr(start)
    for _ in range(5000):
        chain = BinaryOp("add", chain, end)
    assert leaves(chain) == {start, end} and kinds(chain) == 0


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


def test_walks_that_pass_by_give_what_a_whole_walk_gives():
    body = parse(PROGRAM).body
    nodes = list(walk(body))
    assert list(walk_statements(body)) == [node for node in nodes if isinstance(node, Stmt)]
    assert list(walk_to_loads(body)) == [node for node in nodes if isinstance(node, (Stmt, BufferLoad))]
    assert list(walk_once(body)) == list(dict.fromkeys(nodes)) and len(set(nodes)) < len(nodes)
    for wanted in (functor.SELECTIONS, functor.DIVISIONS | functor.HALVES):
        assert list(walk_to(body, wanted)) == list(dict.fromkeys(node for node in nodes if kinds(node) & wanted))


def test_blocks_are_walked_through_with_what_starts_their_sums():
    block = """
    primfunc @f(A: Buffer[(8,), float32], B: Buffer[(1,), float32]) {
      for i in range(8) {
        block b(j: spatial(1) = 0, k: reduction(8) = i) {
          reads A[k]
          writes B[j]
          init { B[j] = 0.0 }
          B[j] = B[j] + A[k]
        }
      }
    }
    """
    body = parse(block).body
    assert list(walk_statements(body)) == [node for node in walk(body) if isinstance(node, Stmt)]
    assert list(walk_to_loads(body)) == [node for node in walk(body) if isinstance(node, (Stmt, BufferLoad))]


def test_a_mutator_that_leaves_expressions_alone_meets_all_statements():
    class Collector(Mutator):
        def __init__(self):
            self.stores = []

        def mutate_BufferStore(self, op):
            self.stores.append(op)
            return Evaluate(op.value)

    body = parse(PROGRAM).body
    collector = Collector()
    changed = collector.mutate(body)
    assert collector.stores == [node for node in walk(body) if isinstance(node, BufferStore)]
    assert [node.value for node in walk(changed) if isinstance(node, Evaluate)] == [op.value for op in collector.stores]


def test_free_variables_come_in_the_order_of_their_first_use():
    a, b, c = (Var(name) for name in "abc")
    assert free_vars((c + b) * (b - a) + c) == [c, b, a]
    assert free_vars(as_expr(3)) == []
    func = parse("primfunc @f(B: Buffer[(8,), int64], m: int64, n: int64) { for i in range(n) { B[i] = i + m } }")
    loop = func.body
    m, n = func.variables
    assert free_vars(loop) == [n, m] and free_vars(loop.body) == [loop.var, m] and free_vars(func) == []


def test_substitution_replaces_a_buffer_whose_shape_mentions_a_variable_wherever_it_is_read():
    func = parse("primfunc @f(A: Buffer[(n,), float32], B: Buffer[(8,), float32], n: int64) { B[0] = A[1] + A[2] }")
    (n,) = func.variables
    store = substitute(func.body, {n: as_expr(8)})
    first, second = (node for node in walk(store) if isinstance(node, BufferLoad))
    assert first.buffer is second.buffer and first.buffer.shape == (as_expr(8),)
    assert substitute(func.body, {Var("other"): as_expr(8)}) is func.body


def test_each_copy_of_a_definition_gets_a_variable_of_its_own():
    # One loop stands twice: what its variable was called in the first copy says nothing of the second.
    i, buffer = Var("i"), Buffer("B", (as_expr(8),))
    loop = For(i, as_expr(0), as_expr(4), "serial", BufferStore(buffer, as_expr(1.0), (i + 4,)))
    first, second = copy_with_fresh_definitions(sequence(loop, loop)).stmts
    assert leaves(first.body) == {buffer, first.var} and leaves(second.body) == {buffer, second.var}
    assert len({i, first.var, second.var}) == 3


def test_substitution_leaves_calls_with_an_effect_apart():
    i, buffer = Var("i"), Buffer("B", (as_expr(8),))
    call = Call("@g", (address_of(buffer, i),), "void")
    twice = substitute(sequence(Evaluate(call), Evaluate(call)), {i: as_expr(1)})
    first, second = (stmt.value for stmt in twice.stmts)
    assert first is not second and first.args == second.args
