"""Test loops that collect values of their iterations."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.tensorir.errors import TypeInferenceError


def powers(early: bool = False) -> gi.Function:
    """``x**(i+2)`` and its mean, row by row, and the last power; ``early``: ends where the mean exceeds 100."""
    x, rows = gi.var("x", shape=("m",)), gi.var("rows", shape=("n", "m"))
    means, trips = gi.var("means", shape=("n",)), gi.var("trips", shape=(), dtype="int64")
    i, state = gi.var("i", shape=(), dtype="int64"), gi.Var("state", x.type)
    after = gi.multiply(state, x)
    body = gi.Function([i, state], gi.Tuple([after, after, gi.mean(after)]))
    asked = gi.var("i", shape=(), dtype="int64"), gi.Var("state", x.type)
    condition = gi.Function(asked, gi.less(gi.mean(asked[1]), 100.0)) if early else None
    return gi.Function([x, rows, means, trips], gi.Loop(trips, condition, body, [x], collect=[rows, means]))


def expected(x: np.ndarray, rows: np.ndarray, means: np.ndarray, trips: int, early: bool) -> list[np.ndarray]:
    state, rows, means = x.astype("f8"), rows.astype("f8"), means.astype("f8")
    for i in range(trips):
        if early and not state.mean() < 100:
            break
        state = state * x
        if i < len(rows):
            rows[i], means[i] = state, state.mean()
    return [state, rows, means]


@pytest.fixture(scope="module", params=["llvm", "numba", "interpreter"])
def run(request: pytest.FixtureRequest) -> object:
    if request.param == "interpreter":
        return lambda early, *args: gi.evaluate(powers(early), *args)
    target = tw.Target(request.param, num_threads=1 if request.param == "numba" else None)
    built = {early: tw.build(powers(early), target) for early in (False, True)}
    return lambda early, *args: built[early](*args)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(("n", "m", "trips"), [(4, 3, 4), (4, 3, 2), (2, 3, 5), (0, 3, 2), (3, 1, 0), (9, 5, 9)])
def test_rows_of_the_iterations_that_ran_are_replaced(run: object, early: bool, n: int, m: int, trips: int) -> None:
    rng = np.random.default_rng(n + m)
    x, rows = rng.uniform(1, 3, m).astype("f4"), rng.standard_normal((n, m)).astype("f4")
    means, count = rng.standard_normal(n).astype("f4"), np.array(trips)
    before = rows.copy(), means.copy()
    found = run(early, x, rows, means, count)  # type: ignore[operator]
    for a, b in zip(found, expected(x, rows, means, trips, early), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    np.testing.assert_array_equal(rows, before[0])  # inputs are never written to
    np.testing.assert_array_equal(means, before[1])


def test_text_of_a_loop_that_collects_is_read_back() -> None:
    module = gi.IRModule.from_expr(powers(early=True))
    text = gi.to_text(module)
    assert "collect(%rows, %means)" in text
    gi.assert_structural_equal(gi.parse(text), module)


def test_loops_that_collect_different_tensors_differ() -> None:
    one = powers()
    loop = one.body
    assert isinstance(loop, gi.Loop)
    x, rows, means, trips = one.params
    other = gi.Function(one.params, gi.Loop(trips, None, loop.body, [x], collect=[gi.exp(rows), means]))
    assert not gi.structural_equal(one, other)


@pytest.mark.parametrize(
    ("shape", "message"), [((), r"expected a tensor with rows, found Tensor\[\(\)"), ((4, 7), r"body: expected fn")]
)
def test_tensors_whose_rows_do_not_fit_are_refused(shape: tuple[int, ...], message: str) -> None:
    x, i = gi.var("x", shape=(3,)), gi.var("i", shape=(), dtype="int64")
    body = gi.Function([i, x], gi.Tuple([x, x]))
    with pytest.raises(TypeInferenceError, match=message):
        gi.Loop(gi.const(3), None, body, [x], collect=[gi.zeros(shape=shape)])
