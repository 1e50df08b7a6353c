"""Loads under conditions that are the same in all lanes: an address is chosen, and nothing else is read."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.test_llvm_memory import GuardedPages, execute, values
from tilewright.codegen.llvm import emit_llvm_ir
from tilewright.tensorir import interpret, parse
from tilewright.tensorir.dtype import TENSOR_DTYPES, DataType
from tilewright.tensorir.expr import Broadcast, Buffer, BufferLoad, Ramp, Var, as_expr
from tilewright.tensorir.stmt import BufferStore, PrimFunc
from tilewright.tensorir.target import Target

PADDED = """
primfunc @f(A: Buffer[(48,), float32], B: Buffer[(48,), float32]) attrs {"num_outputs": 1} {
  for i in range(6) {
    BODY
  }
}
"""


ROW = "B[ramp(i * 8, 1, 8)] = "
BEFORE = "A[ramp(i * 8 - 16, 1, 8) where"
FEW = "ramp(0, 1, 8) < broadcast(5, 8)"


def splat(value: object) -> str:
    return f"broadcast({value}, 8)"


@pytest.mark.parametrize(
    "body",
    [
        "B[i] = A[i where i >= 2]",
        "B[i] = select(i >= 2, A[i - 2 where i >= 2], 3.5)",
        f"{ROW}{BEFORE} {splat('i >= 2 and i < 5')}]",
        f"{ROW}select(i >= 2, {BEFORE} {splat('i >= 2')}], {splat('float32(-inf)')})",
        f"{ROW}select(i >= 2, {BEFORE} {splat('i >= 2')}], {splat(-0.0)})",
        f"{ROW}{splat('A[i - 2 where i >= 2]')}",
        f"{ROW}select({splat('i >= 2')}, A[{splat('i - 2')} where {splat('i >= 2')}], {splat(1.0)})",
        # A part of the lanes as well: the load has a mask; with another constant than zero, lanes are selected.
        f"{ROW}{BEFORE} {splat('i >= 2')} and {FEW}]",
        f"{ROW}select({splat('i >= 2')} and {FEW}, {BEFORE} {splat('i >= 2')} and {FEW}], {splat(2.0)})",
        # One condition implies the other, but they are not the same.
        f"{ROW}select(i >= 1, {BEFORE} {splat('i >= 2')}], {splat(0.5)})",
        f"{ROW}select(i >= 3, {BEFORE} {splat('i >= 2')}], {splat(0.5)})",
        f"{ROW}select(i >= 3, {BEFORE} {splat('i >= 2')}], {splat(0.0)})",
        f"{ROW}select(i >= 2, {BEFORE} {splat('i >= 2 and i < 5')}], {splat(0.5)})",
        # No single vector is read.
        f"{ROW}A[ramp(i - 2, 2, 8) where {splat('i >= 2')}]",
        f"{ROW}A[ramp(i - 2, 5, 8) where {splat('i >= 2')}]",
    ],
)
def test_values_are_those_of_the_interpreter(body: str) -> None:
    func = parse(PADDED.replace("BODY", body))
    x = np.random.default_rng(len(body)).standard_normal(48).astype(np.float32)
    found, expected = np.full(48, 9, np.float32), np.full(48, 9, np.float32)
    interpret(func, x, expected)
    execute(func, x, found)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("body", "masked"),
    [
        ("B[i] = A[i where i >= 2]", False),
        (f"{ROW}select(i >= 2, {BEFORE} {splat('i >= 2')}], {splat(0.0)})", False),
        (f"{ROW}select(i >= 2, {BEFORE} {splat('i >= 2')}], {splat(2.0)})", False),
        (f"{ROW}{BEFORE} {splat('i >= 2')} and {FEW}]", True),
    ],
)
def test_a_condition_chooses_an_address(body: str, masked: bool) -> None:
    code = emit_llvm_ir([parse(PADDED.replace("BODY", body))], Target("llvm", num_threads=1))
    assert code.count(" select ") == code.count("select i1") == 1
    assert ("masked.load" in code) == masked


@pytest.mark.parametrize("name", TENSOR_DTYPES)
@pytest.mark.parametrize("lanes", [1, 8])
def test_memory_is_not_read_where_the_condition_does_not_hold(name: str, lanes: int) -> None:
    dtype = DataType(name)
    source, result, n = Buffer("x", (8,), dtype), Buffer("y", (lanes,), dtype), Var("n")
    index = n if lanes == 1 else Ramp(n, as_expr(1), lanes)
    where = as_expr(0) if lanes == 1 else Ramp(as_expr(0), as_expr(1), lanes)
    guard = n < 1 if lanes == 1 else Broadcast(n < 1, lanes)
    func = PrimFunc("f", (source, result, n), BufferStore(result, BufferLoad(source, (index,), guard), (where,)))
    pages = GuardedPages()
    x = pages.at_end(8, dtype)
    x[:] = np.where(values(dtype, 8) == 0, 1, values(dtype, 8)).astype(dtype.numpy)
    for first in (0, 1 << 20):  # far behind the end
        y = np.ones(lanes, dtype.numpy)
        execute(func, x, y, first)
        assert (y == (x[:lanes] if first == 0 else np.zeros(lanes, dtype.numpy))).all()
