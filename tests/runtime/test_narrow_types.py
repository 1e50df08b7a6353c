"""Test products of narrow numbers: their instructions, and the error of their results."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi

TARGET = tw.Target("llvm", num_threads=1)
RNG = np.random.default_rng(5)


def bfloat16(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("rows", "steps", "columns"), [(40, 64, 48), (33, 30, 70), (16, 31, 20), (3, 64, 40), (20, 2, 1), (60, 64, 56)]
)
@pytest.mark.parametrize("opt_level", [2, 3])
def test_product_of_bfloat16_is_summed_in_float32(rows: int, steps: int, columns: int, opt_level: int) -> None:
    """The bound is half a unit in the last place of bfloat16 for the result, plus the bound of a float32 sum."""
    a, b = bfloat16(rows, steps), bfloat16(steps, columns)
    x, y = gi.var("x", shape=a.shape, dtype="bfloat16"), gi.var("y", shape=b.shape, dtype="bfloat16")
    with tw.PassContext(opt_level=opt_level):
        model = tw.build(gi.Function([x, y], gi.matmul(x, y)), target=TARGET)
    wide = [array.astype("f8") for array in (a, b)]
    exact, magnitude = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    error = np.abs(model(a, b).astype("f8") - exact)
    assert (error <= 2.0**-8 * np.abs(exact) * 1.01 + (steps + 1) * 2.0**-24 * magnitude).all()


@pytest.mark.skipif("avx512bf16" not in TARGET.features, reason="no dot products of bfloat16 on this machine")
@pytest.mark.parametrize("columns", [64, 56], ids=["whole vectors", "a part of the last vector"])
def test_product_of_bfloat16_uses_dot_products_where_rounding_may_differ(columns: int) -> None:
    x, y = (gi.var(name, shape=(64, size), dtype="bfloat16") for name, size in (("x", 64), ("y", columns)))
    for opt_level, expected in ((2, False), (3, True)):
        with tw.PassContext(opt_level=opt_level):
            model = tw.build(gi.Function([x, y], gi.matmul(x, y)), target=TARGET)
        assert ("vdpbf16ps" in model.ir("assembly")) is expected


def integers(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.choice([info.min, info.max, 1, 3], shape).astype(dtype)


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int16", "int16")])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("rows", "steps", "columns"), [(40, 64, 48), (7, 32, 70), (33, 30, 33), (64, 4, 5)])
@pytest.mark.parametrize("mcpu", [None, "x86-64-v3"])
def test_product_of_integers_is_exact(
    types: tuple[str, str], constant: bool, rows: int, steps: int, columns: int, mcpu: str | None
) -> None:
    target = tw.Target("llvm", mcpu=mcpu, num_threads=1)
    if not target.is_runnable:
        pytest.skip(f"this machine does not run code for {mcpu}")
    a, b = integers(types[0], rows, steps), integers(types[1], steps, columns)
    x, y = gi.var("x", shape=("n", steps), dtype=types[0]), gi.var("y", shape=b.shape, dtype=types[1])
    right = gi.const(b) if constant else y
    product = gi.matmul(
        gi.cast(x, dtype="int32") - gi.const(5, "int32"), gi.cast(right, dtype="int32") - gi.const(-2, "int32")
    )
    model = tw.build(gi.Function([x] if constant else [x, y], product), target=target)
    expected = (a.astype("i8") - 5) @ (b.astype("i8") + 2)
    found = model(a) if constant else model(a, b)
    np.testing.assert_array_equal(found, expected.astype("i4"))  # both wrap around beyond int32


@pytest.mark.skipif("avx512vnni" not in TARGET.features, reason="no dot products of bytes on this machine")
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_product_of_bytes_uses_dot_products(dtype: str) -> None:
    x, weight = gi.var("x", shape=("n", 64), dtype=dtype), gi.const(integers("int8", 64, 32))
    product = gi.matmul(gi.cast(x, dtype="int32"), gi.cast(weight, dtype="int32"))
    assert "vpdpbusd" in tw.build(gi.Function([x], product), target=TARGET).ir("assembly")


CONVOLUTIONS = [
    {"channels": (16, 32), "padding": (1, 1)},
    {"channels": (32, 40), "padding": (0, 1, 2, 0), "strides": (2, 1)},
    {"channels": (64, 64), "padding": (1, 1), "groups": 2},
    {"channels": (24, 32), "padding": (1, 1)},  # channels that do not fill whole blocks
    {"channels": (3, 16), "padding": (2, 2)},
    {"channels": (32, 32), "padding": (1, 1), "groups": 32},
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8")])
def test_convolution_of_integers_is_exact(case: dict[str, tuple[int, ...]], types: tuple[str, str]) -> None:
    attrs: dict[str, object] = {**case}
    inputs, outputs = case["channels"]
    attrs.pop("channels")
    data = integers(types[0], 1, inputs, 9, 10)
    weight = integers(types[1], outputs, inputs // attrs.get("groups", 1), 3, 3)
    x = gi.var("x", shape=data.shape, dtype=types[0])
    call = gi.nn.conv2d(
        gi.cast(x, dtype="int32") - gi.const(5, "int32"), gi.cast(gi.const(weight), dtype="int32"), **attrs
    )
    function = gi.Function([x], gi.cast(gi.nn.relu(call), dtype="float32") * gi.const(0.5, "float32"))
    np.testing.assert_array_equal(tw.build(function, target=TARGET)(data), gi.evaluate(function, data))


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("opt_level", [2, 3])
def test_convolution_of_bfloat16_is_summed_in_float32(case: dict[str, tuple[int, ...]], opt_level: int) -> None:
    attrs: dict[str, object] = {**case}
    inputs, outputs = case["channels"]
    attrs.pop("channels")
    data, weight = bfloat16(1, inputs, 9, 10), bfloat16(outputs, inputs // attrs.get("groups", 1), 3, 3)
    x = gi.var("x", shape=data.shape, dtype="bfloat16")
    with tw.PassContext(opt_level=opt_level):
        model = tw.build(gi.Function([x], gi.nn.conv2d(x, gi.const(weight), **attrs)), target=TARGET)
    wide = [gi.const(array.astype("f8")) for array in (data, weight)]
    exact = gi.evaluate(gi.Function([], gi.nn.conv2d(*wide, **attrs)))
    error = np.abs(model(data).astype("f8") - exact)
    assert (error <= 2.0**-8 * np.abs(exact) * 1.01 + 1e-4).all()


@pytest.mark.skipif("avx512vnni" not in TARGET.features, reason="no dot products of bytes on this machine")
def test_convolutions_use_dot_products() -> None:
    x = gi.var("x", shape=(1, 32, 9, 9), dtype="uint8")
    weight = gi.cast(gi.const(integers("int8", 32, 32, 3, 3)), dtype="int32")
    call = gi.nn.conv2d(gi.cast(x, dtype="int32"), weight, padding=(1, 1))
    assert "vpdpbusd" in tw.build(gi.Function([x], call), target=TARGET).ir("assembly")
