"""A loop with a condition ends when that fails, however great its count is, and runs each iteration once, in order."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi

NUMBER = gi.TensorType((), "int64")


@pytest.fixture(scope="module")
def model() -> tw.Executable:
    """The number of iterations, and a hash of their numbers, of a loop of at most ``count`` that ends at ``last``."""
    count, last = gi.var("count", NUMBER), gi.var("last", NUMBER)
    asked = [gi.var(name, NUMBER) for name in ("i", "done", "hash")]
    run = [gi.var(name, NUMBER) for name in ("i", "done", "hash")]
    after = [gi.add(run[1], 1), gi.add(gi.multiply(run[2], 31), run[0])]
    condition = gi.Function(asked, gi.less(asked[1], last))
    zero = gi.const(np.array(0, np.int64))
    loop = gi.Loop(count, condition, gi.Function(run, gi.Tuple(after)), [zero, zero])
    results = gi.Tuple([gi.TupleGetItem(loop, 0), gi.TupleGetItem(loop, 1)])
    return tw.build(gi.IRModule.from_expr(gi.Function([count, last], results)))


def expected(steps: int) -> tuple[int, int]:
    found = np.int64(0)
    with np.errstate(over="ignore"):
        for number in range(steps):
            found = found * np.int64(31) + np.int64(number)
    return steps, int(found)


@pytest.mark.parametrize("last", [0, 1, 255, 256, 257, 70_000])
def test_a_loop_without_a_limit_ends_when_its_condition_fails(model: tw.Executable, last: int) -> None:
    done, hashed = model(np.array(np.iinfo(np.int64).max), np.array(last))
    assert (int(done), int(hashed)) == expected(last)


@pytest.mark.parametrize("count", [-5, 0, 1, 256, 257, 512, 65_537])
def test_a_loop_ends_after_its_count(model: tw.Executable, count: int) -> None:
    done, hashed = model(np.array(count), np.array(np.iinfo(np.int64).max))
    assert (int(done), int(hashed)) == expected(max(count, 0))
