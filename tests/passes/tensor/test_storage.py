"""FlattenBuffer and StorageRewrite: one-dimensional buffers, workspaces, shared memory."""

from __future__ import annotations

import pytest

from tilewright.passes.tensor.flatten_buffer import flatten_buffers
from tilewright.passes.tensor.simplify import simplify
from tilewright.passes.tensor.storage_rewrite import rewrite_storage
from tilewright.passes.tensor.vectorize_loop import vectorize_loops
from tilewright.tensorir import parse
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import Allocate


def test_row_major_and_strided_buffers_become_offsets(rewrites):
    before = """
    primfunc @f(A: Buffer[(n, 8), float32, strides=(16, 1)], B: Buffer[(n, 8), float32], n: int64) {
      for i in range(n) {
        B[i, ramp(0, 1, 8)] = A[i, ramp(0, 1, 8)]
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(n * 16 - 8,), float32], B: Buffer[(n * 8,), float32], n: int64) {
      for i in range(n) {
        B[ramp(i * 8, 1, 8)] = A[ramp(i * 16, 1, 8)]
      }
    }
    """
    rewrites(flatten_buffers, before, expected)


@pytest.mark.parametrize(
    "place",
    ["i // w // h, i // w % h, i % w", "i // (h * w), i // w % h, i % w", "i // (h * w), i % (h * w) // w, i % w"],
)
def test_parts_of_one_number_become_that_number(place: str) -> None:
    """However the number was split, and as vectors, whose divisions would take longest."""
    number = "(i_0 * 4 + i_1)"
    func = parse(
        f"""
        primfunc @f(A: Buffer[(c, h, w), float32], B: Buffer[(c * h * w,), float32], c: int64, h: int64, w: int64)
        attrs {{"num_outputs": 1}} {{
          for i_0 in range(c * h * w // 4) {{
            for i_1 in vectorized(4) {{
              B[{number}] = A[{place.replace("i", number)}]
            }}
          }}
        }}
        """
    )
    after = str(flatten_buffers(vectorize_loops(simplify(func))))
    assert "A[ramp(i_0 * 4, 1, 4)]" in after


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize(
    ("row", "offset"),
    [
        ("k + i // w", "w * k + i"),
        ("i // w + h * k - h", "h * w * k + i - h * w"),
    ],
)
def test_parts_of_one_number_behind_a_row_become_that_number(row: str, offset: str, vectorized: bool) -> None:
    index = "ramp(i, 1, 4)" if vectorized else "i"
    for name in "khw":
        row = row.replace(name, f"broadcast({name}, 4)") if vectorized else row
    width = "broadcast(w, 4)" if vectorized else "w"
    row = row.replace("i // ", f"{index} // ")
    func = parse(
        f"""
        primfunc @f(A: Buffer[(h, w), float32], B: Buffer[(n,), float32], h: int64, w: int64, n: int64, k: int64) {{
          for i in range(n) {{
            B[{index}] = A[{row}, {index} % {width}]
          }}
        }}
        """
    )
    expected = f"ramp({offset}, 1, 4)" if vectorized else offset
    assert f"A[{expected}]" in str(flatten_buffers(func))


PARALLEL = """
primfunc @f(A: Buffer[(n, 60), float32], B: Buffer[(n, 60), float32], n: int64) attrs {"num_outputs": 1} {
  for i in parallel(n) {
    allocate T: Buffer[(60,), float32, arena]
    for j in range(60) {
      T[j] = A[i, j] * 2.0
    }
    for j in range(60) {
      B[i, j] = T[59 - j]
    }
  }
}
"""


def test_each_parallel_iteration_has_whole_cache_lines_of_the_workspace(keeps_results):
    after = keeps_results(lambda func: rewrite_storage(flatten_buffers(func)), PARALLEL, n=5)
    assert after.attrs["num_workspaces"] == 1
    assert [str(extent) for extent in after.buffers[-1].shape] == ["n * 64"]
    assert not any(isinstance(node, Allocate) for node in walk(after.body))


CHAIN = """
primfunc @f(A: Buffer[(SIZE,), float32], B: Buffer[(SIZE,), float32]) attrs {"num_outputs": 1} {
  allocate S: Buffer[(SIZE,), float32, SCOPE]
  allocate T: Buffer[(SIZE,), float32, SCOPE]
  allocate U: Buffer[(SIZE,), float32, SCOPE]
  for i in range(SIZE) {
    S[i] = A[i] + 1.0
  }
  for i in range(SIZE) {
    T[i] = S[SIZE - 1 - i]
  }
  for i in range(SIZE) {
    U[i] = T[i] * 2.0
  }
  for i in range(SIZE) {
    B[i] = U[i]
  }
}"""


@pytest.mark.parametrize("scope", ["stack", "arena"])
def test_buffers_that_live_one_after_the_other_share_memory(keeps_results, scope: str) -> None:
    program = CHAIN.replace("SCOPE", scope).replace("SIZE", "8")
    after = keeps_results(rewrite_storage, program)
    allocated = sum(isinstance(node, Allocate) for node in walk(after.body))
    assert (allocated, after.attrs.get("num_workspaces", 0)) == ((2, 0) if scope == "stack" else (0, 2))


@pytest.mark.parametrize("scope", ["stack", "arena"])
def test_buffers_that_are_allocated_where_they_are_first_used_share_memory(keeps_results, scope: str) -> None:
    """As a function of loops allocates them: each until the end of the body, inside of the scope of those before it."""
    header, *lines = CHAIN.strip().splitlines()
    allocations, loops = lines[:3], "\n".join(lines[3:])
    for line, first_use in zip(allocations, ("S[i] =", "T[i] =", "U[i] ="), strict=True):
        before, after = loops.split(f"  for i in range(SIZE) {{\n    {first_use}")
        loops = f"{before}{line}\n  for i in range(SIZE) {{\n    {first_use}{after}"
    program = f"{header}\n{loops}".replace("SCOPE", scope).replace("SIZE", "8")
    assert program.index("U:") > program.index("T[i] =")
    after = keeps_results(rewrite_storage, program)
    allocated = sum(isinstance(node, Allocate) for node in walk(after.body))
    assert (allocated, after.attrs.get("num_workspaces", 0)) == ((2, 0) if scope == "stack" else (0, 2))


def test_workspaces_of_equal_symbolic_sizes_share_memory(keeps_results) -> None:
    program = CHAIN.replace("SCOPE", "arena").replace("SIZE", "n")
    program = program.replace("B: Buffer[(n,), float32])", "B: Buffer[(n,), float32], n: int64)")
    after = keeps_results(rewrite_storage, program, n=5)
    assert after.attrs["num_workspaces"] == 2


def test_workspaces_of_other_symbolic_sizes_do_not_share(keeps_results) -> None:
    program = (
        CHAIN.replace("SCOPE", "arena")
        .replace("SIZE", "n")
        .replace("allocate U: Buffer[(n,)", "allocate U: Buffer[(n * 2,)")
    )
    program = program.replace("B: Buffer[(n,), float32])", "B: Buffer[(n,), float32], n: int64)")
    after = keeps_results(rewrite_storage, program, n=5)
    assert after.attrs["num_workspaces"] == 3
