"""LoopPartition: loops are split where their conditions turn."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.passes.tensor.loop_partition import partition_loops
from tilewright.passes.tensor.simplify import simplify
from tilewright.tensorir import interpret, parse
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import IntImm
from tilewright.tensorir.functor import substitute, walk
from tilewright.tensorir.stmt import Allocate, For, IfThenElse

TILES = """
primfunc @f(B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
  for i in range((n + 5) // 6)ANNOTATIONS {
    for j in range(6) {
      if i * 6 + j < n {
        B[i * 6 + j] = float32(i * 6 + j)
      }
    }
  }
}
"""


def test_the_main_loop_has_no_condition(rewrites):
    before = """
    primfunc @f(B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
      for i in range((n + 5) // 6) {
        for j in range(6) {
          B[0] = 1.0
          if i * 6 + j < n {
            B[i * 6 + j] = 0.0
          }
        }
      }
    }
    """
    expected = """
    primfunc @f(B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
      for i in range(n // 6) {
        for j in range(6) {
          B[0] = 1.0
          B[i * 6 + j] = 0.0
        }
      }
      for i in range(n // 6, extent=(n + 5) // 6 - n // 6) {
        for j in range(6) {
          B[0] = 1.0
          if i * 6 + j < n {
            B[i * 6 + j] = 0.0
          }
        }
      }
    }
    """
    rewrites(lambda func: simplify(partition_loops(func)), before, expected)


def test_a_loop_ends_where_a_condition_below_inner_loops_never_holds_again(rewrites):
    before = """
    primfunc @f(B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
      for i in range(256) {
        for j in vectorized(4) {
          if i * 4 + j < n {
            B[i * 4 + j] = 0.0
          }
        }
      }
    }
    """
    expected = """
    primfunc @f(B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
      for i in range(min(n // 4, 256)) {
        for j in vectorized(4) {
          B[i * 4 + j] = 0.0
        }
      }
      for i in range(min(n // 4, 256), extent=min((n + 3) // 4, 256) - min(n // 4, 256)) {
        for j in vectorized(4) {
          if i * 4 + j < n {
            B[i * 4 + j] = 0.0
          }
        }
      }
    }
    """
    rewrites(lambda func: simplify(partition_loops(func)), before, expected)


@pytest.mark.parametrize("annotations", ["", ' annotations {"specialize_tail": True}'])
@pytest.mark.parametrize("n", [0, 1, 5, 6, 7, 12, 17])
def test_tiles_cover_every_size(keeps_results, annotations, n):
    keeps_results(partition_loops, TILES.replace("ANNOTATIONS", annotations), n=n)


def test_a_specialized_tail_has_constant_extents_only(keeps_results):
    after = keeps_results(
        lambda func: simplify(partition_loops(func)),
        TILES.replace("ANNOTATIONS", ' annotations {"specialize_tail": True}'),
        n=16,
    )
    conditions = [str(node.condition) for node in walk(after.body) if isinstance(node, IfThenElse)]
    assert conditions == ["n % 6 >= 3", "n % 3 == 1", "n % 3 == 2"]


def test_the_start_of_a_reduction_is_split_off(rewrites):
    before = """
    primfunc @f(A: Buffer[(8,), float32], C: Buffer[(1,), float32]) attrs {"num_outputs": 1} {
      for k in range(8) {
        if k == 0 {
          C[0] = 0.0
        }
        C[0] = C[0] + A[k]
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(8,), float32], C: Buffer[(1,), float32]) attrs {"num_outputs": 1} {
      C[0] = 0.0
      C[0] = C[0] + A[0]
      for k in range(1, extent=7) {
        C[0] = C[0] + A[k]
      }
    }
    """
    rewrites(lambda func: simplify(partition_loops(func)), before, expected)


def test_a_condition_that_is_the_body_limits_the_range(rewrites):
    before = """
    primfunc @f(B: Buffer[(8,), float32]) attrs {"num_outputs": 1} {
      for i in range(10) {
        if i >= 2 and i < 7 {
          B[i] = 0.0
        }
      }
    }
    """
    expected = """
    primfunc @f(B: Buffer[(8,), float32]) attrs {"num_outputs": 1} {
      for i in range(2, extent=5) {
        B[i] = 0.0
      }
    }
    """
    rewrites(partition_loops, before, expected)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 9])
def test_borders_of_a_stencil(keeps_results, n):
    keeps_results(
        partition_loops,
        """
        primfunc @f(A: Buffer[(n,), float32], B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
          for i in range(n) {
            for r in range(3) {
              if i + r >= 1 {
                if i + r - 1 < n {
                  B[i] = B[i] + A[i + r - 1]
                }
              }
            }
          }
        }
        """,
        n=n,
    )


def test_a_parallel_loop_stays_one_loop(keeps_results):
    after = keeps_results(partition_loops, TILES.replace("range((n", "parallel((n").replace("ANNOTATIONS", ""), n=20)
    assert str(after).count("parallel") == 1


@pytest.mark.parametrize("n", [0, 1, 5, 6, 7, 11, 12, 13, 23, 24, 25, 40])
def test_specialized_tail_of_tiles_in_parts_computes_the_same(n: int) -> None:
    func = parse("""
primfunc @parts(a: Buffer[(n,), float32], b: Buffer[(n,), float32], n: int64) {
  for part in range((n + 11) // 12) {
    for tile in range(2) annotations {"specialize_tail": True} {
      for i in unrolled(6) {
        if part * 12 + tile * 6 + i < n {
          b[part * 12 + tile * 6 + i] = a[part * 12 + tile * 6 + i] + 1.0
        }
      }
    }
  }
}
""")
    partitioned = partition_loops(func)
    assert "n % 6 >= 3" in str(partitioned)
    values, out = np.arange(n, dtype="f4"), np.zeros(n, "f4")
    interpret(partitioned, values, out, n)
    np.testing.assert_array_equal(out, values + 1)


ROWS = """
primfunc @f(B: Buffer[(m, n), float32], m: int64, n: int64) attrs {"num_outputs": 1} {
  for row in range(m) {
    for i in range(256) {
      for j in vectorized(16) {
        if i * 16 + j < n {
          B[row, i * 16 + j] = 1.0
        }
      }
    }
  }
}
"""


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 40, 4096])
def test_rows_shorter_than_their_loop_are_covered(keeps_results, n):
    keeps_results(partition_loops, ROWS, m=2, n=n)


@pytest.mark.parametrize(("n", "vectors"), [(0, 0), (1, 1), (16, 1), (40, 3), (4096, 256)])
def test_no_iteration_runs_behind_the_end_of_a_row(n, vectors):
    after = simplify(partition_loops(parse(ROWS)))
    analyzer = Analyzer()
    size = next(var for var in after.variables if var.name == "n")
    loops = [node for node in walk(after.body) if isinstance(node, For) and node.var.name == "i"]
    extents = [analyzer.simplify(substitute(loop.extent, {size: IntImm(n)})) for loop in loops]
    assert sum(max(extent.value, 0) for extent in extents) == vectors


ROLLED = """
primfunc @f(A: Buffer[(COUNT, 4), float32], B: Buffer[(COUNT, 4), float32]) attrs {"num_outputs": 1} {
  for i in range(COUNT) annotations {"roll_tail": True} {
    allocate t: Buffer[(2, 4), float32, register]
    for y in unrolled(2) {
      for x in unrolled(4) {
        t[y, x] = select(i * 2 + y >= 1, A[i, x], 0.0)
      }
    }
    for y in unrolled(4) {
      B[i, y] = select(y == 0, t[0, 0] - t[1, 1], select(y == 1, t[0, 2] * t[1, 3], t[1, y]))
    }
  }
}
"""


@pytest.mark.parametrize(("count", "rolled"), [(5, True), (4, False)])
def test_the_tail_of_a_long_loop_stays_loops_where_the_schedule_says_so(keeps_results, count, rolled):
    text = ROLLED.replace("COUNT", str(count))
    keeps_results(partition_loops, text)
    first, main = [node for node in partition_loops(parse(text)).body.stmts if isinstance(node, For)]
    assert [(first.extent.value, main.extent.value)] == [(1, count - 1)]
    kinds = [node.kind for node in walk(first.body) if isinstance(node, For)]
    scopes = [node.buffer.scope for node in walk(first.body) if isinstance(node, Allocate)]
    assert kinds == (["serial", "serial", "unrolled"] if rolled else ["unrolled"] * 3)
    assert scopes == ["stack" if rolled else "register"]
    assert {node.kind for node in walk(main.body) if isinstance(node, For)} == {"unrolled"}
