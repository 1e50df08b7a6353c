"""TransposeTiles: transpose tiles in registers instead of loops over rows and columns."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import codegen
from tilewright import graphir as gi
from tilewright.codegen.llvm import call_primfunc
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.pipelines import STAGES
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.tensor import TransposeTiles
from tilewright.tensorir import interpret, parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Var, call
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import Allocate, For, PrimFunc
from tilewright.tensorir.target import Target

BEFORE = """
primfunc @f(A: Buffer[(2, 2), float32], B: Buffer[(2, 2), float32]) attrs {"num_outputs": 1} {
  for i in range(2) annotations {"transpose": True} {
    for j in vectorized(2) {
      B[i, j] = A[j, i] * 2.0
    }
  }
}
"""
ANNOTATION = ' annotations {"transpose": True}'
AFTER = """
primfunc @f(A: Buffer[(2, 2), float32], B: Buffer[(2, 2), float32]) attrs {"num_outputs": 1} {
  allocate A_tile: Buffer[(2, 2), float32, register]
  for j in unrolled(2) {
    for i in vectorized(2) {
      A_tile[j, i] = A[j, i]
    }
  }
  {
    let A_0: float32x2 = A_tile[0, ramp(0, 1, 2)]
    let A_1: float32x2 = A_tile[1, ramp(0, 1, 2)]
    let A_2: float32x2 = interleave_low(A_0, A_1)
    let A_3: float32x2 = interleave_high(A_0, A_1)
    A_tile[0, ramp(0, 1, 2)] = A_2
    A_tile[1, ramp(0, 1, 2)] = A_3
  }
  for i_1 in unrolled(2) {
    for j_1 in vectorized(2) {
      B[i_1, j_1] = A_tile[i_1, j_1] * 2.0
    }
  }
}
"""


def exchanged(func: PrimFunc) -> PrimFunc:
    return TransposeTiles()(IRModule({func.name: func}))[func.name]


def test_rows_become_columns_by_perfect_shuffles(rewrites):
    rewrites(exchanged, BEFORE, AFTER)


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("no annotation", ANNOTATION, ""),
        ("a part of a tile", "i in range(2)", "i in range(1)"),
        ("columns that are no vector", "j in vectorized(2)", "j in range(2)"),
        ("an operand with steps", "A[j, i]", "A[j, 1 - i]"),
        ("an operand along the columns", "A[j, i]", "A[i, j]"),
        ("the result itself", "A[j, i]", "A[j, i] + B[j, i]"),
    ],
)
def test_other_loops_stay(rewrites, what, old, new):
    rewrites(exchanged, BEFORE.replace(old, new), BEFORE.replace(old, new).replace(ANNOTATION, ""))


def test_of_several_operands_the_result_is_exchanged(rewrites):
    several = "A[j, i] * 2.0", "A[j, i] * C[j] + D[j, i]"
    buffers = "C: Buffer[(2,), float32], D: Buffer[(2, 2), float32], B: "
    before, after = (text.replace("B: ", buffers) for text in (BEFORE.replace(*several), AFTER))
    after = after.replace("A_tile[j, i] = A[j, i]", "A_tile[j, i] = A[j, i] * C[j] + D[j, i]")
    after = after.replace("A_tile[i_1, j_1] * 2.0", "A_tile[i_1, j_1]").replace("A_", "B_")
    rewrites(exchanged, before, after)


def test_each_of_several_operands_is_exchanged_beside_one_that_is_not(rewrites):
    before = BEFORE.replace("A[j, i] * 2.0", "A[j, i] * A[j, i + 1] + C[i, j]")
    before = before.replace("A: Buffer[(2, 2)", "C: Buffer[(2, 2), float32], A: Buffer[(2, 3)")
    after = exchanged(parse(before))
    assert sum(isinstance(node, Allocate) for node in walk(after.body)) == 2


def test_a_remark_says_why_an_annotated_loop_stays():
    with PassContext() as ctx:
        exchanged(parse(BEFORE.replace("A[j, i]", "A[i, j]")))
    (said,) = ctx.remarks
    assert said.kind == "missed" and "no operand is contiguous along the rows" in said.message


def test_an_operand_whose_rows_lie_across_two_dimensions_is_exchanged(rewrites):
    """Eight neighbouring pixels of an image of 12 columns: its rows are neighbours in memory too."""
    x = te.placeholder((8, 4, 12), name="x")
    func = te.create_prim_func("f", [x], [te.compute((4, 12, 8), lambda h, w, c: x[c, h, w])])
    with Target("llvm", mcpu="x86-64-v3"), PassContext() as ctx:
        scheduled = ScheduleKernels()(IRModule({"f": func}))
        after = TransposeTiles()(tw.passes.tensor.LowerBlocks()(scheduled))["f"]
    assert any("transposed" in remark.message for remark in ctx.remarks)
    assert [node.extent.value for node in walk(after.body) if isinstance(node, For) and node.kind == "vectorized"] == [
        8,
        8,
    ]


def transposed(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(shape) * 100).astype(tw.tensorir.dtype.as_dtype(dtype).numpy)
    return x, np.ascontiguousarray(x.transpose(axes))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "bool"])
@pytest.mark.parametrize(
    ("shape", "axes"), [((48, 37), (1, 0)), ((3, 17, 33), (0, 2, 1)), ((5, 16, 4, 20), (3, 1, 0, 2))]
)
def test_compiled_transposes_equal_numpy(shape, axes, dtype):
    x, expected = transposed(shape, axes, dtype)
    var = gi.var("x", shape=shape, dtype=dtype)
    model = tw.build(IRModule.from_expr(gi.Function([var], gi.transpose(var, axes))))
    np.testing.assert_array_equal(model(x), expected)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 50), (16, 16), (40, 23)])
def test_one_transpose_serves_all_sizes(sizes):
    var = gi.var("x", shape=("m", 3, "n"))
    x = np.random.default_rng(6).standard_normal((sizes[0], 3, sizes[1])).astype(np.float32)
    for target in ("llvm", "numba"):
        model = tw.build(IRModule.from_expr(gi.Function([var], gi.transpose(var, (2, 1, 0)) * 2.0)), target=target)
        np.testing.assert_array_equal(model(x), x.transpose(2, 1, 0) * 2)


@pytest.mark.parametrize("channels", [16, 24, 40])
@pytest.mark.parametrize("size", [(7, 7), (9, 16), (28, 28)])
def test_layouts_with_blocks_of_channels_and_back(channels, size):
    x = np.random.default_rng(7).standard_normal((2, channels, *size)).astype(np.float32)
    var = gi.var("x", shape=x.shape)
    there = gi.layout_transform(var, src_layout="NCHW", dst_layout="NCHW16c")
    back = gi.layout_transform(there * 3.0, src_layout="NCHW16c", dst_layout="NCHW", extents={"C": channels})
    with PassContext(opt_level=1):  # each by itself
        model = tw.build(IRModule.from_expr(gi.Function([var], back)))
    np.testing.assert_array_equal(model(x), x * np.float32(3))


@pytest.mark.parametrize(("channels", "size"), [(16, 8), (32, 8), (16, 12), (16, 3)])
def test_pixels_that_take_turns_come_from_blocks_of_channels(channels, size):
    """Rows of a tile come from two groups of channels in turns; the height lies between the tile's dimensions."""
    x = gi.var("x", shape=(2, 4 * channels // 8, size, size, 8))
    plain = gi.layout_transform(x, src_layout="NCHW8c", dst_layout="NCHW")
    call = gi.nn.interleave(plain, strides=(2, 2))
    blocked = call.op.in_layout([plain], [x], call.attrs, "NCHW", "NCHW8c")
    function = gi.Function([x], gi.layout_transform(blocked, src_layout="NCHW8c", dst_layout="NCHW"))
    value = np.random.default_rng(3).standard_normal((2, 4 * channels // 8, size, size, 8)).astype(np.float32)
    with PassContext(opt_level=3) as ctx:
        found = tw.build(function, target=Target("llvm", mcpu="x86-64-v3", num_threads=1))(value)
    places = value.transpose(0, 1, 4, 2, 3).reshape(2, 2, 2, channels, size, size)
    np.testing.assert_array_equal(found, places.transpose(0, 3, 4, 1, 5, 2).reshape(2, channels, 2 * size, 2 * size))
    remarks = [remark.message for remark in ctx.remarks]
    assert any("transposed" in message for message in remarks), remarks


def test_assembly_of_a_transpose_holds_no_gathers():
    var, target = gi.var("x", shape=(64, 64)), Target("llvm", mcpu="x86-64-v4")
    mod = IRModule.from_expr(gi.Function([var], gi.transpose(var)))
    with target:
        for pipeline in STAGES.values():
            mod = pipeline(target)(mod)
    # Code for a processor that this machine may not have: it is read, and not run.
    text = codegen.llvm.compile_module(list(mod.functions.values()), target).assembly
    assert "gather" not in text
    assert "vperm" in text or "vunpck" in text


def test_interpreter_and_code_interleave_alike():
    text = """
primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32], C: Buffer[(16,), float32]) attrs {"num_outputs": 1} {
  C[ramp(0, 1, 8)] = interleave_low(A[ramp(0, 1, 8)], B[ramp(0, 1, 8)])
  C[ramp(8, 1, 8)] = interleave_high(A[ramp(0, 1, 8)], B[ramp(0, 1, 8)]) + broadcast(0.0, 8)
}
"""
    a, b = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32) + 100
    func, expected = parse(text), np.stack([a, b], 1).reshape(-1)
    llvm, numba = Target("llvm"), Target("numba")

    def run(call):
        out = np.zeros(16, np.float32)
        call(func, a, b, out)
        np.testing.assert_array_equal(out, expected)

    run(interpret)
    run(lambda func, *args: call_primfunc(codegen.llvm.compile_module([func], llvm), func, *args))
    run(lambda func, *args: codegen.numba_.compile_module([func], numba).call(func.name, *args))


def test_only_vectors_of_one_type_are_interleaved():
    vector, other = Var("a", "float32x4"), Var("b", "float32x8")
    with pytest.raises(TypeError, match="interleave_low: expected even vector arguments of one type"):
        call("interleave_low", vector, other)
