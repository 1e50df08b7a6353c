"""UnrollLoop: choose the loops to unroll."""

from __future__ import annotations

from tilewright.passes.context import PassContext
from tilewright.passes.tensor.unroll_loop import unroll_loops
from tilewright.tensorir import parse
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, BufferLoad, Select, Var, const
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import BufferStore, For, IfThenElse, PrimFunc, sequence

SHORT = """
primfunc @f(A: Buffer[(3,), float32], B: Buffer[(3,), float32]) attrs {"num_outputs": 1} {
  for i in KIND(3) {
    let x: float32 = A[i]
    B[i] = x
  }
}
"""
WRITTEN_OUT = """
primfunc @f(A: Buffer[(3,), float32], B: Buffer[(3,), float32]) attrs {"num_outputs": 1} {
  {
    let x: float32 = A[0]
    B[0] = x
  }
  {
    let x: float32 = A[1]
    B[1] = x
  }
  {
    let x: float32 = A[2]
    B[2] = x
  }
}
"""


def test_each_copy_has_its_own_definitions(rewrites):
    rewrites(unroll_loops, SHORT.replace("KIND", "unrolled"), WRITTEN_OUT)


def test_short_serial_loops_are_unrolled_when_the_option_says_so(rewrites):
    serial = SHORT.replace("KIND", "range")
    rewrites(unroll_loops, serial, serial)
    with PassContext(config={"tensorir.UnrollLoop": {"auto_max_step": 3}}):
        rewrites(unroll_loops, serial, WRITTEN_OUT)
    with PassContext(config={"tensorir.UnrollLoop": {"auto_max_step": 2}}):
        rewrites(unroll_loops, serial, serial)


def test_what_would_be_too_long_stays_a_loop_and_says_so():
    with PassContext(config={"tensorir.UnrollLoop": {"max_unroll": 2}}) as ctx:
        after = unroll_loops(parse(SHORT.replace("KIND", "unrolled")))
    assert [node.kind for node in walk(after.body) if isinstance(node, For)] == ["serial"]
    assert any("max_unroll" in remark.message for remark in ctx.remarks)


def test_each_copy_holds_only_the_formula_that_it_chooses(rewrites):
    chosen = """
primfunc @f(A: Buffer[(3,), float32], B: Buffer[(3,), float32]) attrs {"num_outputs": 1} {
  for i in unrolled(3) {
    B[i] = select(i == 0, A[0], select(i < 2, A[1] * 2.0, A[i] - 1.0))
  }
}
"""
    written_out = """
primfunc @f(A: Buffer[(3,), float32], B: Buffer[(3,), float32]) attrs {"num_outputs": 1} {
  B[0] = A[0]
  B[1] = A[1] * 2.0
  B[2] = A[2] - 1.0
}
"""
    rewrites(unroll_loops, chosen, written_out)


def test_copies_are_folded_and_the_constant_part_of_an_index_comes_last(rewrites):
    rolled = """
primfunc @f(A: Buffer[(640,), float32], B: Buffer[(640,), float32], n: int64) attrs {"num_outputs": 1} {
  for x in range(10) {
    for i in unrolled(3) {
      let m: boolx4 = ramp(i * 4, 1, 4) < broadcast(8, 4)
      if x * 4 + i >= 1 {
        B[ramp(x * 64 + i * 16 + n, 1, 4) where m] = A[ramp(x * 64 + (2 - i), 1, 4) where m]
      }
    }
  }
}
"""
    written_out = """
primfunc @f(A: Buffer[(640,), float32], B: Buffer[(640,), float32], n: int64) attrs {"num_outputs": 1} {
  for x in range(10) {
    if x >= 1 {
      B[ramp(x * 64 + n, 1, 4)] = A[ramp(x * 64 + 2, 1, 4)]
    }
    B[ramp(x * 64 + n + 16, 1, 4)] = A[ramp(x * 64 + 1, 1, 4)]
  }
}
"""
    rewrites(unroll_loops, rolled, written_out)


def test_results_stay(keeps_results):
    keeps_results(unroll_loops, SHORT.replace("KIND", "unrolled"))


def test_what_a_condition_decides_is_decided_inside_of_it_only():
    n, i = Var("n"), Var("i")
    b = Buffer("B", (const(4, INT64),))
    few = n + i < 8  # one node, in two places
    inside = BufferStore(b, Select(few, const(1.0, "float32"), const(2.0, "float32")), (i,))
    outside = BufferStore(b, Select(few, const(1.0, "float32"), const(2.0, "float32")), (i + 2,))
    loop = For(i, const(0, INT64), const(2, INT64), "unrolled", sequence(IfThenElse(n < 4, inside), outside))
    text = str(unroll_loops(PrimFunc("f", (b, n), loop, {"num_outputs": 1})))
    assert "B[0] = 1.0" in text and "B[1] = 1.0" in text
    assert "B[2] = select(" in text and "B[3] = select(" in text


def test_copies_share_what_depends_on_the_same_numbers():
    text = """
primfunc @f(A: Buffer[(64,), float32], B: Buffer[(64,), float32], n: int64) attrs {"num_outputs": 1} {
  for i in unrolled(2) {
    for j in unrolled(3) {
      B[n + i * 8 + j] = A[n + j * 2] * A[n * 4 + i - j * 3]
    }
  }
}
"""
    func = unroll_loops(parse(text))
    loads = [node for node in walk(func.body) if isinstance(node, BufferLoad)]
    assert len({load for load in loads if str(load) == "A[n + 4]"}) == 1
    stores = [str(node) for node in walk(func.body) if isinstance(node, BufferStore)]
    expected = []
    for i in range(2):
        for j in range(3):
            first, second = (f"n + {i * 8 + j}" if i or j else "n"), (f"n + {2 * j}" if j else "n")
            number = i - 3 * j
            third = f"n * 4 + {number}" if number > 0 else f"n * 4 - {-number}" if number else "n * 4"
            expected.append(f"B[{first}] = A[{second}] * A[{third}]")
    assert stores == expected
