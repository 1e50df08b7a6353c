"""Each schedule rule keeps what a kernel computes, over odd and symbolic sizes, and gives the promised loops."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.schedule.contraction import choose_tile
from tilewright.tensorir import interpret
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Var, call, maximum, select
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import For, PrimFunc
from tilewright.tensorir.target import Target

RNG = np.random.default_rng(7)


def scheduled(func: PrimFunc, opt_level: int = 3) -> tuple[PrimFunc, PassContext]:
    with PassContext(opt_level=opt_level) as ctx, Target("llvm", mcpu="x86-64-v3", num_threads=2):
        return ScheduleKernels()(IRModule({func.name: func}))[func.name], ctx


def run(func: PrimFunc, inputs: list[np.ndarray], shape: tuple[int, ...], **sizes: int) -> np.ndarray:
    out = np.full(shape, np.nan, np.float32)
    interpret(func, *inputs, out, *[sizes[var.name] for var in func.variables])
    return out


def loop_kinds(func: PrimFunc) -> set[str]:
    return {node.kind for node in walk(func.body) if isinstance(node, For)}


def dense(m: object, n: int, k: int, transposed: bool = False) -> PrimFunc:
    a = te.placeholder((m, k), name="a")
    b = te.placeholder((n, k) if transposed else (k, n), name="b")
    bias = te.placeholder((n,), name="bias")
    r = te.reduce_axis(k, "r")
    product = te.compute((m, n), lambda i, j: te.sum(a[i, r] * (b[j, r] if transposed else b[r, j]), axis=r), name="c")
    biased = te.compute((m, n), lambda i, j: product[i, j] + bias[j], name="biased")
    return te.create_prim_func("dense", [a, b, bias], [te.compute((m, n), lambda i, j: maximum(biased[i, j], 0.0))])


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


def test_matrix_product_is_tiled_vectorized_unrolled_and_parallel() -> None:
    func, _ = scheduled(dense(64, 64, 64))
    assert {"parallel", "vectorized", "unrolled"} <= loop_kinds(func)


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("rows", [None, 1, 2, 7, 14, 100])
@pytest.mark.parametrize("columns", [None, 1, 8, 30, 64])
def test_register_tile_fits_the_registers(rows: int | None, columns: int | None, registers: int) -> None:
    height, vectors = choose_tile(rows, columns, 8, registers)
    assert height * vectors + vectors + 1 <= registers


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


def softmax(rows: object, columns: object) -> PrimFunc:
    x = te.placeholder((rows, columns), name="x")
    k, k2 = te.reduce_axis(columns, "k"), te.reduce_axis(columns, "k2")
    top = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="top")
    powers = te.compute((rows, columns), lambda i, j: call("exp", x[i, j] - top[i]), name="powers")
    total = te.compute((rows,), lambda i: te.sum(powers[i, k2], axis=k2), name="total")
    return te.create_prim_func("softmax", [x], [te.compute((rows, columns), lambda i, j: powers[i, j] / total[i])])


@pytest.mark.parametrize("opt_level", [2, 3])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 5), (2, 16), (4, 33), (2, 200)])
def test_softmax_by_rows_equals_numpy(rows: int, columns: int, opt_level: int) -> None:
    func, _ = scheduled(softmax(rows, columns), opt_level)
    x = RNG.standard_normal((rows, columns)).astype("f4")
    expected = np.exp(x.astype("f8") - x.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(run(func, [x], (rows, columns)), expected, rtol=1e-5)


def test_one_softmax_serves_rows_of_any_length() -> None:
    func, ctx = scheduled(softmax(Var("m"), Var("n")))
    for rows, columns in ((1, 1), (2, 37), (3, 130)):
        x = RNG.standard_normal((rows, columns)).astype("f4")
        expected = np.exp(x.astype("f8") - x.max(axis=1, keepdims=True))
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(run(func, [x], (rows, columns), m=rows, n=columns), expected, rtol=1e-5)
    assert any("'rows'" in remark.message and remark.kind == "applied" for remark in ctx.remarks)


def test_sums_of_floats_keep_their_order_below_level_3() -> None:
    x = te.placeholder((2, 64), name="x")
    k = te.reduce_axis(64, "k")
    func = te.create_prim_func("row_sum", [x], [te.compute((2,), lambda i: te.sum(x[i, k], axis=k), name="s")])
    values = RNG.standard_normal((2, 64)).astype("f4") * np.float32(10.0) ** RNG.integers(-4, 4, (2, 64)).astype("f4")
    ordered = np.zeros(2, np.float32)
    for column in values.T:
        ordered += column
    found = run(scheduled(func, 2)[0], [values], (2,))
    np.testing.assert_array_equal(found, ordered)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 9, 17), (2, 1, 40)])
def test_reduction_along_any_axis_equals_numpy(axis: int, shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, name="x")
    k = te.reduce_axis(shape[axis], "k")
    kept = tuple(extent for position, extent in enumerate(shape) if position != axis)
    total = te.compute(
        kept, lambda i, j: te.sum(x[(k, i, j) if axis == 0 else (i, k, j) if axis == 1 else (i, j, k)], k)
    )
    func, _ = scheduled(te.create_prim_func("reduce", [x], [total]))
    values = RNG.standard_normal(shape).astype("f4")
    np.testing.assert_allclose(run(func, [values], kept), values.astype("f8").sum(axis), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 3, 17), (4, 1, 8)])
def test_elementwise_chain_is_one_nest(shape: tuple[int, ...]) -> None:
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape[-1:], name="y")
    scaled = te.compute(shape, lambda *i: x[i] * 2.0, name="scaled")
    added = te.compute(shape, lambda *i: scaled[i] + y[i[-1]], name="added")
    func, _ = scheduled(te.create_prim_func("chain", [x, y], [te.compute(shape, lambda *i: call("tanh", added[i]))]))
    a, b = RNG.standard_normal(shape).astype("f4"), RNG.standard_normal(shape[-1:]).astype("f4")
    np.testing.assert_allclose(run(func, [a, b], shape), np.tanh(a.astype("f8") * 2 + b), rtol=1e-5, atol=1e-6)
    assert str(func).count("block ") == 1
