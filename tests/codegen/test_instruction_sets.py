"""Kernels for AVX-512, AVX2, SSE4.2 and NEON: their hot loops work on whole vector registers and leave the stack
alone, and the results are right on those that this machine has."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import tilewright as tw
from tests.codegen.assembly import (
    INSTRUCTION_SETS,
    InstructionSet,
    hot_loop,
    innermost_loops,
    lowered_kernels,
    matching,
)
from tilewright import graphir as gi
from tilewright.codegen.llvm import compile_module
from tilewright.passes.schedule.facts import block_of
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.passes.schedule.tiling import plan_tiling
from tilewright.tensorir import tensor as te
from tilewright.tensorir.schedule import Schedule

EACH_SET = pytest.mark.parametrize("isa", INSTRUCTION_SETS, ids=lambda isa: isa.name)
RNG = np.random.default_rng(0)


def normal(*shape: int) -> npt.NDArray[np.float32]:
    return RNG.standard_normal(shape, np.float32)


def matmul(rows: int) -> gi.Function:
    a, b = gi.var("a", shape=(rows, 80)), gi.var("b", shape=(80, 128))
    return gi.Function([a, b], gi.matmul(a, b))


def dense() -> gi.Function:
    x = gi.var("x", shape=("n", 80))
    return gi.Function([x], gi.nn.relu(gi.nn.dense(x, gi.const(normal(96, 80)))))


def convolution(channels: int, groups: int, kernel: int = 3) -> gi.Function:
    x = gi.var("x", shape=(1, channels, 14, 14))
    weight = gi.const(normal(32, channels // groups, kernel, kernel))
    return gi.Function([x], gi.nn.relu(gi.nn.conv2d(x, weight, padding=(1, 1), groups=groups)))


def of_rows(formula: Callable[[gi.Expr], gi.Expr]) -> gi.Function:
    x = gi.var("x", shape=(40, 512))
    return gi.Function([x], formula(x))


CONTRACTIONS = {
    "matmul": lambda: matmul(96),  # the right operand is copied into panels
    "matmul_of_few_rows": lambda: matmul(8),  # it is not
    "dense": dense,
    "conv2d": lambda: convolution(32, 1),
    "conv2d_5x5": lambda: convolution(32, 1, 5),
    "conv2d_of_images": lambda: convolution(3, 1),
    "depthwise": lambda: convolution(32, 32),
}
OTHERS = {
    "softmax": lambda: of_rows(gi.nn.softmax),
    "sum_of_rows": lambda: of_rows(lambda x: gi.sum(x, axis=1)),
    "sum_of_columns": lambda: of_rows(lambda x: gi.sum(x, axis=0)),
    "layer_norm": lambda: of_rows(lambda x: gi.nn.layer_norm(x, gi.const(normal(512)), gi.const(normal(512)))),
    "exp": lambda: of_rows(lambda x: gi.exp(x) * gi.const(2.0, "float32")),
    "gelu": lambda: of_rows(gi.nn.gelu),
}


@functools.cache
def main_kernel(name: str, isa: InstructionSet) -> tuple[str, ...]:
    """Return the hot loop of the main kernel, the one with most arithmetic in a loop: several tests look at each."""
    # Winograd's transforms have other loops; the direct sum is what is looked at.
    level = 2 if name.startswith("conv2d") else 3
    kernels = lowered_kernels({**CONTRACTIONS, **OTHERS}[name](), isa.target, level)
    loops = [hot_loop(kernel, isa) for kernel in kernels if not kernel.name.startswith("layout_transform")]
    return tuple(max(loops, key=lambda loop: len(matching(isa.arithmetic, loop))))


@EACH_SET
@pytest.mark.parametrize("name", [*CONTRACTIONS, *OTHERS])
def test_hot_loop_works_on_whole_registers_and_not_on_the_stack(isa: InstructionSet, name: str) -> None:
    loop = main_kernel(name, isa)
    assert matching(isa.arithmetic, loop), loop
    assert not matching(isa.scalar, loop), loop
    assert not matching(isa.stack_store, loop), loop
    assert not matching(r"^(?:call|bl)q?\s", loop), loop


@EACH_SET
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_sums_of_products_use_the_instructions_of_the_set(isa: InstructionSet, name: str) -> None:
    loop = main_kernel(name, isa)
    for instruction in isa.multiply_add:
        # Several sums at a time, so that one does not wait for its own last step.
        assert len(matching(instruction, loop)) >= 6, loop


@EACH_SET
@pytest.mark.parametrize("rows", [1, 7, 64, 100])
@pytest.mark.parametrize("columns", [8, 64, 1000])
def test_tile_of_sums_fits_the_registers(isa: InstructionSet, rows: int, columns: int) -> None:
    a, b = te.placeholder((rows, 32), name="a"), te.placeholder((32, columns), name="b")
    k = te.reduce_axis(32, "k")
    result = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    schedule = Schedule(te.create_prim_func("f", [a, b], [result]))
    (ref,) = reduction_blocks(schedule)
    tiling = plan_tiling(block_of(schedule, ref), isa.target)
    assert tiling is not None
    product = 0 if isa.target.has_fma else 1
    assert tiling.rows * tiling.vectors + tiling.vectors + 1 + product <= isa.target.vector_registers


@EACH_SET
@pytest.mark.parametrize("name", [*CONTRACTIONS, *OTHERS])
def test_results_are_right(isa: InstructionSet, name: str) -> None:
    if not isa.target.is_runnable:
        pytest.skip(f"this machine does not run code for {isa.name}")
    function = {**CONTRACTIONS, **OTHERS}[name]()
    with tw.PassContext(opt_level=2):
        model = tw.build(function, target=isa.target)
    inputs = [normal(*(13 if not isinstance(size, int) else size for size in arg.shape)) for arg in function.params]
    expected = gi.evaluate(function, *inputs, dtype="float64")
    np.testing.assert_allclose(model(*inputs), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


CONVERSIONS = [("float16", "float32"), ("float32", "float16"), ("bfloat16", "float32"), ("float32", "bfloat16")]


@EACH_SET
@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_half_types_are_converted_in_vectors(isa: InstructionSet, source: str, target: str) -> None:
    x = gi.var("x", shape=(4096,), dtype=source)
    (kernel,) = lowered_kernels(gi.Function([x], gi.cast(x, dtype=target)), isa.target)
    loop = max(innermost_loops(compile_module([kernel], isa.target).assembly), key=len)
    assert len(loop) < 40, loop
    assert not matching(r"^(?:call|bl)q?\s", loop), loop
    if "float16" in (source, target) and isa.name != "sse4.2":
        assert matching(r"^(?:vcvtph2ps|vcvtps2ph)\s.*%[yz]mm|^fcvt[ln]\s+v\d+\.4", loop), loop


@EACH_SET
def test_every_float16_is_converted_right(isa: InstructionSet) -> None:
    if not isa.target.is_runnable:
        pytest.skip(f"this machine does not run code for {isa.name}")
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x, y = gi.var("x", shape=halves.shape, dtype="float16"), gi.var("y", shape=("n",), dtype="float32")
    wide = tw.build(gi.Function([x], gi.cast(x, dtype="float32")), target=isa.target)(halves)
    np.testing.assert_array_equal(wide, halves.astype("f4"))
    narrow = tw.build(gi.Function([y], gi.cast(y, dtype="float16")), target=isa.target)
    # Each float16, what lies half way to the next one, and what is a little more and less.
    finite = np.sort(halves[np.isfinite(halves)].astype("f8"))
    ties = ((finite[1:] + finite[:-1]) / 2).astype("f4")
    edges = np.array([65519.99, 65520.0, 65536.0, 1e30, np.inf, -np.inf, np.nan, 2.0**-25, 1e-40], "f4")
    values = np.concatenate([wide, ties, np.nextafter(ties, np.float32(9)), np.nextafter(ties, np.float32(-9)), edges])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    np.testing.assert_array_equal(narrow(values), expected)


def test_sets_in_turn_get_the_code_that_each_gets_alone() -> None:
    """Modules for equal targets are compiled by one of LLVM's machines, which no other module changes."""
    kernels = {isa.name: lowered_kernels(dense(), isa.target) for isa in INSTRUCTION_SETS}
    rounds = [
        [compile_module(kernels[isa.name], isa.target).object_bytes for isa in INSTRUCTION_SETS] for _ in range(2)
    ]
    assert rounds[0] == rounds[1]
    assert len(set(rounds[0])) == len(INSTRUCTION_SETS)
