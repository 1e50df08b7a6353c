"""InterleaveStores: write vectors whose elements alternate in memory as one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen import numba_
from tilewright.codegen.llvm import call_primfunc, compile_module
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.tensor.interleave_stores import InterleaveStores, interleave_stores
from tilewright.tensorir import interpret, parse
from tilewright.tensorir.expr import Ramp
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

TURNS = """
primfunc @f(A: Buffer[(64,), KIND], B: Buffer[(64,), KIND]) attrs {"num_outputs": 1} {
  for i in range(2) {
    for g in range(COUNT) annotations {"interleave": True} {
      B[ramp(i * SIZE + g, COUNT, 8)] = A[ramp(g * 16 + i * 8, 1, 8)]
    }
  }
}
"""
AS_ONE = """
primfunc @f(A: Buffer[(64,), uint16], B: Buffer[(64,), uint16]) attrs {"num_outputs": 1} {
  for i in range(2) {
    B[ramp(i * 16, 1, 16)] = reinterpret(
      uint32x8(A[ramp(i * 8, 1, 8)]) | uint32x8(A[ramp(i * 8 + 16, 1, 8)]) << broadcast(uint32(16), 8),
      dtype=uint16x16
    )
  }
}
"""


def turns(kind: str, count: int) -> str:
    return TURNS.replace("KIND", kind).replace("COUNT", str(count)).replace("SIZE", str(8 * count))


def test_two_vectors_are_written_as_one(rewrites):
    rewrites(interleave_stores, turns("uint16", 2), AS_ONE)


@pytest.mark.parametrize(("kind", "count"), [("int8", 2), ("uint8", 4), ("int8", 4), ("bfloat16", 2), ("float16", 4)])
def test_elements_come_to_their_places(kind: str, count: int):
    before = parse(turns(kind, count))
    after = interleave_stores(before)
    assert "reinterpret" in str(after)
    dtype = np.dtype(getattr(ml_dtypes, kind, None) or kind)
    a = (np.arange(64) - (0 if kind.startswith("u") else 32)).astype(dtype)
    expected = np.zeros(64, dtype)
    expected[: 16 * count] = a[: 16 * count].reshape(count, 16).T.reshape(-1)
    for func in (before, after):
        found = np.zeros(64, dtype)
        interpret(func, a, found)
        np.testing.assert_array_equal(found, expected)
    found = np.zeros(64, dtype)
    call_primfunc(compile_module([after], Target("llvm", num_threads=1)), after, a, found)
    np.testing.assert_array_equal(found, expected)


def in_turns(kind: str, count: int) -> tuple[PrimFunc, np.ndarray, np.ndarray]:
    """Return a function that interleaves vectors, its argument and its result."""
    a, expected = np.arange(256).astype(kind), np.zeros(256, kind)
    rows = [a[number * 16 : number * 16 + 16] for number in range(count)]
    expected[: 16 * count] = np.stack(rows, axis=1).reshape(-1)
    return parse(turns(kind, count).replace("(64,)", "(256,)")), a, expected


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8, 15])
@pytest.mark.parametrize("kind", ["float32", "int64", "uint8", "float16"])
def test_vectors_are_interleaved_in_registers(kind: str, count: int):
    before, a, expected = in_turns(kind, count)
    after = interleave_stores(before)
    strides = [node.stride.value for node in walk(after) if isinstance(node, Ramp)]
    assert strides and set(strides) == {1}
    for func in (before, after):
        found = np.zeros(256, kind)
        interpret(func, a, found)
        np.testing.assert_array_equal(found, expected)
    found = np.zeros(256, kind)
    call_primfunc(compile_module([after], Target("llvm", num_threads=1)), after, a, found)
    np.testing.assert_array_equal(found, expected)


def test_numba_interleaves_an_odd_number_twice():
    before, a, expected = in_turns("float32", 6)
    after, found = interleave_stores(before), np.zeros(256, "float32")
    numba_.compile_module([after], Target("numba", num_threads=1)).call("f", a, found)
    np.testing.assert_array_equal(found, expected)


def plain(text: str) -> str:
    return text.replace(' annotations {"interleave": True}', "")


def test_a_loop_without_the_annotation_stays(rewrites):
    rewrites(interleave_stores, plain(turns("uint16", 2)), plain(turns("uint16", 2)))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("KIND", "bool", "vectors of boolx8 are not interleaved 2 at a time"),
        ("COUNT, 8)] = A", "3, 8)] = A", "are not interleaved"),
        ("= A[", "= B[", "reads the buffer that it writes"),
        ("SIZE + g", "SIZE + g * 2", "are not interleaved"),
    ],
)
def test_what_cannot_be_lowered_stays_a_loop_and_a_remark_says_why(rewrites, old: str, new: str, reason: str):
    text = TURNS.replace(old, new).replace("KIND", "uint16").replace("COUNT", "2").replace("SIZE", "16")
    rewrites(interleave_stores, text, plain(text))
    with PassContext() as ctx:
        InterleaveStores()(IRModule({"f": parse(text)}))
    (said,) = ctx.remarks
    assert said.kind == "missed" and reason in said.message
