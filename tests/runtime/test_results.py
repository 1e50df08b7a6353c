"""The memory of large results is reused after they are dropped, and never before."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np

import tilewright as tw
from tilewright import graphir as gi
from tilewright.runtime.results import SMALLEST, ResultPool

COUNT = SMALLEST  # float32 elements: four times the least size


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_memory_of_a_dropped_result_is_used_again() -> None:
    pool = ResultPool()
    first = pool.empty((COUNT,), np.dtype("f4"), COUNT * 4)
    where = address(first)
    del first
    gc.collect()
    assert address(pool.empty((4, COUNT // 4), np.dtype("f4"), COUNT * 4)) == where


def test_smaller_result_takes_the_memory_of_a_larger_one() -> None:
    pool = ResultPool()
    kept = [pool.empty((count,), np.dtype("f4"), count * 4) for count in (3 * COUNT, COUNT, 2 * COUNT)]
    third, first, second = map(address, kept)
    del kept
    gc.collect()
    found = [pool.empty((count,), np.dtype("f4"), count * 4) for count in (COUNT + 1, COUNT - 1, COUNT + 2)]
    assert [address(array) for array in found] == [second, first, third]
    assert [array.size for array in found] == [COUNT + 1, COUNT - 1, COUNT + 2]


def test_calls_with_changing_sizes_allocate_nothing_once_the_largest_was_seen() -> None:
    """The model has two intermediate values whose sizes are too different to share memory, and two large results."""
    x = gi.var("x", shape=("n", "m"))
    total = gi.sum(gi.exp(x), axis=1, keepdims=True)
    model = tw.build(gi.Function([x], (gi.divide(gi.exp(x), total), gi.nn.softmax(gi.transpose(x, axes=(1, 0))))))
    inputs = [np.ones((n, m), "f4") for n, m in ((2048, 512), (1024, 600), (2000, 500), (700, 1024), (2048, 512))]
    for array in inputs:
        model(array)
    gc.disable()
    tracemalloc.start()
    try:
        for array in inputs[1:]:
            model(array)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert peak < 100_000


def test_a_view_keeps_the_memory() -> None:
    pool = ResultPool()
    first = pool.empty((COUNT,), np.dtype("f4"), COUNT * 4)
    where = address(first)
    view = first[5:].reshape(-1)[::2]
    del first
    gc.collect()
    assert address(pool.empty((COUNT,), np.dtype("f4"), COUNT * 4)) != where
    assert view.size


def test_results_of_a_model_stay_as_they_were() -> None:
    x = gi.var("x", shape=("n",))
    model = tw.build(gi.Function([x], gi.add(x, 1.0)))
    kept = [model(np.full(COUNT, value, "f4")) for value in range(4)]
    for value, result in enumerate(kept):
        assert (result == value + 1).all()


def test_result_can_be_written_to() -> None:
    x = gi.var("x", shape=("n",))
    result = tw.build(gi.Function([x], gi.add(x, 1.0)))(np.zeros(COUNT, "f4"))
    result[:] = 5
    assert result.flags.writeable and result.flags.c_contiguous
