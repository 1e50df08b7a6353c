"""SkipUnseen: skip work that no row of a task uses; the stages declare the used part."""

from __future__ import annotations

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
from tilewright.passes.schedule.seen import seen_offset
from tilewright.passes.tensor import Simplify
from tilewright.tensorir import assert_structural_equal, interpret, parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, call
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
    with PassContext() as ctx:
        after = SkipUnseen()(IRModule({"sums": before}))["sums"]
    assert [r.message for r in ctx.remarks] == ["1 loops end at the last position that a row of their task sees"]
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


def offset_of(needed: Callable[[Expr, Expr], Expr], **otherwise: Callable[..., Expr] | None) -> int | None:
    """The offset of stages that are all ``needed``, but for those that say something else."""
    says: dict[str, Callable[..., Expr] | None] = dict.fromkeys(("first", "top", "powers", "total"), needed)
    says.update(otherwise)

    def of(name: str, step: Var | None = None) -> Any:
        found = says[name]
        return None if found is None else (lambda *place: found(place[0], place[1] if step is None else step))

    a, b = te.placeholder((9, 6)), te.placeholder((6, 11))
    r, t, j = (te.reduce_axis(n, name) for n, name in ((6, "r"), (11, "t"), (11, "j")))
    first = te.compute((9, 11), lambda i, k: te.sum(a[i, r] * b[r, k], axis=r), name="first", needed=of("first"))
    top = te.compute((9,), lambda i: te.max(first[i, t], axis=t), name="top", needed=of("top", t))
    powers = te.compute((9, 11), lambda i, k: call("exp", first[i, k] - top[i]), name="powers", needed=of("powers"))
    total = te.compute((9,), lambda i: te.sum(powers[i, j], axis=j), name="total", needed=of("total", j))
    out = te.compute((9,), lambda i: total[i] * 2.0, name="out")
    schedule = Schedule(te.create_prim_func("rows", [a, b], [out]))
    blocks = {ref.name: block_of(schedule, ref) for ref in schedule.get_blocks()}
    made = {store.buffer for name in ("first", "powers") for store in stores(blocks[name])}
    return seen_offset(blocks.values(), made, 0)


def test_what_a_row_sees_is_what_all_stages_say() -> None:
    assert offset_of(lambda s, t: t <= s) == 0
    assert offset_of(lambda s, t: t <= s + 4) == 4
    assert offset_of(lambda s, t: t <= s - 4) == -4


@pytest.mark.parametrize("stage", ["first", "top", "powers", "total"])
def test_where_a_stage_says_something_else_all_is_seen(stage: str) -> None:
    assert offset_of(lambda s, t: t <= s, **{stage: None}) is None
    assert offset_of(lambda s, t: t <= s, **{stage: lambda s, t: t <= s + 1}) is None


def test_other_conditions_leave_nothing_out() -> None:
    assert offset_of(lambda s, t: t <= 2 * s) is None
    assert offset_of(lambda s, t: t >= s) is None
    assert offset_of(lambda s, t: s <= t) is None


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


@pytest.mark.parametrize(("words", "causal", "shortened"), [(512, True, 5), ("s", True, 5), (512, False, 0)])
def test_all_stages_of_causal_attention_run_fewer_steps(words: Any, causal: bool, shortened: int) -> None:
    params = [gi.var(name, shape=(2, 4, words, 16)) for name in "qkv"]
    with PassContext(opt_level=3):
        model = tw.build(gi.Function(params, gi.nn.attention(*params, causal=causal)))
    assert model.ir("scheduled").count("in range(min(") == shortened
