"""``nn.attention`` against its definition in double precision."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.tensorir.errors import TypeInferenceError


def attend(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float | None = None,
    causal: bool = False,
    offset: int = 0,
) -> Any:
    """The definition, row by row."""
    result = np.empty((*query.shape[:-1], value.shape[-1]))
    group = query.shape[-3] // max(1, key.shape[-3])
    scores_shape = (*query.shape[:-1], key.shape[-2])
    for place in np.ndindex(*query.shape[:-1]):
        *batch, head, word = place
        of = (*batch, head // group)
        scores = key[of] @ query[place] * (query.shape[-1] ** -0.5 if scale is None else scale)
        if mask is not None:
            row = np.broadcast_to(mask, scores_shape)[place]
            scores = np.where(row, scores, -np.inf) if mask.dtype == bool else scores + row
        if causal:
            scores[max(0, word + offset + 1) :] = -np.inf
        with np.errstate(all="ignore"):
            powers = np.exp(scores - scores.max(initial=-np.inf))
            result[place] = powers @ value[of] / powers.sum()
    return result


def shapes(batch: tuple[int, ...], heads: int, s: Any, t: Any, d: int, e: int, shared: int | None = None) -> Any:
    """The shapes of query, key and value."""
    shared = heads if shared is None else shared
    return [(*batch, heads, s, d), (*batch, shared, t, d), (*batch, shared, t, e)]


@together("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_element_types(check: Any, dtype: str) -> None:
    check("nn.attention", [(shape, dtype) for shape in shapes((2,), 3, 5, 7, 4, 6)], {}, attend, scale=4)


@pytest.mark.parametrize(
    ("s", "t", "d", "e"),
    [(1, 1, 1, 1), (1, 37, 16, 16), (3, 2, 5, 1), (17, 33, 8, 20), (40, 19, 3, 64), (2, 70, 32, 7)],
)
def test_sizes(check: Any, s: int, t: int, d: int, e: int) -> None:
    for batch, heads in (((), 2), ((2,), 1)):
        types = [(shape, "float32") for shape in shapes(batch, heads, s, t, d, e)]
        check("nn.attention", types, {}, attend, scale=4)


@pytest.mark.parametrize("mask", [(7,), (5, 7), (3, 1, 7), (2, 1, 1, 7), (2, 3, 5, 7), (5, 1), (1,), ()])
def test_masks_broadcast(check: Any, mask: tuple[int, ...]) -> None:
    types = [(shape, "float32") for shape in shapes((2,), 3, 5, 7, 4, 6)]
    scaled = functools.partial(attend, scale=0.3)
    for dtype in ("float32", "bool"):
        check("nn.attention", [*types, (mask, dtype)], {"scale": 0.3}, scaled, scale=4)


@pytest.mark.parametrize("offset", [0, 2, 9, -2])
def test_causal(check: Any, offset: int) -> None:
    causal = functools.partial(attend, causal=True, offset=offset)
    for s, t in ((6, 6), (3, 8), (20, 33)):
        types = [(shape, "float32") for shape in shapes((2,), 2, s, t, 4, 5)]
        check("nn.attention", types, {"causal": True, "offset": offset}, causal, scale=4)


def test_heads_of_queries_share_those_of_keys(check: Any) -> None:
    for heads, shared in ((6, 2), (4, 1), (3, 3)):
        types = [(shape, "float32") for shape in shapes((2,), heads, 5, 7, 4, 6, shared)]
        check("nn.attention", types, {}, attend, scale=4)


def test_symbolic_sizes(check: Any) -> None:
    sizes = [{"s": 1, "t": 1}, {"s": 5, "t": 40}, {"s": 33, "t": 17}, {"s": 1, "t": 100}]
    types = [(shape, "float32") for shape in shapes((2,), 3, "s", "t", 16, 8)]
    check("nn.attention", types, {}, attend, sizes=sizes, scale=4)
    causal = functools.partial(attend, causal=True, offset=2)
    check("nn.attention", types, {"causal": True, "offset": 2}, causal, sizes=sizes, scale=4)
    check("nn.attention", [*types, (("t",), "float32")], {}, attend, sizes=sizes, scale=4)


def test_a_query_that_sees_no_key_gives_nan() -> None:
    arrays = [np.ones(shape, np.float32) for shape in shapes((), 1, 2, 3, 4, 4)]
    mask = np.array([[True, False, True], [False, False, False]])
    params = [gi.var(f"a{n}", shape=a.shape, dtype=a.dtype.name) for n, a in enumerate([*arrays, mask])]
    found = gi.evaluate(gi.Function(params, gi.nn.attention(*params)), *arrays, mask)
    assert not np.isnan(found[0, 0]).any() and np.isnan(found[0, 1]).all()


@pytest.mark.parametrize(
    ("types", "attrs", "message"),
    [
        ([*shapes((2,), 3, 5, 7, 4, 6)[:2], (2, 3, 8, 6)], {}, "value: expected 7 words"),
        (shapes((2,), 3, 5, 7, 4, 6, 2), {}, "divides that of query, 3"),
        ([(3, 5, 4), (3, 7, 5), (3, 7, 4)], {}, "as wide as queries, 4"),
        ([(5, 4), (7, 4), (7, 4)], {}, "3 dimensions"),
        ([(3, 5, "d"), (3, 7, "d"), (3, 7, 4)], {}, "scale: expected a number"),
        ([*shapes((2,), 3, 5, 7, 4, 6), (2, 7)], {}, "shape that broadcasts"),
    ],
)
def test_what_does_not_fit_is_said(types: Any, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        gi.nn.attention(*[gi.var(f"a{n}", shape=shape) for n, shape in enumerate(types)], **attrs)
