"""Register tiles stay in registers, and code for other processors uses their vector instructions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.codegen.llvm import call_primfunc, compile_module
from tilewright.tensorir.dtype import FLOAT32
from tilewright.tensorir.expr import BinaryOp, Broadcast, Buffer, BufferLoad, Ramp, Var, as_expr, const
from tilewright.tensorir.stmt import Allocate, BufferStore, For, PrimFunc, Stmt, sequence
from tilewright.tensorir.target import Target


def tiled_matmul(rows: int, vectors: int, lanes: int, depth: int) -> PrimFunc:
    """C[rows, vectors*lanes] = A[rows, depth] B[depth, vectors*lanes]; accumulators in a register buffer, each
    statement reading its operands again, as the tensor passes leave an unrolled and vectorized tile."""
    width = vectors * lanes
    a = Buffer("a", (rows * depth,), FLOAT32)
    b = Buffer("b", (depth * width,), FLOAT32)
    c = Buffer("c", (rows * width,), FLOAT32)
    acc = Buffer("acc", (rows * width,), FLOAT32, "register")
    k = Var("k")

    def vector(base: object) -> Ramp:
        return Ramp(as_expr(base), as_expr(1), lanes)

    tiles = [(m, n, m * width + n * lanes) for m in range(rows) for n in range(vectors)]
    zero: list[Stmt] = [BufferStore(acc, const(0.0, FLOAT32.with_lanes(lanes)), (vector(at),)) for _, _, at in tiles]
    step: list[Stmt] = []
    for m, n, at in tiles:
        product = BinaryOp(
            "mul", Broadcast(BufferLoad(a, (k + m * depth,)), lanes), BufferLoad(b, (vector(k * width + n * lanes),))
        )
        step.append(BufferStore(acc, BinaryOp("add", BufferLoad(acc, (vector(at),)), product), (vector(at),)))
    store: list[Stmt] = [BufferStore(c, BufferLoad(acc, (vector(at),)), (vector(at),)) for _, _, at in tiles]
    loop = For(k, as_expr(0), as_expr(depth), "serial", sequence(*step))
    return PrimFunc("tile", (a, b, c), Allocate(acc, sequence(*zero, loop, *store)))


def hot_block(assembly: str) -> str:
    """The instructions of the loop: from its label to the jump back to it."""
    loops = re.findall(r"^(\.LBB\d+_\d+):((?:(?!^\.LBB).)*?\bj[a-z]+\s+\1\b)", assembly, re.MULTILINE | re.DOTALL)
    assert loops, assembly
    return max((body for _, body in loops), key=len)


@pytest.mark.parametrize(("rows", "vectors"), [(6, 4), (14, 2), (12, 2), (8, 3)])
def test_register_tile_has_no_stack_traffic_on_avx512(rows: int, vectors: int) -> None:
    target = Target("llvm", mcpu="x86-64-v4", num_threads=1)
    block = hot_block(compile_module([tiled_matmul(rows, vectors, 16, 64)], target).assembly)
    assert len(re.findall(r"vfmadd\w+ps.*zmm", block)) % (rows * vectors) == 0
    assert "vfmadd" in block
    assert "%rsp" not in block and "%rbp" not in block
    assert not re.search(r"vmovups\s+%zmm\d+, \(", block), "an accumulator is stored in the loop"


@pytest.mark.parametrize(
    ("mcpu", "mtriple", "lanes", "tile", "instruction"),
    [
        ("x86-64-v3", None, 8, (6, 2), r"vfmadd\w+ps.*ymm"),
        ("generic", "aarch64-unknown-linux-gnu", 4, (4, 4), r"fmla\s+v\d+\.4s"),
    ],
)
def test_other_processors_get_their_fused_multiply_add(
    mcpu: str, mtriple: str | None, lanes: int, tile: tuple[int, int], instruction: str
) -> None:
    target = Target("llvm", mcpu=mcpu, mtriple=mtriple, num_threads=1)
    assembly = compile_module([tiled_matmul(*tile, lanes, 64)], target).assembly
    assert len(re.findall(instruction, assembly)) >= tile[0] * tile[1]


def test_register_tile_is_right() -> None:
    func = tiled_matmul(6, 4, 16, 50)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 50)).astype(np.float32), rng.normal(size=(50, 64)).astype(np.float32)
    c = np.zeros((6, 64), np.float32)
    call_primfunc(compile_module([func], Target("llvm", num_threads=1)), func, a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
