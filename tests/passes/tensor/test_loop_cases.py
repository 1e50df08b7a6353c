"""LoopPartition: write loops over several formulas as a loop for each."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tensorir.both_targets import on_both_targets
from tilewright import PassContext, build
from tilewright import graphir as gi
from tilewright.passes.tensor.loop_partition import LoopPartitionConfig, partition_loops
from tilewright.passes.tensor.simplify import simplify
from tilewright.tensorir import parse, to_text
from tilewright.tensorir.expr import BufferLoad, Select
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import For, IfThenElse, PrimFunc
from tilewright.tensorir.target import Target

HEAD = """
primfunc @f(X: Buffer[(32,), float32], Y: Buffer[(32,), float32], Z: Buffer[(32,), float32],
            C: Buffer[(SIZE,), float32], n: int64) attrs {"num_outputs": 1} {
"""
THREE = """
    C[i] = select(i < 32, X[i where i < 32], select(i < 64, Y[i - 32 where i >= 32 and i < 64],
                                                    Z[i - 64 where i >= 64]))
"""


def program(body: str, size: int = 96) -> str:
    return HEAD.replace("SIZE", str(size)) + body + "}"


def partitioned(func: PrimFunc) -> PrimFunc:
    return simplify(partition_loops(func))


def test_each_formula_of_a_loop_gets_a_loop(rewrites) -> None:
    before = program(f"for i in range(96) {{ {THREE} }}")
    expected = program("""
      for i in range(32) { C[i] = X[i] }
      for i in range(32, extent=32) { C[i] = Y[i - 32] }
      for i in range(64, extent=32) { C[i] = Z[i - 64] }
    """)
    rewrites(partitioned, before, expected)


def test_a_parallel_loop_chooses_by_bisection(rewrites) -> None:
    before = program(f"for i in parallel(96) {{ {THREE} }}")
    expected = program("""
      for i in parallel(96) {
        if i < 64 {
          if i < 32 { C[i] = X[i] } else { C[i] = Y[i - 32] }
        } else {
          C[i] = Z[i - 64]
        }
      }
    """)
    rewrites(partitioned, before, expected)


def test_a_vector_across_a_turn_stands_alone(rewrites) -> None:
    before = program("""
      for i in range(15) {
        for j in vectorized(4) {
          C[i * 4 + j] = select(i * 4 + j < 30, X[i * 4 + j where i * 4 + j < 30],
                                Y[i * 4 + j - 30 where i * 4 + j >= 30])
        }
      }
    """)
    expected = program("""
      for i in range(7) { for j in vectorized(4) { C[i * 4 + j] = X[i * 4 + j] } }
      for j in vectorized(4) {
        C[j + 28] = select(j < 2, X[j + 28 where j < 2], Y[j - 2 where j >= 2])
      }
      for i in range(8, extent=7) { for j in vectorized(4) { C[i * 4 + j] = Y[i * 4 + j - 30] } }
    """)
    rewrites(lambda func: simplify(partition_loops(func)), before, expected)


def test_a_condition_that_the_loop_does_not_change_leaves_it(rewrites) -> None:
    before = program("""
      for i in range(32) { C[i] = select(n < 5, X[i where n < 5], Y[i where n >= 5]) }
    """)
    expected = program("""
      if n < 5 { for i in range(32) { C[i] = X[i] } } else { for i in range(32) { C[i] = Y[i] } }
    """)
    rewrites(partitioned, before, expected)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (
            "for i in range(32) { if n < 5 { C[i] = X[i] } else { C[i] = X[i] + 1.0 } }",
            "if n < 5 { for i in range(32) { C[i] = X[i] } } else { for i in range(32) { C[i] = X[i] + 1.0 } }",
        ),
        (
            "for i in range(8) { for j in range(4) { if n < 5 and j < i { C[i * 4 + j] = X[i] } } }",
            "if n < 5 { for i in range(8) { for j in range(min(i, 4)) { C[i * 4 + j] = X[i] } } }",
        ),
        (
            "for i in parallel(32) { if n < 5 { if n > 2 { C[i] = X[i] } } }",
            "if n < 5 and n >= 3 { for i in parallel(32) { C[i] = X[i] } }",
        ),
        (
            "for i in range(32) { if n < 5 or n == 7 { C[i] = X[i] } }",
            "if n < 5 or n == 7 { for i in range(32) { C[i] = X[i] } }",
        ),
    ],
    ids=["else", "conjunction", "one after the other", "alternatives"],
)
def test_a_condition_about_all_of_a_body_leaves_the_loop(rewrites, before: str, expected: str) -> None:
    rewrites(partitioned, program(before), program(expected))


@pytest.mark.parametrize("condition", ["X[0] < 5.0", "64 // n < 5"], ids=["memory", "division"])
def test_a_condition_that_may_not_be_evaluated_stays_in_its_loop(condition: str) -> None:
    after = partitioned(parse(program(f"for i in range(n) {{ if {condition} {{ C[i] = X[i] }} }}")))
    assert isinstance(after.body, For)


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(32) { C[i] = select(n < 5, X[i] + Y[i], X[i] * Y[i]) }",  # two copies of two loads
        "for i in range(32) { C[i] = select(n < 5, X[i where n < 5], 0.0) }",  # a border: nothing to deal out
    ],
)
def test_what_would_copy_loads_stays_a_loop(body: str) -> None:
    after = partitioned(parse(program(body)))
    assert not any(isinstance(node, IfThenElse) for node in walk(after.body)), to_text(after)


def test_splits_that_copy_nothing_do_not_count_as_copies(keeps_results) -> None:
    body = program(f"for i in range(96) {{ {THREE} }}").replace(", n: int64", "")
    after = keeps_results(lambda func: partition_loops(func, LoopPartitionConfig(max_copies=1)), body)
    assert sum(isinstance(node, For) for node in walk(after.body)) == 3


@pytest.mark.parametrize("size", [16, 7])
@pytest.mark.parametrize("axis", [0, 1])
def test_no_main_loop_of_a_concatenation_chooses(size: int, axis: int) -> None:
    values = [gi.var(f"x{number}", shape=(size, 16 * size)) for number in range(24)]
    with PassContext(opt_level=3):
        model = build(gi.Function(values, gi.concatenate(values, axis=axis)), Target("llvm", num_threads=1))
    (kernel,) = [
        func for func in model._built.segments[0].lowered().modules["lowered"].functions.values() if func.name != "main"
    ]
    loops = [node for node in walk(kernel.body) if isinstance(node, For)]
    innermost = [loop for loop in loops if not any(isinstance(node, For) for node in walk(loop.body))]
    assert len(innermost) >= 24
    assert not any(isinstance(node, Select) for loop in innermost for node in walk(loop.body))
    assert all(sum(isinstance(node, BufferLoad) for node in walk(loop.body)) == 1 for loop in innermost)


@on_both_targets
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float64"])
@pytest.mark.parametrize("count", [2, 9])
def test_concatenations_and_stacks_of_odd_sizes(target: Target, dtype: str, count: int) -> None:
    rng = np.random.default_rng(count)
    arrays = [
        rng.integers(0, 2 if dtype == "bool" else 100, (3, 5 + number % 4)).astype(dtype) for number in range(count)
    ]
    values = [gi.var(f"x{number}", shape=array.shape, dtype=dtype) for number, array in enumerate(arrays)]
    same = values[::4]
    body = gi.Tuple([gi.concatenate(values, axis=1), gi.stack(same, axis=0), gi.stack(same, axis=-1)])
    with PassContext(opt_level=3):
        model = build(gi.Function(values, body), target)
    joined, first, last = model(*arrays)
    np.testing.assert_array_equal(joined, np.concatenate(arrays, axis=1))
    np.testing.assert_array_equal(first, np.stack(arrays[::4], axis=0))
    np.testing.assert_array_equal(last, np.stack(arrays[::4], axis=-1))


def test_parts_of_rows_that_are_tiled_stay_in_their_tiles() -> None:
    arrays = [np.random.default_rng(1).random((3, width), np.float32) for width in (4091, 12, 2000)]
    values = [gi.var(f"x{number}", shape=array.shape) for number, array in enumerate(arrays)]
    with PassContext(opt_level=3):
        model = build(gi.Function(values, gi.concatenate(values, axis=1)))
    np.testing.assert_array_equal(model(*arrays), np.concatenate(arrays, axis=1))


def test_hundreds_of_values_are_joined() -> None:
    arrays = [np.full((2, 1 + number % 2), number, np.float32) for number in range(300)]
    values = [gi.var(f"x{number}", shape=array.shape) for number, array in enumerate(arrays)]
    with PassContext(opt_level=0):
        model = build(gi.Function(values, gi.concatenate(values, axis=1)))
    np.testing.assert_array_equal(model(*arrays), np.concatenate(arrays, axis=1))
