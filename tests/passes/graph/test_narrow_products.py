"""NarrowProducts: turn products of narrow integers minus their zero points into the form of the instructions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.passes import PassContext
from tilewright.passes.graph import NarrowProducts
from tilewright.tensorir.target import Target

RNG = np.random.default_rng(6)


@pytest.fixture(autouse=True)
def target() -> Iterator[Target]:
    with Target("llvm", mcpu="znver4", mtriple="x86_64-unknown-linux-gnu") as found:
        yield found


BEFORE = """
def @main(%a: Tensor[(40, 8), uint8], %b: Tensor[(8, 7), int8], %z: Tensor[(), int32]) {
  %0 = cast(%a, dtype="int32")
  %1 = subtract(%0, %z)
  %2 = cast(%b, dtype="int32")
  %3 = matmul(%1, %2)
  %3
}
"""
EXPECTED = """
def @main(%a: Tensor[(40, 8), uint8], %b: Tensor[(8, 7), int8], %z: Tensor[(), int32]) {
  %0 = matmul(%a, %b, out_dtype="int32")
  %1 = cast(%b, dtype="int32")
  %2 = sum(%1, axis=-2, keepdims=True)
  %3 = multiply(%z, %2)
  %4 = subtract(%0, %3)
  %4
}
"""


def test_zero_point_is_taken_off_the_sum(rewrites: Any) -> None:
    rewrites(NarrowProducts(), BEFORE, EXPECTED)


def test_zero_point_as_it_is_stored_is_known(rewrites: Any) -> None:
    # Importers cast zero points; a known one of nothing leaves no difference.
    stored = BEFORE.replace(", %z: Tensor[(), int32]", "").replace("%1 =", '%z = cast(uint8(0), dtype="int32")\n  %1 =')
    expected = BEFORE[: BEFORE.index("{")] + '{\n  %0 = matmul(%a, %b, out_dtype="int32")\n  %0\n}\n'
    rewrites(NarrowProducts(), stored, expected.replace(", %z: Tensor[(), int32]", ""))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(8, 7), int8", "(8, 7), int16"),  # no instruction for such a pair
        ("(40, 8), uint8], %b: Tensor[(8, 7)", "(40, 6), uint8], %b: Tensor[(6, 7)"),  # no whole groups of four
        ("%z: Tensor[()", "%z: Tensor[(8,)"),  # a zero point for each step
        ("(40, 8)", "(4, 8)"),  # sums of columns for few rows
    ],
)
def test_other_products_stay(rewrites: Any, old: str, new: str) -> None:
    text = BEFORE.replace(old, new)
    assert text != BEFORE
    rewrites(NarrowProducts(), text, text)


def test_target_without_the_instruction_keeps_them(rewrites: Any) -> None:
    with Target("llvm", mcpu="x86-64-v4", mtriple="x86_64-unknown-linux-gnu"):
        rewrites(NarrowProducts(), BEFORE, BEFORE)


def less(x: gi.Expr, zero: Any) -> gi.Expr:
    wide = gi.cast(x, dtype="int32")
    return wide if zero is None else wide - gi.const(np.asarray(zero, "i4"))


def integers(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    found = RNG.integers(info.min, info.max + 1, shape).astype(dtype)
    found.flat[0], found.flat[-1] = info.min, info.max
    return found


ZEROS = [(None, None), (3, None), (None, -7), (200, 11), (np.arange(32)[:, None], np.arange(7)), (0, [[9] * 7])]


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("zeros", ZEROS)
def test_results_are_the_same(left: str, right: str, zeros: tuple[Any, Any]) -> None:
    a, b = integers(left, 2, 32, 8), integers(right, 8, 7)
    x, y = gi.var("x", shape=a.shape, dtype=left), gi.var("y", shape=b.shape, dtype=right)
    mod = gi.IRModule.from_expr(gi.Function([x, y], gi.matmul(less(x, zeros[0]), less(y, zeros[1]))))
    after = NarrowProducts()(mod)
    assert 'out_dtype="int32"' in str(after)
    expected = gi.evaluate(mod["main"], a, b)
    np.testing.assert_array_equal(gi.evaluate(after["main"], a, b), expected)


@pytest.mark.parametrize("zeros", [(None, None), (3, 5), (130, np.arange(7)[:, None])])
def test_dense_layers_too(zeros: tuple[Any, Any]) -> None:
    a, b = integers("int8", 5, 8), integers("int8", 7, 8)
    x = gi.var("x", shape=("n", 8), dtype="int8")
    mod = gi.IRModule.from_expr(gi.Function([x], gi.nn.dense(less(x, zeros[0]), less(gi.const(b), zeros[1]))))
    after = NarrowProducts()(mod)
    assert 'out_dtype="int32"' in str(after)
    np.testing.assert_array_equal(gi.evaluate(after["main"], a), gi.evaluate(mod["main"], a))


def test_sums_wrap_as_int32_does() -> None:
    a, b = np.full((40, 8), -128, "i1"), np.full((8, 7), 127, "i1")
    x, y = gi.var("x", shape=a.shape, dtype="int8"), gi.var("y", shape=b.shape, dtype="int8")
    zero = (1 << 31) - 100
    mod = gi.IRModule.from_expr(gi.Function([x, y], gi.matmul(less(x, zero), less(y, zero))))
    np.testing.assert_array_equal(gi.evaluate(NarrowProducts()(mod)["main"], a, b), gi.evaluate(mod["main"], a, b))


CONVOLUTION = """
def @main(%x: Tensor[(1, 16, 6, 6), int8], %w: Tensor[(32, 16, 3, 3), int8]) {
  %0 = cast(%x, dtype="int32")
  %1 = cast(%w, dtype="int32")
  %2 = nn.conv2d(%0, %1, padding=(1, 1, 1, 1))
  %2
}
"""


def test_border_of_a_convolution_is_the_zero_point(rewrites: Any) -> None:
    expected = """
    def @main(%x: Tensor[(1, 16, 6, 6), int8], %w: Tensor[(32, 16, 3, 3), int8]) {
      %0 = bitcast(%x, dtype="uint8")
      %1 = bitwise_xor(%0, uint8(128))
      %2 = nn.conv2d(%1, %w, padding=(1, 1, 1, 1), pad_value=128, out_dtype="int32")
      %3 = cast(%w, dtype="int32")
      %4 = sum(%3, axis=(1, 2, 3))
      %5 = reshape(%4, newshape=(32, 1, 1))
      %6 = multiply(%5, int32(128))
      %7 = subtract(%2, %6)
      %7
    }
    """
    rewrites(NarrowProducts(), CONVOLUTION, expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(1, 16, 6, 6), int8], %w: Tensor[(32, 16,", "(1, 12, 6, 6), int8], %w: Tensor[(32, 12,"),  # no whole block
        ("padding=(1, 1, 1, 1)", "groups=16"),  # nothing to sum but the window
    ],
)
def test_other_convolutions_stay(rewrites: Any, old: str, new: str) -> None:
    text = CONVOLUTION.replace(old, new)
    text = text.replace("(32, 16, 3, 3)", "(32, 1, 3, 3)") if "groups" in new else text
    rewrites(NarrowProducts(), text, text)


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize(("right", "zero"), [("int8", None), ("uint8", 128), ("int8", 3), ("uint8", None)])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_are_the_same(left: str, right: str, zero: int | None, groups: int) -> None:
    a, b = integers(left, 2, 32, 5, 6), integers(right, 32, 32 // groups, 3, 2)
    x = gi.var("x", shape=a.shape, dtype=left)
    call = gi.nn.conv2d(less(x, 7), less(gi.const(b), zero), padding=(2, 1, 0, 1), strides=(1, 2), groups=groups)
    mod = gi.IRModule.from_expr(gi.Function([x], call))
    after = NarrowProducts()(mod)
    # Filters with a zero point of their own would need the sum of each window.
    assert ("out_dtype" in str(after)) is (
        (left, right, zero)
        in {
            ("int8", "int8", None),
            ("uint8", "int8", None),
            ("uint8", "uint8", 128),
            ("int8", "uint8", None),
        }
    )
    np.testing.assert_array_equal(gi.evaluate(after["main"], a), gi.evaluate(mod["main"], a))


def test_convolutions_of_volumes_are_the_same() -> None:
    a, b = integers("int8", 1, 16, 3, 4, 5), integers("int8", 16, 16, 2, 3, 2)
    x = gi.var("x", shape=a.shape, dtype="int8")
    call = gi.nn.conv3d(less(x, 7), less(gi.const(b), None), padding=(1, 2, 1, 0, 0, 1), strides=(1, 1, 2))
    mod = gi.IRModule.from_expr(gi.Function([x], call))
    after = NarrowProducts()(mod)
    assert 'out_dtype="int32"' in str(after)
    np.testing.assert_array_equal(gi.evaluate(after["main"], a), gi.evaluate(mod["main"], a))


@pytest.mark.parametrize(("opt_level", "narrow"), [(2, False), (3, True)])
def test_halves_wait_for_leave_to_be_added_in_another_order(opt_level: int, narrow: bool) -> None:
    x, y = (gi.var(name, shape=(4, 8), dtype="bfloat16") for name in "xy")
    with PassContext(opt_level=opt_level):
        after = NarrowProducts()(gi.IRModule.from_expr(gi.Function([x, y], gi.nn.dense(x, y))))
    assert ('out_dtype="float32"' in str(after)) is narrow
