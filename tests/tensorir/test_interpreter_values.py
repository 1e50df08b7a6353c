"""Every operation on every type, scalar and vector, against NumPy and exact arithmetic."""

from __future__ import annotations

import itertools
import math
import operator
from fractions import Fraction

import numpy as np
import pytest

from tilewright.tensorir.dtype import STORAGE_DTYPES, TENSOR_DTYPES, DataType
from tilewright.tensorir.errors import OutOfBoundsError
from tilewright.tensorir.expr import (
    COMPARE_OPS,
    BinaryOp,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Compare,
    IntImm,
    Ramp,
    UnaryOp,
    Var,
    as_expr,
)
from tilewright.tensorir.folding import trunc_div, wrap_integer
from tilewright.tensorir.interpreter import interpret
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc, sequence

INTEGERS = [name for name in TENSOR_DTYPES if DataType(name).is_integer]
FLOATS = [name for name in TENSOR_DTYPES if DataType(name).is_float]
LANES = [1, 4]


def assert_same(found, expected):
    """Equal in type and value, NaN to NaN (which NumPy does not know for bfloat16)."""
    found, expected = np.asarray(found), np.asarray(expected)
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    if found.dtype.itemsize == 8:  # what float64 cannot tell apart
        np.testing.assert_array_equal(found, expected)


def apply(make, arrays, result):
    """The values of ``make(*elements)`` for all elements of ``arrays``, by scalars and by vectors of four lanes."""
    size = len(arrays[0])
    assert size % 4 == 0
    outs = []
    for lanes in LANES:
        inputs = [Buffer(f"x{i}", (IntImm(size),), DataType(str(a.dtype))) for i, a in enumerate(arrays)]
        out, i = Buffer("out", (IntImm(size),), result), Var("i")
        index = i if lanes == 1 else Ramp(i * 4, as_expr(1), 4)
        value = make(*[BufferLoad(b, (index,)) for b in inputs])
        loop = For(i, 0, size // lanes, "serial", BufferStore(out, value, (index,)))
        outs.append(np.zeros(size, DataType(result).numpy))
        interpret(PrimFunc("f", (*inputs, out), loop), *arrays, outs[-1])
    assert_same(outs[0], outs[1])
    return outs[0]


def cast_lanes(dtype, value):
    return Cast(DataType(dtype).with_lanes(value.dtype.lanes), value)


def integer_pairs(dtype):
    kind = DataType(dtype)
    low = -(1 << (kind.bits - 1)) if kind.is_int else 0
    high = (1 << (kind.bits - 1)) - 1 if kind.is_int else (1 << kind.bits) - 1
    edges = sorted({low, low + 1, high - 1, high, 0, 1, 2, 3, 7, *([-1, -2, -7] if kind.is_int else [])})
    pairs = list(itertools.product(edges, edges))
    pairs += pairs[: -len(pairs) % 4]
    return [np.array(column, kind.numpy) for column in zip(*pairs, strict=True)]


def float_pairs(dtype):
    edges = [0.0, -0.0, 1.0, -1.5, 3.0, 1e-3, 123.0, -7.0, math.inf, -math.inf, math.nan, 0.1]
    return [np.array(column, DataType(dtype).numpy) for column in zip(*itertools.product(edges, edges), strict=True)]


EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "truncdiv": trunc_div,
    "truncmod": lambda a, b: a - trunc_div(a, b) * b,
    "min": min,
    "max": max,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", EXACT)
def test_integer_operations_are_exact_and_wrap(op, dtype):
    a, b = integer_pairs(dtype)
    if op in ("shl", "shr"):
        b = (np.arange(len(b)) % DataType(dtype).bits).astype(b.dtype)
    elif op.endswith(("div", "mod")):
        b[b == 0] = 1
    found = apply(lambda x, y: BinaryOp(op, x, y), [a, b], dtype)
    expected = [wrap_integer(EXACT[op](int(x), int(y)), DataType(dtype)) for x, y in zip(a, b, strict=True)]
    assert found.tolist() == expected


@pytest.mark.parametrize("pair", [(127, 1), (-128, -1), (-7, 3), (100, 2), (5, 5)])
def test_constants_variables_and_elements_are_operands_alike(pair):
    """Each has code of its own."""
    dtype = DataType("int8")
    names = (Var("p", "int8"), Var("q", "int8"))
    inputs = [Buffer(name, (IntImm(1),), dtype) for name in "ab"]
    kinds = [
        [IntImm(value, dtype), name, BufferLoad(buffer, (as_expr(0),))]
        for value, name, buffer in zip(pair, names, inputs, strict=True)
    ]
    for op in [*EXACT, *COMPARE_OPS]:
        if op in ("shl", "shr") and pair[1] < 0:
            continue
        make = Compare if op in COMPARE_OPS else BinaryOp
        results = [make(op, a, b) for a, b in itertools.product(*kinds)]
        out = Buffer("out", (IntImm(len(results)),), results[0].dtype)
        body = sequence(*[BufferStore(out, value, (as_expr(at),)) for at, value in enumerate(results)])
        found = np.zeros(len(results), out.dtype.numpy)
        interpret(PrimFunc("f", (*inputs, out, *names), body), *[np.array([v], "i1") for v in pair], found, *pair)
        exact = getattr(operator, op)(*pair) if op in COMPARE_OPS else wrap_integer(EXACT[op](*pair), dtype)
        assert found.tolist() == [exact] * 9, op


@pytest.mark.parametrize("op", ["and", "or"])
def test_both_sides_of_and_and_or_are_computed(op):
    x, out = Buffer("x", (IntImm(4),), "bool"), Buffer("out", (IntImm(1),), "bool")
    first, beyond = BufferLoad(x, (as_expr(0),)), BufferLoad(x, (as_expr(4),))
    func = PrimFunc("f", (x, out), BufferStore(out, BinaryOp(op, first, beyond), (as_expr(0),)))
    with pytest.raises(OutOfBoundsError):
        interpret(func, np.full(4, op == "or"), np.zeros(1, bool))


NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", NUMPY)
def test_float_operations_round_once_and_pass_nan_on(op, dtype):
    a, b = float_pairs(dtype)
    found = apply(lambda x, y: BinaryOp(op, x, y), [a, b], dtype)
    with np.errstate(all="ignore"):  # half types: exact or correctly rounded in float64, then rounded again: innocuous
        expected = NUMPY[op](a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    assert_same(found, expected)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("op", COMPARE_OPS)
def test_comparisons(op, dtype):
    a, b = float_pairs(dtype) if dtype in FLOATS else integer_pairs(dtype)
    name = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater"}.get(op)
    with np.errstate(all="ignore"):
        expected = getattr(np, name or "greater_equal")(a, b)
    assert_same(apply(lambda x, y: Compare(op, x, y), [a, b], "bool"), expected)


def test_logical_operations():
    a, b = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    for op, expected in (("and", a & b), ("or", a | b), ("bitxor", a ^ b), ("min", a & b), ("max", a | b)):
        assert_same(apply(lambda x, y, op=op: BinaryOp(op, x, y), [a, b], "bool"), expected)
    assert_same(apply(lambda x: UnaryOp("not", x), [a], "bool"), ~a)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_negation_and_complement(dtype):
    a, _ = float_pairs(dtype) if dtype in FLOATS else integer_pairs(dtype)
    assert_same(apply(lambda x: UnaryOp("neg", x), [a], dtype), np.negative(a))
    if dtype in INTEGERS:
        assert_same(apply(lambda x: UnaryOp("bitnot", x), [a], dtype), np.invert(a))


@pytest.mark.parametrize("target", TENSOR_DTYPES)
@pytest.mark.parametrize("source", TENSOR_DTYPES)
def test_casts(source, target):
    a = np.array([0, 1, 2, 3, 100, 7, 1, 0], DataType(source).numpy)
    if DataType(source).is_float:
        a = np.array([0, 1.5, 2.75, 0.25, 100, 3, 1, 0.5], DataType(source).numpy)
    elif DataType(source).is_int:
        a = np.array([0, -1, 127, -128, 5, -7, 1, 2], DataType(source).numpy)
    found = apply(lambda x: cast_lanes(target, x), [a], target)
    if DataType(source).is_integer and DataType(target).is_integer:
        expected = [wrap_integer(int(v), DataType(target)) for v in a]
        assert found.tolist() == expected
    else:
        assert_same(found, a.astype(DataType(target).numpy))


def test_a_wide_integer_rounds_once_on_its_way_to_float32():
    a = np.array([(1 << 60) + (1 << 36) + 1, (1 << 60) + (1 << 36), 3, 4], np.int64)
    found = apply(lambda x: cast_lanes("float32", x), [a], "float32")
    assert found[0] == float((1 << 60) + (1 << 37)) and found[1] == float(1 << 60)  # above a tie, and at it: even


UNARY = ["exp", "log", "sqrt", "rsqrt", "sigmoid", "tanh", "sin", "erf", "floor", "ceil", "trunc", "round", "abs"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_intrinsics_are_rounded_once_from_float64(name, dtype):
    a = np.array([0.0, 0.5, 1.5, -0.5, 2.5, 3.75, np.inf, np.nan], DataType(dtype).numpy)
    functions = {
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "erf": np.vectorize(math.erf),
        "round": np.rint,
    }
    with np.errstate(all="ignore"):
        expected = (functions.get(name) or getattr(np, name))(a.astype(np.float64)).astype(a.dtype)
    assert_same(apply(lambda x: Call(name, (x,), x.dtype), [a], dtype), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_rounds_once(dtype):
    random, kind = np.random.default_rng(3), DataType(dtype).numpy
    a, b, c = (random.standard_normal(400).astype(kind) for _ in range(3))
    c[::2] = (-(a.astype(np.float64) * b.astype(np.float64))[::2]).astype(kind)  # what remains is the rounding error
    c[1::4] *= kind.type(2.0**-20 if dtype in ("float32", "float64") else 0.01)
    found = apply(lambda x, y, z: Call("fma", (x, y, z), x.dtype), [a, b, c], dtype)
    for x, y, z, value in zip(a, b, c, found, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        error = abs(Fraction(float(value)) - exact)
        for neighbour in (np.nextafter(value, kind.type(math.inf)), np.nextafter(value, kind.type(-math.inf))):
            assert error <= abs(Fraction(float(neighbour)) - exact)


def test_fma_of_float32_sees_through_a_tie_of_float64():
    tiny = np.float32(2.0**-90)
    a, b = np.full(4, 1 + 2.0**-12, np.float32), np.full(4, 1 + 2.0**-12, np.float32)
    c = np.array([tiny, -tiny, 0, tiny], np.float32)  # a * b = 1 + 2^-11 + 2^-24: a tie of float32
    found = apply(lambda x, y, z: Call("fma", (x, y, z), x.dtype), [a, b, c], "float32")
    low, high = np.float32(1 + 2.0**-11), np.float32(1 + 2.0**-11 + 2.0**-23)
    assert_same(found, [high, low, low, high])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bit_counts(dtype):
    a, _ = integer_pairs(dtype)
    bits = DataType(dtype).bits
    patterns = [int(v) % (1 << bits) for v in a]
    popcount = apply(lambda x: Call("popcount", (x,), x.dtype), [a], dtype)
    assert popcount.tolist() == [f"{p:b}".count("1") for p in patterns]
    leading = apply(lambda x: Call("count_leading_zeros", (x,), x.dtype), [a], dtype)
    assert leading.tolist() == [len(f"{p:0{bits}b}") - len(f"{p:0{bits}b}".lstrip("0")) for p in patterns]


def test_reinterpret_keeps_the_bits():
    a = np.array([1.0, -0.0, np.inf, 1e-40], np.float32)
    found = apply(lambda x: Call("reinterpret", (x,), DataType("int32").with_lanes(x.dtype.lanes)), [a], "int32")
    assert_same(found, a.view(np.int32))
    back = apply(lambda x: Call("reinterpret", (x,), DataType("float32").with_lanes(x.dtype.lanes)), [found], "float32")
    assert_same(back.view(np.int32), found)


@pytest.mark.parametrize("dtype", STORAGE_DTYPES)
def test_reinterpret_keeps_the_bits_of_what_is_only_stored(dtype):
    codes = np.arange(256, dtype=np.uint8)
    stored = apply(lambda x: Call("reinterpret", (x,), DataType(dtype).with_lanes(x.dtype.lanes)), [codes], dtype)
    np.testing.assert_array_equal(stored.view(np.uint8), codes)
    back = apply(lambda x: Call("reinterpret", (x,), DataType("uint8").with_lanes(x.dtype.lanes)), [stored], "uint8")
    np.testing.assert_array_equal(back, codes)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("name", ["add", "mul", "min", "max"])
def test_reductions_across_lanes(name, dtype):
    data = np.array([1, 2, 3, 1, 2, 1, 1, 2], DataType(dtype).numpy)
    x, y = Buffer("x", (IntImm(8),), dtype), Buffer("y", (IntImm(1),), dtype)
    load = BufferLoad(x, (Ramp(as_expr(0), as_expr(1), 8),))
    out = np.zeros(1, data.dtype)
    func = PrimFunc("f", (x, y), BufferStore(y, Call("reduce_" + name, (load,), DataType(dtype)), (0,)))
    interpret(func, data, out)
    assert float(out[0]) == {"add": 13, "mul": 24, "min": 1, "max": 3}[name]
