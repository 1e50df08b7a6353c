"""SkipUnseen: what no row of a task sees is left out, and what rows see is read from the stages' formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import SkipUnseen
from tilewright.passes.schedule.facts import block_of, stores
from tilewright.passes.schedule.inline import inline_producers
from tilewright.passes.schedule.seen import seen_offset
from tilewright.passes.tensor import Simplify
from tilewright.tensorir import assert_structural_equal, interpret, parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, call, const, select
from tilewright.tensorir.schedule import Schedule

RNG = np.random.default_rng(3)

SUM = """
primfunc @sums(a: Buffer[(40, 64), float32], b: Buffer[(40,), float32]) attrs {{"num_outputs": 1}} {{
  for task in parallel(5) {{
    for i in range(8) {{
      for tile in range({extent}){annotations} {{
        for lane in range(16) {{
          block sums(vs: spatial(40) = task * 8 + i, vt: reduction(64) = tile * 16 + lane) {{
            init {{ b[vs] = 0.0 }}
            b[vs] = b[vs] + a[vs, vt]
          }}
        }}
      }}
    }}
  }}
}}
"""


@pytest.mark.parametrize("seen", [0, 3, -2])
def test_before_and_expected(seen: int) -> None:
    mark = f' annotations {{"seen": {seen}, "seen_step": 16, "seen_row": 0}}'
    before = parse(SUM.format(extent=4, annotations=mark))
    shift = {0: "", 3: " + 3", -2: " - 2"}[seen]
    expected = parse(SUM.format(extent=f"min(4, max((task * 8 + 7{shift}) // 16 + 1, 0))", annotations=""))
    after = SkipUnseen()(IRModule({"sums": before}))["sums"]
    simplified = [Simplify()(IRModule({"sums": func}))["sums"] for func in (after, expected)]
    assert_structural_equal(*simplified)
    array = np.tri(40, 64, seen, dtype=np.float32) * RNG.standard_normal((40, 64)).astype(np.float32)
    for func in (before, after):
        found = np.zeros(40, np.float32)
        interpret(func, array, found)
        np.testing.assert_allclose(found, array.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)


def test_other_loops_stay() -> None:
    before = parse(SUM.format(extent=4, annotations=""))
    assert_structural_equal(SkipUnseen()(IRModule({"sums": before}))["sums"], before)


def offset_of(score: Callable[[Expr, Var, Var], Expr], greatest_of: Any = None) -> int | None:
    a, b = te.placeholder((9, 6)), te.placeholder((6, 11))
    r, t, j = (te.reduce_axis(n, name) for n, name in ((6, "r"), (11, "t"), (11, "j")))
    first = te.compute((9, 11), lambda i, k: te.sum(a[i, r] * b[r, k], axis=r), name="first")
    scores = te.compute((9, 11), lambda i, k: score(first[i, k], i, k), name="scores")
    read = scores if greatest_of is None else first
    top = te.compute((9,), lambda i: te.max(read[i, t], axis=t), name="top")
    powers = te.compute((9, 11), lambda i, k: call("exp", scores[i, k] - top[i]), name="powers")
    total = te.compute((9,), lambda i: te.sum(powers[i, j], axis=j), name="total")
    schedule = Schedule(te.create_prim_func("rows", [a, b], [powers, total]))
    inline_producers(schedule)
    blocks = {ref.name: block_of(schedule, ref) for ref in schedule.get_blocks()}
    made = {store.buffer for store in stores(blocks["first"])}
    return seen_offset([blocks["top"], blocks["powers"]], made, 0)


LOWEST = const(-math.inf, "float32")


def test_what_a_row_sees_is_read_from_its_formula() -> None:
    assert offset_of(lambda x, s, t: select(t <= s, x, LOWEST)) == 0
    assert offset_of(lambda x, s, t: select(t <= s + 4, x * 0.5, LOWEST)) == 4
    assert offset_of(lambda x, s, t: select(t <= s - 4, x * 0.5, LOWEST)) == -4


def test_where_something_else_is_chosen_all_is_seen() -> None:
    assert offset_of(lambda x, s, t: x) is None
    assert offset_of(lambda x, s, t: select(t <= s, x, const(-1e9, "float32"))) is None
    assert offset_of(lambda x, s, t: select(t <= 2 * s, x, LOWEST)) is None
    assert offset_of(lambda x, s, t: select(t >= s, x, LOWEST)) is None
    assert offset_of(lambda x, s, t: select(t <= s, x, LOWEST), greatest_of="all") is None


@pytest.mark.parametrize(("s", "t", "offset"), [(70, 90, 20), (130, 130, 0), (65, 200, 135), (90, 40, 0), (50, 50, -7)])
def test_values_stay_over_several_strips(s: int, t: int, offset: int) -> None:
    arrays = [RNG.standard_normal((2, *shape)).astype(np.float32) for shape in ((s, 16), (t, 16), (t, 24))]
    params = [gi.var(name, shape=array.shape) for name, array in zip("qkv", arrays, strict=True)]
    with PassContext(opt_level=3):
        model = tw.build(gi.Function(params, gi.nn.attention(*params, causal=True, offset=offset)))
    assert '"seen"' not in model.ir("scheduled")
    q, k, v = (array.astype(np.float64) for array in arrays)
    with np.errstate(all="ignore"):
        scores = np.where(np.tri(s, t, offset, bool), q @ k.transpose(0, 2, 1) / 4, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        expected = powers @ v / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(model(*arrays), expected, rtol=1e-4, atol=1e-5)
