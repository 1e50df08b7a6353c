"""Within a test process numba compiles equal functions once, unless anything but names differs."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from kept_numba import canonical, numba_kept

from tilewright.codegen.numba_.compile import NumbaModule
from tilewright.tensorir.expr import Buffer, const
from tilewright.tensorir.stmt import BufferStore, PrimFunc
from tilewright.tensorir.target import Target


def module(name: str, buffer: str, value: float) -> NumbaModule:
    y = Buffer(buffer, (3,), "float32")
    return NumbaModule(
        [PrimFunc(name, (y,), BufferStore(y, const(value, "float32"), (2,)))], Target("numba", num_threads=1)
    )


def test_functions_that_differ_in_names_are_one() -> None:
    with numba_kept("here"):
        one, again, other = module("kept_a", "y", 0.1), module("kept_b", "z", 0.1), module("kept_a", "y", 0.3)
    assert one.functions["kept_a"] is again.functions["kept_b"] is not other.functions["kept_a"]
    with numba_kept("elsewhere"):
        assert module("kept_a", "y", 0.1).functions["kept_a"] is not one.functions["kept_a"]
    found = np.zeros(3, "f4")
    again.call("kept_b", found)
    assert found.tolist() == [0, 0, np.float32(0.1)]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("def f(a, b):\n    a[0] = b[0]", "def g(x, y):\n    x[0] = y[0]", True),
        ("def f(a, b):\n    a[0] = b[0]", "def f(a, b):\n    b[0] = a[0]", False),
        ("def f(a):\n    t = math.exp(a[0])", "def f(a):\n    u = math.exp(a[0])", True),
        ("def f(a):\n    t = math.exp(a[0])", "def f(a):\n    t = math.log(a[0])", False),
        ("@njit(parallel=True)\ndef f(a):\n    a[0] = 1", "@njit\ndef f(a):\n    a[0] = 1", False),
        ("def f(a):\n    a[0] = 1", "def f(a):\n    a[0] = 1.0", False),
    ],
)
def test_names_of_variables_alone_make_no_difference(first: str, second: str, same: bool) -> None:
    texts = []
    for text in (first, second):
        function = ast.parse(text).body[0]
        assert isinstance(function, ast.FunctionDef)
        texts.append(canonical(function))
    assert (texts[0] == texts[1]) is same
