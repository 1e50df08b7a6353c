"""Test the plan of a register tile: its variables, its sizes, and whether an operand is packed first."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.passes.schedule.kernels import apply_rule
from tilewright.graphir.dims import simplify
from tilewright.passes.schedule.contraction import ScheduleContraction, _tiles_per_task
from tilewright.passes.schedule.cost import VECTOR_COST, choose_tile
from tilewright.passes.schedule.facts import block_of, constant, loop_of
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.passes.schedule.rule import Declined
from tilewright.passes.schedule.tiling import Tiling, plan_tiling
from tilewright.tensorir import interpret
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import IntImm, Var, cast
from tilewright.tensorir.functor import substitute, uses_var, walk
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import For, PrimFunc
from tilewright.tensorir.target import Target

TARGET = Target("llvm", mcpu="x86-64-v3", num_threads=2)  # 8 lanes of float32, 16 registers


def sum_of_products(shape: tuple[int, ...], left: object, right: object, steps: int = 5) -> PrimFunc:
    """``left`` and ``right``: shape, and the indices for a place of the result and a step of the sum."""
    (a_shape, a_at), (b_shape, b_at) = left, right  # type: ignore[misc]
    a, b = te.placeholder(a_shape, name="a"), te.placeholder(b_shape, name="b")
    k = te.reduce_axis(steps, "k")
    result = te.compute(shape, lambda *at: te.sum(a[a_at(*at, k)] * b[b_at(*at, k)], axis=k), name="product")
    return te.create_prim_func("f", [a, b], [result])


def matrix_product(rows: int, columns: int, transposed: bool = False) -> PrimFunc:
    right = ((columns, 5), lambda i, j, k: (j, k)) if transposed else ((5, columns), lambda i, j, k: (k, j))
    return sum_of_products((rows, columns), ((rows, 5), lambda i, j, k: (i, k)), right)


def plan(func: PrimFunc) -> Tiling | Declined:
    schedule = Schedule(func)
    (ref,) = reduction_blocks(schedule)
    return plan_tiling(block_of(schedule, ref), TARGET)


def planned(func: PrimFunc) -> Tiling:
    tiling = plan(func)
    assert isinstance(tiling, Tiling)
    return tiling


@pytest.mark.parametrize(
    ("cpu", "steps", "expected"),
    [
        ("x86-64-v3", 64, [("serial", 16), ("unrolled", 4)]),
        ("x86-64-v3", 63, [("serial", 21), ("unrolled", 3)]),
        ("x86-64-v3", 61, [("serial", 61)]),
        ("x86-64-v3", 4, [("serial", 2), ("unrolled", 2)]),  # a loop stays: what is before it initializes the sum
        ("x86-64-v2", 64, [("serial", 64)]),  # products take another register
        ("x86-64-v4", 64, [("serial", 64)]),  # a step has 28 multiply-adds
    ],
)
def test_an_iteration_takes_several_steps_of_few_multiply_adds(
    cpu: str, steps: int, expected: list[tuple[str, int]]
) -> None:
    left, right = ((96, steps), lambda i, j, k: (i, k)), ((steps, 96), lambda i, j, k: (k, j))
    schedule = Schedule(sum_of_products((96, 96), left, right, steps))
    (ref,) = reduction_blocks(schedule)
    assert apply_rule(ScheduleContraction(), schedule, ref, Target("llvm", mcpu=cpu, num_threads=1))
    (summed,) = (item for item in block_of(schedule, ref).iters if item.kind == "reduction")
    loops = (loop_of(schedule, loop) for loop in schedule.get_loops(ref))
    found = [(loop.kind, constant(loop.extent)) for loop in loops if uses_var(summed.value, {loop.var})]
    assert found == expected


@pytest.mark.parametrize(
    ("rows", "columns", "multiply_adds"),
    [
        (8, 32, 16),  # one step of a tile of two vectors
        (16, 16, 32),  # two steps of a tile of one vector, in which each multiply-add loads a factor
        (4, 32, 32),  # four steps of a small tile
    ],
)
def test_an_iteration_has_no_more_multiply_adds_than_pay(rows: int, columns: int, multiply_adds: int) -> None:
    left, right = ((rows, 64), lambda i, j, k: (i, k)), ((64, columns), lambda i, j, k: (k, j))
    schedule = Schedule(sum_of_products((rows, columns), left, right, 64))
    (ref,) = reduction_blocks(schedule)
    assert apply_rule(ScheduleContraction(), schedule, ref, Target("llvm", mcpu="x86-64-v4", num_threads=1))
    loops = [loop_of(schedule, loop) for loop in schedule.get_loops(ref)]
    assert math.prod(constant(loop.extent) or 0 for loop in loops if loop.kind == "unrolled") == multiply_adds


@pytest.mark.parametrize("operands", [1, -1])
def test_vectors_lie_along_the_last_dimension_and_rows_along_one_of_the_other_operand(operands: int) -> None:
    left, right = [((12, 5), lambda i, j, k: (i, k)), ((5, 64), lambda i, j, k: (k, j))][::operands]
    tiling = planned(sum_of_products((12, 64), left, right))
    assert tiling.row is not None
    assert (tiling.column.var.name, tiling.row.var.name) == ("vi1", "vi0")
    assert tiling.vector_operand.buffer.name == ("b" if operands == 1 else "a")
    assert tiling.block is None


@pytest.mark.parametrize(
    ("shape", "row"),
    [
        ((100, 8), 1),
        ((100, 1), 0),
        ((100, 3), 0),
        ((2, 3), 1),
        ((3, 3), 1),
        ((3, 2), 0),
        ((1, 1), 1),
        ((4, 100, 1), 1),
        ((Var("n"), 1), 0),
        ((100, Var("n")), 1),
    ],
)
def test_rows_lie_along_the_last_dimension_that_may_fill_a_tile(shape: tuple[int | Var, ...], row: int) -> None:
    left = ((*shape, 5), lambda *at: (*at[:-2], at[-1]))
    tiling = planned(sum_of_products((*shape, 64), left, ((5, 64), lambda *at: (at[-1], at[-2]))))
    assert tiling.row is not None
    assert tiling.row.var.name == f"vi{row}"


def test_dimension_of_both_operands_is_no_row() -> None:
    """``a[i, k] * b[i, k, j]``: another row needs other vectors."""
    func = sum_of_products((12, 64), ((12, 5), lambda i, j, k: (i, k)), ((12, 5, 64), lambda i, j, k: (i, k, j)))
    assert planned(func).row is None


def test_vectors_of_a_channel_block_lie_along_the_blocks_of_one_operand() -> None:
    """``a[n, k, x] * b[n, o, k, c]``: results of as many channels as a vector has lanes, in blocks of 6."""
    func = sum_of_products(
        (6, 2, 10, 8), ((2, 5, 10), lambda o, n, x, c, k: (n, k, x)), ((2, 6, 5, 8), lambda o, n, x, c, k: (n, o, k, c))
    )
    tiling = planned(func)
    assert tiling.block is not None and tiling.row is not None
    assert (tiling.block.var.name, tiling.row.var.name) == ("vi0", "vi2")
    assert 6 % tiling.vectors == 0
    assert tiling.width == tiling.lanes == 8


@pytest.mark.parametrize("size", [1, 6, 10, 17])
def test_rows_of_a_tile_are_of_one_group(size: int) -> None:
    """``a[i, k] * b[i // size, k, j]``: ``size`` rows share the vectors."""
    func = sum_of_products(
        (4 * size, 64), ((4 * size, 5), lambda i, j, k: (i, k)), ((4, 5, 64), lambda i, j, k: (i // size, k, j))
    )
    tiling = planned(func)
    assert (tiling.row is None) is (size == 1)
    assert size % tiling.rows == 0


def test_channel_blocks_of_a_tile_are_of_one_group() -> None:
    """``a[o // 3, k, x] * b[o, k, c]``: three blocks of channels share the broadcast numbers."""
    func = sum_of_products(
        (6, 10, 8), ((2, 5, 10), lambda o, x, c, k: (o // 3, k, x)), ((6, 5, 8), lambda o, x, c, k: (o, k, c))
    )
    tiling = planned(func)
    assert tiling.block is not None and tiling.row is not None
    assert tiling.vectors in (1, 3)


def test_operand_of_one_number_for_each_row_has_tiles_of_several_rows() -> None:
    """A depthwise convolution: ``a[c, y, x + k] * b[c, k]``."""
    func = sum_of_products(
        (3, 10, 12), ((3, 10, 16), lambda c, y, x, k: (c, y, x + k)), ((3, 5), lambda c, y, x, k: (c, k))
    )
    tiling = planned(func)
    assert tiling.row is not None and tiling.row.var.name == "vi1"
    assert tiling.rows > 1


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 7])
def test_tile_takes_channel_blocks_that_divide_their_number(blocks: int) -> None:
    func = sum_of_products(
        (blocks, 10, 8), ((5, 10), lambda o, x, c, k: (k, x)), ((blocks, 5, 8), lambda o, x, c, k: (o, k, c))
    )
    assert blocks % planned(func).vectors == 0


def test_last_dimension_that_is_no_vector_has_no_channel_blocks() -> None:
    func = sum_of_products(
        (6, 10, 33), ((5, 10), lambda o, x, c, k: (k, x)), ((6, 5, 33), lambda o, x, c, k: (o, k, c))
    )
    assert planned(func).block is None


@pytest.mark.parametrize(("columns", "lanes"), [(1, 2), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 8)])
def test_vector_is_no_longer_than_the_columns_need(columns: int, lanes: int) -> None:
    assert planned(matrix_product(12, columns)).lanes == lanes


@pytest.mark.parametrize("width", [8, 12, 16, 24])
def test_tile_is_as_wide_as_the_panels_of_a_packed_operand(width: int) -> None:
    func = sum_of_products(
        (12, 48),
        ((12, 5), lambda i, j, k: (i, k)),
        ((48 // width, 5, width), lambda i, j, k: (j // width, k, j % width)),
    )
    tiling = planned(func)
    assert tiling.width == width
    assert not tiling.packed


@pytest.mark.parametrize(("rows", "transposed", "packed"), [(4, False, False), (64, False, True), (4, True, True)])
def test_operand_is_packed_where_rows_share_it_or_its_columns_are_no_neighbours(
    rows: int, transposed: bool, packed: bool
) -> None:
    assert planned(matrix_product(rows, 64, transposed)).packed is packed


def test_operand_of_strided_columns_is_not_tiled() -> None:
    func = sum_of_products((12, 32), ((12, 5), lambda i, j, k: (i, k)), ((5, 64), lambda i, j, k: (k, j * 2)))
    assert isinstance(plan(func), Declined)


def test_where_both_operands_have_the_last_dimension_each_row_has_vectors_of_its_own() -> None:
    func = sum_of_products((12, 32), ((12, 5, 32), lambda i, j, k: (i, k, j)), ((5, 32), lambda i, j, k: (k, j)))
    tiling = planned(func)
    assert tiling.row is not None
    assert (tiling.column.var.name, tiling.row.var.name) == ("vi1", "vi0")
    assert tiling.vector_operand.buffer.name == "b"
    assert not tiling.packed


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (((12, 32, 5), lambda i, j, k: (i, j, k)), ((5, 32), lambda i, j, k: (k, j))),  # vectors not contiguous
        (((12, 5, 32), lambda i, j, k: (i, k, j)), ((12, 5, 32), lambda i, j, k: (i, k, j))),  # no row of one alone
    ],
)
def test_sum_of_products_of_vectors_is_not_tiled_without_rows_or_order(left: object, right: object) -> None:
    assert isinstance(plan(sum_of_products((12, 32), left, right)), Declined)


def test_vector_times_matrix_is_left_to_other_rules() -> None:
    func = sum_of_products((32,), ((5,), lambda j, k: (k,)), ((5, 32), lambda j, k: (k, j)))
    schedule = Schedule(func)
    (ref,) = reduction_blocks(schedule)
    assert not apply_rule(ScheduleContraction(), schedule, ref, TARGET, reassociate=False)
    assert schedule.func is func


@pytest.mark.parametrize("registers", [16, 32])
def test_tile_of_a_large_result_loads_least_for_each_product(registers: int) -> None:
    """No tile wastes work on so many rows and columns; one of P by NV loads P numbers and NV vectors for P * NV
    products."""
    fits = [(p, nv) for p, nv in itertools.product(range(1, 32), range(1, 7)) if p * nv + nv + 1 <= registers]
    least = min((p + VECTOR_COST * nv) / (p * nv) for p, nv in fits)
    extent = 2**4 * 3**3 * 5**2 * 7 * 11 * 13
    height, vectors = choose_tile(extent, extent * 16, 16, registers)
    assert (height + VECTOR_COST * vectors) / (
        height * vectors
    ) <= least * 1.05  # the score weighs the products in, too


@pytest.mark.parametrize("columns", [1, 16, 17, 32, 40, 64])
def test_tile_has_no_vector_without_columns(columns: int) -> None:
    _, vectors = choose_tile(1, columns, 16, 32)
    assert (vectors - 1) * 16 < columns


@pytest.mark.parametrize("rows", [1, 3, 6, 9, 13])
def test_rows_are_split_into_nearly_equal_tiles(rows: int) -> None:
    height, _ = choose_tile(rows, 1024, 16, 32)
    tiles = -(-rows // height)
    assert tiles * height - rows < tiles


@pytest.mark.parametrize("rows", [49, 100, 196, 3025, 3136])
def test_a_tile_that_leaves_no_rest_is_preferred(rows: int) -> None:
    height, vectors = choose_tile(rows, 1024, 16, 32)
    assert rows % height == 0 and height * vectors >= 14


@pytest.mark.parametrize("columns", [64, 512, 1024, 2048])
def test_a_tile_that_leaves_no_rest_of_the_columns_is_preferred(columns: int) -> None:
    height, vectors = choose_tile(512, columns, 16, 32)
    assert columns % (16 * vectors) == 0 and 512 % height == 0 and height * vectors >= 14


def test_a_rest_is_better_than_small_tiles() -> None:
    assert choose_tile(3137, 1024, 16, 32) == (6, 4)  # a prime


@pytest.mark.parametrize("rows", [508, 512, 784, 840, 3136])
@pytest.mark.parametrize("group", [None, 2])
def test_tiles_of_few_registers_use_most_of_them(rows: int, group: int | None) -> None:
    height, vectors = choose_tile(rows, 1024, 8, 16, None, None, group)
    assert height * vectors == 12  # of 15, beside a vector of the operand at least


@pytest.mark.parametrize(("panel", "rows"), [(None, 6), (1, 16), (2, 8)])
def test_tile_of_unknown_rows_has_few_remainders(panel: int | None, rows: int) -> None:
    assert choose_tile(None, 1024, 16, 32, panel)[0] == rows


@pytest.mark.parametrize("panel", [1, 2, 3])
def test_tile_keeps_to_the_panels_of_its_operand(panel: int) -> None:
    height, vectors = choose_tile(100, 1024, 16, 32, panel)
    assert vectors == panel
    assert height * vectors + vectors + 1 <= 32


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize(("rows", "columns"), [(64, 16), (64, 64), (960, 64), (1000, 1000), (7, 2000)])
def test_every_thread_gets_tasks_and_no_task_is_short(rows: int, columns: int, threads: int) -> None:
    target = Target("llvm", mcpu="x86-64-v3", num_threads=threads)
    schedule = Schedule(matrix_product(rows, columns))
    (ref,) = reduction_blocks(schedule)
    block = block_of(schedule, ref)
    tiling = plan_tiling(block, target)
    assert isinstance(tiling, Tiling)
    tiles, parts = -(-rows // tiling.rows), -(-columns // tiling.width)
    each = _tiles_per_task(block, tiling, target)
    assert tiles % each == 0
    assert parts * tiles // each >= min(parts * tiles, 4 * threads)


@pytest.mark.parametrize("transposed", [False, True])
def test_packed_operand_lies_in_panels_in_the_order_of_the_sum(transposed: bool) -> None:
    schedule = Schedule(matrix_product(64, 30, transposed))
    (ref,) = reduction_blocks(schedule)
    tiling = plan_tiling(block_of(schedule, ref), TARGET)
    assert isinstance(tiling, Tiling) and tiling.packed
    assert apply_rule(ScheduleContraction(), schedule, ref, TARGET, reassociate=False)
    (packed,) = {
        store.buffer
        for other in schedule.get_blocks()
        for store in walk(block_of(schedule, other).body)
        if type(store).__name__ == "BufferStore" and store.buffer.scope == "arena"
    }
    assert [str(extent) for extent in packed.shape] == [str(-(-30 // tiling.width)), "5", str(tiling.width)]
    a = np.random.default_rng(0).standard_normal((64, 5)).astype("f4")
    b = np.random.default_rng(1).standard_normal((5, 30)).astype("f4")
    out = np.zeros((64, 30), "f4")
    interpret(schedule.func, a, np.ascontiguousarray(b.T) if transposed else b, out)
    np.testing.assert_allclose(out, a.astype("f8") @ b, rtol=1e-5, atol=1e-5)


def scheduled_loops(func: PrimFunc) -> list[For]:
    schedule = Schedule(func)
    (ref,) = reduction_blocks(schedule)
    assert apply_rule(ScheduleContraction(), schedule, ref, TARGET, reassociate=False)
    return [node for node in walk(schedule.func.body) if isinstance(node, For)]


def test_loop_over_the_tiles_of_a_task_has_its_remainder_apart() -> None:
    for rows, marked in ((67, 1), (66, 0)):  # no tile divides the first
        loops = scheduled_loops(matrix_product(rows, 64))
        assert sum(bool(loop.annotations.get("specialize_tail")) for loop in loops) == marked


def test_vectors_of_a_tile_fill_one_register() -> None:
    extents = {str(loop.extent) for loop in scheduled_loops(matrix_product(12, 64)) if loop.kind == "vectorized"}
    assert extents == {"8"}


@pytest.mark.parametrize("epilogue", [False, True])
def test_accumulators_are_in_registers_and_start_before_the_sum(epilogue: bool) -> None:
    a, b = te.placeholder((12, 5), name="a"), te.placeholder((5, 64), name="b")
    k = te.reduce_axis(5, "k")
    product = te.compute((12, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    result = te.compute((12, 64), lambda i, j: product[i, j] * 2.0, name="doubled") if epilogue else product
    schedule = Schedule(te.create_prim_func("f", [a, b], [result]))
    ref = schedule.get_block("product")
    assert apply_rule(ScheduleContraction(), schedule, ref, TARGET, reassociate=False)
    assert block_of(schedule, ref).writes[0].buffer.scope == "register"
    assert block_of(schedule, ref).init is None


def test_independent_products_come_one_after_the_other() -> None:
    """The operands of one stay in the caches while all of its columns and rows are computed."""
    left = ((3, 40, 5), lambda o, b, i, j, k: (b, i, k))
    right = ((8, 3, 5, 8), lambda o, b, i, j, k: (o, b, k, j))
    schedule = Schedule(sum_of_products((8, 3, 40, 8), left, right))
    (ref,) = reduction_blocks(schedule)
    assert apply_rule(ScheduleContraction(), schedule, ref, TARGET, reassociate=False)
    (loop,) = [node for node in walk(schedule.func.body) if isinstance(node, For) and node.kind == "parallel"]
    (result,) = [block_of(schedule, ref) for ref in schedule.get_blocks() if ref.name == "product_register"]
    batch = result.iters[1].value
    assert isinstance(loop.extent, IntImm)
    places = [simplify(substitute(batch, {loop.var: IntImm(place)})) for place in range(loop.extent.value)]
    assert set(places) == {0, 1, 2}
    assert places == sorted(places)


def test_products_that_share_a_broadcast_number_come_one_after_the_other() -> None:
    """Blocks of channels: all vectors of a row before the next row, or the numbers of all rows would stay in registers
    until the second vector is reached."""
    a, b = te.placeholder((12, 5), name="a"), te.placeholder((2, 5, 8), name="b")
    k = te.reduce_axis(5, "k")
    product = te.compute((2, 12, 8), lambda o, i, j: te.sum(a[i, k] * b[o, k, j], axis=k), name="product")
    schedule = Schedule(te.create_prim_func("f", [a, b], [product]))
    (ref,) = reduction_blocks(schedule)
    tiling = plan_tiling(block_of(schedule, ref), TARGET)
    assert isinstance(tiling, Tiling) and tiling.block is not None and tiling.vectors == 2
    assert apply_rule(ScheduleContraction(), schedule, ref, TARGET, reassociate=False)
    inner = [schedule.get(loop) for loop in schedule.get_loops(ref)[-3:]]
    assert [(loop.kind, loop.extent.value) for loop in inner] == [
        ("unrolled", tiling.rows),
        ("unrolled", tiling.vectors),
        ("vectorized", 8),
    ]


def narrow_product(left: str, right: str, total: str, steps: int = 8, columns: int = 40) -> PrimFunc:
    a, b = te.placeholder((20, steps), left, name="a"), te.placeholder((steps, columns), right, name="b")
    k = te.reduce_axis(steps, "k")
    result = te.compute(
        (20, columns), lambda i, j: te.sum(cast(total, a[i, k]) * cast(total, b[k, j]), axis=k), name="product"
    )
    return te.create_prim_func("f", [a, b], [result])


DOT_TARGET = Target("llvm", mcpu="znver4", mtriple="x86_64-unknown-linux-gnu", num_threads=1)


@pytest.mark.parametrize(
    ("types", "steps", "reassociate", "neighbours"),
    [
        (("uint8", "int8", "int32"), 8, False, 4),
        (("int8", "uint8", "int32"), 8, False, 4),
        (("int16", "int16", "int32"), 8, False, 2),
        (("bfloat16", "bfloat16", "float32"), 8, True, 2),
        (("bfloat16", "bfloat16", "float32"), 8, False, 1),  # pairs round differently
        (("int8", "int8", "int32"), 8, False, 1),  # no instruction
        (("uint8", "int8", "int32"), 6, False, 1),  # no whole groups
    ],
)
def test_neighbouring_products_that_one_instruction_adds(
    types: tuple[str, str, str], steps: int, reassociate: bool, neighbours: int
) -> None:
    func = narrow_product(*types, steps=steps)
    schedule = Schedule(func)
    (ref,) = reduction_blocks(schedule)
    tiling = plan_tiling(block_of(schedule, ref), DOT_TARGET, reassociate)
    assert isinstance(tiling, Tiling) and tiling.neighbours == neighbours
    assert apply_rule(ScheduleContraction(), schedule, ref, DOT_TARGET, reassociate)
    rng = np.random.default_rng(3)
    a, b, out = (np.zeros([extent.value for extent in buffer.shape], buffer.dtype.numpy) for buffer in func.buffers)
    a[...], b[...] = rng.integers(0, 100, a.shape), rng.integers(0, 100, b.shape)
    interpret(schedule.func, a, b, out)
    np.testing.assert_array_equal(out.astype("i8"), a.astype("i8") @ b.astype("i8"))
