"""Sums and the like, along rows and across them: results stay, partial ones are vectors in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.passes.schedule.kernels import (
    apply_rule,
    column_sums,
    loop_kinds,
    loops_of,
    row_sums,
    run,
    scheduled,
    softmax,
    windows_of_lines,
)
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.schedule.facts import block_of
from tilewright.passes.schedule.partial_results import is_row_reduction
from tilewright.passes.schedule.rows import ScheduleRows
from tilewright.tensorir import interpret
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Var
from tilewright.tensorir.functor import walk
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import Block, BufferStore, PrimFunc
from tilewright.tensorir.target import Target

RNG = np.random.default_rng(7)
TARGET = Target("llvm", num_threads=2)


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


@pytest.mark.parametrize("opt_level", [2, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_place_of_the_greatest_is_found_along_any_axis(axis: int, opt_level: int) -> None:
    x = te.placeholder((20, 20), name="x")
    k = te.reduce_axis(20, "k")
    place = te.compute((20,), lambda i: te.argmax(x[(k, i) if axis == 0 else (i, k)], axis=k), name="place")
    func, _ = scheduled(te.create_prim_func("f", [x], [place]), opt_level)
    values = RNG.standard_normal((20, 20)).astype("f4")
    out = np.zeros(20, place.buffer.dtype.numpy)
    interpret(func, values, out)
    np.testing.assert_array_equal(out, values.argmax(axis))


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


@pytest.mark.parametrize("n", [1, 5])
def test_rows_of_at_most_one_element_have_partial_results_too(n: int) -> None:
    module = gi.parse("""
    def @main(%x: Tensor[(2, (min(n, 2) + 2) // 3), float32], %scale: Tensor[((min(n, 2) + 2) // 3,), float32],
              %size: Tensor[(n,), float32]) {
      %0 = nn.layer_norm(%x, %scale, %scale)
      %0
    }
    """)
    with PassContext(opt_level=3):
        model = tw.build(module, target=TARGET)
    assert (model(np.full((2, 1), 3, "f4"), np.full(1, 7, "f4"), np.zeros(n, "f4")) == 7).all()


def test_sums_of_floats_are_vectors_of_partial_results_from_level_3_on() -> None:
    """The interpreter adds up in the order of the loops, so that below only the loops can tell."""
    assert "vectorized" not in loop_kinds(scheduled(row_sums(64), 2)[0])
    assert {"vectorized", "unrolled"} <= loop_kinds(scheduled(row_sums(512), 3)[0])


def test_sums_of_integers_are_vectors_of_partial_results_at_every_level() -> None:
    found, _ = scheduled(row_sums(64, "int32"), 2)
    assert "vectorized" in loop_kinds(found)
    values = RNG.integers(-9, 9, (6, 64)).astype("i4")
    out = np.zeros(6, "i4")
    interpret(found, values, out)
    np.testing.assert_array_equal(out, values.sum(axis=1))


@pytest.mark.parametrize("columns", [64, 512])
def test_partial_results_are_in_registers(columns: int) -> None:
    found, _ = scheduled(row_sums(columns))
    sums = {node.buffer for node in walk(found.body) if isinstance(node, BufferStore)} - set(found.buffers)
    assert {buffer.scope for buffer in sums} == {"register"}


def test_vectors_of_neighbouring_results_fill_one_register() -> None:
    assert {loop.extent.value for loop in loops_of(scheduled(column_sums(40))[0]) if loop.kind == "vectorized"} == {8}


@pytest.mark.parametrize(("lines", "columns", "size"), [(20, 30, 3), (9, 70, 4), (8, 17, 1), (40, 33, 9), (3, 30, 5)])
def test_lines_of_small_windows_are_tasks_and_the_smallest_windows_are_written_out(
    lines: int, columns: int, size: int
) -> None:
    func, _ = scheduled(windows_of_lines(lines, columns, size))
    vectors = -(-columns // 8)
    is_line = size * size <= 64 and lines >= 8
    (task,) = [loop for loop in loops_of(func) if loop.kind == "parallel"]
    assert task.extent.value == (lines if is_line else lines * vectors)
    written_out = [loop.extent.value for loop in loops_of(func) if loop.kind == "unrolled"]
    assert written_out == ([size, size] if size * size <= 16 else [])
    x = RNG.standard_normal((lines, columns)).astype("f4")
    wide = np.pad(x.astype("f8"), ((1, size), (1, size)))
    expected = sum(wide[k : k + lines, n : n + columns] for k in range(size) for n in range(size))
    np.testing.assert_allclose(run(func, [x], (lines, columns)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("lines", "threads", "is_line"), [(8, 2, True), (8, 3, False), ("n", 1, False), (4, 1, True)])
def test_lines_are_tasks_where_there_are_several_for_each_thread(lines: Any, threads: int, is_line: bool) -> None:
    """A line of unknown length is one task, so that the number of lines, at least, must be known."""
    lines, columns = (Var(extent) if isinstance(extent, str) else extent for extent in (lines, "m"))
    x, k = te.placeholder((lines, 3, columns), name="x"), te.reduce_axis(3, "k")
    sums = te.compute((lines, columns), lambda i, j: te.sum(x[i, k, j], axis=k), name="s")
    with PassContext(opt_level=3) as ctx, Target("llvm", mcpu="x86-64-v3", num_threads=threads):
        ScheduleKernels()(IRModule({"f": te.create_prim_func("f", [x], [sums])}))
    (plan,) = [remark.message for remark in ctx.remarks if remark.kind == "plan"]
    assert ("line True" in plan) == is_line


def test_blocks_of_channels_have_lines_of_vectors_along_the_next_dimension() -> None:
    x = te.placeholder((12, 22, 8), name="x")
    k = te.reduce_axis(3, "k")
    sums = te.compute((12, 20, 8), lambda i, j, c: te.sum(x[i, j + k, c], axis=k), name="s")
    func, _ = scheduled(te.create_prim_func("f", [x], [sums]))
    assert [loop.extent.value for loop in loops_of(func) if loop.kind == "parallel"] == [12]
    values = RNG.standard_normal((12, 22, 8)).astype("f4")
    expected = sum(values[:, n : n + 20].astype("f8") for n in range(3))
    np.testing.assert_allclose(run(func, [values], (12, 20, 8)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("columns", [1, 2, 5, 8])
def test_results_that_fit_one_vector_are_its_lanes(columns: int) -> None:
    func, _ = scheduled(column_sums(columns))
    x = RNG.standard_normal((6, columns)).astype("f4")
    np.testing.assert_allclose(run(func, [x], (columns,)), x.astype("f8").sum(axis=0), rtol=1e-5, atol=1e-6)
    extents = {getattr(loop.extent, "value", None) for loop in loops_of(func) if loop.kind == "vectorized"}
    assert extents == ({columns} if columns > 1 else set())


def test_sum_of_everything_is_scheduled_as_one_row() -> None:
    x = te.placeholder((200,), name="x")
    k = te.reduce_axis(200, "k")
    func, ctx = scheduled(te.create_prim_func("f", [x], [te.compute((), lambda: te.sum(x[k], axis=k), name="s")]))
    assert any("'rows'" in remark.message and remark.kind == "applied" for remark in ctx.remarks)
    assert "vectorized" in loop_kinds(func)
    values = RNG.standard_normal(200).astype("f4")
    np.testing.assert_allclose(run(func, [values], ()), values.astype("f8").sum(), rtol=1e-5)


def test_kept_dimension_of_a_row_reduction_is_no_row() -> None:
    x = te.placeholder((4, 40), name="x")
    k = te.reduce_axis(40, "k")
    total = te.compute((4, 1), lambda i, j: te.sum(x[i, k], axis=k), name="total")
    func, ctx = scheduled(
        te.create_prim_func("f", [x], [te.compute((4, 40), lambda i, j: x[i, j] / total[i, 0], name="out")])
    )
    assert any("'rows'" in remark.message and remark.kind == "applied" for remark in ctx.remarks)
    values = RNG.uniform(1, 2, (4, 40)).astype("f4")
    np.testing.assert_allclose(run(func, [values], (4, 40)), values / values.sum(axis=1, keepdims=True), rtol=1e-5)


def rows_fit(inputs: list[te.Tensor], *results: te.Tensor) -> bool:
    schedule = Schedule(te.create_prim_func("f", inputs, results))
    return apply_rule(ScheduleRows(), schedule)


def test_stages_of_other_rows_are_not_computed_row_by_row() -> None:
    x, y = te.placeholder((4, 40), name="x"), te.placeholder((7, 4), name="y")
    k = te.reduce_axis(40, "k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")
    assert rows_fit([x], te.compute((4, 7), lambda i, j: total[i] + 1.0, name="out"))
    assert not rows_fit([x, y], te.compute((7, 4), lambda j, i: total[i] + y[j, i], name="out"))


def test_function_of_two_results_is_not_computed_row_by_row() -> None:
    x = te.placeholder((4, 40), name="x")
    k = te.reduce_axis(40, "k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")
    assert not rows_fit([x], total, te.compute((4,), lambda i: total[i] + 1.0, name="out"))


def channel_products(shape: tuple[int, ...], dtype: str = "float32", shared: bool = False) -> PrimFunc:
    """Sum the products of two images for each channel; with ``shared``, those of one image and one map for all."""
    n, channels, places = shape
    x, y = te.placeholder(shape, dtype, name="x"), te.placeholder((n, places) if shared else shape, dtype, name="y")
    k, p = te.reduce_axis(n, "k"), te.reduce_axis(places, "p")
    total = te.compute(
        (channels,), lambda c: te.sum(x[k, c, p] * (y[k, p] if shared else y[k, c, p]), axis=[k, p]), name="total"
    )
    return te.create_prim_func("products", [x, y], [total])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 7), (3, 2, 49), (2, 5, 130)])
def test_sums_of_products_of_own_elements_equal_numpy(shape: tuple[int, ...], dtype: str) -> None:
    func, _ = scheduled(channel_products(shape, dtype))
    x, y = (RNG.integers(-9, 9, shape).astype(dtype) for _ in range(2))
    found = np.zeros(shape[1], dtype)
    interpret(func, x, y, found)
    np.testing.assert_array_equal(found, (x.astype("f8") * y).sum(axis=(0, 2)))


def test_sums_of_products_of_own_elements_are_vectors_along_rows() -> None:
    func, ctx = scheduled(channel_products((2, 3, 49)))
    assert any("plan of rows" in remark.message for remark in ctx.remarks)
    assert {"vectorized", "unrolled"} <= loop_kinds(func)


def test_sums_of_products_of_shared_elements_are_left_to_other_rules() -> None:
    _, ctx = scheduled(channel_products((2, 3, 49), shared=True))
    assert not any("plan of rows" in remark.message for remark in ctx.remarks)


def reducing_block(shape: tuple[int, ...], index: Callable[..., Any]) -> Block:
    x = te.placeholder((9, 9), name="x")
    k = te.reduce_axis(3, "k")
    made = te.compute(shape, lambda *i: te.sum(x[index(*i, k)], axis=k), name="total")
    schedule = Schedule(te.create_prim_func("f", [x], [made]))
    return block_of(schedule, schedule.get_block("total"))


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (lambda i, k: (i, k), True),
        (lambda i, k: (k, i), False),
        (lambda i, k: (0, i + k), False),
        (lambda i, k: (i, k * 2), False),
    ],
)
def test_row_reduction_walks_the_last_dimension_of_an_operand(index: Callable[..., Any], expected: bool) -> None:
    assert is_row_reduction(reducing_block((4,), index)) is expected


def _column_sums(extents: tuple[Any, ...], dtype: str = "float32") -> Any:
    """Sum over all axes but the last."""
    x = te.placeholder(extents, dtype, name="x")
    axes = [te.reduce_axis(extent, f"k{number}") for number, extent in enumerate(extents[:-1])]
    total = te.compute((extents[-1],), lambda j: te.sum(x[(*axes, j)], axis=axes), name="total")
    return te.create_prim_func("column_sums", [x], [total])


def test_long_sums_of_columns_lose_no_digits_to_their_length() -> None:
    x = gi.var("x", shape=(300_000, 4))
    model = tw.build(gi.Function([x], gi.variance(x, axis=0)), opt_level=3)
    values = np.random.default_rng(0).random((300_000, 4), "f4") + 1
    np.testing.assert_allclose(model(values), values.astype("f8").var(axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    "shape", [(0, 5), (1, 5), (255, 3), (257, 17), (1300, 2), (3, 700, 5), (700, 3, 5), (40, 3, 30, 2)]
)
def test_sums_of_runs_equal_numpys(shape: tuple[int, ...]) -> None:
    extents = (*(Var(f"n{number}") for number in range(len(shape) - 1)), shape[-1])
    values = RNG.standard_normal(shape).astype("f4")
    sizes = {f"n{number}": extent for number, extent in enumerate(shape[:-1])}
    func, _ = scheduled(_column_sums(extents), 3)
    expected = values.astype("f8").sum(axis=tuple(range(len(shape) - 1)))
    np.testing.assert_allclose(run(func, [values], shape[-1:], **sizes), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("extents", "dtype"), [((1000, 8), "float32"), ((5000, 8), "int32")])
def test_short_sums_and_exact_ones_have_no_runs(extents: tuple[int, ...], dtype: str) -> None:
    func, _ = scheduled(_column_sums(extents, dtype), 3)
    assert [block.name for block in walk(func.body) if isinstance(block, Block) and block.name.endswith("_rf")] == []
