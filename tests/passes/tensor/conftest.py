"""Share fixtures of the tests of tensor passes: compare a rewritten program with the expected one, and their
results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.tensorir import assert_structural_equal, interpret, parse, verify
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import IntImm
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.stmt import PrimFunc

Transform = Callable[[PrimFunc], PrimFunc]


def _rewrites(transform: Transform, before: str, expected: str) -> None:
    after = transform(parse(before))
    verify(after)
    assert_structural_equal(after, parse(expected))


def _size(extent: object, func: PrimFunc, sizes: dict[str, int]) -> int:
    values = {var: IntImm(sizes[var.name]) for var in func.variables}
    found = Analyzer().simplify(substitute(extent, values))  # type: ignore[type-var]
    assert isinstance(found, IntImm)
    return found.value


def _arrays(func: PrimFunc, sizes: dict[str, int]) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    arrays = []
    for buffer in func.buffers:
        shape = [_size(extent, func, sizes) for extent in buffer.shape]
        arrays.append(np.array(random.standard_normal(shape) * 4, buffer.dtype.numpy))
    return arrays


def _keeps_results(transform: Transform, func: PrimFunc | str, *, rtol: float = 0.0, **sizes: int) -> PrimFunc:
    """Run ``func`` before and after ``transform`` on random arrays; workspaces that it adds are provided."""
    if isinstance(func, str):
        func = parse(func)
    after = transform(func)
    verify(after)
    expected = _arrays(func, sizes)
    found = [array.copy() for array in expected]
    variables = [sizes[var.name] for var in func.variables]
    interpret(func, *expected, *variables)
    workspaces = []
    for buffer in after.buffers[len(func.buffers) :]:
        shape = [_size(extent, after, sizes) for extent in buffer.shape]
        workspaces.append(np.zeros(shape, buffer.dtype.numpy))
    interpret(after, *found, *workspaces, *variables)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=rtol, atol=rtol)
    return after


@pytest.fixture
def rewrites() -> Callable[[Transform, str, str], None]:
    """``rewrites(transform, before, expected)`` compares programs structurally."""
    return _rewrites


@pytest.fixture
def keeps_results() -> Callable[..., PrimFunc]:
    """``keeps_results(transform, program, rtol=, n=)`` compares results; returns the rewritten program."""
    return _keeps_results
