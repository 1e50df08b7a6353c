"""Operators computed by functions of ``numba.njit`` and ``numba.cfunc``: in models of both targets, in artifacts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import tensorir as ti
from tilewright.graphir import op as operators
from tilewright.tensorir import tensor_intrins
from tilewright.tensorir.errors import ArtifactError, TypeInferenceError

TARGETS = ("llvm", "numba")

MODULE = '''
import numba, numpy as np
from tilewright import graphir as gi

@numba.njit
def medians(x, out):
    for row in range(x.shape[0]):
        out[row] = np.median(x[row])

class MedianRows(gi.ops.Native):
    """The median of each row."""
    name = "median_rows"
    arguments = ("x",)
    function = medians

    def infer_type(self, args, attrs):
        (x,) = args
        if x.ndim != 2:
            raise self.error(0, "a matrix", x)
        return gi.TensorType((x.shape[0],), x.dtype)
'''
names: dict[str, Any] = {"__name__": __name__}
exec(MODULE, names)
MedianRows: Any = names["MedianRows"]


@numba.cfunc("void(CPointer(float32), CPointer(float32), int64, int64, int64)")
def c_maxima(x: Any, out: Any, rows: int, columns: int, results: int) -> None:
    for row in range(results):
        out[row] = x[row * columns]
        for column in range(1, columns):
            out[row] = max(out[row], x[row * columns + column])


@numba.njit
def extremes(x: Any, low: Any, high: Any) -> None:
    low[()], high[()] = x.min(), x.max()


class Extremes(gi.ops.Native):
    """The least and the greatest element."""

    name = "extremes"
    arguments = ("x",)
    num_outputs = 2
    function = extremes

    def infer_type(self, args: Any, attrs: Any) -> Any:
        return gi.TupleType((gi.TensorType((), args[0].dtype),) * 2)


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Restore the registries after a test."""
    tables: list[dict[str, Any]] = [operators.OPERATORS, tensor_intrins._PROVIDERS, tensor_intrins._REGISTERED]
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


def operator_of(function: Any) -> Any:
    return gi.register_operator(type("MaxRows", (MedianRows,), {"name": "max_rows", "function": function}))


ROWS = np.random.default_rng(0).standard_normal((5, 7)).astype("float32")


@pytest.mark.parametrize("target", TARGETS)
def test_njit_function_runs_between_other_operators(target: str) -> None:
    op = gi.register_operator(MedianRows)
    x = gi.var("x", shape=("n", 7))
    model = tw.build(gi.Function([x], gi.exp(op(x * 2.0)) + 1.0), target=target)
    for rows in (ROWS, ROWS[:1]):
        np.testing.assert_allclose(model(rows), np.exp(np.median(rows * 2, axis=1)) + 1, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_cfunc_takes_pointers_and_sizes(target: str) -> None:
    x = gi.var("x", shape=("n", "m"))
    model = tw.build(gi.Function([x], operator_of(c_maxima)(x)), target=target)
    np.testing.assert_array_equal(model(ROWS), ROWS.max(axis=1))


@pytest.mark.parametrize("target", TARGETS)
def test_several_results_of_several_types(target: str) -> None:
    op = gi.register_operator(Extremes)
    for dtype in ("float32", "int16"):
        x = gi.var("x", shape=("n", 7), dtype=dtype)
        low, high = tw.build(gi.Function([x], op(x)), target=target)((ROWS * 9).astype(dtype))
        assert (low, high) == ((ROWS * 9).astype(dtype).min(), (ROWS * 9).astype(dtype).max())
        assert low.dtype == dtype


def test_reference_and_interpreter_agree_with_the_function() -> None:
    x = gi.var("x", shape=(5, 7))
    for op, expected in ((gi.register_operator(MedianRows), np.median), (operator_of(c_maxima), np.max)):
        np.testing.assert_array_equal(op.reference([ROWS], None), expected(ROWS, axis=1))
        model = tw.build(gi.Function([x], op(x)))
        out = np.empty(5, "float32")
        ti.interpret(kernel(model), ROWS, out)
        np.testing.assert_array_equal(out, expected(ROWS, axis=1))


def kernel(model: Any) -> ti.PrimFunc:
    text = model.ir("tensor")
    return ti.parse(text[text.index("primfunc") :])


def test_changed_function_is_another_one() -> None:
    @numba.njit
    def last(x: Any, out: Any) -> None:
        for row in range(x.shape[0]):
            out[row] = x[row, -1]

    @numba.njit
    def first(x: Any, out: Any) -> None:
        for row in range(x.shape[0]):
            out[row] = x[row, 0]

    x = gi.var("x", shape=("n", 7))
    for function, column in ((last, -1), (first, 0)):
        op = operator_of(function)
        np.testing.assert_array_equal(tw.build(gi.Function([x], op(x)))(ROWS), ROWS[:, column])
        operators.OPERATORS.pop("max_rows")


def test_types_are_checked() -> None:
    op = gi.register_operator(MedianRows)
    with pytest.raises(TypeInferenceError, match="expected a matrix"):
        op(gi.var("x", shape=(3,)))
    x = gi.var("x", shape=(3, 3), dtype="float16")
    with pytest.raises(TypeInferenceError, match=r"its function takes tensors of .*; found float16"):
        tw.build(gi.Function([x], op(x)))
    y = gi.var("y", shape=(3, 3), dtype="float64")
    with pytest.raises(
        TypeInferenceError, match=r"expected void\(CPointer\(float64\), .*found void\(CPointer\(float32"
    ):
        tw.build(gi.Function([y], operator_of(c_maxima)(y)))


def test_function_must_be_compiled_by_numba() -> None:
    with pytest.raises(TypeError, match=r"expected the result of numba.njit or numba.cfunc, found function"):
        operator_of(lambda x, out: None)


def test_function_that_numba_cannot_compile_is_an_error_that_names_the_arrays() -> None:
    @numba.njit
    def wrong(x: Any, out: Any) -> None:
        out[0] = x.nonsense

    x = gi.var("x", shape=(3, 3))
    with pytest.raises(
        TypeInferenceError, match=r"max_rows: numba cannot compile its function for arrays of float32 of 2"
    ):
        tw.build(gi.Function([x], operator_of(wrong)(x)))


LOAD = """
import numpy as np, tilewright as tw
print(tw.load({path!r})(np.arange(35, dtype="float32").reshape(5, 7)).tolist())
"""


def test_artifact_finds_the_operator_of_the_process_that_loads_it(tmp_path: Path) -> None:
    op = gi.register_operator(MedianRows)
    x = gi.var("x", shape=("n", 7))
    path = tmp_path / "net.tw"
    tw.build(gi.Function([x], op(x))).export(path)
    for text, expected in (
        (MODULE + "gi.register_operator(MedianRows)\n", "[3.0, 10.0, 17.0, 24.0, 31.0]"),
        ("", "register it in this process"),
        (MODULE.replace("np.median(x[row])", "x[row, 0]") + "gi.register_operator(MedianRows)\n", "register it in"),
    ):
        command = [sys.executable, "-c", text + LOAD.format(path=str(path))]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert expected in run.stdout + run.stderr
    tensor_intrins._PROVIDERS.clear()
    tensor_intrins._REGISTERED.clear()
    with pytest.raises(ArtifactError, match="the code calls the C function"):
        tw.load(path)
