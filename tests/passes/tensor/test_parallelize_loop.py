"""ParallelizeLoop: run loops in parallel that are worth threads."""

from __future__ import annotations

import functools

from tilewright.passes.context import PassContext
from tilewright.passes.tensor.parallelize_loop import parallelize_loops
from tilewright.tensorir import parse
from tilewright.tensorir.functor import walk
from tilewright.tensorir.keys import PARALLEL_IF
from tilewright.tensorir.stmt import For
from tilewright.tensorir.target import Target

COPY = """
primfunc @f(A: Buffer[(SIZE,), float32], B: Buffer[(SIZE,), float32], n: int64) attrs {"num_outputs": 1} {
  for i in parallel(SIZE) {
    B[i] = A[i]
  }
}
"""
two_threads = functools.partial(parallelize_loops, target=Target("llvm", num_threads=2))


def loops(func):
    return [node for node in walk(func.body) if isinstance(node, For)]


def test_little_work_is_serial_and_much_is_parallel():
    assert loops(two_threads(parse(COPY.replace("SIZE", "100"))))[0].kind == "serial"
    assert loops(two_threads(parse(COPY.replace("SIZE", "1000000"))))[0].kind == "parallel"


def test_symbolic_work_is_decided_at_run_time():
    func = parse(COPY.replace("SIZE", "n"))
    with PassContext(config={"tensorir.ParallelizeLoop": {"min_work": 1000}}):
        (loop,) = loops(two_threads(func))
    assert loop.kind == "parallel"
    assert str(loop.annotations[PARALLEL_IF]) == "n >= 500"


def condition(extent, body):
    """Return the condition on which the rows of a matrix are worth threads, where a row takes ``for j in extent:
    body``."""
    params = "A: Buffer[(n, m), float32], B: Buffer[(n, m), float32], n: int64, m: int64"
    func = parse(f"""
    primfunc @f({params}) attrs {{"num_outputs": 1}} {{
      for i in parallel(n) {{
        for j in range({extent}) {{
          {body}
        }}
      }}
    }}
    """)
    with PassContext(config={"tensorir.ParallelizeLoop": {"min_work": 1000}}):
        (loop, *_) = loops(two_threads(func))
    return str(loop.annotations[PARALLEL_IF])


def test_a_bounded_loop_inside_counts_with_its_bound():
    assert condition("min(m, 50)", "B[i, j] = A[i, j]") == "n >= 10"
    assert condition("min(m, 50) - min(m, 50) % 8", "B[i, j] = A[i, j]") == "n >= 10"


def test_an_unbounded_loop_inside_counts_with_its_extent():
    assert condition("m", "B[i, j] = A[i, j]") == "n * (m * 2) >= 1000"


def test_a_call_counts_with_the_instructions_of_its_declaration():
    assert condition("50", "B[i, j] = sqrt(A[i, j])") == "n >= 3"  # 5, and a load and a store
    assert condition("50", "B[i, j] = select(isnan(A[i, j]), 0.0, 1.0)") == "n >= 4"


def test_one_iteration_is_not_worth_threads_however_much_it_does():
    assert condition("min(m, 5000)", "B[i, j] = A[i, j]") == "n >= 2"


def test_a_loop_of_at_most_one_iteration_is_serial():
    func = parse(COPY.replace("in parallel(SIZE)", "in parallel((min(n, 1) * 17 + 31) // 32)").replace("SIZE", "n"))
    assert loops(two_threads(func))[0].kind == "serial"


def test_one_thread_needs_no_parallel_loops():
    func = parse(COPY.replace("SIZE", "1000000"))
    assert loops(parallelize_loops(func, target=Target("llvm", num_threads=1)))[0].kind == "serial"


def test_a_parallel_loop_in_another_is_serial():
    func = parse("""
    primfunc @f(B: Buffer[(1000, 1000), float32]) attrs {"num_outputs": 1} {
      for i in parallel(1000) {
        for j in parallel(1000) {
          B[i, j] = 1.0
        }
      }
    }
    """)
    assert [loop.kind for loop in loops(two_threads(func))] == ["parallel", "serial"]


def test_iterations_that_write_one_element_are_serial_with_a_remark():
    func = parse("""
    primfunc @f(A: Buffer[(1000000,), float32], B: Buffer[(1,), float32]) attrs {"num_outputs": 1} {
      for i in parallel(1000000) {
        B[0] = B[0] + A[i]
      }
    }
    """)
    with PassContext() as ctx:
        assert loops(two_threads(func))[0].kind == "serial"
    assert any("same element of B" in remark.message for remark in ctx.remarks)
