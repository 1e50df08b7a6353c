"""Test the choice of the consumer that is computed together with a reduction's result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.passes.schedule.kernels import run, scheduled
from tilewright.passes.schedule.stages import epilogue_of
from tilewright.tensorir import parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import maximum
from tilewright.tensorir.schedule import Schedule

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(
    ("element", "found"),
    [
        (lambda total, x, i: maximum(total[i] + x[i, 0], 0.0), True),
        (lambda total, x, i: x[8 - i, 0] + total[i], True),
        (lambda total, x, i: total[3 - i], False),
        (lambda total, x, i: total[i] + total[0], False),
    ],
)
def test_epilogue_reads_the_result_at_its_own_place(element: Callable[..., Any], found: bool) -> None:
    x = te.placeholder((9, 9), name="x")
    k = te.reduce_axis(9, "k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")
    out = te.compute((4,), lambda i: element(total, x, i), name="out")
    schedule = Schedule(te.create_prim_func("f", [x], [out]))
    epilogue = epilogue_of(schedule, schedule.get_block("total"))
    assert (epilogue is not None and epilogue.name == "out") is found


def test_broadcast_along_a_dimension_of_one_is_an_epilogue() -> None:
    x = te.placeholder((1, 4, 9), name="x")
    k = te.reduce_axis(9, "k")
    total = te.compute((1, 4), lambda n, i: te.sum(x[n, i, k], axis=k), name="total")
    out = te.compute((1, 4), lambda n, i: total[0, i] * 2.0, name="out")
    schedule = Schedule(te.create_prim_func("f", [x], [out]))
    epilogue = epilogue_of(schedule, schedule.get_block("total"))
    assert epilogue is not None and epilogue.name == "out"


def test_reduction_is_no_epilogue() -> None:
    x = te.placeholder((4, 9), name="x")
    k, k2 = te.reduce_axis(9, "k"), te.reduce_axis(3, "k2")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")
    out = te.compute((4,), lambda i: te.sum(total[i] + x[i, k2], axis=k2), name="out")
    schedule = Schedule(te.create_prim_func("f", [x], [out]))
    assert epilogue_of(schedule, schedule.get_block("total")) is None


def test_consumer_of_a_column_of_the_result_is_no_epilogue() -> None:
    """The result has two dimensions, of which its block and its consumer walk one."""
    func = parse("""
primfunc @f(x: Buffer[(4, 9), float32], y: Buffer[(4,), float32]) attrs {"num_outputs": 1} {
  allocate t: Buffer[(4, 2), float32] {
    for i in range(4) {
      for k in range(9) {
        block t(vi: spatial(4) = i, vk: reduction(9) = k) {
          reads x[vi, vk]
          writes t[vi, 1]
          init { t[vi, 1] = 0.0 }
          t[vi, 1] = t[vi, 1] + x[vi, vk]
        }
      }
    }
    for i in range(4) {
      block y(vi: spatial(4) = i) {
        reads t[vi, 1]
        writes y[vi]
        y[vi] = exp(t[vi, 1])
      }
    }
  }
}
""")
    schedule = Schedule(func)
    assert epilogue_of(schedule, schedule.get_block("t")) is None
    values = RNG.standard_normal((4, 9)).astype("f4")
    np.testing.assert_allclose(run(scheduled(func)[0], [values], (4,)), np.exp(values.sum(axis=1)), rtol=1e-5)
