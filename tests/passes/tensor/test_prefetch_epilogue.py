"""PrefetchEpilogue: prefetch the operands of a tile's epilogue while the sum is computed."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.codegen.llvm import call_primfunc, compile_module
from tilewright.passes import PassContext
from tilewright.passes.tensor.prefetch_epilogue import prefetch_epilogue
from tilewright.tensorir import parse
from tilewright.tensorir.target import Target

TARGET = Target("llvm", mcpu="x86-64-v3", mtriple="x86_64-unknown-linux-gnu", num_threads=1)
fetch = functools.partial(prefetch_epilogue, target=TARGET)

TILES = """
primfunc @f(
  A: Buffer[(65536,), float32], W: Buffer[(4096,), float32],
  X: Buffer[(262144,), float32], C: Buffer[(262144,), float32]
) attrs {"num_outputs": 1} {
  for t in range(128) {
    allocate c: Buffer[(64,), float32, register]
    c[ramp(0, 1, 8)] = broadcast(0.0, 8)
    c[ramp(8, 1, 8)] = broadcast(0.0, 8)
    c[ramp(16, 1, 8)] = broadcast(0.0, 8)
    c[ramp(24, 1, 8)] = broadcast(0.0, 8)
    for k in range(256) {
      FETCH
      c[ramp(0, 1, 8)] = c[ramp(0, 1, 8)] + broadcast(A[t * 512 + k], 8) * W[ramp(k * 16, 1, 8)]
      c[ramp(8, 1, 8)] = c[ramp(8, 1, 8)] + broadcast(A[t * 512 + k], 8) * W[ramp(k * 16 + 8, 1, 8)]
      c[ramp(16, 1, 8)] = c[ramp(16, 1, 8)] + broadcast(A[t * 512 + k + 256], 8) * W[ramp(k * 16, 1, 8)]
      c[ramp(24, 1, 8)] = c[ramp(24, 1, 8)] + broadcast(A[t * 512 + k + 256], 8) * W[ramp(k * 16 + 8, 1, 8)]
    }
    C[ramp(t * 2048, 1, 8)] = c[ramp(0, 1, 8)] + X[ramp(t * 2048, 1, 8)]
    C[ramp(t * 2048 + 8, 1, 8)] = c[ramp(8, 1, 8)] + X[ramp(t * 2048 + 8, 1, 8)]
    C[ramp(t * 2048 + 1024, 1, 8)] = c[ramp(16, 1, 8)] + X[ramp(t * 2048 + 1024, 1, 8)]
    C[ramp(t * 2048 + 1032, 1, 8)] = c[ramp(24, 1, 8)] + X[ramp(t * 2048 + 1032, 1, 8)]
  }
}
"""
# Two lines, one a row: 64 steps for each, as 128 would leave the second for the end of the 256.
FETCH = "prefetch(X[t * 2048 + min(k // 64, 1) * 1024])"


def without(*pairs: tuple[str, str]) -> str:
    """The tiles with some words in place of others."""
    text = TILES.replace("      FETCH\n", "")
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_the_sum_fetches_the_lines_of_the_addend(rewrites: Any) -> None:
    rewrites(fetch, without(), TILES.replace("FETCH", FETCH))


def test_lines_of_several_rows_are_rows_of_lines(rewrites: Any) -> None:
    # Vectors 8 apart share a line; 64 apart they don't, and two of them make a row.
    before = without(("2048 + 8,", "2048 + 64,"), ("2048 + 1032", "2048 + 1088"))
    fetched = "prefetch(X[t * 2048 + min(k // 32, 3) // 2 * 1024 + min(k // 32, 3) % 2 * 64])\n"
    rewrites(fetch, before, before.replace("range(256) {\n", "range(256) {\n" + fetched))


def test_lines_in_one_row_are_counted(rewrites: Any) -> None:
    before = without(("2048 + 8,", "2048 + 16,"), ("2048 + 1024", "2048 + 32"), ("2048 + 1032", "2048 + 48"))
    fetched = "prefetch(X[t * 2048 + min(k // 32, 3) * 16])\n"
    rewrites(fetch, before, before.replace("range(256) {\n", "range(256) {\n" + fetched))


def test_steps_of_nested_loops_count_on(rewrites: Any) -> None:
    before = without(("k in range(256) {", "h in range(4) { for k in range(64) {")).replace(
        "    }\n    C", "    }}\n    C"
    )
    fetched = "prefetch(X[t * 2048 + min(h, 1) * 1024])\n"
    after = before.replace("range(64) {\n", "range(64) {\n" + fetched)
    rewrites(fetch, before, after)


def test_rows_as_far_apart_as_a_size_says_are_fetched_one_in_an_iteration(rewrites: Any) -> None:
    before = without(
        ("2048 + 8,", "2048 + 64,"),
        ("X[ramp(t * 2048 + 1024", "X[ramp(t * 2048 + s * 4"),
        ("X[ramp(t * 2048 + 1032", "X[ramp(t * 2048 + s * 4 + 64"),
        ("X: Buffer[(262144,)", "X: Buffer[(s * 8,)"),
        (", float32]\n)", ", float32], s: int64, n: int64\n)"),
        ("k in range(256) {", "h in range(n) { for k in range(64) {"),
    ).replace("    }\n    C", "    }}\n    C")
    fetched = "prefetch(X[t * 2048 + k // 32 * 64 + s * min(h, 1) * 4])\n"
    rewrites(fetch, before, before.replace("range(64) {\n", "range(64) {\n" + fetched))


def test_lines_are_fetched_in_the_first_of_steps_that_nobody_counted(rewrites: Any) -> None:
    before = without((", float32]\n)", ", float32], n: int64\n)"), ("k in range(256) {", "k in range(n) {"))
    fetched = "prefetch(X[t * 2048 + min(k, 1) * 1024])\n"
    rewrites(fetch, before, before.replace("range(n) {\n", "range(n) {\n" + fetched))


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([("X: Buffer[(262144,)", "X: Buffer[(65536,)"), ("X[ramp(t * 2048", "X[ramp(t * 500")], id="near"),
        pytest.param([("range(256)", "range(2)")], id="few steps"),
        pytest.param(
            [("X[ramp(t * 2048 + 8,", "X[ramp(t * 2048 + 64,"), ("X[ramp(t * 2048 + 1032", "X[ramp(t * 2048 + 2000")],
            id="irregular",
        ),
        pytest.param([("for k in range(256)", "for k in parallel(256)")], id="parallel"),
        pytest.param([("+ X[ramp(t", "+ C[ramp(t")], id="written"),
        pytest.param([("for k in range(256)", "for k in range(t)")], id="unknown steps"),
    ],
)
def test_others_stay(rewrites: Any, pairs: list[tuple[str, str]]) -> None:
    before = without(*pairs)
    rewrites(fetch, before, before)


def test_all_tiles_of_a_function_fetch(rewrites: Any) -> None:
    def twice(text: str) -> str:
        head, loop = text.split("{\n", 1)
        tile = loop.split("{\n", 1)[1].rsplit("}\n}", 1)[0].replace("t * ", "7 * ")
        return f"{head}{{\n{loop.rsplit('}', 1)[0]}{tile}}}\n"

    after = twice(TILES.replace("FETCH", FETCH))
    after = after.replace("7 * 2048 + min(k // 64, 1) * 1024]", "min(k // 64, 1) * 1024 + 14336]")
    rewrites(fetch, twice(without()), after)


def test_what_is_read_in_some_cases_only_is_not_fetched(rewrites: Any) -> None:
    before = without(("    C[ramp(t * 2048, 1", "    if t < 64 {\n    C[ramp(t * 2048, 1")).replace(
        "\n  }\n}", "\n  }}\n}"
    )
    rewrites(fetch, before, before)


def test_places_that_are_read_from_memory_are_not_read_before_their_time(rewrites: Any) -> None:
    before = without(("X[ramp(t * 2048", "X[ramp(I[t] * 2048"), ("W: Buffer", "I: Buffer[(128,), int64], W: Buffer"))
    rewrites(fetch, before, before)


def test_the_numba_target_keeps_its_loops(rewrites: Any) -> None:
    rewrites(functools.partial(prefetch_epilogue, target=Target("numba")), without(), without())


def test_results_stay() -> None:
    after = fetch(parse(without()))
    assert "prefetch" in str(after)
    rng = np.random.default_rng(3)
    a, w, x = (rng.normal(size=size).astype(np.float32) for size in (65536, 4096, 262144))
    expected = np.zeros((128, 2, 1024))
    sums = a.astype(np.float64).reshape(128, 2, 256) @ w.reshape(256, 16)
    expected[:, :, :16] = sums + x.reshape(expected.shape)[:, :, :16]
    found = np.zeros(262144, np.float32)
    call_primfunc(compile_module([after], Target("llvm")), after, a, w, x, found)
    np.testing.assert_allclose(found, expected.ravel(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [1000, "n"])
def test_a_dense_layer_fetches_what_is_added_to_it(rows: int | str) -> None:
    rng = np.random.default_rng(4)
    w, a, r = (rng.normal(size=size).astype(np.float32) for size in ((512, 256), (1000, 256), (1000, 512)))
    x, added = gi.var("x", shape=(rows, 256)), gi.var("added", shape=(rows, 512))
    with PassContext(opt_level=3):
        built = tw.build(gi.Function([x, added], gi.nn.dense(x, gi.const(w)) + added), target="llvm")
    assert "prefetch(added[" in built.ir("lowered")
    np.testing.assert_allclose(built(a, r), a.astype(np.float64) @ w.T + r, rtol=1e-4, atol=1e-3)
