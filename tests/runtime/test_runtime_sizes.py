"""Test models with sizes that they compute themselves."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.runtime_sizes import bind_size, fresh_symbol
from tilewright.tensorir.errors import ExecutionError, InputError


def selected(target: tw.Target | str = "llvm") -> tw.Executable:
    """Build a model of the rows of ``w`` where ``x`` is positive, the indices of their positive elements, and the
    inputs."""
    x, w = gi.var("x", shape=("h",), dtype="int64"), gi.var("w", shape=("h", 3))
    places = gi.get_operator("nonzero")(gi.greater(x, 0))
    rows = gi.take(w, gi.squeeze(places, axis=0), axis=0)
    positive = gi.get_operator("nonzero")(gi.greater(rows, 0.0))
    return tw.build(gi.Function([x, w], (rows, positive, gi.sum(rows), rows, w)), target=target)


@pytest.fixture(scope="module")
def model(target: tw.Target) -> tw.Executable:
    return selected(target)


def inputs(h: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(-1, 2, h), rng.standard_normal((h, 3)).astype("f4")


@pytest.mark.parametrize("h", [0, 1, 2, 7, 100, 3])
def test_one_model_serves_all_sizes(model: tw.Executable, h: int) -> None:
    x, w = inputs(h)
    rows, positive, total, again, same = model(x, w)
    expected = w[x > 0]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(positive, np.array(np.nonzero(expected > 0)))
    np.testing.assert_allclose(total, expected.sum(dtype="f8"), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(again, expected)
    np.testing.assert_array_equal(same, w)


def test_results_are_apart_from_each_other_and_from_the_inputs(model: tw.Executable) -> None:
    x, w = inputs(20)
    rows, _, _, again, same = model(x, w)
    rows[:] = 1e9
    same[:] = 1e9
    assert np.abs(again).max() < 1e3
    assert np.abs(w).max() < 1e3


def test_interpreter_agrees() -> None:
    x = gi.var("x", shape=("h", 2))
    function = gi.Function([x], gi.add(gi.get_operator("nonzero")(x), 1))
    array = np.array([[0, 1], [2, 0], [3, 4]], "f4")
    np.testing.assert_array_equal(gi.evaluate(function, array), np.array(np.nonzero(array)) + 1)


def test_threads_may_call_one_model() -> None:
    model, wrong = selected(), []

    def call(seed: int) -> None:
        for h in range(1, 40):
            x, w = inputs(h, seed)
            if not np.array_equal(model(x, w)[0], w[x > 0]):
                wrong.append((seed, h))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_negative_size_is_an_error() -> None:
    n, count = fresh_symbol("n"), gi.var("count", shape=(), dtype="int64")
    model = tw.build(gi.Function([count], bind_size(gi.zeros(shape=(n,)), count - 1, n)))
    assert model(np.array(4)).shape == (3,)
    with pytest.raises(ExecutionError, match=f"computed -1 for the size {n.name}"):
        model(np.array(0))


def test_negative_size_that_is_an_input_is_an_error_of_the_caller() -> None:
    n, count = fresh_symbol("n"), gi.var("count", shape=(), dtype="int64")
    model = tw.build(gi.Function([count], bind_size(gi.zeros(shape=(n,)), count, n)))
    with pytest.raises(InputError, match=f"size {n.name}: expected a number that is not negative, found -1"):
        model(np.array(-1))


def test_all_parts_can_be_read() -> None:
    text = selected().ir("optimized")
    assert text.count("def @main") == 3
    assert "bind_size" not in text


def test_bytes_for_intermediate_values_depend_on_all_sizes() -> None:
    model = selected()
    names = [symbol.name for symbol in model.signature.symbols]
    assert names == ["h"]
    with pytest.raises(ExecutionError, match=r"expected the sizes of h, nonzero_\d+, nonzero_\d+"):
        model.arena_bytes(h=3)
