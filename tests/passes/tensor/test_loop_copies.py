"""LoopPartition leaves loops whole that copy memory inside of a border, and those that the schedule names."""

from __future__ import annotations

import pytest

from tilewright.passes.tensor.loop_partition import partition_loops
from tilewright.tensorir import parse
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import For

COPY = """
primfunc @f(A: Buffer[(6, 8), float32], B: Buffer[(8, 8), float32]) attrs {"num_outputs": 1} {
  for i in range(8) ANNOTATIONS{
    for j in vectorized(8) {
      B[i, j] = VALUE
    }
  }
}
"""


@pytest.mark.parametrize(
    "value",
    [
        "select(i >= 1 and i < 7, A[i - 1, j where i >= 1 and i < 7], 0.0)",
        "select(i >= 1 and i < 7, A[i - 1, j where i >= 1 and i < 7], -1.0)",
        "A[i - 1, j where i >= 1 and i < 7]",
        "select(i >= 1 and i < 7 and j < 5, A[i - 1, j where i >= 1 and i < 7 and j < 5], 0.0)",
    ],
)
def test_copies_with_a_border_of_whole_vectors_stay_one_loop(rewrites, value):
    text = COPY.replace("VALUE", value).replace("ANNOTATIONS", "")
    rewrites(partition_loops, text, text)


@pytest.mark.parametrize(
    "value",
    [
        "select(i >= 1 and i < 7, A[i - 1, j where i >= 1 and i < 7] * 2.0, 0.0)",  # the product is for nothing there
        "select(i >= 1 and i < 7, A[max(i - 1, 0) % 6, j], 0.0)",  # a selection of vectors
        "select(i >= 1 and i < 7, A[i - 1, j where i >= 1], 0.0)",
        "select(i + j >= 1 and i < 7, A[i - 1, j where i + j >= 1 and i < 7], 0.0)",
    ],
)
def test_loops_are_split_where_a_condition_costs_more_than_an_address(value):
    func = partition_loops(parse(COPY.replace("VALUE", value).replace("ANNOTATIONS", "")))
    assert sum(isinstance(node, For) and node.kind == "serial" for node in walk(func.body)) > 1


def test_copies_inside_of_a_task_that_computes_are_split():
    func = parse("""
primfunc @f(A: Buffer[(6, 8), float32], B: Buffer[(8,), float32]) attrs {"num_outputs": 1} {
  for t in range(2) {
    allocate P: Buffer[(8, 8), float32, stack]
    for i in range(8) {
      for j in vectorized(8) {
        P[i, j] = select(i >= 1 and i < 7, A[i - 1, j where i >= 1 and i < 7], 0.0)
      }
    }
    for j in vectorized(8) {
      B[j] = P[t, j] * P[t + 6, j]
    }
  }
}
""")
    loops = [node for node in walk(partition_loops(func).body) if isinstance(node, For) and node.kind == "serial"]
    assert len(loops) == 4


def test_a_loop_is_kept_whole_where_the_schedule_says_so(rewrites):
    text = COPY.replace("VALUE", "select(i >= 1 and i < 7, A[max(i - 1, 0) % 6, j], 0.0)")
    kept = text.replace("ANNOTATIONS", 'annotations {"keep_whole": True} ')
    rewrites(partition_loops, kept, kept)
