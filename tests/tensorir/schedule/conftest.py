"""Compare schedules: the interpreter runs the function before and after, on inputs of the caller's sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tilewright.tensorir import tensor as te
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import Expr, IntImm, Var, as_expr
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.interpreter import interpret
from tilewright.tensorir.schedule import Schedule, Trace
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.structural import assert_structural_equal
from tilewright.tensorir.verify import verify


def run(func: PrimFunc, sizes: dict[str, int]) -> list[np.ndarray]:
    """The results of ``func`` on reproducible inputs; results start as NaN, so that every element must be written."""
    rng = np.random.default_rng(7)
    arrays = []
    values = {var: as_expr(sizes[var.name]) for var in func.variables}
    count = func.attrs["num_outputs"]
    for number, buffer in enumerate(func.buffers):
        shape = tuple(extent_value(extent, values) for extent in buffer.shape)
        is_output = number >= len(func.buffers) - count
        if is_output:
            arrays.append(np.full(shape, np.nan if buffer.dtype.is_float else 0, buffer.dtype.numpy))
        elif buffer.dtype.is_float:
            arrays.append(rng.standard_normal(shape).astype(buffer.dtype.numpy))
        else:
            arrays.append(rng.integers(-9, 9, shape).astype(buffer.dtype.numpy))
    interpret(func, *arrays, *[sizes[var.name] for var in func.variables])
    return arrays[-count:]


def extent_value(extent: Expr, values: Mapping[Var, Expr]) -> int:
    """An extent once the symbolic dimensions have values."""
    value = Analyzer().simplify(substitute(extent, values))
    assert isinstance(value, IntImm)
    return value.value


def check_same(before: PrimFunc, schedule: Schedule, tolerance: float = 0.0, **sizes: int) -> None:
    """The schedule computes what ``before`` computes, is well formed, and its trace (saved and loaded) replays."""
    verify(schedule.func)
    for expected, found in zip(run(before, sizes), run(schedule.func, sizes), strict=True):
        if tolerance:
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(found, expected)
    again = Schedule(before)
    Trace.from_json(schedule.trace.to_json()).apply(again)
    assert_structural_equal(again.func, schedule.func)


@pytest.fixture
def same() -> Callable[..., None]:
    """:func:`check_same`."""
    return check_same


@pytest.fixture
def results() -> Callable[..., list[np.ndarray]]:
    """:func:`run`."""
    return run


@pytest.fixture
def matmul_bias_relu() -> Callable[..., PrimFunc]:
    """Makes ``E = relu(A @ B + bias)`` as blocks C, D and E, for any extents (also symbolic)."""

    def make(m: object, n: object, k: object) -> PrimFunc:
        a = te.placeholder((m, k), name="A")
        b = te.placeholder((k, n), name="B")
        bias = te.placeholder((n,), name="bias")
        step = te.reduce_axis(k, "k")
        c = te.compute((m, n), lambda i, j: te.sum(a[i, step] * b[step, j], axis=step), name="C")
        d = te.compute((m, n), lambda i, j: c[i, j] + bias[j], name="D")
        e = te.compute((m, n), lambda i, j: te_max(d[i, j]), name="E")
        return te.create_prim_func("matmul_bias_relu", [a, b, bias], [e])

    return make


def te_max(value: object) -> object:
    """ReLU of an expression."""
    from tilewright.tensorir.expr import maximum

    return maximum(value, 0.0)
