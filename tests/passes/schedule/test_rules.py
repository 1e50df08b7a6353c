"""Each schedule rule keeps what a kernel computes, over odd and symbolic sizes, and gives the promised loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels, reduction, schedule_kernels
from tilewright.passes.schedule.contraction import choose_tile
from tilewright.passes.schedule.facts import block_of
from tilewright.passes.schedule.reduction import epilogue_of, is_row_reduction, schedule_rest, schedule_rows
from tilewright.tensorir import assert_structural_equal, interpret, parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import IntImm, Var, call, maximum, select
from tilewright.tensorir.functor import walk
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import Block, BufferStore, For, PrimFunc
from tilewright.tensorir.target import Target

RNG = np.random.default_rng(7)
TARGET = Target("llvm", mcpu="x86-64-v3", num_threads=2)


def scheduled(func: PrimFunc, opt_level: int = 3) -> tuple[PrimFunc, PassContext]:
    with PassContext(opt_level=opt_level) as ctx, Target("llvm", mcpu="x86-64-v3", num_threads=2):
        return ScheduleKernels()(IRModule({func.name: func}))[func.name], ctx


def run(func: PrimFunc, inputs: list[np.ndarray], shape: tuple[int, ...], **sizes: int) -> np.ndarray:
    out = np.full(shape, np.nan, np.float32)
    interpret(func, *inputs, out, *[sizes[var.name] for var in func.variables])
    return out


def loops_of(func: PrimFunc) -> list[For]:
    return [node for node in walk(func.body) if isinstance(node, For)]


def loop_kinds(func: PrimFunc) -> set[str]:
    return {loop.kind for loop in loops_of(func)}


def outermost(func: PrimFunc) -> list[For]:
    inner = {id(node) for loop in loops_of(func) for node in walk(loop.body)}
    return [loop for loop in loops_of(func) if id(loop) not in inner]


def innermost(func: PrimFunc) -> list[For]:
    return [loop for loop in loops_of(func) if not any(isinstance(node, For) for node in walk(loop.body))]


def extents(func: PrimFunc) -> list[int]:
    return [loop.extent.value for loop in loops_of(func) if isinstance(loop.extent, IntImm)]


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


def row_sums(columns: int, dtype: str = "float32") -> PrimFunc:
    x = te.placeholder((6, columns), dtype, name="x")
    k = te.reduce_axis(columns, "k")
    return te.create_prim_func("row_sum", [x], [te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="s")])


def column_sums(columns: int) -> PrimFunc:
    x = te.placeholder((6, columns), name="x")
    k = te.reduce_axis(6, "k")
    return te.create_prim_func("sum", [x], [te.compute((columns,), lambda i: te.sum(x[k, i], axis=k), name="s")])


def chain(*shape: int, small: bool) -> PrimFunc:
    """``x + y`` where ``y`` is as large as ``x`` or holds one row."""
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape[-1:] if small else shape, name="y")
    result = te.compute(shape, lambda *i: x[i] + y[i[-1:] if small else i], name="sum")
    return te.create_prim_func("chain", [x, y], [result])


@pytest.mark.parametrize(
    "func",
    [
        dense(64, 64, 64),
        softmax(40, 200),
        softmax(Var("m"), Var("n")),
        row_sums(64),
        column_sums(40),
        chain(6, 50, small=True),
        chain(6, 50, small=False),
    ],
    ids=["dense", "softmax", "symbolic softmax", "row sums", "column sums", "rows", "plane"],
)
def test_every_nest_is_parallel_outside_and_of_vectors_inside(func: PrimFunc) -> None:
    found, _ = scheduled(func)
    assert {loop.kind for loop in outermost(found)} == {"parallel"}
    assert {loop.kind for loop in innermost(found)} <= {"vectorized"}


def test_sums_of_floats_are_vectors_of_partial_results_from_level_3_on() -> None:
    """The interpreter adds up in the order of the loops, so that below only the loops can tell."""
    assert "vectorized" not in loop_kinds(scheduled(row_sums(64), 2)[0])
    assert {"vectorized", "unrolled"} <= loop_kinds(scheduled(row_sums(512), 3)[0])


@pytest.mark.parametrize("columns", [64, 512])
def test_partial_results_are_in_registers(columns: int) -> None:
    found, _ = scheduled(row_sums(columns))
    sums = {node.buffer for node in walk(found.body) if isinstance(node, BufferStore)} - set(found.buffers)
    assert {buffer.scope for buffer in sums} == {"register"}


def test_sums_of_integers_are_vectors_of_partial_results_at_every_level() -> None:
    found, _ = scheduled(row_sums(64, "int32"), 2)
    assert "vectorized" in loop_kinds(found)
    values = RNG.integers(-9, 9, (6, 64)).astype("i4")
    out = np.zeros(6, "i4")
    interpret(found, values, out)
    np.testing.assert_array_equal(out, values.sum(axis=1))


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
    return schedule_rows(schedule, TARGET, True)


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


def test_vectors_of_neighbouring_results_fill_one_register() -> None:
    assert {loop.extent.value for loop in loops_of(scheduled(column_sums(40))[0]) if loop.kind == "vectorized"} == {8}


def test_dimensions_that_lie_in_memory_like_one_are_one_loop() -> None:
    assert extents(scheduled(chain(6, 50, small=False))[0]) == [-(-6 * 50 // 8), 8]


def test_row_that_every_row_reads_keeps_its_loop() -> None:
    assert extents(scheduled(chain(200, 50, small=True))[0]) == [200, -(-50 // 8), 8]


def test_few_long_rows_are_cut_for_the_threads() -> None:
    func, _ = scheduled(chain(2, 10000, small=True))
    (loop,) = outermost(func)
    assert loop.kind == "parallel"
    assert loop.extent.value > 2


@pytest.mark.parametrize(("length", "vectors"), [(1, []), (7, [7]), (8, [8]), (20, [8])])
def test_row_shorter_than_a_vector_is_one_shorter_vector(length: int, vectors: list[int]) -> None:
    func, _ = scheduled(chain(length, small=False))
    assert [loop.extent.value for loop in loops_of(func) if loop.kind == "vectorized"] == vectors


def test_block_of_one_variable_under_two_loops_keeps_its_value() -> None:
    func = parse("""
primfunc @f(x: Buffer[(12,), float32], y: Buffer[(12,), float32]) attrs {"num_outputs": 1} {
  for i in range(3) {
    for j in range(4) {
      block y(v: spatial(12) = i * 4 + j) {
        reads x[v]
        writes y[v]
        y[v] = x[v] * 2.0
      }
    }
  }
}
""")
    values = RNG.standard_normal(12).astype("f4")
    np.testing.assert_array_equal(run(scheduled(func)[0], [values], (12,)), values * 2)


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


def test_rule_that_fails_half_way_leaves_the_kernel_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(schedule: Schedule, ref: BlockRef, target: Target, reassociate: bool) -> bool:
        schedule.split(schedule.get_loops(ref)[0], [None, 3])
        raise ScheduleError("no tile\nfits here")

    monkeypatch.setattr(schedule_kernels, "schedule_contraction", lambda *_: False)
    expected, _ = scheduled(dense(6, 8, 4))
    monkeypatch.setattr(schedule_kernels, "schedule_contraction", fails)
    found, ctx = scheduled(dense(6, 8, 4))
    assert_structural_equal(found, expected)
    assert [remark.message for remark in ctx.remarks] == ["the rule 'contraction' does not fit: no tile"]
    assert ctx.remarks[0].kind == "missed"


def test_block_that_cannot_be_scheduled_keeps_its_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(schedule: Schedule, ref: BlockRef, target: Target) -> None:
        schedule.parallel(schedule.get_loops(ref)[0])
        raise ScheduleError("no")

    monkeypatch.setattr(reduction, "schedule_elementwise", fails)
    func, ctx = scheduled(chain(6, 50, small=True))
    assert loop_kinds(func) == {"serial"}
    assert any("keeps its plain loops: no" in remark.message and remark.kind == "missed" for remark in ctx.remarks)


def test_scheduled_loops_stay_as_they_are() -> None:
    func, _ = scheduled(dense(64, 64, 64))
    schedule = Schedule(func)
    assert schedule_rest(schedule, TARGET, PassContext()).func is func


@pytest.mark.parametrize("shape", [(4096, 4096), (128, 80), (7, 33), (8, 55, 55, 16), (3, 27, 27, 16), (2, 5000, 3)])
def test_formulas_of_an_element_run_in_parallel_and_in_vectors(shape: tuple[int, ...]) -> None:
    x, scale = te.placeholder(shape, name="x"), te.placeholder(shape[:1], name="scale")
    whole = te.create_prim_func("chain", [x], [te.compute(shape, lambda *i: x[i] * 2.0 + 1.0)])
    by_row = te.create_prim_func("scaled", [x, scale], [te.compute(shape, lambda *i: x[i] * scale[i[0]])])
    for func in (whole, by_row):
        assert {"parallel", "vectorized"} <= loop_kinds(scheduled(func)[0])


def test_loops_without_blocks_stay_as_they_were_written() -> None:
    func = parse("""
primfunc @f(a: Buffer[(4,), float32], b: Buffer[(4,), float32]) attrs {"num_outputs": 1} {
  for i in range(4) {
    b[i] = a[i] + 1.0
  }
}
""")
    found, ctx = scheduled(func)
    assert found is func
    assert [remark.kind for remark in ctx.remarks] == ["missed"]
    assert "needs every computation in a block" in ctx.remarks[0].message


def test_broadcast_along_a_dimension_of_one_is_an_epilogue() -> None:
    x = te.placeholder((1, 4, 9), name="x")
    k = te.reduce_axis(9, "k")
    total = te.compute((1, 4), lambda n, i: te.sum(x[n, i, k], axis=k), name="total")
    out = te.compute((1, 4), lambda n, i: total[0, i] * 2.0, name="out")
    schedule = Schedule(te.create_prim_func("f", [x], [out]))
    epilogue = epilogue_of(schedule, schedule.get_block("total"))
    assert epilogue is not None and epilogue.name == "out"


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
