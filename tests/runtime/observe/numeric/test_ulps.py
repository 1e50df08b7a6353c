"""Compare units in the last place with the neighbouring numbers of NumPy and ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.runtime.observe.numeric import scaled_error, ulp_distance, ulp_error, unit

FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")] + [np.dtype(ml_dtypes.bfloat16)]
NUMBERS = [0.0, 1.0, 1.5, -2.0, 3.1415926, -1e-3, 1e-7, 6.1e-5, 60000.0, 2.0**-14, 2.0**-24, 1e-40]


def neighbour(value: Any) -> Any:
    """Return the next number away from zero."""
    return np.nextafter(value, np.array(np.inf if value >= 0 else -np.inf, value.dtype))


def sample(dtype: np.dtype[Any]) -> np.ndarray:
    values = np.array(NUMBERS).astype(dtype)
    return values[np.isfinite(values.astype(np.float64))]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unit_is_the_step_to_the_next_number(dtype: np.dtype[Any]) -> None:
    values = sample(dtype)
    steps = [abs(float(neighbour(value)) - float(value)) for value in values]
    np.testing.assert_array_equal(unit(values, dtype), steps)


@pytest.mark.parametrize("dtype", FLOATS[:3], ids=str)
def test_unit_is_numpys_spacing(dtype: np.dtype[Any]) -> None:
    values = sample(dtype)
    np.testing.assert_array_equal(unit(values, dtype), np.spacing(np.abs(values)).astype(np.float64))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_distance_counts_steps(dtype: np.dtype[Any]) -> None:
    for value in sample(dtype):
        walked = value
        for steps in range(4):
            assert ulp_distance(walked, value) == ulp_distance(value, walked) == steps
            walked = neighbour(walked)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_distance_goes_through_zero(dtype: np.dtype[Any]) -> None:
    least = neighbour(np.array(0, dtype))
    assert ulp_distance(least, -least) == 2
    assert ulp_distance(np.array(0.0, dtype), np.array(-0.0, dtype)) == 0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nans_are_equal_and_far_from_numbers(dtype: np.dtype[Any]) -> None:
    values = np.array([np.nan, np.nan, 1.0]).astype(dtype)
    others = np.array([np.nan, 1.0, np.nan]).astype(dtype)
    assert ulp_distance(values, others).tolist() == [0, 2**64 - 1, 2**64 - 1]
    assert ulp_error(values, others.astype(np.float64)).tolist() == [0, np.inf, np.inf]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_infinities_follow_the_greatest_numbers(dtype: np.dtype[Any]) -> None:
    infinite, greatest = np.array(np.inf).astype(dtype), np.array(ml_dtypes.finfo(dtype).max, dtype)
    assert ulp_distance(infinite, greatest) == 1
    assert ulp_distance(infinite, infinite) == ulp_error(infinite, np.float64(np.inf)) == 0
    assert ulp_error(infinite, np.float64(1)) == ulp_error(-infinite, np.float64(np.inf)) == np.inf


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != np.float64], ids=str)
def test_overflow_is_no_error(dtype: np.dtype[Any]) -> None:
    beyond = float(ml_dtypes.finfo(dtype).max) * 4
    assert ulp_error(np.array(np.inf).astype(dtype), np.float64(beyond)) == 0
    assert ulp_error(np.array(ml_dtypes.finfo(dtype).max, dtype), np.float64(beyond)) > 1


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != np.float64], ids=str)
def test_rounding_is_at_most_half_a_unit(dtype: np.dtype[Any]) -> None:
    exact = np.random.default_rng(0).standard_normal(1000) * np.logspace(-6, 4, 1000)
    error = ulp_error(exact.astype(dtype), exact)
    assert 0.45 < error.max() <= 0.5


def test_integers_differ_by_their_difference() -> None:
    big = np.array([2**63 - 1, 5, -3], np.int64)
    other = np.array([2**63 - 2, 5, 4], np.int64)
    assert ulp_error(big, other).tolist() == [1, 0, 7]
    assert ulp_distance(big, other).tolist() == [1, 0, 7]
    assert ulp_distance(np.int64(-(2**63)), np.int64(2**63 - 1)) == 2**64 - 1
    assert ulp_distance(np.array([True, False]), np.array([True, True])).tolist() == [0, 1]


def test_scaled_errors_are_in_the_unit_of_the_greatest_number() -> None:
    exact = np.array([1e-9, 3.0, -100.0])
    found = (exact + np.array([2e-6, 0.0, 1.5e-5])).astype("f4")
    near_zero, same, large = scaled_error(found, exact)
    assert ulp_error(found, exact)[0] > 1e9
    assert near_zero == pytest.approx(2e-6 / 2.0**-17, rel=1e-3)  # 64 <= 100 < 128
    assert same == 0.0
    assert large == ulp_error(found, exact)[2]


def test_scaled_errors_of_what_has_no_unit_are_those_in_its_own() -> None:
    exact = np.array([np.nan, np.inf, 1.0, 1e6])
    found = np.array([np.nan, np.inf, np.nan, 1e6], "f4")
    assert scaled_error(found, exact).tolist() == [0.0, 0.0, np.inf, 0.0]
    assert scaled_error(np.array([np.nan], "f4"), np.array([np.nan])).tolist() == [0.0]
    assert scaled_error(np.array([2, 7], "i4"), np.array([5, 7])).tolist() == [3.0, 0.0]


def test_two_types_are_refused() -> None:
    with pytest.raises(TypeError, match="float32 and float64"):
        ulp_distance(np.float32(1), np.float64(1))
    with pytest.raises(TypeError, match="float8_e5m2"):
        unit(np.float32(1), ml_dtypes.float8_e5m2)
