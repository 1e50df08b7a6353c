"""Quantization, one number at a time with Python's own rounding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.dims import symbol
from tilewright.graphir.ops.quantize import DEQUANTIZED, QUANTIZED
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import TypeInferenceError

INTEGERS = [name for name in QUANTIZED if "int" in name]
FLOATS = [name for name in QUANTIZED if "int" not in name]
N = ({"n": 2}, {"n": 3})
#: For each way: attributes, and the shapes of x and of scale.
WAYS: list[tuple[dict[str, Any], Any, Any]] = [
    ({}, ("n", 3), ()),
    ({"axis": 1}, ("n", 3), (3,)),
    ({"axis": -2}, (2, "n", 2), ("n",)),
    ({"axis": 1, "block_size": 2}, ("n", 5), ("n", 3)),
]


def parameter(values: Any, place: tuple[int, ...], attrs: dict[str, Any]) -> Any:
    if values.ndim == 0:
        return values[()]
    axis = attrs["axis"] % len(place)
    if "block_size" in attrs:
        return values[tuple(i // attrs["block_size"] if n == axis else i for n, i in enumerate(place))]
    return values[place[axis]]


def each(function: Any, x: Any, scale: Any, zero: Any, attrs: dict[str, Any], dtype: Any) -> Any:
    result = np.zeros(x.shape, dtype)
    for place in np.ndindex(*x.shape):
        shift = 0 if zero is None else int(parameter(zero, place, attrs))
        result[place] = function(x[place], float(parameter(scale, place, attrs)), shift)
    return result


def is_integer(dtype: np.dtype) -> bool:
    return "int" in dtype.name


def limits(dtype: Any) -> Any:
    return ml_dtypes.iinfo(np.dtype(dtype))


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Wide ranges, so that results are limited; floats are such that quotients are exact, with many halves."""
    if is_integer(dtype):
        info = limits(np.int16 if dtype == np.int32 else dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, endpoint=True)).astype(dtype)
    return np.asarray(rng.integers(-900, 900, shape) * 0.25).astype(dtype)


def powers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return values(rng, shape, dtype) if is_integer(dtype) else np.asarray(2.0 ** rng.integers(-3, 2, shape), dtype)


@together("dtype", INTEGERS)
@pytest.mark.parametrize(("attrs", "shape", "scales"), WAYS, ids=str)
def test_quantize_rounds_half_to_even_and_limits(check: Any, dtype: str, attrs: Any, shape: Any, scales: Any) -> None:
    stored = DataType(dtype).numpy
    info = limits(stored)
    given = {**attrs, "dtype": dtype}

    def expected(x: Any, scale: Any, zero: Any = None) -> Any:
        return each(
            lambda v, s, z: min(max(round(v / s) + z, info.min), info.max), x, np.abs(scale), zero, attrs, stored
        )

    def draw(rng: Any, size: Any, kind: Any) -> Any:
        if is_integer(kind):
            return values(rng, size, kind)
        drawn[0] += 1
        return values(rng, size, kind) if drawn[0] % 2 else powers(rng, size, kind)

    for with_zero in (True, False):
        drawn = [0]
        types = [(shape, "float32"), (scales, "float32"), *([(scales, dtype)] if with_zero else [])]
        check("quantize", types, given, expected, draw, N)


@together("dtype", [name for name in DEQUANTIZED if "int" in name])
@pytest.mark.parametrize(("attrs", "shape", "scales"), WAYS, ids=str)
def test_dequantize_scales_the_distance_from_zero(check: Any, dtype: str, attrs: Any, shape: Any, scales: Any) -> None:
    for scale_type in ("float32", "float16"):
        check(
            "dequantize",
            [(shape, dtype), (scales, scale_type), (scales, dtype)],
            attrs,
            lambda x, s, z: each(lambda v, scale, shift: (int(v) - shift) * scale, x, s, z, attrs, float),
            powers if scale_type == "float32" else None,
            N,
        )


def test_what_is_no_number_has_a_defined_result(run: Any) -> None:
    x = gi.var("x", shape=(3,))
    call = gi.get_operator("quantize")(x, gi.const(1.0), dtype="int8")
    assert run([x], call, [np.array([np.nan, np.inf, -np.inf], "f4")]).tolist() == [-128, 127, -128]


def nearest(dtype: str, saturate: bool) -> Any:
    """The quotient as ml_dtypes rounds it, as a float64."""
    kind = DataType(dtype).numpy
    greatest = float(ml_dtypes.finfo(kind).max)

    def oracle(x: Any, scale: Any) -> Any:
        with np.errstate(all="ignore"):
            quotient = x / scale
            return (np.clip(quotient, -greatest, greatest) if saturate else quotient).astype(np.float32).astype(kind)

    return oracle


@pytest.mark.parametrize("saturate", [True, False])
@together("dtype", FLOATS)
def test_floats_of_few_bits_are_the_nearest_to_the_quotient(check: Any, dtype: str, saturate: bool) -> None:
    """Scales for each index of the middle axis; the greatest quotients have no value in the type."""
    kind, oracle = DataType(dtype).numpy, nearest(dtype, saturate)
    span = float(ml_dtypes.finfo(kind).max)

    def draw(rng: Any, shape: Any, _: Any) -> Any:
        if len(shape) == 1:
            return np.float32(2.0) ** np.arange(-1, 2, dtype=np.float32)
        return (rng.standard_normal(shape) * span * 0.4).astype(np.float32)

    attrs = {"axis": -2, "dtype": dtype, "saturate": saturate}
    check("quantize", [(("n", 3, 7), "float32"), ((3,), "float32")], attrs,
          lambda x, scale: oracle(x, scale[:, None]), draw, N)  # fmt: skip


@together("dtype", FLOATS)
@pytest.mark.parametrize("scale_type", ["float32", "float16", "float8_e8m0fnu"])
def test_floats_of_few_bits_are_scaled(check: Any, dtype: str, scale_type: str) -> None:
    """In blocks along an axis of symbolic size, each with a scale."""
    kind = DataType(dtype).numpy
    bits = 4 if "4_" in dtype else 8

    def draw(rng: Any, shape: Any, of: Any) -> Any:
        if of == kind:
            return rng.integers(0, 1 << bits, shape).astype(np.uint8).view(kind)
        return (np.float32(2.0) ** rng.integers(-3, 2, shape)).astype(of)

    wide = np.float16 if scale_type == "float16" else np.float64

    def oracle(x: Any, scale: Any) -> Any:
        with np.errstate(all="ignore"):
            return (x * scale[:, np.arange(x.shape[1]) // 4]).astype(wide)

    types = [(("n", "k"), dtype), (("n", (symbol("k") + 3) // 4), scale_type)]
    sizes = [{"n": 2, "k": 11}, {"n": 3, "k": 8}, {"n": 1, "k": 1}]
    check("dequantize", types, {"axis": 1, "block_size": 4}, oracle, draw, sizes)


def test_blocks_of_small_floats_with_powers_of_two_as_scales() -> None:
    """The format MXFP4: what is stored and read back differs by at most half a step, and zero stays zero."""
    x, scale = gi.var("x", shape=("n", 64)), gi.var("scale", shape=("n", 2), dtype="float8_e8m0fnu")
    stored = gi.quantize(x, scale, block_size=32, dtype="float4_e2m1fn")
    built = tw.build(gi.Function([x, scale], gi.dequantize(stored, scale, block_size=32)))
    rng = np.random.default_rng(3)
    for n in (1, 5):
        powers_of_two = np.float32([[0.25, 4.0]] * n)
        numbers = (rng.uniform(-6, 6, (n, 64)) * np.repeat(powers_of_two, 32, 1)).astype(np.float32)
        numbers[:, ::9] = 0
        found = built(numbers, powers_of_two.astype(ml_dtypes.float8_e8m0fnu))
        values = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        choices = np.concatenate([-values, values]) * np.repeat(powers_of_two, 32, 1)[..., None]
        distance = np.abs(choices - numbers[..., None]).min(axis=-1)
        np.testing.assert_array_equal(np.abs(found - numbers), distance)
        assert not found[:, ::9].any()


def test_what_does_not_fit_is_named() -> None:
    x = gi.var("x", shape=(4, 6))
    quantize = gi.get_operator("quantize")
    with pytest.raises(TypeInferenceError, match="scale: expected a scale for each index of axis 1"):
        quantize(x, gi.var("s", shape=(4,)))
    with pytest.raises(TypeInferenceError, match="zero_point: expected element type int8"):
        quantize(x, gi.const(1.0), gi.const(0, "uint8"), dtype="int8")
    with pytest.raises(TypeInferenceError, match="zero_point: expected none for element type float8_e5m2"):
        quantize(x, gi.const(1.0), gi.var("z", shape=(), dtype="float8_e5m2"), dtype="float8_e5m2")
    with pytest.raises(TypeInferenceError, match="dtype: expected one of int8"):
        quantize(x, gi.const(1.0), dtype="float8_e8m0fnu")
    with pytest.raises(TypeInferenceError, match=r"a scale for each block of 4, \(4, 2\)"):
        quantize(x, gi.var("s", shape=(4, 3)), block_size=4)
