"""Constants whose value is computed when it is first read."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.constant import Constant
from tilewright.graphir.types import TensorType
from tilewright.tensorir.errors import VerifyError

FOUR = TensorType((4,), "float32")


class Adding:
    """Adds one, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, arrays):
        self.calls += 1
        return sum(arrays) + np.float32(1)


def zeros() -> Constant:
    return gi.const(np.zeros(4, "f4"))


def test_a_value_is_computed_when_it_is_first_read_and_once():
    adding = Adding()
    constant = Constant.later(FOUR, adding, [zeros()])
    assert (constant.shape, constant.size, constant.nbytes, constant.is_computed) == ((4,), 4, 16, False)
    assert f"{gi.Tuple([constant]).type}" and adding.calls == 0
    np.testing.assert_array_equal(constant.data, np.ones(4))
    assert constant.data is constant.data and not constant.data.flags.writeable
    assert adding.calls == 1 and constant.is_computed


def test_threads_that_read_a_value_at_the_same_time_see_one():
    calls: list[int] = []
    entered, go = threading.Event(), threading.Event()

    def compute(arrays):
        calls.append(1)
        entered.set()
        go.wait(120)
        return np.ones(4, "f4")

    constant = Constant.later(FOUR, compute, [])
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(id(constant.data))) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(120)
    go.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and found[0] == found[1]


def test_what_a_value_was_made_of_is_dropped():
    inner = Constant.later(FOUR, Adding(), [zeros()])
    outer = Constant.later(FOUR, Adding(), [inner])
    dropped = weakref.ref(inner)
    del inner
    np.testing.assert_array_equal(outer.data, np.full(4, 2))
    assert dropped() is None


def test_long_chains_are_computed_on_the_way():
    constant = zeros()
    for _ in range(5000):
        constant = Constant.later(FOUR, Adding(), [constant])
    np.testing.assert_array_equal(constant.data, np.full(4, 5000))


def test_every_reader_sees_an_error():
    def fail(arrays):
        raise ArithmeticError("no")

    constant = Constant.later(FOUR, fail, [])
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="no"):
            constant.data  # noqa: B018


@pytest.mark.parametrize("wrong", [np.zeros(5, "f4"), np.zeros(4, "f8")])
def test_a_value_must_have_the_type_that_was_promised(wrong):
    with pytest.raises(VerifyError, match="expected a constant of type"):
        Constant.later(FOUR, lambda arrays: wrong, []).data  # noqa: B018


def test_a_value_lies_in_row_major_order():
    matrix = np.arange(6, dtype="f4").reshape(2, 3)
    constant = Constant.later(TensorType((3, 2), "float32"), lambda arrays: arrays[0].T, [gi.const(matrix)])
    assert constant.data.flags.c_contiguous
    np.testing.assert_array_equal(constant.data, matrix.T)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_memory_that_is_made_for_a_value_begins_at_a_cache_line(dtype: str) -> None:
    given = Constant(np.arange(7 * 9 * 5).reshape(7, 9, 5).astype(dtype))
    for _ in range(8):  # NumPy's own begins there now and then
        later = Constant.later(TensorType((5, 7, 9), dtype), lambda values: values[0].transpose(2, 0, 1), [given])
        assert later.data.ctypes.data % 64 == 0
        assert later.data.flags.c_contiguous and not later.data.flags.writeable
        np.testing.assert_array_equal(later.data, given.data.transpose(2, 0, 1))
