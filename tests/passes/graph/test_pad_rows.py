"""PadRows: pad rows that a product reads together, so that their starts are not a multiple of a page apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from both_targets import LLVM, NUMBA
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.parts import row_padding
from tilewright.graphir.visitor import post_order
from tilewright.passes import PassContext
from tilewright.passes.graph import FuseOps, PadRows
from tilewright.passes.graph.walk import children_outside_groups
from tilewright.tensorir.dtype import DataType

RNG = np.random.default_rng(5)


def normal(*shape: int, dtype: str = "float32") -> gi.Constant:
    return gi.const((RNG.standard_normal(shape) / 8).astype(DataType(dtype).numpy))


def two_layers(rows: int | str, inputs: int, hidden: int, outputs: int, dtype: str = "float32") -> gi.Function:
    """A perceptron: ``hidden`` is the length of the rows between its layers."""
    x = gi.var("x", shape=(rows, inputs), dtype=dtype)
    middle = gi.nn.relu(gi.nn.dense(x, normal(hidden, inputs, dtype=dtype)))
    return gi.Function([x], gi.nn.dense(middle, normal(outputs, hidden, dtype=dtype)))


def padded(function: gi.Function, **config: Any) -> list[int]:
    """The padding of each kernel of a function, in order."""
    with PassContext(opt_level=3, config={"graphir.PadRows": config}):
        mod = PadRows()(FuseOps()(gi.IRModule.from_expr(function)))
    gi.verify(mod)
    order = post_order(mod["main"].body, children_of=children_outside_groups)
    return [row_padding(node) for node in order if isinstance(node, gi.Call)]


def test_a_group_that_a_product_reads_gets_the_attribute(rewrites: Callable[..., PassContext]) -> None:
    first, second = normal(1024, 8), normal(8, 1024)

    def network(**padding: int) -> gi.IRModule:
        x, p, w = gi.var("x", shape=(8, 8)), gi.var("p", shape=(8, 8)), gi.var("w", first.type)
        attrs = {"Primitive": True, "kind": "contraction", **padding}
        group = gi.Function([p, w], gi.nn.relu(gi.nn.dense(p, w)), attrs=attrs)
        return gi.IRModule.from_expr(gi.Function([x], gi.nn.dense(gi.Call(group, [x, first]), second)))

    ctx = rewrites(PadRows(), network(), network(row_padding=16))
    assert [remark.message for remark in ctx.remarks] == ["padded each row by a cache line"]


def test_an_operator_outside_a_group_becomes_one() -> None:
    x = gi.var("x", shape=(8, 8))
    assert padded(gi.Function([x], gi.nn.dense(gi.nn.dense(x, normal(1024, 8)), normal(8, 1024)))) == [16, 0]


@pytest.mark.parametrize(
    ("rows", "hidden", "dtype", "expected"),
    [
        (8, 1024, "float32", 16),
        (8, 3072, "float32", 16),
        ("n", 1024, "float32", 16),
        (8, 512, "float64", 8),
        (8, 1040, "float32", 0),  # rows that do not meet
        (8, 512, "float32", 0),  # two places of the cache, half of the rows in each
        (7, 1024, "float32", 0),  # few rows
    ],
)
def test_rows_a_multiple_of_a_page_long_are_padded(rows: int | str, hidden: int, dtype: str, expected: int) -> None:
    assert padded(two_layers(rows, 16, hidden, 24, dtype))[0] == expected


def test_options_say_how_long_and_how_many_rows_are() -> None:
    function = two_layers(4, 16, 512, 24)
    assert padded(function, page=2048, least_rows=4)[0] == 16


def test_what_no_product_reads_by_rows_stays() -> None:
    x = gi.var("x", shape=(16, 1024))
    assert padded(gi.Function([x], gi.nn.softmax(gi.cumsum(x, axis=1)))) == [0, 0]
    right = gi.cumsum(x, axis=1)  # the right factor is read by columns
    assert padded(gi.Function([x], gi.matmul(gi.const(np.ones((8, 16), "f4")), right))) == [0, 0]


def test_parameters_and_results_stay() -> None:
    x = gi.var("x", shape=(16, 1024))
    first = gi.nn.relu(gi.nn.dense(x, normal(1024, 1024)))
    function = gi.Function([x], gi.Tuple([first, gi.nn.dense(first, normal(8, 1024))]))
    assert padded(function) == [0, 0]


def test_a_model_with_a_branch_stays() -> None:
    function = two_layers(16, 16, 1024, 24)
    flag = gi.var("flag", shape=(), dtype="bool")
    body = gi.If(flag, function.body, gi.exp(function.body))
    with PassContext(opt_level=3):
        mod = FuseOps()(gi.IRModule.from_expr(gi.Function([*function.params, flag], body)))
        gi.assert_structural_equal(PadRows()(mod), mod)


def test_levels_below_two_leave_everything() -> None:
    mod = gi.IRModule.from_expr(two_layers(8, 16, 1024, 24))
    with PassContext(opt_level=1):
        fused = FuseOps()(mod)
        gi.assert_structural_equal(tw.passes.Sequential([PadRows()])(fused), fused)


def test_values_stay(keeps_values: Callable[..., gi.IRModule]) -> None:
    mod = gi.IRModule.from_expr(two_layers(9, 16, 1024, 24))
    with PassContext(opt_level=3):
        mod = FuseOps()(mod)
    keeps_values(PadRows(), mod, RNG.standard_normal((9, 16)).astype("f4"))


def agrees(target: tw.Target, rows: int, hidden: int, symbolic: bool, residual: bool, dtype: str) -> None:
    """Compare with NumPy. Rows of 64 bytes count as pages, so that small matrices are padded; others read them element
    by element."""
    rng = np.random.default_rng(rows)
    weights = [rng.standard_normal(shape).astype(dtype) / 8 for shape in ((hidden, 20), (hidden, hidden))]
    x = gi.var("x", shape=("n" if symbolic else rows, 20), dtype=dtype)
    first = gi.tanh(gi.nn.dense(x, gi.const(weights[0])))
    second = gi.nn.dense(first, gi.const(weights[1]))
    function = gi.Function([x], second + gi.cumsum(first, axis=0) if residual else second)
    with PassContext(opt_level=3, config={"graphir.PadRows": {"page": 64, "least_rows": 1}}):
        built = tw.build(function, target=target)
    a = rng.standard_normal((rows, 20)).astype(dtype)
    hidden_values = np.tanh(a.astype("f8") @ weights[0].T)
    expected = hidden_values @ weights[1].T + (hidden_values.cumsum(0) if residual else 0)
    np.testing.assert_allclose(built(a), expected, rtol=2e-4, atol=2e-4)


CASES = given(
    rows=st.integers(1, 40),
    hidden=st.sampled_from([16, 24, 32, 48]),
    symbolic=st.booleans(),
    residual=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
)


@settings(max_examples=8, deadline=None)
@CASES
def test_results_are_those_of_numpy(rows: int, hidden: int, symbolic: bool, residual: bool, dtype: str) -> None:
    agrees(LLVM, rows, hidden, symbolic, residual, dtype)


@pytest.mark.parametrize("examples", [2, pytest.param(8, marks=pytest.mark.exhaustive)])  # numba takes seconds for one
def test_numba_computes_the_same(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @CASES
    def each(rows: int, hidden: int, symbolic: bool, residual: bool, dtype: str) -> None:
        agrees(NUMBA, rows, hidden, symbolic, residual, dtype)

    each()
