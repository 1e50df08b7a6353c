"""Types that tensors are only stored in: every code of a byte and floats around every boundary, beside ml_dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.ops.storage_types import float_format
from tilewright.tensorir.dtype import STORAGE_DTYPES, DataType
from tilewright.tensorir.errors import TypeInferenceError

FLOATS = [name for name in STORAGE_DTYPES if "float" in name and name != "float8_e8m0fnu"]
INTEGERS = [name for name in STORAGE_DTYPES if "int" in name]
TARGETS = ["llvm", "numba"]

#: What numba, which takes a second for each kernel, compiles.
BOTH = ("float8_e4m3fnuz", "float8_e5m2", "int4", "uint2")


def on_targets(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, target) for name in names for target in TARGETS if target == "llvm" or name in BOTH]


def run(call: gi.Expr, x: gi.Var, values: np.ndarray, target: str) -> np.ndarray:
    threads = 1 if target == "numba" else None  # numba takes several times as long to compile a parallel loop
    return tw.build(gi.Function([x], call), target=tw.Target(target, num_threads=threads))(values)


def codes(name: str) -> np.ndarray:
    """All values of a type, by their bits."""
    bits = 8 if "8" in name else 4 if "4" in name else 2
    return np.arange(1 << bits, dtype=np.uint8).view(getattr(ml_dtypes, name))


def numbers(name: str) -> np.ndarray:
    """All finite values, what lies halfway between two of them, neighbours of that, and what is far too large."""
    finite = codes(name).astype(np.float32)
    finite = np.unique(finite[np.isfinite(finite)])
    halves = (finite[1:] + finite[:-1]) / np.float32(2)
    beyond = np.float32([finite[-1] * 1.5, -finite[-1] * 1.01, 1e30, -1e30, 1e-30, -1e-30, 0.0, -0.0, np.inf, -np.inf])
    values = np.concatenate([finite, halves, np.nextafter(halves, np.float32(np.inf)), beyond, np.float32([np.nan])])
    return np.concatenate([values, np.nextafter(halves, -np.float32(np.inf))]).astype(np.float32)


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize(("name", "target"), on_targets(STORAGE_DTYPES))
def test_every_code_is_decoded(name: str, target: str) -> None:
    values = codes(name)
    x = gi.var("x", shape=values.shape, dtype=name)
    found = run(gi.decode(x), x, values, target)
    expected = values.astype(np.float32 if "float" in name else np.uint8 if name.startswith("u") else np.int8)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[is_number], np.signbit(expected)[is_number])


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize(("name", "target"), on_targets(FLOATS))
def test_floats_become_the_nearest(name: str, saturate: bool, target: str) -> None:
    kind, values = getattr(ml_dtypes, name), numbers(name)
    x = gi.var("x", shape=values.shape, dtype="float32")
    with np.errstate(all="ignore"):
        limit = np.float32(ml_dtypes.finfo(kind).max)
        expected = (np.clip(values, -limit, limit) if saturate else values).astype(kind)
    same(run(gi.encode(x, dtype=name, saturate=saturate), x, values, target), expected)


@pytest.mark.parametrize(("name", "target"), on_targets(INTEGERS))
def test_integers_keep_their_lowest_bits(name: str, target: str) -> None:
    values = np.arange(-20, 20, dtype=np.int32)
    x = gi.var("x", shape=values.shape, dtype="int32")
    same(run(gi.encode(x, dtype=name), x, values, target), values.astype(getattr(ml_dtypes, name)))


#: Floats, and the exponents that they are rounded to.
SCALES: dict[str, list[tuple[float, float]]] = {
    "up": [(1.0, 1.0), (1.1, 2.0), (2.9, 4.0), (-0.3, 0.5), (0.0, 2.0**-127), (3.4e38, 2.0**127), (np.inf, np.nan)],
    "down": [(1.0, 1.0), (1.9, 1.0), (2.9, 2.0), (0.3, 0.25), (3.4e38, 2.0**127), (np.nan, np.nan)],
    "nearest": [(1.0, 1.0), (1.4, 1.0), (1.5, 2.0), (1.6, 2.0), (0.36, 0.25), (0.375, 0.5), (3.4e38, 2.0**127)],
}


@pytest.mark.parametrize("rounding", SCALES)
def test_scales_are_powers_of_two(rounding: str) -> None:
    given, expected = np.float32(SCALES[rounding]).T
    x = gi.var("x", shape=given.shape, dtype="float32")
    call = gi.encode(x, dtype="float8_e8m0fnu", rounding=rounding)
    np.testing.assert_array_equal(run(gi.decode(call), x, given, "llvm"), expected)
    same(call.op.reference([given], call.attrs), run(call, x, given, "llvm"))


@pytest.mark.parametrize("name", STORAGE_DTYPES)
def test_elements_are_moved_as_they_are(name: str) -> None:
    values = codes(name)[:4].reshape(2, 2)
    x = gi.var("x", shape=(2, 2), dtype=name)
    same(run(gi.transpose(x), x, values, "llvm"), np.ascontiguousarray(values.T))


@pytest.mark.parametrize("name", STORAGE_DTYPES)
def test_text_is_read_back(name: str) -> None:
    x = gi.var("x", shape=("n", 2), dtype=name)
    mod = gi.IRModule.from_expr(gi.Function([x], gi.decode(x)))
    assert gi.structural_equal(gi.parse(str(mod)), mod)
    model = tw.build(mod, target="llvm")
    for stage in ("tensor", "lowered"):
        assert name in model.ir(stage)
        gi.parse(model.ir(stage))


def test_format_of_a_type() -> None:
    kind = float_format(DataType("float8_e5m2"))
    assert (kind.mantissa, kind.bias, kind.greatest, kind.infinite) == (2, 15, 0x7B, 0x7C)
    assert not float_format(DataType("float8_e4m3fnuz")).signed_zero


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: gi.encode(x, dtype="int8"), "dtype: expected one of float8_e4m3fn"),
        (lambda x: gi.encode(x, dtype="int4"), "expected an element type among int32"),
        (lambda x: gi.encode(x, dtype="float8_e5m2", rounding="odd"), "rounding: expected one of up, down, nearest"),
        (lambda x: gi.decode(x), "expected an element type among float8_e4m3fn"),
        (lambda x: gi.encode(x, dtype="float8_e5m2") + gi.encode(x, dtype="float8_e5m2"), "expected an element type"),
    ],
)
def test_what_is_no_storage_type(call: Any, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        call(gi.var("x", shape=(2,), dtype="float32"))
