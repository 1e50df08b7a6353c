"""Test the inputs of compiled models: those accepted, those converted, and the errors for all others."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.runtime.dlpack import from_dlpack
from tilewright.tensorir.errors import InputError, TilewrightError


@pytest.fixture(scope="module")
def model(target: tw.Target) -> tw.Executable:
    """Build ``x * 2 + y`` with symbolic rows and three columns."""
    x = gi.var("x", shape=("n", 3), dtype="float32")
    y = gi.var("y", shape=("n", 3), dtype="float32")
    return tw.build(gi.Function([x, y], x * 2.0 + y), target=target)


def rows(count: int, start: float = 0.0) -> np.ndarray:
    return np.arange(start, start + count * 3, dtype=np.float32).reshape(count, 3)


class Foreign:
    """An array of another library, which supports DLPack only."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class OnAnotherDevice(Foreign):
    """An array that is not in the memory of the CPU."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the data is on an accelerator")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_inputs_are_taken_by_position_by_name_and_mixed(model: tw.Executable) -> None:
    x, y = rows(2), rows(2, 5.0)
    for result in (model(x, y), model(y=y, x=x), model(x, y=y)):
        np.testing.assert_array_equal(result, x * 2 + y)


def test_arrays_of_other_libraries_are_read_through_dlpack(model: tw.Executable) -> None:
    result = model(Foreign(rows(4)), rows(4))
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, rows(4) * 3)


def test_an_array_on_another_device_is_refused_by_name(model: tw.Executable) -> None:
    with pytest.raises(InputError, match=r"input 'x'.*OnAnotherDevice that NumPy cannot read.*accelerator"):
        model(OnAnotherDevice(rows(2)), rows(2))


class Narrow(Foreign):
    """An array of a type that NumPy lacks, in 16 or 8 bits, and its strides."""

    def __init__(self, array: np.ndarray) -> None:
        super().__init__(array.view(f"u{array.itemsize}"))
        self.codes = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
        self.code = self.codes[array.dtype.name]

    def __dlpack__(self, **options: Any) -> Any:
        if options:
            raise BufferError("NumPy does not know the type")
        capsule = self._array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        # A DLTensor: its data's address, the device's type and number, the number of axes, then the type's code.
        ctypes.c_uint8.from_address(pointer(capsule, b"dltensor") + 8 + 3 * 4).value = self.code
        return capsule


@pytest.mark.parametrize("columns", [slice(None), slice(1, None, 2)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_numpy_lacks_are_read_through_dlpack_without_a_copy(dtype: str, columns: slice) -> None:
    array = np.arange(-12, 12).reshape(4, 6).astype(getattr(ml_dtypes, dtype))[:, columns]
    found = from_dlpack(Narrow(array))
    assert found.dtype == array.dtype
    assert found.__array_interface__["data"] == array.__array_interface__["data"]
    np.testing.assert_array_equal(found.astype("f4"), array.astype("f4"))


def test_memory_of_another_library_lives_as_long_as_the_array() -> None:
    array = np.ones(1 << 16, ml_dtypes.bfloat16)
    kept = weakref.ref(array)
    found = from_dlpack(Narrow(array))
    del array
    gc.collect()
    assert kept() is not None
    assert found[-1] == 1
    del found
    gc.collect()
    assert kept() is None


def test_an_empty_array_of_a_type_that_numpy_lacks_is_read() -> None:
    assert from_dlpack(Narrow(np.ones((0, 3), ml_dtypes.bfloat16))).shape == (0, 3)


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned
    return view


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "layout",
    [
        np.asfortranarray,
        lambda array: np.repeat(array, 2, axis=0)[::2],
        lambda array: array[::-1].copy()[::-1],
        lambda array: array[:, ::-1].copy()[:, ::-1],
        lambda array: np.broadcast_to(array[:1], array.shape),
        lambda array: np.ma.masked_array(array),
        lambda array: array.view(type("Mine", (np.ndarray,), {})),
        unaligned,
        read_only,
    ],
    ids=[
        "fortran",
        "strided",
        "negative-rows",
        "negative-columns",
        "broadcast",
        "masked",
        "subclass",
        "unaligned",
        "read-only",
    ],
)
def test_every_layout_of_memory_is_read_right_and_left_as_it_was(model: tw.Executable, layout: Any) -> None:
    x = layout(rows(5))
    before = np.array(x)
    np.testing.assert_array_equal(model(x, rows(5)), before * 2 + rows(5))
    np.testing.assert_array_equal(np.asarray(x), before)


def test_one_array_may_be_every_input(model: tw.Executable) -> None:
    x = rows(3)
    np.testing.assert_array_equal(model(x, x), x * 3)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (rows(2).astype(np.float64), r"input 'x': expected float32 of shape \(n, 3\), found element type float64"),
        (rows(2).astype(np.int32), r"input 'x'.*found element type int32; cast it, or call with convert=True"),
        (rows(2).astype(">f4"), r"input 'x'.*found element type >f4; cast it, or call with convert=True"),
        (rows(2)[0], r"input 'x'.*found 1 dimensions, shape \(3,\)"),
        (rows(2)[None], r"input 'x'.*found 3 dimensions, shape \(1, 2, 3\)"),
        (rows(2)[:, :2], r"input 'x'.*found shape \(2, 2\); dimension 1 must be 3"),
        (rows(2).tolist(), r"input 'x'.*found a list; give an array"),
        (None, r"input 'x'.*found a NoneType"),
        ("text", r"input 'x'.*found a str"),
        (np.array([["a", "b", "c"]]), r"input 'x'.*found element type <U1"),
        (np.ones((2, 3), "c8"), r"input 'x'.*found element type complex64"),
    ],
)
def test_an_error_names_the_input_what_was_expected_and_found_and_the_signature(
    model: tw.Executable, x: Any, expected: str
) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        model(x, rows(2))
    assert str(model.signature) in str(caught.value)


def test_a_dimension_with_two_sizes_names_both_inputs(model: tw.Executable) -> None:
    with pytest.raises(InputError, match=r"input 'y'.*dimension 'n' is 2 in input 'x' but 4 here"):
        model(rows(2), rows(4))


def test_a_dimension_bound_twice_by_one_input(target: tw.Target) -> None:
    square = gi.var("square", shape=("n", "n"), dtype="float32")
    model = tw.build(gi.Function([square], square + 1.0), target=target)
    np.testing.assert_array_equal(model(np.zeros((2, 2), np.float32)), np.ones((2, 2)))
    with pytest.raises(InputError, match=r"dimension 'n' is 2 in input 'square' but 3 here"):
        model(np.zeros((2, 3), np.float32))


def test_a_computed_dimension_is_checked(target: tw.Target) -> None:
    x = gi.var("x", shape=("n",), dtype="float32")
    assert isinstance(x.type, gi.TensorType)
    (n,) = x.type.shape
    pairs = gi.var("pairs", shape=(n * 2 + 1,), dtype="float32")
    model = tw.build(gi.Function([x, pairs], gi.concatenate([x, pairs], axis=0)), target=target)
    assert model(np.zeros(2, np.float32), np.ones(5, np.float32)).tolist() == [0, 0, 1, 1, 1, 1, 1]
    with pytest.raises(InputError, match=r"input 'pairs'.*must be 5"):
        model(np.zeros(2, np.float32), np.ones(4, np.float32))


@pytest.mark.parametrize(
    ("args", "named", "expected"),
    [
        ((), {}, "missing input 'x', 'y'"),
        ((rows(1),), {}, "missing input 'y'"),
        ((rows(1),) * 3, {}, "expected 2 inputs, found 3"),
        ((rows(1),), {"x": rows(1)}, "input 'x' is given twice"),
        ((rows(1), rows(1)), {"z": rows(1)}, "there is no input 'z'"),
        ((rows(1), rows(1)), {"y": rows(1)}, "input 'y' is given twice"),
    ],
)
def test_missing_unknown_and_surplus_inputs(model: tw.Executable, args: Any, named: Any, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        model(*args, **named)
    assert str(model.signature) in str(caught.value)


@pytest.mark.parametrize(
    "x",
    [
        rows(2).tolist(),
        rows(2).astype(np.float64),
        rows(2).astype(np.int8),
        rows(2).astype(">f4"),
        rows(2).astype(ml_dtypes.bfloat16),
        np.asfortranarray(rows(2).astype(np.float16)),
    ],
)
def test_other_types_are_converted_when_asked(model: tw.Executable, x: Any) -> None:
    with pytest.raises(InputError):
        model(x, rows(2))
    np.testing.assert_array_equal(model(x, rows(2), convert=True), rows(2) * 3)


def test_an_input_error_is_a_type_error_and_a_value_error(model: tw.Executable) -> None:
    for kind_of_error in (TypeError, ValueError, TilewrightError):
        with pytest.raises(kind_of_error):
            model(None, rows(2))


def test_a_list_that_is_no_array_is_refused_even_when_converting(model: tw.Executable) -> None:
    with pytest.raises(InputError, match=r"input 'x'.*found a list that is not an array"):
        model([[1.0, 2.0, 3.0], [4.0]], rows(2), convert=True)


def test_scalars_of_numpy_are_arrays_without_dimensions(target: tw.Target) -> None:
    x = gi.var("x", shape=(), dtype="float32")
    model = tw.build(gi.Function([x], x + 1.0), target=target)
    for value in (np.float32(2.5), np.array(2.5, np.float32)):
        result = model(value)
        assert result.shape == ()
        assert result == 3.5
    assert model(2.5, convert=True) == 3.5
    with pytest.raises(InputError, match="found a float"):
        model(2.5)


def test_a_model_works_after_it_refused_an_input(model: tw.Executable) -> None:
    for _ in range(3):
        with pytest.raises(InputError):
            model(rows(2), rows(3))
        np.testing.assert_array_equal(model(rows(2), rows(2)), rows(2) * 3)
