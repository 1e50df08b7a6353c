"""Quantization, one number at a time with Python's own rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.ops.quantize import DEQUANTIZED, QUANTIZED
from tilewright.tensorir.errors import TypeInferenceError

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


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Wide ranges, so that results are limited; floats are such that quotients are exact, with many halves."""
    if dtype.kind in "iu":
        info = np.iinfo(np.int16 if dtype == np.int32 else dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, endpoint=True), dtype)
    return np.asarray(rng.integers(-900, 900, shape) * 0.25).astype(dtype)


def powers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return values(rng, shape, dtype) if dtype.kind in "iu" else np.asarray(2.0 ** rng.integers(-3, 2, shape), dtype)


@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.parametrize(("attrs", "shape", "scales"), WAYS, ids=str)
def test_quantize_rounds_half_to_even_and_limits(check: Any, dtype: str, attrs: Any, shape: Any, scales: Any) -> None:
    info = np.iinfo(dtype)
    given = {**attrs, "dtype": dtype}

    def expected(x: Any, scale: Any, zero: Any = None) -> Any:
        return each(
            lambda v, s, z: min(max(round(v / s) + z, info.min), info.max), x, np.abs(scale), zero, attrs, dtype
        )

    def draw(rng: Any, size: Any, kind: Any) -> Any:
        if kind.kind in "iu":
            return values(rng, size, kind)
        drawn[0] += 1
        return values(rng, size, kind) if drawn[0] % 2 else powers(rng, size, kind)

    for with_zero in (True, False):
        drawn = [0]
        types = [(shape, "float32"), (scales, "float32"), *([(scales, dtype)] if with_zero else [])]
        check("quantize", types, given, expected, draw, N)


@pytest.mark.parametrize("dtype", DEQUANTIZED)
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


def test_what_does_not_fit_is_named() -> None:
    x = gi.var("x", shape=(4, 6))
    quantize = gi.get_operator("quantize")
    with pytest.raises(TypeInferenceError, match="scale: expected a scale for each index of axis 1"):
        quantize(x, gi.var("s", shape=(4,)))
    with pytest.raises(TypeInferenceError, match="zero_point: expected element type int8"):
        quantize(x, gi.const(1.0), gi.const(0, "uint8"), dtype="int8")
    with pytest.raises(TypeInferenceError, match=r"a scale for each block of 4, \(4, 2\)"):
        quantize(x, gi.var("s", shape=(4, 3)), block_size=4)
