"""Check that the properties declared for an intrinsic hold for its value."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.intrinsics import ADDRESSING, INTRINSICS, REDUCERS, Intrinsic, find_intrinsic

LANES = 8
VALUED = [found for found in INTRINSICS.values() if found.evaluate is not None]
LANEWISE = [found for found in VALUED if found.lanewise and found.result != "given"]
COUNTS = [found for found in VALUED if found.value_range is not None]


def name_of(intrinsic: Intrinsic) -> str:
    return intrinsic.name


def vectors(dtype: DataType, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [
        np.asarray(rng.uniform(0.1, 0.9, LANES) * (1 if dtype.is_float else 200), dtype.numpy) for _ in range(count)
    ]


@pytest.mark.parametrize("intrinsic", LANEWISE, ids=name_of)
def test_lanewise_vector_is_computed_lane_by_lane(intrinsic: Intrinsic) -> None:
    scalar = DataType("uint8" if intrinsic.operands == "integer" else "float32")
    vector = scalar.with_lanes(LANES)
    result = DataType("bool") if intrinsic.result == "bool" else scalar
    args = vectors(scalar, intrinsic.arity)
    of_vectors = intrinsic.operation([vector] * intrinsic.arity, result.with_lanes(LANES))
    of_scalars = intrinsic.operation([scalar] * intrinsic.arity, result)
    lanes = [[arg[lane] if scalar.is_float else int(arg[lane]) for arg in args] for lane in range(LANES)]
    with np.errstate(invalid="ignore"):  # acosh has no value below 1
        np.testing.assert_array_equal(of_vectors(*args), [of_scalars(*lane) for lane in lanes])


@pytest.mark.parametrize("name", ["interleave_low", "interleave_3", "dot", *REDUCERS.values(), *ADDRESSING])
def test_what_mixes_lanes_or_has_no_value_is_not_lanewise(name: str) -> None:
    assert not find_intrinsic(name).lanewise


@pytest.mark.parametrize("intrinsic", COUNTS, ids=name_of)
def test_counts_of_bits_reach_the_ends_of_their_range_and_no_further(intrinsic: Intrinsic) -> None:
    dtype = DataType("uint8")
    assert intrinsic.value_range is not None
    count = intrinsic.operation([dtype], dtype)
    found = [count(value) for value in range(256)]
    assert (min(found), max(found)) == intrinsic.value_range([dtype])


@pytest.mark.parametrize(
    ("name", "args", "result", "operations"),
    [
        ("exp", ["float32x8"], "float32x8", ("float32x8", 8)),
        ("fma", ["float32x8"] * 3, "float32x8", ("float32x8", 16)),
        ("isnan", ["float32x8"], "boolx8", ("boolx8", 0)),
        ("reduce_add", ["float32x8"], "float32", ("float32x8", 7)),
        ("dot", ["int32x4", "uint8x16", "int8x16"], "int32x4", ("uint8x16", 32)),
        ("interleave_low", ["float32x8"] * 2, "float32x8", ("float32x8", 0)),
        ("interleave_3", [*["float32x8"] * 3, "int64"], "float32x8", ("float32x8", 0)),
    ],
)
def test_operations_are_counted_where_they_are_done(
    name: str, args: list[str], result: str, operations: tuple[str, int]
) -> None:
    assert find_intrinsic(name).count_operations([DataType(arg) for arg in args], DataType(result)) == operations


def test_what_only_tests_or_moves_bits_takes_less_than_a_division() -> None:
    cheap = ("isnan", "isinf", "isfinite", "reinterpret", "interleave_low", "interleave_high", "copysign", "abs")
    assert max(find_intrinsic(name).instructions for name in cheap) < find_intrinsic("sqrt").instructions


def test_an_address_has_no_value_of_its_argument_alone() -> None:
    with pytest.raises(ValueError, match="address_of has no value"):
        find_intrinsic("address_of").operation([DataType("float32")], DataType("handle"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["float32x4", "float32x4", "int32x4", "int64"],
            "expected vectors of one type, found float32x4, ",
        ),
        (["float32x4"] * 4, "expected the number of a part, found float32x4"),
    ],
)
def test_vectors_of_one_type_are_interleaved(args: list[str], message: str) -> None:
    misfit = find_intrinsic("interleave_3").misfit
    assert misfit is not None and message in str(misfit([DataType(arg) for arg in args]))
