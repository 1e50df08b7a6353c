"""PrefetchPanels: the next panel of a large operand is fetched while tiles use the one before."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.codegen.llvm import call_primfunc, compile_module
from tilewright.passes import PassContext
from tilewright.passes.tensor.prefetch_panels import prefetch_panels
from tilewright.tensorir import interpret, parse
from tilewright.tensorir.target import Target

TARGET = Target("llvm", mcpu="x86-64-v3", mtriple="x86_64-unknown-linux-gnu", num_threads=1)
fetch = functools.partial(prefetch_panels, target=TARGET)


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever machine the tests run on, the caches are those of one kind."""
    monkeypatch.setattr(Target, "cache_bytes", lambda self, level: (32 << 10, 1 << 20, 32 << 20)[level - 1])


PANELS = """
primfunc @f(
  A: Buffer[(4096,), float32], W: Buffer[(65536,), float32], C: Buffer[(2048,), float32]
) attrs {"num_outputs": 1} {
  for o in parallel(16) {
    for t in range(16) {
      allocate c: Buffer[(8,), float32, register]
      c[ramp(0, 1, 8)] = broadcast(0.0, 8)
      for k in range(256) {
        FETCH
        c[ramp(0, 1, 8)] = c[ramp(0, 1, 8)] + broadcast(A[t * 256 + k], 8) * W[ramp(o * 4096 + k * 16, 1, 8)]
        c[ramp(0, 1, 8)] = c[ramp(0, 1, 8)] + broadcast(A[t * 256 + k], 8) * W[ramp(o * 4096 + k * 16 + 8, 1, 8)]
      }
      C[ramp(o * 128 + t * 8, 1, 8)] = c[ramp(0, 1, 8)]
    }
  }
}
"""
# The first 12 of 16 tiles of 256 steps fetch 4,096 elements: 4 / 3 in each step, rounded up to sixteenths.
FETCH = "prefetch(W[o * 4096 + t * 352 + k + k * 3 // 8 + 4096])"


def without(text: str = PANELS) -> str:
    return text.replace("        FETCH\n", "")


def changed(*pairs: tuple[str, str]) -> str:
    """The panels with some words in place of others."""
    text = without()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_each_step_fetches_a_part_of_the_next_panel(rewrites: Any) -> None:
    rewrites(fetch, without(), PANELS.replace("FETCH", FETCH))


def in_a_workspace(text: str) -> str:
    """The program with the panels in a workspace, which a program may write."""
    header = (
        "  A: Buffer[(4096,), float32], W: Buffer[(65536,), float32], C: Buffer[(2048,), float32]\n"
        ') attrs {"num_outputs": 1}'
    )
    assert header in text
    return text.replace(
        header,
        "  A: Buffer[(4096,), float32], C: Buffer[(2048,), float32], W: Buffer[(65536,), float32]\n"
        ') attrs {"num_outputs": 1, "num_workspaces": 1}',
    )


def test_what_an_earlier_nest_writes_is_fetched_like_an_argument(rewrites: Any) -> None:
    fill = "for i in range(8192) {\n    W[ramp(i * 8, 1, 8)] = broadcast(1.0, 8)\n  }\n  "
    before, expected = (
        in_a_workspace(text).replace("  for o in parallel", f"  {fill}for o in parallel")
        for text in (without(), PANELS.replace("FETCH", FETCH))
    )
    rewrites(fetch, before, expected)


def test_what_a_nest_itself_writes_is_not_fetched(rewrites: Any) -> None:
    text = in_a_workspace(changed(("      C[ramp(o * 128", "      W[o * 4096] = 1.0\n      C[ramp(o * 128")))
    rewrites(fetch, text, text)


def test_few_tiles_fetch_several_lines_a_step(rewrites: Any) -> None:
    # 128 steps fetch 32 elements each; three quarters of them would need three lines.
    before = changed(("range(16)", "range(2)"), ("range(256)", "range(64)"), ("k * 16", "k * 64"))
    before = before.replace(
        "c[ramp(0, 1, 8)] = c[ramp(0, 1, 8)] + broadcast(A[t * 256 + k], 8) * W[ramp(o * 4096 + k * 64 + 8, 1, 8)]\n",
        "".join(
            f"c[ramp(0, 1, 8)] = c[ramp(0, 1, 8)] + broadcast(A[t * 256 + k], 8)"
            f" * W[ramp(o * 4096 + k * 64 + {place}, 1, 8)]\n"
            for place in range(8, 64, 8)
        ),
    )
    lines = "".join(f"prefetch(W[o * 4096 + t * 2048 + k * 32 + {place}])\n" for place in (4096, 4112))
    rewrites(fetch, before, before.replace("range(64) {\n", "range(64) {\n" + lines))


def test_tasks_that_share_a_panel_share_the_work(rewrites: Any) -> None:
    before = changed(("o * 4096", "o // 2 * 4096"), ("parallel(16)", "parallel(32)"), ("(2048,)", "(4096,)"))
    fetched = "prefetch(W[o // 2 * 4096 + o % 2 * 2816 + t * 176 + k * 11 // 16 + 4096])\n"
    rewrites(fetch, before, before.replace("range(256) {\n", "range(256) {\n" + fetched))


@pytest.mark.parametrize(
    ("place", "fetched"),
    [
        # out of order
        ("o % 4 * 16384 + o // 4 * 4096", "(o + 1) % 4 * 16384 + (o + 1) // 4 * 4096 + t * 352 + k + k * 3 // 8"),
        # with others between them
        ("o * 16384", "o * 16384 + t * 352 + k + k * 3 // 8 + 16384"),
        # and two tasks for each
        ("o // 2 * 16384", "o // 2 * 16384 + o % 2 * 2816 + t * 176 + k * 11 // 16 + 16384"),
    ],
)
def test_panels_may_lie_anywhere(rewrites: Any, place: str, fetched: str) -> None:
    before = changed(("o * 4096", place), ("65536", "262144"))
    rewrites(fetch, before, before.replace("range(256) {\n", f"range(256) {{\nprefetch(W[{fetched}])\n"))


def test_an_unknown_number_of_tasks_may_share_panels_that_lie_anywhere(rewrites: Any) -> None:
    place = "o // n % 4 * 16384 + o // (n * 4) * 4096"
    before = changed(
        ("o * 4096", place),
        ("65536", "262144"),
        ("C: Buffer[(2048,), float32]", "C: Buffer[(2048,), float32], n: int64"),
    )
    following = "(o // n + 1) % 4 * 16384 + (n + o) // (n * 4) * 4096"
    fetched = f"{following} + k * 16 + min(o % n * 65536 + t * 4096, 4096)"
    rewrites(fetch, before, before.replace("range(256) {\n", f"range(256) {{\nprefetch(W[{fetched}])\n"))


def test_a_number_of_steps_that_does_not_divide_the_panel_fetches_little_more(rewrites: Any) -> None:
    before = changed(("range(16)", "range(20)"), ("(4096,)", "(5120,)"), ("(2048,)", "(2560,)"), ("o * 128", "o * 160"))
    fetched = "prefetch(W[o * 4096 + t * 288 + k + k // 8 + 4096])\n"  # 18 / 16 of 3,840 are 4,320
    rewrites(fetch, before, before.replace("range(256) {\n", "range(256) {\n" + fetched))


ROWS = """
primfunc @f(
  A: Buffer[(1048576,), float32], W: Buffer[(4096,), float32], C: Buffer[(2048,), float32]
) attrs {"num_outputs": 1} {
  for t in range(128) {
    allocate c: Buffer[(16,), float32, register]
    c[ramp(0, 1, 8)] = broadcast(0.0, 8)
    c[ramp(8, 1, 8)] = broadcast(0.0, 8)
    for b in range(32) {
      for k in range(16) {
        FETCH
        c[ramp(0, 1, 8)] = c[ramp(0, 1, 8)] + broadcast(A[FIRST], 8) * W[ramp(b * 128 + k * 8, 1, 8)]
        c[ramp(8, 1, 8)] = c[ramp(8, 1, 8)] + broadcast(A[SECOND], 8) * W[ramp(b * 128 + k * 8, 1, 8)]
      }
    }
    C[ramp(t * 16, 1, 8)] = c[ramp(0, 1, 8)]
    C[ramp(t * 16 + 8, 1, 8)] = c[ramp(8, 1, 8)]
  }
}
"""


def rows(first: str, second: str, fetched: str) -> str:
    return ROWS.replace("FIRST", first).replace("SECOND", second).replace("        FETCH\n", fetched and fetched + "\n")


@pytest.mark.parametrize(
    ("first", "second", "fetched"),
    [
        # Two rows of 512: of the 1,024 elements that follow, 1,024 / (3 / 4 * 512) in each step.
        (
            "t * 1024 + b * 16 + k",
            "t * 1024 + b * 16 + k + 512",
            "prefetch(A[t * 1024 + b * 44 + k * 2 + k * 3 // 4 + 1024])",
        ),
        # Two pixels of 16 channels for each block of channels: 32 elements in 3 / 4 of 16 steps.
        (
            "b * 4096 + t * 32 + k",
            "b * 4096 + t * 32 + k + 16",
            "prefetch(A[b * 4096 + t * 32 + k * 2 + k * 3 // 4 + 32])",
        ),
        ("b * 4096 + t * 64 + k", "b * 4096 + t * 64 + k + 32", ""),  # every second pixel
        ("b * 16 + t * 32 + k", "b * 16 + t * 32 + k + 16", ""),  # windows that overlap
    ],
)
def test_rows_of_the_next_tile_are_fetched(rewrites: Any, first: str, second: str, fetched: str) -> None:
    rewrites(fetch, rows(first, second, ""), rows(first, second, fetched))


def test_steps_of_an_iteration_that_are_written_out_count_as_steps() -> None:
    """An iteration reads four neighbours of each of eight rows: 128 bytes, in narrow pieces all the same."""
    reads = "\n".join(
        "for s in unrolled(4) { c[ramp(0, 1, 8)] = c[ramp(0, 1, 8)] + broadcast(A[PLACE], 8) }".replace(
            "PLACE", f"t * 4096 + b * 16 + k * 4 + s + {row * 512}"
        )
        for row in range(8)
    )
    text = ROWS[: ROWS.index("        FETCH")] + reads + ROWS[ROWS.index("      }\n    }\n    C[") :]
    text = text.replace("k in range(16)", "k in range(4)").replace("range(128)", "range(256)")
    assert "prefetch(A" in str(fetch(parse(text)))


def test_an_operand_that_is_read_in_order_is_left_to_the_machine() -> None:
    """The 24 elements of a step follow each other, and those of the next step follow them: one row, not several."""
    read = "for s in unrolled(24) { c[ramp(0, 1, 8)] = c[ramp(0, 1, 8)] + broadcast(A[PLACE], 8) }"
    text = ROWS[: ROWS.index("        FETCH")] + read + ROWS[ROWS.index("      }\n    }\n    C[") :]
    text = text.replace("PLACE", "t * 12288 + b * 384 + k * 24 + s").replace("(1048576,)", "(1572864,)")
    assert "prefetch(A" not in str(fetch(parse(text)))


def test_blocks_at_a_distance_that_is_not_known_lie_apart(rewrites: Any) -> None:
    def text(index: str, fetched: str) -> str:
        found = rows(f"{index} + t * 32 + k", f"{index} + t * 32 + k + 16", fetched)
        return found.replace("(1048576,)", "(n * 512,)").replace(
            "C: Buffer[(2048,), float32]", "C: Buffer[(2048,), float32], n: int64"
        )

    fetched = "prefetch(A[t * 32 + n * b * 32 + k * 2 + k * 3 // 4 + 32])"
    rewrites(fetch, text("n * 32 * b", ""), text("n * 32 * b", fetched))
    rewrites(fetch, text("n * 16 * b", ""), text("n * 16 * b", ""))  # for n = 1 they overlap


def test_names_of_sizes_are_sizes(rewrites: Any) -> None:
    """The value of a name at the top of the function decides; the prefetch uses the name."""

    def text(stride: str, fetched: str) -> str:
        found = rows("stride * b + t * 32 + k", "stride * b + t * 32 + k + 16", fetched)
        head = "C: Buffer[(2048,), float32], n: int64"
        found = found.replace("(1048576,)", "(n * 512,)").replace("C: Buffer[(2048,), float32]", head)
        return found.replace("\n  for", f"\n  let stride: int64 = {stride}\n  for", 1)

    fetched = "prefetch(A[t * 32 + k * 2 + stride * b + k * 3 // 4 + 32])"
    rewrites(fetch, text("n * 32", ""), text("n * 32", fetched))
    rewrites(fetch, text("n * 16", ""), text("n * 16", ""))  # for n = 1 they overlap


def test_steps_count_in_what_a_name_of_a_size_stands_for() -> None:
    """A panel of ``stride`` elements, walked in ``n`` steps."""
    sizes = (
        ("range(256)", "range(n)"),
        ("A[t * 256 + k]", "A[t * n + k]"),
        ("C: Buffer[(2048,), float32]", "C: Buffer[(2048,), float32], n: int64"),
    )
    plain = changed(*sizes, ("o * 4096 + k", "n * 16 * o + k"))
    named = changed(
        *sizes, ("o * 4096 + k", "stride * o + k"), ("\n  for o", "\n  let stride: int64 = n * 16\n  for o")
    )
    assert str(fetch(parse(plain))).count("prefetch") == str(fetch(parse(named))).count("prefetch") > 0


def test_rows_that_the_cache_holds_are_not_fetched(rewrites: Any) -> None:
    text = rows("t * 1024 + b * 16 + k", "t * 1024 + b * 16 + k + 512", "").replace("1048576", "131072")
    rewrites(fetch, text, text)


SUMS = """
primfunc @f(A: Buffer[(1048576,), float32], C: Buffer[(256,), float32]) attrs {"num_outputs": 1} {
  for t in range(64) {
    C[t] = 0.0
    PASSES
  }
}
"""


def sums(lanes: int, values: list[str], fetched: str = "", number: int = 1) -> str:
    """Sums over a row of 1,024 vectors of ``lanes``, one after the other; the one of that number fetches something."""
    size = 1024 * lanes
    row = f"A[ramp(t * {size} + k * {lanes}, 1, {lanes})]"
    loops = [
        f"for k in range(1024) {{ {fetched if place == number else ''} C[t] = C[t] + reduce_add({value}) }}"
        for place, value in enumerate(values)
    ]
    return SUMS.replace("PASSES", "\n".join(loops)).replace("ROW", row)


def test_vectors_that_are_read_once_are_left_to_the_machine(rewrites: Any) -> None:
    rewrites(fetch, sums(8, ["ROW"]), sums(8, ["ROW"]))


@pytest.mark.parametrize(
    ("lanes", "fetched"),
    [
        (8, "prefetch(A[t * 8192 + k * 11 + 8192])"),
        (16, "prefetch(A[t * 16384 + k * 16 + 16384])"),  # one line; to be done earlier would take two
    ],
)
def test_rows_that_are_read_again_are_fetched_meanwhile(rewrites: Any, lanes: int, fetched: str) -> None:
    values = ["ROW", f"ROW - broadcast(C[t], {lanes})", f"ROW * broadcast(C[t], {lanes})"]
    rewrites(fetch, sums(lanes, values), sums(lanes, values, fetched))


def test_names_for_parts_of_places_are_seen_through(rewrites: Any) -> None:
    named = changed(
        ("for t in", "let base: int64 = o * 4096\n    for t in"), ("o * 4096 + k * 16, ", "base + k * 16, ")
    )
    after = named.replace("range(256) {\n", "range(256) {\n" + FETCH + "\n")
    rewrites(fetch, named, after)


@pytest.mark.parametrize(
    "pairs",
    [
        [("range(16)", "range(1)")],  # read once: the machine sees that it is read in order
        [("o * 4096 + k", "k")],  # one panel for all
        [
            ("A[t * 256 + k]", "A[k]"),
            ("ramp(o * 4096", "ramp(o * 4096 + t * 8"),
            ("65536", "66000"),
        ],  # every tile reads other elements
        [("k * 16", "k * 64"), ("o * 4096", "o * 16384"), ("65536", "262144")],  # a small part of each panel
        [("65536", "12288"), ("parallel(16)", "parallel(3)")],  # small
        [("o * 4096", "o * 256"), ("range(256)", "range(16)")],  # small panels
        [
            ("65536", "6553600"),
            ("o * 4096", "o * 409600"),
            ("range(256)", "range(25600)"),
            ("A[t * 256 + k]", "A[t]"),
        ],  # two fill the cache
        [("C[ramp(o * 128 + t * 8, 1, 8)]", "W[ramp(o * 128 + t * 8, 1, 8)]"), ('": 1', '": 2')],  # written
        [("for t in range", "for t in parallel"), ("for o in parallel", "for o in range")],
    ],
)
def test_others_stay(rewrites: Any, pairs: list[tuple[str, str]]) -> None:
    rewrites(fetch, changed(*pairs), changed(*pairs))


def test_an_unknown_number_of_tiles_fetches_a_line_a_step_until_the_panel_is_there(rewrites: Any) -> None:
    before = changed(
        ("range(16)", "range(n)"), ("C: Buffer[(2048,), float32]", "C: Buffer[(2048,), float32], n: int64")
    )
    after = before.replace(
        "range(256) {\n", "range(256) {\nprefetch(W[o * 4096 + k * 16 + min(t * 4096, 4096) + 4096])\n"
    )
    rewrites(fetch, before, after)


def test_the_numba_target_keeps_its_loops(rewrites: Any) -> None:
    rewrites(functools.partial(prefetch_panels, target=Target("numba")), without(), without())


def test_results_stay_and_the_last_panel_has_no_next() -> None:
    after = fetch(parse(without()))
    assert "prefetch" in str(after)
    rng = np.random.default_rng(3)
    a, w = (rng.normal(size=size).astype(np.float32) for size in (4096, 65536))
    panels = w.astype(np.float64).reshape(16, 256, 2, 8).sum(axis=2)
    expected = (a.reshape(16, 256) @ panels).ravel()
    for run in (interpret, lambda func, *args: call_primfunc(compile_module([func], Target("llvm")), func, *args)):
        found = np.full(2048, np.nan, np.float32)
        run(after, a, w, found)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("rows", "inputs"), [(49, 512), (128, 768), (128, 3072), ("n", 512)])
def test_dense_layers_fetch_their_weights(rows: int | str, inputs: int) -> None:
    rng = np.random.default_rng(4)
    w, a = (rng.normal(size=(size, inputs)).astype(np.float32) for size in (256, 100 if rows == "n" else rows))
    x = gi.var("x", shape=(rows, inputs))
    with PassContext(opt_level=3):
        built = tw.build(gi.IRModule.from_expr(gi.Function([x], gi.nn.dense(x, gi.const(w)))), target="llvm")
    text = built.ir("lowered")
    assert "prefetch(" in text
    np.testing.assert_allclose(built(a), a.astype(np.float64) @ w.T, rtol=1e-4, atol=1e-3)
