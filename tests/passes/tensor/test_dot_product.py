"""DotProduct: replace annotated loops by the instruction that adds several products; the sums are right."""

from __future__ import annotations

import functools
import re

import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen import numba_
from tilewright.codegen.llvm import call_primfunc, compile_module
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.tensor.dot_product import DotProduct, dot_products
from tilewright.tensorir import interpret, parse
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: Has the instructions, on vectors of 512 bits.
WIDE = Target("llvm", mcpu="znver4", mtriple="x86_64-unknown-linux-gnu", num_threads=1)
#: Has those for integers, on vectors of 256 bits.
SHORT = Target("llvm", mcpu="alderlake", mtriple="x86_64-unknown-linux-gnu", num_threads=1)
NONE = Target("llvm", mcpu="x86-64-v4", mtriple="x86_64-unknown-linux-gnu", num_threads=1)

BYTES = """
primfunc @f(A: Buffer[(64,), uint8], B: Buffer[(1024,), int8], C: Buffer[(16,), int32]) attrs {"num_outputs": 1} {
  for k in range(16) {
    for g in range(4) annotations {"dot_product": 4} {
      C[ramp(0, 1, 16)] = C[ramp(0, 1, 16)] + broadcast(int32(A[k * 4 + g]), 16) * int32x16(B[ramp(k * 64 + g, 4, 16)])
    }
  }
}
"""
ADDED_AT_ONCE = """
primfunc @f(A: Buffer[(64,), uint8], B: Buffer[(1024,), int8], C: Buffer[(16,), int32]) attrs {"num_outputs": 1} {
  for k in range(16) {
    C[ramp(0, 1, 16)] = dot(
      C[ramp(0, 1, 16)],
      reinterpret(broadcast(reinterpret(A[ramp(k * 4, 1, 4)], dtype=int32), 16), dtype=uint8x64),
      B[ramp(k * 64, 1, 64)]
    )
  }
}
"""
PAIRS = BYTES.replace("uint8", "bfloat16").replace("int8", "bfloat16").replace("int32", "float32")
PAIRS = PAIRS.replace("range(16)", "range(32)").replace("range(4)", "range(2)").replace('product": 4', 'product": 2')
PAIRS = PAIRS.replace("k * 4", "k * 2").replace("k * 64", "k * 32").replace("+ g, 4, 16", "+ g, 2, 16")

on_wide = functools.partial(dot_products, target=WIDE)


def plain(text: str) -> str:
    """``text`` with plain loops: what is annotated and can't be lowered keeps no annotation."""
    return re.sub(r' annotations \{"dot_product": \d\}', "", text)


def reasons(func: PrimFunc, target: Target, opt_level: int = 2) -> list[str]:
    """Return the reasons why the pass leaves annotated loops."""
    with PassContext(opt_level=opt_level) as ctx:
        DotProduct(target)(IRModule({func.name: func}))
    return [remark.message for remark in ctx.remarks if remark.kind == "missed"]


def test_four_products_of_bytes_are_added_at_once(rewrites):
    rewrites(on_wide, BYTES, ADDED_AT_ONCE)


def test_a_loop_without_the_annotation_stays(rewrites):
    rewrites(on_wide, plain(BYTES), plain(BYTES))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("range(4)", "range(3)", "not a serial loop of 4 iterations"),
        ('4) annotations {"dot_product": 4}', '3) annotations {"dot_product": 3}', "no instruction that adds 3"),
        ("+ g, 4, 16", "+ g, 3, 16", "contiguous elements"),
        ("A[k * 4 + g]", "A[k + g * 16]", "contiguous elements"),
        ("A[k * 4 + g]", "A[k * 4 + 3 - g]", "contiguous elements"),
        ("int32x16(B", "int32x16(int16x16(B", "not two loads converted"),
        ("] + broadcast", "] - broadcast", "does not accumulate products"),
    ],
)
def test_what_cannot_be_lowered_stays_a_loop_and_a_remark_says_why(rewrites, old: str, new: str, reason: str):
    text = BYTES.replace(old, new)
    text = text.replace("+ g, 4, 16)])", "+ g, 4, 16)]))") if "int16x16" in new else text
    rewrites(on_wide, text, plain(text))
    (said,) = reasons(parse(text), WIDE)
    assert "a loop annotated 'dot_product' not lowered" in said and reason in said


@pytest.mark.parametrize("target", [NONE, SHORT], ids=["no instruction", "none of that width"])
def test_target_decides(rewrites, target: Target):
    rewrites(functools.partial(dot_products, target=target), BYTES, plain(BYTES))
    (said,) = reasons(parse(BYTES), target)
    assert f"{target.mcpu} has no instruction that adds 4 products of uint8 by int8" in said


def test_floats_wait_for_leave_to_be_added_in_another_order(rewrites):
    rewrites(on_wide, PAIRS, plain(PAIRS))
    assert "only at opt_level 3" in reasons(parse(PAIRS), WIDE)[0]
    assert not reasons(parse(PAIRS), WIDE, opt_level=3)
    assert "dot(" in str(dot_products(parse(PAIRS), WIDE, reassociate=True))


def test_signed_and_unsigned_bytes_may_change_places():
    swapped = (
        BYTES.replace("uint8", "x").replace("int8", "uint8").replace("A: Buffer[(64,), x]", "A: Buffer[(64,), int8]")
    )
    assert "dot(" in str(on_wide(parse(swapped)))


@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("int8", "uint8"), ("int16", "int16")])
def test_integers_are_exact(left: str, right: str):
    count = 2 if left == "int16" else 4
    text = BYTES.replace("A: Buffer[(64,), uint8]", f"A: Buffer[(64,), {left}]").replace(
        "(1024,), int8", f"(1024,), {right}"
    )
    if count == 2:
        text = text.replace("range(16)", "range(32)").replace("range(4)", "range(2)").replace("k * 4", "k * 2")
        text = text.replace('product": 4', 'product": 2')
        text = text.replace("k * 64", "k * 32").replace("+ g, 4, 16", "+ g, 2, 16")
    func = dot_products(parse(text), WIDE)
    assert "dot(" in str(func)
    rng = np.random.default_rng(1)
    info = [np.iinfo(kind) for kind in (left, right)]
    # Extremes among them: nothing saturates on the way.
    a = rng.choice([info[0].min, info[0].max, 3], 64).astype(left)
    b = rng.choice([info[1].min, info[1].max, 5], 1024).astype(right)
    wide = b.reshape(64 // count, 16, count).transpose(0, 2, 1).reshape(64, 16).astype("i8")
    expected = (a.astype("i8") @ wide).astype("i4")
    start = np.arange(16, dtype="i4")
    found = start.copy()
    interpret(func, a, b, found)
    np.testing.assert_array_equal(found, expected + start)
    found = start.copy()
    numba_.compile_module([func], Target("numba", num_threads=1)).call("f", a, b, found)
    np.testing.assert_array_equal(found, expected + start)
    for target in (WIDE, Target("llvm", num_threads=1), NONE, Target("llvm", mcpu="x86-64-v2", num_threads=1)):
        if target.is_runnable:
            found = start.copy()
            call_primfunc(compile_module([func], target), func, a, b, found)
            np.testing.assert_array_equal(found, expected + start)


def test_bfloat16_is_summed_in_float32():
    """The bound for a float32 sum of n products, n * 2**-24 of the sum of their magnitudes, on every target."""
    func = dot_products(parse(PAIRS), WIDE, reassociate=True)
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(size).astype(ml_dtypes.bfloat16) for size in (64, 1024))
    wide = b.reshape(32, 16, 2).transpose(0, 2, 1).reshape(64, 16).astype("f8")
    expected, magnitude = a.astype("f8") @ wide, np.abs(a.astype("f8")) @ np.abs(wide)
    bound = 65 * 2.0**-24 * magnitude
    found = np.zeros(16, "f4")
    interpret(func, a, b, found)
    assert (np.abs(found - expected) <= bound).all()
    found = np.zeros(16, "f4")
    numba_.compile_module([func], Target("numba", num_threads=1)).call("f", a, b, found)
    assert (np.abs(found - expected) <= bound).all()
    for target in (WIDE, Target("llvm", num_threads=1), NONE, Target("llvm", mcpu="x86-64-v3", num_threads=1)):
        if target.is_runnable:
            found = np.zeros(16, "f4")
            call_primfunc(compile_module([func], target), func, a, b, found)
            assert (np.abs(found - expected) <= bound).all()


@pytest.mark.parametrize(
    ("mcpu", "lanes", "instruction"),
    [
        ("znver4", 16, r"vpdpbusd.*%zmm"),
        ("znver4", 8, r"vpdpbusd.*%ymm"),
        ("alderlake", 8, r"vpdpbusd.*%ymm"),
        ("x86-64-v4", 16, r"vpm(?:ulld|addwd).*%zmm"),
    ],
)
def test_instruction_is_that_of_the_target(mcpu: str, lanes: int, instruction: str):
    text = ADDED_AT_ONCE.replace(", 16)", f", {lanes})").replace("uint8x64", f"uint8x{lanes * 4}")
    text = text.replace("B[ramp(k * 64, 1, 64)]", f"B[ramp(k * {lanes * 4}, 1, {lanes * 4})]")
    target = Target("llvm", mcpu=mcpu, mtriple="x86_64-unknown-linux-gnu", num_threads=1)
    assembly = compile_module([parse(text)], target).assembly
    assert re.search(instruction, assembly)


MASKED = """
primfunc @f(A: Buffer[(64,), uint8], B: Buffer[(2048,), int8], C: Buffer[(32,), int32]) attrs {"num_outputs": 1} {
  for k in range(16) {
    for v in unrolled(2) {
      for g in range(4) annotations {"dot_product": 4} {
        C[ramp(v * 16, 1, 16) where ramp(v * 16, 1, 16) < broadcast(24, 16)] =
          C[ramp(v * 16, 1, 16) where ramp(v * 16, 1, 16) < broadcast(24, 16)]
          + broadcast(int32(A[k * 4 + g]), 16) * int32x16(
            B[ramp(v * 1024 + k * 64 + g, 4, 16) where ramp(v * 16, 1, 16) < broadcast(24, 16)])
      }
    }
  }
}
"""
MASK = " where ramp(v * 16, 1, 16) < broadcast(24, 16)]"


@pytest.mark.parametrize("text", [MASKED, MASKED.replace(MASK, "]", 2)], ids=["sums", "only what is loaded"])
def test_where_the_copies_of_a_loop_decide_masks_those_of_all_lanes_are_added_at_once(keeps_results, text: str):
    after = keeps_results(on_wide, text.replace("\n          ", " ").replace("\n            ", " "))
    assert str(after).count("dot(") == 1
    assert str(after).count("for g in") == 1
