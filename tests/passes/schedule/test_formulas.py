"""Formulas of an element: one nest, parallel outside, of vectors as long as a register inside."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.schedule.kernels import chain, extents, loop_kinds, loops_of, outermost, run, scheduled
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.lower.parts import assemble
from tilewright.passes.schedule import CollapseDims, ScheduleKernels
from tilewright.tensorir import For, parse, verify
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import call
from tilewright.tensorir.functor import uses_var, walk
from tilewright.tensorir.stmt import Block
from tilewright.tensorir.target import Target

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 3, 17), (4, 1, 8)])
def test_elementwise_chain_is_one_nest(shape: tuple[int, ...]) -> None:
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape[-1:], name="y")
    scaled = te.compute(shape, lambda *i: x[i] * 2.0, name="scaled")
    added = te.compute(shape, lambda *i: scaled[i] + y[i[-1]], name="added")
    func, _ = scheduled(te.create_prim_func("chain", [x, y], [te.compute(shape, lambda *i: call("tanh", added[i]))]))
    a, b = RNG.standard_normal(shape).astype("f4"), RNG.standard_normal(shape[-1:]).astype("f4")
    np.testing.assert_allclose(run(func, [a, b], shape), np.tanh(a.astype("f8") * 2 + b), rtol=1e-5, atol=1e-6)
    assert str(func).count("block ") == 1


@pytest.mark.parametrize("shape", [(4096, 4096), (128, 80), (7, 33), (8, 55, 55, 16), (3, 27, 27, 16), (2, 5000, 3)])
def test_formulas_of_an_element_run_in_parallel_and_in_vectors(shape: tuple[int, ...]) -> None:
    x, scale = te.placeholder(shape, name="x"), te.placeholder(shape[:1], name="scale")
    whole = te.create_prim_func("chain", [x], [te.compute(shape, lambda *i: x[i] * 2.0 + 1.0)])
    by_row = te.create_prim_func("scaled", [x, scale], [te.compute(shape, lambda *i: x[i] * scale[i[0]])])
    for func in (whole, by_row):
        assert {"parallel", "vectorized"} <= loop_kinds(scheduled(func)[0])


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


def test_lanes_find_their_place_without_dividing_by_unknown_lengths() -> None:
    x = gi.var("x", shape=("n", "h", "w", 16))
    p = gi.var("p", x.type)
    around = gi.pad(p, pad_width=((0, 0), (2, 2), (2, 2), (0, 0)))
    group = gi.Function([p], around, attrs={"Primitive": True, "kind": "opaque", "in_place": (0,)})
    kernel = assemble(group, "border")
    with Target("llvm", mcpu="x86-64-v4"):
        mod = ScheduleKernels()(CollapseDims()(IRModule({"border": kernel})))
    func = mod["border"]
    verify(func)
    lanes = {node.var for node in walk(func.body) if isinstance(node, For) and node.kind == "vectorized"}
    assert lanes
    blocks = [node for node in walk(func.body) if isinstance(node, Block)]
    assert len(blocks) == 4
    for block in blocks:
        with_lanes = [item for item in block.iters if uses_var(item.value, lanes)]
        assert [str(item.extent) for item in with_lanes] == ["16"]
