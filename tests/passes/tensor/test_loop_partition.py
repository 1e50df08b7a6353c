"""LoopPartition: split loops where their conditions change."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.passes.tensor.loop_partition import LoopPartitionConfig, partition_loops
from tilewright.passes.tensor.simplify import simplify
from tilewright.tensorir import interpret, parse
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import IntImm
from tilewright.tensorir.functor import substitute, walk
from tilewright.tensorir.stmt import Allocate, BufferStore, For, IfThenElse

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


SUMS = """
primfunc @f(A: Buffer[(n, 4), float32], B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
  for i in range((n + 7) // 8) annotations {"specialize_tail": True} {
    allocate t: Buffer[(8,), float32, register]
    for k in range(4) {
      for j in unrolled(8) {
        if i * 8 + j < n {
          t[j] = A[i * 8 + j, k]
        }
      }
    }
    for j in unrolled(8) {
      if i * 8 + j < n {
        B[PLACE] = t[j] + B[PLACE]
      }
    }
  }
}
"""


def test_rows_behind_the_end_repeat_the_last_one_and_only_stores_ask_for_them(rewrites):
    expected = """
    primfunc @f(A: Buffer[(n, 4), float32], B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
      for i in range(n // 8) {
        allocate t: Buffer[(8,), float32, register]
        for k in range(4) {
          for j in unrolled(8) {
            t[j] = A[i * 8 + j, k]
          }
        }
        for j in unrolled(8) {
          B[i * 8 + j] = t[j] + B[i * 8 + j]
        }
      }
      for i in range((n % 8 + 1) // 2) {
        allocate t: Buffer[(8,), float32, register]
        for k in range(4) {
          for j in unrolled(2) {
            t[j] = A[i * 2 + n + min(n % 8 - i * 2 - 1, j) - n % 8, k]
          }
        }
        for j in unrolled(8) {
          if j < min(n % 8 - i * 2, 2) {
            B[i * 2 + n + j - n % 8] = t[j] + B[i * 2 + n + j - n % 8]
          }
        }
      }
    }
    """
    rewrites(lambda func: simplify(partition_loops(func)), SUMS.replace("PLACE", "i * 8 + j"), expected)


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
@pytest.mark.parametrize("place", ["i * 8 + j", "(i * 8 + j) // 2 + (i * 8 + j) % 2 * ((n + 1) // 2)"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 9, 15, 16, 21])
def test_every_rest_is_done_once_in_small_tiles(keeps_results, parts, place, n):
    config = LoopPartitionConfig(rest_parts=parts)
    keeps_results(lambda func: simplify(partition_loops(func, config)), SUMS.replace("PLACE", place), n=n)


@pytest.mark.parametrize("value", ["float32(j)", "select(j == 5, 2.0, 1.0)", "float32(i)", "A[j // 8, j % 4]"])
@pytest.mark.parametrize("n", [1, 6, 7, 8, 14])
def test_a_tile_whose_rows_are_not_alike_stays_where_it_is(keeps_results, value, n):
    text = SUMS.replace("PLACE", "i * 8 + j").replace("A[i * 8 + j, k]", value)
    after = keeps_results(lambda func: simplify(partition_loops(func)), text, n=n)
    assert sum(isinstance(node, Allocate) for node in walk(after.body)) == 2


@pytest.mark.parametrize(("n", "rows"), [(8 * 4 + 5, [5]), (8 * 40 + 5, [2]), (8 * 40 + 2, [2]), (8 * 40, [])])
def test_a_long_rest_of_known_size_and_few_rows_is_done_in_small_tiles(keeps_results, n, rows):
    text = SUMS.replace("(n, 4)", f"({n}, 4)").replace("(n,)", f"({n},)").replace(", n: int64", "")
    text = text.replace("PLACE", "i * 8 + j").replace("(n + 7) // 8", f"({n} + 7) // 8").replace("< n", f"< {n}")
    after = keeps_results(lambda func: simplify(partition_loops(func)), text)
    tiles = [node for node in walk(after.body) if isinstance(node, Allocate)]
    assert len(tiles) == 1 + len(rows)
    found = [next(n for n in walk(tile.body) if isinstance(n, For) and n.kind == "unrolled") for tile in tiles]
    assert [loop.extent.value for loop in found] == [8, *rows]


@pytest.mark.parametrize("kind", ["range", "parallel"])
def test_no_copy_is_made_around_tiles_that_know_their_rows(keeps_results, kind):
    text = f"""
    primfunc @f(B: Buffer[(n,), float32], n: int64) attrs {{"num_outputs": 1}} {{
      for part in {kind}((n + 31) // 32) {{
        for i in range(4) annotations {{"specialize_tail": True}} {{
          for j in unrolled(8) {{
            if part * 32 + i * 8 + j < n {{
              B[part * 32 + i * 8 + j] = float32(part * 32 + i * 8 + j)
            }}
          }}
        }}
      }}
    }}
    """
    after = keeps_results(lambda func: simplify(partition_loops(func)), text, n=77)
    assert sum(isinstance(node, BufferStore) for node in walk(after.body)) == 2


@pytest.mark.parametrize("n", [0, 1, 5, 6, 9])
def test_a_range_ends_where_nothing_is_left_to_do(keeps_results, n):
    text = """
    primfunc @f(B: Buffer[(n, 4), float32], n: int64) attrs {"num_outputs": 1} {
      for line in range(6) {
        allocate t: Buffer[(4,), float32, register]
        for j in unrolled(4) {
          if line < n {
            t[j] = 2.0
          }
        }
        for j in unrolled(4) {
          if line < n {
            B[line, j] = t[j]
          }
        }
      }
    }
    """
    after = keeps_results(lambda func: simplify(partition_loops(func)), text, n=n)
    assert not any(isinstance(node, IfThenElse) for node in walk(after.body))
    assert sum(isinstance(node, Allocate) for node in walk(after.body)) == 1


CHANNELS = """
primfunc @f(A: Buffer[(40,), float32], B: Buffer[(2,), float32]) attrs {"num_outputs": 1} {
  for block in range(3) {
    for c in range(16)ANNOTATIONS {
      for j in unrolled(2) {
        if block * 16 + c < 40 {
          B[j] = B[j] + A[block * 16 + c]
        }
      }
    }
  }
}
"""


def test_a_condition_that_limits_an_inner_loop_makes_no_copy(keeps_results):
    after = keeps_results(lambda func: simplify(partition_loops(func)), CHANNELS.replace("ANNOTATIONS", ""))
    (loop,) = [node for node in walk(after.body) if isinstance(node, For) and node.var.name == "c"]
    assert str(loop.extent) == "min(40 - `block` * 16, 16)"


def test_an_annotated_loop_keeps_its_extent(keeps_results):
    after = keeps_results(partition_loops, CHANNELS.replace("ANNOTATIONS", ' annotations {"transpose": True}'))
    first, last = [node for node in walk(after.body) if isinstance(node, For) and node.var.name == "c"]
    assert isinstance(first.extent, IntImm)
    assert isinstance(last.extent, IntImm)


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


@pytest.mark.parametrize(("columns", "copies"), [(4, 3), (16, 2)])
def test_both_borders_of_a_large_body_are_one_copy(keeps_results, columns, copies):
    text = f"""
    primfunc @f(A: Buffer[(n, {columns}), float32], B: Buffer[(n, {columns}), float32], n: int64)
        attrs {{"num_outputs": 1}} {{
      for i in range(n) {{
        for j in unrolled({columns}) {{
          B[i, j] = select(i >= 2 and i < n - 1, A[i, j], 1.0)
        }}
      }}
    }}
    """
    for n in (0, 1, 2, 3, 4, 9):
        after = keeps_results(partition_loops, text, n=n)
    assert sum(isinstance(node, For) and node.kind == "unrolled" for node in walk(after.body)) == copies


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
    assert str(partitioned).count(" + 1.0") == 2
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


def test_no_loop_is_split_at_an_end_that_only_its_body_knows(keeps_results):
    text = """
primfunc @f(B: Buffer[(8, 4), float32]) attrs {"num_outputs": 1} {
  for i in KIND(8) {
    let count: int64 = i % 3 + 1
    for j in range(count) {
      if i * 4 + j < 20 {
        B[i, j] = 1.0
      }
      B[i, 3] = B[i, 3] + 1.0
    }
  }
}
"""
    for kind in ("range", "parallel"):
        keeps_results(partition_loops, text.replace("KIND", kind))


def test_parts_of_a_range_that_is_empty_for_some_rows_run_for_the_others(rewrites):
    before = """
    primfunc @f(B: Buffer[(2, 4), float32]) attrs {"num_outputs": 1} {
      for f in range(2) {
        for i in range(f * 8 - 4) {
          B[f, i] = 1.0
          if i < f * 2 {
            B[f, i] = 2.0
          }
        }
      }
    }
    """
    expected = """
    primfunc @f(B: Buffer[(2, 4), float32]) attrs {"num_outputs": 1} {
      for i in range(2) {
        B[1, i] = 1.0
        B[1, i] = 2.0
      }
      for i in range(2, extent=2) {
        B[1, i] = 1.0
      }
    }
    """
    rewrites(lambda func: simplify(partition_loops(func)), before, expected)
