"""Large results come from memory that is used again when they are dropped, and never before."""

from __future__ import annotations

import gc

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
