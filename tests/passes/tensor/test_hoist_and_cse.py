"""HoistInvariant and CommonSubexprElim: compute loop-invariant and common expressions once."""

from __future__ import annotations

from tilewright.passes.tensor.common_subexpr_elim import eliminate_common_subexpressions
from tilewright.passes.tensor.hoist_invariant import ExprReplacer, hoist_invariants
from tilewright.tensorir.expr import Buffer, Call, Var, address_of


def test_an_invariant_call_moves_in_front_of_a_loop_that_surely_runs(rewrites):
    before = """
    primfunc @f(A: Buffer[(8,), float32], V: Buffer[(1,), float32], B: Buffer[(8,), float32]) {
      for i in range(8) {
        B[i] = A[i] / sqrt(V[0])
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(8,), float32], V: Buffer[(1,), float32], B: Buffer[(8,), float32]) {
      let invariant: float32 = sqrt(V[0])
      for i in range(8) {
        B[i] = A[i] / invariant
      }
    }
    """
    rewrites(hoist_invariants, before, expected)


def test_a_load_does_not_leave_a_loop_that_may_not_run_nor_a_condition(rewrites):
    before = """
    primfunc @f(V: Buffer[(n,), float32], B: Buffer[(8,), float32], n: int64) {
      for i in range(n) {
        B[i] = sqrt(V[0])
      }
      for i in range(8) {
        if i < n {
          B[i] = sqrt(V[0])
        }
      }
    }
    """
    rewrites(hoist_invariants, before, before)


def test_a_load_that_a_condition_guards_moves_where_it_is_evaluated_without_one(rewrites):
    head = "primfunc @f(V: Buffer[(1,), float32], A: Buffer[(8,), float32], B: Buffer[(8,), float32], n: int64) "
    before = """{
      for i in range(8) {
        if i < n {
          A[i] = sqrt(V[0])
        }
        B[i] = sqrt(V[0])
      }
    }"""
    expected = """{
      let invariant: float32 = sqrt(V[0])
      for i in range(8) {
        if i < n {
          A[i] = invariant
        }
        B[i] = invariant
      }
    }"""
    rewrites(hoist_invariants, head + before, head + expected)


def test_what_cannot_fail_leaves_either_branch_of_a_condition(rewrites):
    head = "primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32], n: int64) "
    before = """{
      for i in range(8) {
        if i < 4 {
          A[i] = sqrt(float32(n))
        } else {
          B[i] = exp(float32(n))
        }
      }
    }"""
    expected = """{
      let invariant: float32 = sqrt(float32(n))
      let invariant_1: float32 = exp(float32(n))
      for i in range(8) {
        if i < 4 {
          A[i] = invariant
        } else {
          B[i] = invariant_1
        }
      }
    }"""
    rewrites(hoist_invariants, head + before, head + expected)


def test_loops_over_what_calls_of_a_merged_kernel_pass_surely_run(rewrites):
    # The first is a dimension of the model, which may be zero; a divided size and a passed number are positive.
    head = """
    primfunc @f(V: Buffer[(1,), float32], B: Buffer[(c * 8,), float32], n: int64, c: int64, p: int64)
        attrs {"sizes_from": (None, (1, 0, 8), (0,))} {
    """
    loop = "for i in range(EXTENT) { B[i] = sqrt(V[0]) }"
    moved = "{ let invariant: float32 = sqrt(V[0]) for i in range(EXTENT) { B[i] = invariant } }"
    before = "".join([head, *[loop.replace("EXTENT", extent) for extent in ("n", "c * 8", "p")], "}"])
    expected = "".join(
        [head, loop.replace("EXTENT", "n"), *[moved.replace("EXTENT", extent) for extent in ("c * 8", "p")], "}"]
    )
    rewrites(hoist_invariants, before, expected)


def test_what_moves_on_from_loop_to_loop_takes_its_name_along(rewrites, keeps_results):
    nest = """
      for i in range(8) {
        for j in range(8) { B[i * 8 + j] = A[i * 8 + j] * sqrt(V[0]) }
      }
    """
    moved = """
      {
        let invariant: float32 = sqrt(V[0])
        for i in range(8) {
          for j in range(8) { B[i * 8 + j] = A[i * 8 + j] * invariant }
        }
      }
    """
    head = "primfunc @f(A: Buffer[(64,), float32], V: Buffer[(1,), float32], B: Buffer[(64,), float32]) {"
    rewrites(hoist_invariants, head + nest + nest + "}", head + moved + moved + "}")
    keeps_results(hoist_invariants, head + nest + nest + "}")


def test_a_load_of_what_the_loop_writes_stays(rewrites):
    before = """
    primfunc @f(B: Buffer[(8,), float32]) {
      for i in range(8) {
        B[i] = sqrt(B[0])
      }
    }
    """
    rewrites(hoist_invariants, before, before)


def test_a_repeated_call_is_bound_once(rewrites):
    before = """
    primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32], C: Buffer[(8,), float32]) {
      for i in range(8) {
        B[i] = exp(A[i]) + 1.0
        C[i] = exp(A[i]) * exp(A[i])
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32], C: Buffer[(8,), float32]) {
      for i in range(8) {
        let common: float32 = exp(A[i])
        B[i] = common + 1.0
        C[i] = common * common
      }
    }
    """
    rewrites(eliminate_common_subexpressions, before, expected)


def test_no_value_is_used_beyond_a_store_to_what_it_read(rewrites):
    before = """
    primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32]) {
      for i in range(8) {
        A[i] = exp(A[i]) + 1.0
        B[i] = exp(A[i])
      }
    }
    """
    rewrites(eliminate_common_subexpressions, before, before)


PER_COPY = """
primfunc @f(A: Buffer[(8, 3, 4), float32], V: Buffer[(3, 4), float32], B: Buffer[(8, 3, 4), float32])
    attrs {"num_outputs": 1} {
  for i in range(8) {
    for j in unrolled(3) {
      B[i, j, ramp(0, 1, 4)] = A[i, j, ramp(0, 1, 4)] * V[j, ramp(0, 1, 4)]
    }
  }
}
"""
PER_COPY_HOISTED = """
primfunc @f(A: Buffer[(8, 3, 4), float32], V: Buffer[(3, 4), float32], B: Buffer[(8, 3, 4), float32])
    attrs {"num_outputs": 1} {
  allocate invariant: Buffer[(3, 4), float32, register, align=64]
  for j in unrolled(3) {
    invariant[j, ramp(0, 1, 4)] = V[j, ramp(0, 1, 4)]
  }
  for i in range(8) {
    for j in unrolled(3) {
      B[i, j, ramp(0, 1, 4)] = A[i, j, ramp(0, 1, 4)] * invariant[j, ramp(0, 1, 4)]
    }
  }
}
"""


def test_what_differs_between_unrolled_copies_moves_into_a_register_buffer(rewrites, keeps_results):
    rewrites(hoist_invariants, PER_COPY, PER_COPY_HOISTED)
    keeps_results(hoist_invariants, PER_COPY)


def test_copies_share_what_is_costly_and_not_what_only_one_of_them_chooses(rewrites):
    text = """
primfunc @f(A: Buffer[(8,), float32], B: Buffer[(3,), float32]) attrs {"num_outputs": 1} {
  for j in unrolled(3) {
    B[j] = FIRST + select(j == 0, exp(A[0]), A[1] * 2.0)
  }
}
"""
    named = text.replace("for j", "let invariant: float32 = exp(A[4])\n  for j").replace("FIRST", "invariant")
    rewrites(hoist_invariants, text.replace("FIRST", "exp(A[4])"), named)


def test_what_is_computed_anew_behind_a_store_keeps_no_old_value(rewrites, keeps_results):
    before = """
    primfunc @f(A: Buffer[(4,), float32], B: Buffer[(4,), float32]) {
      B[0] = exp(A[0])
      B[1] = exp(A[0]) + 1.0
      A[0] = 2.0
      B[2] = exp(A[0])
      B[3] = exp(A[0]) + 1.0
    }
    """
    expected = """
    primfunc @f(A: Buffer[(4,), float32], B: Buffer[(4,), float32]) {
      let common: float32 = exp(A[0])
      B[0] = common
      B[1] = common + 1.0
      A[0] = 2.0
      let common_1: float32 = exp(A[0])
      B[2] = common_1
      B[3] = common_1 + 1.0
    }
    """
    rewrites(eliminate_common_subexpressions, before, expected)
    keeps_results(eliminate_common_subexpressions, before)


def test_a_part_of_what_is_bound_gets_a_name_only_if_something_else_uses_it(rewrites):
    before = """
    primfunc @f(A: Buffer[(4,), float32], B: Buffer[(4,), float32]) {
      B[0] = sqrt(exp(A[0]))
      B[1] = sqrt(exp(A[0])) + 1.0
      B[2] = log(exp(A[1]))
      B[3] = log(exp(A[1])) + exp(A[1])
    }
    """
    expected = """
    primfunc @f(A: Buffer[(4,), float32], B: Buffer[(4,), float32]) {
      let common: float32 = sqrt(exp(A[0]))
      B[0] = common
      B[1] = common + 1.0
      let common_1: float32 = exp(A[1])
      let common_2: float32 = log(common_1)
      B[2] = common_2
      B[3] = common_2 + common_1
    }
    """
    rewrites(eliminate_common_subexpressions, before, expected)


def test_an_element_whose_address_is_taken_stays_an_element():
    a, i, name = Buffer("a", (8,)), Var("i"), Var("name")
    value = Var("value", "float32")
    replaced = ExprReplacer({a[i]: value, i + 1: name})
    assert replaced.mutate(Call("prefetch", (a[i],), "void")).args == (a[i],)
    assert replaced.mutate(address_of(a, i + 1)) is address_of(a, name)
    assert replaced.mutate(a[i] + a[i + 1]) is value + a[name]
