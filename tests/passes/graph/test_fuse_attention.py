"""FuseAttention: recognize attention in the operators that it is composed of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from both_targets import on_both_targets

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes
from tilewright.passes import PassContext
from tilewright.passes.graph import FuseAttention

RNG = np.random.default_rng(5)
Scores = Callable[[gi.Expr], gi.Expr]


def written_out(
    scores: Scores = lambda x: x * np.float32(0.25), s: Any = 5, t: Any = 7, axis: int = -1, dtype: str = "float32"
) -> gi.IRModule:
    """``softmax(scores(q @ k)) @ v`` with two heads."""
    q = gi.var("q", shape=(2, s, 16), dtype=dtype)
    k = gi.var("k", shape=(2, 16, t), dtype=dtype)
    v = gi.var("v", shape=(2, t, 4), dtype=dtype)
    weights = gi.nn.softmax(scores(gi.matmul(q, k)), axis=axis)
    return gi.IRModule.from_expr(gi.Function([q, k, v], gi.matmul(weights, v)))


def fused(mod: gi.IRModule) -> bool:
    with PassContext(opt_level=3):
        after = FuseAttention()(mod)
    return any(call.op.name == "nn.attention" for call in call_nodes(after["main"].body))


def values(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_before_and_expected(rewrites) -> None:
    types = "%q: Tensor[(2, 3, 5, 16), float32], %k: Tensor[(2, 3, 16, 7), float32], %v: Tensor[(2, 3, 7, 4), float32]"
    types += ", %mask: Tensor[(5, 7), float32]"
    ctx = rewrites(
        FuseAttention(),
        f"""
        def @main({types}) {{
          %0 = matmul(%q, %k)
          %1 = multiply(%0, float32(0.25))
          %2 = add(%1, %mask)
          %3 = nn.softmax(%2)
          %4 = matmul(%3, %v)
          %4
        }}
        """,
        f"""
        def @main({types}) {{
          %0 = transpose(%k, axes=(0, 1, 3, 2))
          %1 = nn.attention(%q, %0, %v, %mask, scale=0.25)
          %1
        }}
        """,
    )
    assert [remark.message for remark in ctx.remarks] == [
        "fused matmul, softmax and matmul into attention, which does not store the scores"
    ]


MASK = gi.const(RNG.standard_normal((5, 7)).astype(np.float32))
SEEN = gi.const(np.tri(5, 7, 1, dtype=bool))
LOWEST = gi.const(np.float32(-np.inf))


@pytest.mark.parametrize(
    "scores",
    [
        lambda x: x,
        lambda x: x / np.float32(3),
        lambda x: gi.multiply(np.float32(0.3), x) * np.float32(0.5) + MASK,
        lambda x: MASK + x,
        lambda x: gi.where(SEEN, x * np.float32(0.5), LOWEST),
        lambda x: gi.where(gi.logical_not(SEEN), LOWEST, x),
    ],
)
def test_values_stay(keeps_values, scores: Scores) -> None:
    mod = written_out(scores)
    after = keeps_values(FuseAttention(), mod, *values((2, 5, 16), (2, 16, 7), (2, 7, 4)))
    assert [call.op.name for call in call_nodes(after["main"].body)].count("nn.attention") == 1


TRI = np.tri(5, 7, 2, dtype=bool)
LEAST = np.finfo(np.float32).min


@pytest.mark.parametrize(
    ("mask", "causal"),
    [
        (TRI, True),
        (np.where(TRI, np.float32(0), np.float32(-np.inf)), True),
        (np.where(TRI, np.float32(0), LEAST), True),
        (np.where(TRI, np.float32(0), np.float32(-np.inf))[None], True),
        (np.where(np.tri(5, 7, -2, dtype=bool), np.float32(0), LEAST), False),  # who sees nothing sees all alike
        (np.where(TRI, np.float32(0), np.float32(-10)), False),
        (np.where(TRI, np.float32(1), np.float32(-np.inf)), False),
        (TRI[::-1].copy(), False),
        (np.where(np.tri(7, 7, dtype=bool)[:1], np.float32(0), LEAST), False),  # one row for all
    ],
)
def test_constant_causal_masks_become_an_attribute(keeps_values, mask: np.ndarray, causal: bool) -> None:
    constant = gi.const(mask)
    mod = written_out((lambda x: gi.where(constant, x, LOWEST)) if mask.dtype == bool else lambda x: x + constant)
    after = keeps_values(FuseAttention(), mod, *values((2, 5, 16), (2, 16, 7), (2, 7, 4)))
    (call,) = [call for call in call_nodes(after["main"].body) if call.op.name == "nn.attention"]
    assert (call.attrs.causal, call.attrs.offset, len(call.args)) == ((True, 2, 3) if causal else (False, 0, 4))


@pytest.mark.parametrize(
    "mod",
    [
        written_out(axis=1, s=7),
        written_out(lambda x: gi.tanh(x)),
        written_out(lambda x: x + x),
        written_out(lambda x: x * MASK),
        written_out(lambda x: gi.where(SEEN, x, gi.const(np.float32(-1e9)))),
        written_out(lambda x: (x + MASK) * np.float32(2)),
    ],
)
def test_what_is_no_attention_stays(mod: gi.IRModule) -> None:
    assert not fused(mod)


def test_scores_that_are_used_elsewhere_stay() -> None:
    q, k, v = (gi.var(name, shape=shape) for name, shape in (("q", (2, 5, 16)), ("k", (2, 16, 7)), ("v", (2, 7, 4))))
    weights = gi.nn.softmax(gi.matmul(q, k))
    mod = gi.IRModule.from_expr(gi.Function([q, k, v], gi.Tuple([gi.matmul(weights, v), weights])))
    with PassContext(opt_level=3) as ctx:
        after = FuseAttention()(mod)
    gi.assert_structural_equal(after, mod)
    assert "has other users" in ctx.remarks[0].message


def test_matrices_without_heads_and_heads_that_broadcast_stay() -> None:
    for shapes in (((5, 16), (16, 7), (7, 4)), ((2, 5, 16), (1, 16, 7), (2, 7, 4)), ((2, 5, 16), (2, 16, 7), (7, 4))):
        q, k, v = (gi.var(name, shape=shape) for name, shape in zip("qkv", shapes, strict=True))
        mod = gi.IRModule.from_expr(gi.Function([q, k, v], gi.matmul(gi.nn.softmax(gi.matmul(q, k)), v)))
        assert not fused(mod)


def test_opt_level_2_keeps_the_scores() -> None:
    for level, found in ((2, False), (3, True)):
        with PassContext(opt_level=level):
            assert ("nn.attention" in tw.build(written_out()).ir("optimized")) == found


@on_both_targets
def test_heads_between_words_in_one_kernel(target: tw.Target) -> None:
    """As exporters write it: heads are split off and turned before, and joined after; for any number of words."""
    heads, width = 3, 8
    params = [gi.var(name, shape=("n", words, heads * width)) for name, words in (("q", "s"), ("k", "t"), ("v", "t"))]
    split = [gi.reshape(param, newshape=(*param.shape[:2], heads, width)) for param in params]
    q, k, v = (
        gi.transpose(part, axes=axes)
        for part, axes in zip(split, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
    )
    mixed = gi.matmul(gi.nn.softmax(gi.matmul(q, k) / np.float32(width**0.5)), v)
    joined = gi.reshape(gi.transpose(mixed, axes=(0, 2, 1, 3)), newshape=(*params[0].shape[:2], heads * width))
    mod = gi.IRModule.from_expr(gi.Function(params, joined))
    with PassContext(opt_level=3):
        model = tw.build(mod, target=target)
    assert "nn.attention" in model.ir("optimized") and "nn.softmax" not in model.ir("optimized")
    for n, s, t in ((1, 1, 1), (2, 5, 9), (1, 33, 40), (2, 1, 70), (1, 70, 1)):
        arrays = values((n, s, heads * width), (n, t, heads * width), (n, t, heads * width))
        expected = gi.evaluate(mod, *arrays, dtype="float64")
        np.testing.assert_allclose(model(*arrays), expected, rtol=1e-4, atol=1e-5)


@on_both_targets
@pytest.mark.parametrize("cached", [0, 1, 37, "t"])
def test_old_and_new_keys_are_read_where_they_are(target: tw.Target, cached: int | str) -> None:
    heads, width = 3, 20
    params = [gi.var(f"{name}s", shape=(1, heads, cached, width)) for name in ("key", "value")]
    params += [gi.var(name, shape=(1, heads, 1, width)) for name in ("key", "value")]
    params.append(gi.var("query", shape=(1, 1, heads * width)))
    keys = gi.concatenate(params[0], params[2], axis=2)
    contents = gi.concatenate(params[1], params[3], axis=2)
    query = gi.transpose(gi.reshape(params[4], newshape=(1, 1, heads, width)), axes=(0, 2, 1, 3))
    scores = gi.matmul(query, gi.transpose(keys, axes=(0, 1, 3, 2))) * np.float32(0.2)
    mod = gi.IRModule.from_expr(gi.Function(params, gi.matmul(gi.nn.softmax(scores), contents)))
    with PassContext(opt_level=3):
        model = tw.build(mod, target=target)
    if cached != 0:  # nothing is put together then
        assert model.ir("tensor").count("primfunc @") == 1
    for words in (0, 1, 30, 129) if cached == "t" else (cached,):
        arrays = values(*[(1, heads, words, width)] * 2, *[(1, heads, 1, width)] * 2, (1, 1, heads * width))
        expected = gi.evaluate(mod, *arrays, dtype="float64")
        np.testing.assert_allclose(model(*arrays), expected, rtol=1e-4, atol=1e-5)
