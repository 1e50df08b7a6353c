"""Matrix products and convolutions are tiled, for odd and symbolic sizes, and compute what they did."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.passes.schedule.kernels import TARGET, dense, loop_kinds, loops_of, run, scheduled
from tilewright import graphir as gi
from tilewright.passes.context import PassContext
from tilewright.passes.schedule.cost import choose_tile
from tilewright.passes.schedule.facts import constant
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Buffer, Var, call, maximum, select
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import Allocate, BufferStore, For, PrimFunc
from tilewright.tensorir.target import Target

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 10, 7), (5, 16, 4), (7, 33, 5), (13, 8, 3), (20, 50, 2)])
def test_tiled_matrix_product_with_epilogue_equals_numpy(m: int, n: int, k: int, transposed: bool) -> None:
    func, _ = scheduled(dense(m, n, k, transposed))
    a, b = RNG.standard_normal((m, k)).astype("f4"), RNG.standard_normal((k, n)).astype("f4")
    bias = RNG.standard_normal(n).astype("f4")
    expected = np.maximum(a.astype("f8") @ b + bias, 0)
    found = run(func, [a, np.ascontiguousarray(b.T) if transposed else b, bias], (m, n))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("m", [0, 1, 5, 6, 7, 65])
def test_one_tiling_serves_every_number_of_rows(m: int) -> None:
    func, ctx = scheduled(dense(Var("m"), 20, 3))
    a, b = RNG.standard_normal((m, 3)).astype("f4"), RNG.standard_normal((3, 20)).astype("f4")
    bias = RNG.standard_normal(20).astype("f4")
    found = run(func, [a, b, bias], (m, 20), m=m)
    np.testing.assert_allclose(found, np.maximum(a.astype("f8") @ b + bias, 0), rtol=1e-5, atol=1e-5)
    assert any("'contraction'" in remark.message and remark.kind == "applied" for remark in ctx.remarks)


def writes(loop: For, buffer: Buffer) -> bool:
    return any(isinstance(node, BufferStore) and node.buffer is buffer for node in walk(loop.body))


@pytest.mark.parametrize("costly", [False, True])
@pytest.mark.parametrize("m", [0, 1, 5, 13])
def test_formula_that_costs_much_is_there_once_and_not_for_each_row_of_a_tile(m: int, costly: bool) -> None:
    rows, r = Var("m"), te.reduce_axis(3, "r")
    a, b = te.placeholder((rows, 3), name="a"), te.placeholder((3, 20), name="b")
    product = te.compute((rows, 20), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    formula = te.compute((rows, 20), lambda i, j: call("exp", product[i, j]) if costly else product[i, j] * 2.0)
    func, _ = scheduled(te.create_prim_func("f", [a, b], [formula]))
    left, right = RNG.standard_normal((m, 3)).astype("f4"), RNG.standard_normal((3, 20)).astype("f4")
    expected = np.exp(left.astype("f8") @ right) if costly else left.astype("f8") @ right * 2
    np.testing.assert_allclose(run(func, [left, right], (m, 20), m=m), expected, rtol=1e-5)
    scopes = {node.buffer.scope for node in walk(func.body) if isinstance(node, Allocate)}
    assert scopes >= {"register"}
    assert ("stack" in scopes) == costly
    height = choose_tile(None, 20, 8, TARGET.tile_registers)[0]
    kinds = {loop.kind for loop in loops_of(func) if constant(loop.extent) == height and writes(loop, func.buffers[2])}
    assert kinds == ({"serial"} if costly else {"unrolled"})


def test_matrix_product_is_tiled_vectorized_unrolled_and_parallel() -> None:
    func, _ = scheduled(dense(64, 64, 64))
    assert {"parallel", "vectorized", "unrolled"} <= loop_kinds(func)


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("rows", [None, 1, 2, 7, 14, 100])
@pytest.mark.parametrize("columns", [None, 1, 8, 30, 64])
def test_register_tile_fits_the_registers(rows: int | None, columns: int | None, registers: int) -> None:
    height, vectors = choose_tile(rows, columns, 8, registers)
    assert height * vectors + vectors + 1 <= registers


def test_every_product_of_a_function_is_tiled() -> None:
    a, b, c = (te.placeholder(shape, name=name) for name, shape in (("a", (9, 8)), ("b", (8, 16)), ("c", (16, 24))))
    k, k2 = te.reduce_axis(8, "k"), te.reduce_axis(16, "k2")
    first = te.compute((9, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="first")
    second = te.compute((9, 24), lambda i, j: te.sum(first[i, k2] * c[k2, j], axis=k2), name="second")
    func, ctx = scheduled(te.create_prim_func("f", [a, b, c], [second]))
    assert sum("'contraction'" in remark.message and remark.kind == "applied" for remark in ctx.remarks) == 2
    arrays = [RNG.standard_normal(shape).astype("f4") for shape in ((9, 8), (8, 16), (16, 24))]
    expected = arrays[0].astype("f8") @ arrays[1] @ arrays[2]
    np.testing.assert_allclose(run(func, arrays, (9, 24)), expected, rtol=1e-4, atol=1e-4)


def convolution(n: object, oc: int, ic: int, size: int) -> PrimFunc:
    data = te.placeholder((n, ic, size, size), name="data")
    weight = te.placeholder((oc, ic, 3, 3), name="weight")
    c, kh, kw = te.reduce_axis(ic, "c"), te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw")
    padded = te.compute(
        (n, ic, size + 2, size + 2),
        lambda b, i, y, x: select(
            (y >= 1) & (y < size + 1) & (x >= 1) & (x < size + 1),
            data[b, i, maximum(y - 1, 0) % size, maximum(x - 1, 0) % size],
            0.0,
        ),
        name="pad",
    )
    result = te.compute(
        (n, oc, size, size),
        lambda b, o, y, x: te.sum(padded[b, c, y + kh, x + kw] * weight[o, c, kh, kw], axis=(c, kh, kw)),
        name="conv",
    )
    return te.create_prim_func("conv", [data, weight], [result])


@pytest.mark.parametrize(("oc", "ic", "size"), [(3, 1, 5), (4, 2, 8), (9, 3, 4)])
def test_convolution_equals_the_sum_over_its_window(oc: int, ic: int, size: int) -> None:
    func, _ = scheduled(convolution(2, oc, ic, size))
    data = RNG.standard_normal((2, ic, size, size)).astype("f4")
    weight = RNG.standard_normal((oc, ic, 3, 3)).astype("f4")
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    expected = np.einsum("bcyxij,ocij->boyx", windows.astype("f8"), weight)
    np.testing.assert_allclose(run(func, [data, weight], (2, oc, size, size)), expected, rtol=1e-5, atol=1e-5)


CONVOLUTIONS = {
    "short rows": ((1, 6, 5, 13), (7, 6, 1, 1), {}),
    "groups": ((2, 12, 7, 5), (28, 3, 3, 3), {"groups": 4, "padding": (1, 1)}),
    "depthwise": ((1, 6, 9, 14), (6, 1, 3, 3), {"groups": 6, "padding": (1, 1)}),
    "depthwise, two for each": ((1, 3, 9, 14), (6, 1, 3, 3), {"groups": 3, "strides": (2, 2)}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_in_the_plain_layout_are_tiled(name: str) -> None:
    image, kernel, attrs = CONVOLUTIONS[name]
    x, w, b = (gi.var(n, shape=shape) for n, shape in (("x", image), ("w", kernel), ("b", kernel[:1])))
    function = gi.Function([x, w, b], gi.nn.relu(gi.nn.bias_add(gi.nn.conv2d(x, w, **attrs), b)))
    values = [RNG.standard_normal(shape).astype("f4") for shape in (image, kernel, kernel[:1])]
    with PassContext(opt_level=3, disabled_pass=["AlterOpLayout"]) as ctx:
        found = tw.build(function, target=Target("llvm", num_threads=1))(*values)
    if "two" not in name:
        assert any("by the rule 'contraction'" in remark.message for remark in ctx.remarks)
    reference = gi.get_operator("nn.conv2d").reference(
        [value.astype("f8") for value in values[:2]], gi.get_operator("nn.conv2d").make_attrs(attrs)
    )
    np.testing.assert_allclose(found, np.maximum(reference + values[2][:, None, None], 0), rtol=1e-4, atol=1e-4)
