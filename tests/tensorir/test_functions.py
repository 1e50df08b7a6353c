"""Check the functions of formulas: one for each declared intrinsic, with NumPy's values, and public reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from both_targets import on_both_targets
from compiled_loops import run_compiled

import tilewright.tensorir as ti
from tilewright.tensorir import tensor_intrins
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.intrinsics import CHECK_INDEX, INTERLEAVED, INTRINSICS
from tilewright.tensorir.profiling import PROFILE_INTRINSICS
from tilewright.tensorir.target import Target

ARGUMENTS = {name: found.arity for name, found in INTRINSICS.items() if found.operands == "float"}

#: NumPy's functions that have other names, or that it does not have.
OTHERS: dict[str, Any] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "erf": np.vectorize(__import__("math").erf, otypes=["float32"]),
    "fma": lambda a, b, c: a * b + c,
    "pow": np.power,
    "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


#: Intrinsics that passes write: profiling, addresses, and the check of an index, which refers to an attribute.
OF_PASSES = {*PROFILE_INTRINSICS, "address_of", CHECK_INDEX}


#: Those that Tilewright registers, before any test registers more.
OWN = frozenset(INTRINSICS) - frozenset(tensor_intrins._REGISTERED)


def test_every_intrinsic_is_a_function() -> None:
    interleaving = {f"interleave_{count}" for count in INTERLEAVED}
    assert OWN - set(ti.__all__) == OF_PASSES | interleaving  # ``interleave`` calls the latter


@pytest.mark.parametrize("count", [2, 3, 15])
def test_interleaved_vectors_are_a_stack_along_the_last_axis(count: int) -> None:
    values = np.random.default_rng(count).standard_normal((count, 4)).astype("float32")
    inputs = [ti.Buffer(f"x{number}", (4,), "float32") for number in range(count)]
    out = ti.Buffer("out", (count * 4,), "float32")
    lanes = [x[ti.Ramp(ti.IntImm(0), ti.IntImm(1), 4)] for x in inputs]
    stores = [
        ti.BufferStore(out, ti.interleave(lanes, part), (ti.Ramp(ti.IntImm(4 * part), ti.IntImm(1), 4),))
        for part in range(count)
    ]
    found = np.zeros(count * 4, "float32")
    ti.interpret(ti.PrimFunc("f", (*inputs, out), ti.SeqStmt(tuple(stores)), {"num_outputs": 1}), *values, found)
    np.testing.assert_array_equal(found.reshape(4, count), values.T)


@pytest.mark.parametrize(("count", "part"), [(4, 0), (17, 0), (1, 0), (3, 3), (2, -1)])
def test_what_cannot_be_interleaved_is_refused(count: int, part: int) -> None:
    vector = ti.Broadcast(ti.FloatImm(1.0), 4)
    with pytest.raises(ArgumentValueError, match=r"interleave: expected (one of 2, 3, 5|a part from 0 to)"):
        ti.interleave([vector] * count, part)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_functions_have_the_values_of_numpy(name: str) -> None:
    arity = ARGUMENTS[name]
    values = np.random.default_rng(3).uniform(0.1, 0.9, (arity, 7)).astype("float32") + (name == "acosh")
    inputs = [ti.placeholder((7,), "float32", f"x{number}") for number in range(arity)]
    out = ti.compute((7,), lambda i: getattr(ti, name)(*[x[i] for x in inputs]))
    found = np.zeros(7, out.dtype.numpy)
    ti.interpret(ti.create_prim_func("f", inputs, [out]), *values, found)
    np.testing.assert_allclose(found, OTHERS.get(name, getattr(np, name, None))(*values), rtol=2e-6)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16"])
def test_functions_of_integers_have_the_values_of_python(dtype: str) -> None:
    values = np.array([1, 2, 77, 100, 64], dtype)
    bits = values.dtype.itemsize * 8
    expected = {
        "abs": values,
        "popcount": [f"{value:b}".count("1") for value in values.tolist()],
        "count_leading_zeros": [bits - value.bit_length() for value in values.tolist()],
    }
    x = ti.placeholder((5,), dtype, "x")
    outs = [ti.compute((5,), lambda i: getattr(ti, name)(x[i]), name) for name in expected]  # noqa: B023
    found = [np.zeros(5, dtype) for _ in outs]
    ti.interpret(ti.create_prim_func("f", [x], outs), values, *found)
    np.testing.assert_array_equal(found, list(expected.values()))
    signed = np.array([-7, 7, -8], "int32")
    y = ti.placeholder((3,), "int32", "y")
    out, quotients = ti.compute((3,), lambda i: ti.truncdiv(y[i], 2) * 10 + ti.truncmod(y[i], 2)), np.zeros(3, "int32")
    ti.interpret(ti.create_prim_func("f", [y], [out]), signed, quotients)
    np.testing.assert_array_equal(quotients, [-31, 31, -40])


def test_numbers_take_the_type_of_the_other_arguments() -> None:
    x = ti.Var("x", "float64")
    assert str(ti.pow(x, 2)) == "pow(x, 2.0)" and ti.pow(x, 2).dtype == "float64"
    assert ti.fma(2, ti.Broadcast(x, 4), 1).dtype == "float64x4"
    assert ti.exp(1).dtype == "float32" and ti.abs(-3).dtype == "int64"
    assert ti.isnan(x).dtype == "bool" and ti.reinterpret("int64", x).dtype == "int64"
    with pytest.raises(TypeError, match="exp: expected float arguments of one type, found int64"):
        ti.exp(ti.Var("n"))


REDUCTIONS: dict[str, tuple[Any, str]] = {
    "sum": (np.sum, "float32"),
    "prod": (np.prod, "float64"),
    "max": (np.max, "int32"),
    "min": (np.min, "uint8"),
    "any": (np.any, "bool"),
    "all": (np.all, "bool"),
    "argmax": (np.argmax, "float32"),
    "argmin": (np.argmin, "int16"),
}


@on_both_targets
def test_reductions_are_public(target: Target) -> None:
    inputs, outs, arrays, expected = [], [], [], []
    for name, (numpy, dtype) in REDUCTIONS.items():
        values = np.random.default_rng(5).integers(0, 2 if dtype == "bool" else 9, (5, 13)).astype(dtype)
        x, k = ti.placeholder((5, 13), dtype, f"x_{name}"), ti.reduce_axis(13, "k")
        outs.append(ti.compute((5,), lambda i: getattr(ti, name)(x[i, k], axis=k), name))  # noqa: B023
        inputs.append(x)
        arrays.append(values)
        expected.append(numpy(values, axis=1))
    func = ti.create_prim_func("f", inputs, outs)
    for run in (ti.interpret, lambda *args: run_compiled(target, *args)):
        found = [np.zeros(5, out.dtype.numpy) for out in outs]
        run(func, *arrays, *found)
        for result, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_a_reduction_over_no_axis_names_the_functions_of_two_values() -> None:
    x = ti.placeholder((5,), "float32", "x")
    with pytest.raises(ValueError, match=r"n is not a reduction axis; make it .* minimum\(\) and maximum\(\)"):
        ti.max(x[0], ti.Var("n"))
    with pytest.raises(ValueError, match=r"^0\.5 is not a reduction axis"):
        ti.max(x[0], 0.5)  # type: ignore[arg-type]
