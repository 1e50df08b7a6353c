"""Schedules as kernels use them compute what the function computed, on odd sizes and symbolic dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import BufferLoad, Expr, Select, Var, all_of, call, maximum, minimum, select
from tilewright.tensorir.functor import walk
from tilewright.tensorir.guards import if_then_else
from tilewright.tensorir.interpreter import interpret
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import Allocate, Block, PrimFunc

Make = Callable[..., PrimFunc]


def symbolic(name: str) -> Var:
    return Var(name)


def schedule_matmul(func: PrimFunc, pack: bool) -> Schedule:
    """Register tiles of 6 x 64, epilogue in the tile, B in packed panels."""
    sch = Schedule(func)
    c, d, e = (sch.get_block(name) for name in "CDE")
    sch.compute_inline(d)
    i, j = sch.get_loops(e)
    io, ii = sch.split(i, [None, 6])
    jo, ji = sch.split(j, [None, 64])
    sch.reorder(jo, io, ii, ji)
    sch.compute_at(c, io)
    ci, cj, ck = sch.get_loops(c)[-3:]
    sch.reorder(ck, ci, cj)
    jv, jl = sch.split(cj, [4, 16])
    sch.vectorize(jl)
    sch.unroll(jv)
    sch.unroll(ci)
    sch.set_scope(c, 0, "register")
    sch.decompose_reduction(c, ck)
    if pack:
        packed = sch.cache_read(c, "B", "arena")
        sch.transform_layout(packed, 0, lambda k, j: (j // 64, k, j % 64), pad_value=0.0)
        sch.parallel(sch.get_loops(packed)[0])
    sch.parallel(jo)
    return sch


@pytest.mark.parametrize("pack", [False, True])
def test_matmul_with_epilogue_on_odd_sizes(same: Callable[..., None], matmul_bias_relu: Make, pack: bool) -> None:
    func = matmul_bias_relu(7, 70, 5)
    same(func, schedule_matmul(func, pack))


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (lambda i, j: (i * 8 + j + 2,), (31,)),  # gaps between rows and in front of them
        (lambda i, j: (j, i + 1), (5, 5)),
        (lambda i, j: (3 - i, j // 2, j % 2), (4, 3, 2)),
    ],
)
def test_what_holds_no_element_of_a_layout_holds_its_padding(
    same: Callable[..., None], layout: Callable[[Expr, Expr], tuple[Expr, ...]], shape: tuple[int, ...]
) -> None:
    x = te.placeholder((4, 5), name="x")
    t = te.compute((4, 5), lambda i, j: x[i, j] + 1.0, name="t")
    func = te.create_prim_func("f", [x], [te.compute((4, 5), lambda i, j: t[i, j] * 2.0, name="y")])
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("t"), 0, layout, pad_value=7.0)
    same(func, sch)
    allocation = sch.func.body
    assert isinstance(allocation, Allocate)
    changed = PrimFunc("f", (*func.params, allocation.buffer), allocation.body)
    found, expected = np.zeros(shape, np.float32), np.full(shape, 7.0, np.float32)
    values = np.arange(20, dtype=np.float32).reshape(4, 5)
    interpret(changed, values, np.zeros((4, 5), np.float32), found)
    for i, j in itertools.product(range(4), range(5)):
        expected[layout(i, j)] = values[i, j] + 1.0  # type: ignore[arg-type, index]
    np.testing.assert_array_equal(found, expected)


def test_matmul_with_symbolic_rows(same: Callable[..., None], matmul_bias_relu: Make) -> None:
    func = matmul_bias_relu(symbolic("m"), 66, 3)
    sch = schedule_matmul(func, True)
    for m in (1, 6, 8):
        same(func, sch, m=m)


def test_matmul_with_all_dimensions_symbolic(same: Callable[..., None], matmul_bias_relu: Make) -> None:
    func = matmul_bias_relu(symbolic("m"), symbolic("n"), symbolic("k"))
    sch = schedule_matmul(func, True)
    same(func, sch, m=7, n=65, k=4)


def test_epilogue_moves_into_the_tiles_of_the_matmul(same: Callable[..., None], matmul_bias_relu: Make) -> None:
    func = matmul_bias_relu(symbolic("m"), 66, 3)
    sch = Schedule(func)
    c, d, e = (sch.get_block(name) for name in "CDE")
    sch.reverse_compute_inline(e)
    i, j, k = sch.get_loops(c)
    io, ii = sch.split(i, [None, 6])
    jo, ji = sch.split(j, [None, 64])
    sch.reorder(jo, io, k, ii, ji)
    accumulator = sch.cache_write(c, 0, "register")
    sch.compute_inline(accumulator)
    sch.reverse_compute_at(d, io)
    sch.parallel(jo)
    for m in (1, 6, 8):
        same(func, sch, m=m)


def test_written_back_accumulator(same: Callable[..., None]) -> None:
    a = te.placeholder((9, 5), name="A")
    b = te.placeholder((5, 20), name="B")
    step = te.reduce_axis(5, "k")
    func = te.create_prim_func(
        "mm", [a, b], [te.compute((9, 20), lambda i, j: te.sum(a[i, step] * b[step, j], axis=step), name="C")]
    )
    sch = Schedule(func)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    io, ii = sch.split(i, [None, 4])
    jo, ji = sch.split(j, [None, 8])
    sch.reorder(io, jo, k, ii, ji)
    back = sch.cache_write(c, 0, "register")
    sch.reverse_compute_at(back, jo)
    sch.vectorize(sch.get_loops(back)[-1])
    sch.parallel(io)
    same(func, sch)


def test_loops_of_one_iteration_are_no_part_of_a_fused_index(same: Callable[..., None]) -> None:
    x = te.placeholder((1, 3, 1, 7), name="x")
    y = te.compute((1, 3, 1, 7), lambda *i: x[i] * 2.0, name="y")
    func = te.create_prim_func("scale", [x], [y])
    sch = Schedule(func)
    first, *rest = sch.get_loops(sch.get_block("y"))
    sch.fuse(first, *rest[:2])
    block = next(node for node in walk(sch.func.body) if isinstance(node, Block))
    assert [str(item.value) for item in block.iters] == ["0", "i0_i1_i2_fused", "0", "i3"]
    same(func, sch)


def test_elementwise_chain_becomes_one_parallel_vector_loop(same: Callable[..., None]) -> None:
    n = symbolic("n")
    shape = (n, 3, 7)
    x = te.placeholder(shape, name="x")
    y = te.compute(shape, lambda *i: x[i] * 2.0, name="y")
    z = te.compute(shape, lambda *i: call("exp", y[i]) + y[i], name="z")
    w = te.compute(shape, lambda *i: z[i] + x[i], name="w")
    func = te.create_prim_func("chain", [x], [w])
    sch = Schedule(func)
    sch.compute_inline(sch.get_block("y"))
    sch.compute_inline(sch.get_block("z"))
    flat = sch.fuse(*sch.get_loops(sch.get_block("w")))
    outer, rest = sch.split(flat, [None, 32])
    unrolled, lanes = sch.split(rest, [None, 16])
    sch.parallel(outer)
    sch.vectorize(lanes)
    sch.unroll(unrolled)
    assert len(sch.get_blocks()) == 1
    for size in (0, 1, 5):
        same(func, sch, n=size)


def softmax(rows: object, cols: object) -> PrimFunc:
    x = te.placeholder((rows, cols), name="x")
    k, k2 = te.reduce_axis(cols, "k"), te.reduce_axis(cols, "k")
    top = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((rows, cols), lambda i, j: call("exp", x[i, j] - top[i]), name="e")
    total = te.compute((rows,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    out = te.compute((rows, cols), lambda i, j: e[i, j] / total[i], name="out")
    return te.create_prim_func("softmax", [x], [out])


@pytest.mark.parametrize("cols", [5, 37, "cols"])
def test_softmax_row_by_row_with_vector_reductions(same: Callable[..., None], cols: object) -> None:
    func = softmax(symbolic("rows"), symbolic("cols") if cols == "cols" else cols)
    sch = Schedule(func)
    row = sch.get_loops(sch.get_block("out"))[0]
    for name in ("total", "e", "top"):
        sch.compute_at(sch.get_block(name), row)
    for name in ("top", "total"):
        block = sch.get_block(name)
        _, lane = sch.split(sch.get_loops(block)[-1], [None, 16])
        partial = sch.rfactor(lane, reassociate=True)
        sch.vectorize(sch.get_loops(partial)[-1])
    _, lane = sch.split(sch.get_loops(sch.get_block("out"))[-1], [None, 16])
    sch.vectorize(lane)
    sch.parallel(row)
    same(func, sch, tolerance=1e-6, rows=3, cols=19)


def padded_convolution() -> PrimFunc:
    x = te.placeholder((3, 9, 10), name="x")
    w = te.placeholder((4, 3, 3, 3), name="w")

    def pad(c: Var, h: Var, v: Var) -> object:
        inside = all_of(h >= 1, h < 10, v >= 1, v < 11)
        return select(inside, x[c, clamp(h - 1, 9), clamp(v - 1, 10)], 0.0)

    padded = te.compute((3, 11, 12), pad, name="pad")
    c, r, s = te.reduce_axis(3, "c"), te.reduce_axis(3, "r"), te.reduce_axis(3, "s")
    y = te.compute(
        (4, 9, 10),
        lambda o, h, v: te.sum(padded[c, h + r, v + s] * w[o, c, r, s], axis=[c, r, s]),
        name="y",
    )
    return te.create_prim_func("conv", [x, w], [y])


def clamp(index: object, extent: int) -> object:
    return maximum(minimum(index, extent - 1), 0)


def test_padding_is_computed_for_each_tile_of_a_convolution(same: Callable[..., None]) -> None:
    func = padded_convolution()
    sch = Schedule(func)
    y = sch.get_block("y")
    o, h, v, c, r, s = sch.get_loops(y)
    ho, hi = sch.split(h, [None, 4])
    sch.reorder(ho, o, hi, v, c, r, s)
    sch.compute_at(sch.get_block("pad"), ho)
    sch.parallel(ho)
    same(func, sch)


def test_padding_is_inlined_into_a_convolution(same: Callable[..., None]) -> None:
    func = padded_convolution()
    sch = Schedule(func)
    sch.compute_inline(sch.get_block("pad"))
    o, h, v, c, r, s = sch.get_loops(sch.get_block("y"))
    sch.reorder(o, h, c, r, s, v)
    sch.vectorize(v)
    sch.decompose_reduction(sch.get_block("y"), c)
    same(func, sch)


@pytest.mark.parametrize("reverse", [False, True])
def test_inlined_pieces_are_chosen_once(same: Callable[..., None], reverse: bool) -> None:
    w, x, y, z = (te.placeholder((rows, 5), name=name) for rows, name in ((2, "w"), (3, "x"), (4, "y"), (1, "z")))

    def inner_row(i: Var, j: Var) -> Expr:
        return if_then_else(i < 2, w[i, j], x[i - 2, j])

    def row(i: Var, j: Var) -> Expr:
        return if_then_else(i < 4, y[i, j], if_then_else(i < 9, middle[i - 4, j], z[i - 9, j]))

    inner = te.compute((5, 5), inner_row, name="inner")
    middle = te.compute((5, 5), lambda i, j: call("exp", inner[i, j]), name="middle")
    func = te.create_prim_func("joined", [w, x, y, z], [te.compute((10, 5), row, name="out")])
    sch = Schedule(func)
    if reverse:
        sch.reverse_compute_inline(sch.get_block("middle"))
        sch.compute_inline(sch.get_block("inner"))
    else:
        sch.compute_inline(sch.get_block("inner"))
        sch.compute_inline(sch.get_block("middle"))
    found = [str(node) for node in walk(sch.func.body) if isinstance(node, (Select, BufferLoad))]
    assert [text for text in found if not text.startswith("select")] == [
        "y[vi, vj where vi < 4]",
        "w[vi - 4, vj where vi >= 4 and vi < 9 and vi - 4 < 2]",
        "x[vi - 4 - 2, vj where vi >= 4 and vi < 9 and vi - 4 >= 2]",
        "z[vi - 9, vj where vi >= 4 and vi >= 9]",
    ]
    assert len(found) == 7  # two choices of the outer pieces, one of the inner ones
    same(func, sch)


def test_pooling_and_transposition(same: Callable[..., None]) -> None:
    x = te.placeholder((5, 9, 4), name="x")
    t = te.compute((4, 5, 9), lambda c, h, w: x[h, w, c], name="t")
    r, s = te.reduce_axis(3, "r"), te.reduce_axis(3, "s")
    pooled = te.compute((4, 2, 4), lambda c, h, w: te.max(t[c, h * 2 + r, w * 2 + s], axis=[r, s]), name="pooled")
    out = te.compute((4, 2, 4), lambda c, h, w: pooled[c, h, w] + 1.0, name="out")
    func = te.create_prim_func("pool", [x], [out])
    sch = Schedule(func)
    pool = sch.get_block("pooled")
    c, h, w, r_loop, s_loop = sch.get_loops(pool)
    sch.reorder(h, w, s_loop, r_loop, c)  # max: the order of its steps is free
    sch.reverse_compute_at(sch.get_block("out"), h)
    sch.compute_at(sch.get_block("t"), h)
    sch.parallel(h)
    same(func, sch)


def test_argmax_over_rows(same: Callable[..., None]) -> None:
    x = te.placeholder((6, 11), name="x")
    k = te.reduce_axis(11, "k")
    best = te.compute((6,), lambda i: te.argmax(x[i, k], axis=k), name="best")
    out = te.compute((6,), lambda i: best[i] + 1, name="out")
    func = te.create_prim_func("argmax", [x], [out])
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops(sch.get_block("out"))[0], [None, 4])
    sch.compute_at(sch.get_block("best"), outer)
    sch.decompose_reduction(sch.get_block("best"), sch.get_loops(sch.get_block("best"))[-1])
    sch.parallel(outer)
    same(func, sch)


def test_replay_on_other_extents(same: Callable[..., None], matmul_bias_relu: Make) -> None:
    sch = schedule_matmul(matmul_bias_relu(7, 70, 5), True)
    other = matmul_bias_relu(12, 64, 2)
    again = Schedule(other)
    sch.trace.apply(again)
    same(other, again)
