"""Every operation on every type, scalar and vector, against NumPy on values with all the edges."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable

import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen.llvm import call_primfunc, compile_module
from tilewright.tensorir.dtype import TENSOR_DTYPES, DataType
from tilewright.tensorir.expr import (
    BinaryOp,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Expr,
    Ramp,
    Select,
    UnaryOp,
    Var,
    as_expr,
    const,
)
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc, sequence
from tilewright.tensorir.target import Target

TARGET = Target("llvm", num_threads=1)
INTEGERS = [name for name in TENSOR_DTYPES if "int" in name]
FLOATS = [name for name in TENSOR_DTYPES if "float" in name]
NUMBERS = INTEGERS + FLOATS
LANES = [1, 8, 5]


def edge_values(dtype: DataType) -> np.ndarray:
    """Values of a type with the ends of its range, zeros of both signs, infinities, NaN and denormals."""
    rng = np.random.default_rng(7)
    if dtype.is_bool:
        return np.array([False, True] * 8)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        fixed = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 5, 7, 100]
        fixed += [-1, -2, -3, -7] if dtype.is_int else []
        return np.array(fixed + [int(v) for v in rng.integers(info.min, info.max, 9, dtype.numpy)], dtype.numpy)
    info = ml_dtypes.finfo(dtype.numpy)
    tiny, huge = float(info.smallest_subnormal), float(info.max)
    fixed = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.5, 0.1, math.inf, -math.inf, math.nan, tiny, -tiny, huge, -huge]
    return np.concatenate([np.array(fixed), rng.normal(size=17) * 10]).astype(dtype.numpy)


def pairs(dtype: DataType) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of edge values, as many as fill vectors of every tested width."""
    values = edge_values(dtype)
    both = np.array(list(itertools.product(values, values)), dtype.numpy)
    both = both[: len(both) // 40 * 40]
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


def by_constant(op: str, constant: float) -> Callable[[Expr], Expr]:
    return lambda x: BinaryOp(op, x, const(constant, x.dtype))


def elementwise(function: str, *args: Expr) -> Call:
    """A function whose result has the type of its arguments."""
    return Call(function, args, args[0].dtype)


def assert_same(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Equal, NaN where NaN is expected; the sign of a zero does not count."""
    same = found == expected
    if found.dtype.kind not in "biu":
        same |= (found != found) & (expected != expected)
    assert same.all(), f"{what}: {np.flatnonzero(~same)[:5]}: {found[~same][:5]}, expected {expected[~same][:5]}"


@dataclasses.dataclass
class Operation:
    """``formula`` of the arrays' elements, in vectors of ``lanes``, and the check of its result; ``what`` it is stands
    in the error."""

    formula: Callable[..., Expr]
    arrays: list[np.ndarray]
    lanes: int
    expected: np.ndarray
    what: str
    check: Callable[[np.ndarray, np.ndarray, str], None] = assert_same

    def function(self, name: str) -> PrimFunc:
        size, lanes, i = len(self.arrays[0]), self.lanes, Var("i")
        index = Ramp(i * lanes, as_expr(1), lanes) if lanes > 1 else i
        inputs = [Buffer(f"x{k}", (size,), array.dtype.name) for k, array in enumerate(self.arrays)]
        value = self.formula(*[BufferLoad(buffer, (index,)) for buffer in inputs])
        output = Buffer("y", (size,), value.dtype.element)
        body = For(i, as_expr(0), as_expr(size // lanes), "serial", BufferStore(output, value, (index,)))
        return PrimFunc(name, (*inputs, output), body)


def check(cases: Iterable[Operation]) -> list[np.ndarray]:
    """Check the operations, each a function of one module: a module for each takes LLVM twice the time. Return their
    results."""
    operations = list(cases)
    functions = [operation.function(f"f{number}") for number, operation in enumerate(operations)]
    module, results = compile_module(functions, TARGET), []
    for operation, function in zip(operations, functions, strict=True):
        output = function.params[-1]
        assert isinstance(output, Buffer)
        results.append(np.zeros(len(operation.arrays[0]), output.dtype.numpy))
        call_primfunc(module, function, *operation.arrays, results[-1])
        operation.check(results[-1], operation.expected, operation.what)
    return results


def assert_same_bits(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    assert found.tobytes() == expected.tobytes(), what


def close_within(rtol: float) -> Callable[[np.ndarray, np.ndarray, str], None]:
    """Return a check for a relative difference of at most ``rtol``."""
    return lambda found, expected, what: np.testing.assert_allclose(found, expected, rtol=rtol, err_msg=what)


def exact_float(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The operation rounded once to the operands' type: half types through float32, which is exact enough."""
    wide = a.dtype if a.dtype in (np.float32, np.float64) else np.float32
    x, y = a.astype(wide), b.astype(wide)
    functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    functions |= {"min": np.minimum, "max": np.maximum}
    with np.errstate(all="ignore"):
        return functions[op](x, y).astype(a.dtype)


def exact_integer(op: str, a: int, b: int, dtype: DataType) -> int:
    """The operation on Python integers, wrapped to the type; what is undefined in C as NumPy defines it."""
    if op in ("floordiv", "floormod", "truncdiv", "truncmod"):
        quotient = (
            0 if b == 0 else a // b if op.startswith("floor") else int(math.copysign(1, a * b)) * (abs(a) // abs(b))
        )
        remainder = 0 if b == 0 else a - quotient * b
        value = quotient if op.endswith("div") else remainder
    elif op in ("shl", "shr"):
        outside = not 0 <= b < dtype.bits
        value = (0 if op == "shl" else -1 if a < 0 else 0) if outside else a << b if op == "shl" else a >> b
    else:
        value = {
            "add": a + b,
            "sub": a - b,
            "mul": a * b,
            "min": min(a, b),
            "max": max(a, b),
            "bitand": a & b,
            "bitor": a | b,
            "bitxor": a ^ b,
        }[op]
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_int and value >> (dtype.bits - 1) else value


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", FLOATS)
def test_float_operations_round_once(name: str, lanes: int) -> None:
    dtype = DataType(name)
    a, b = pairs(dtype)
    check(
        Operation(functools.partial(BinaryOp, op), [a, b], lanes, exact_float(op, a, b), f"{op} {name}")
        for op in ("add", "sub", "mul", "div", "min", "max")
    )


INTEGER_OPS = ["add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max"]
INTEGER_OPS += ["bitand", "bitor", "bitxor", "shl", "shr"]


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", INTEGERS)
def test_integer_operations_wrap_and_never_trap(name: str, lanes: int) -> None:
    dtype = DataType(name)
    a, b = pairs(dtype)
    operations = []
    for op in INTEGER_OPS:
        exact = [exact_integer(op, int(x), int(y), dtype) for x, y in zip(a, b, strict=True)]
        expected = np.array(exact, dtype.numpy)
        operations.append(Operation(functools.partial(BinaryOp, op), [a, b], lanes, expected, f"{op} {name}"))
    check(operations)


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, 64, -1, -3, -8, 0])
def test_division_by_a_constant(divisor: int) -> None:
    dtype = DataType("int32")
    a = np.tile(edge_values(dtype), 8)[:160]
    operations = []
    for op in ("floordiv", "floormod", "truncdiv", "truncmod"):
        expected = np.array([exact_integer(op, int(x), divisor, dtype) for x in a], dtype.numpy)
        for lanes in (1, 8):
            operations.append(Operation(by_constant(op, divisor), [a], lanes, expected, f"{op} {divisor}"))
    check(operations)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremum_with_a_constant_keeps_nan(name: str, op: str) -> None:
    dtype = DataType(name)
    a = np.tile(edge_values(dtype), 5)
    check(
        Operation(formula, [a], 8, exact_float(op, a, np.full_like(a, constant)), f"{op} {constant}")
        for constant in (0.0, 1.5, math.nan)
        for formula in (by_constant(op, constant), lambda x, c=constant: BinaryOp(op, const(c, x.dtype), x))
    )


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", ["bool", *NUMBERS])
def test_comparisons(name: str, lanes: int) -> None:
    dtype = DataType(name)
    a, b = pairs(dtype)
    wide = (lambda v: v.astype(np.float32)) if name in ("float16", "bfloat16") else (lambda v: v)
    functions = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}
    functions |= {"gt": np.greater, "ge": np.greater_equal}
    check(
        Operation(functools.partial(Compare, op), [a, b], lanes, function(wide(a), wide(b)), f"{op} {name}")
        for op, function in functions.items()
    )


@pytest.mark.parametrize("lanes", LANES)
def test_logic_and_selection(lanes: int) -> None:
    dtype = DataType("bool")
    a, b = pairs(dtype)
    functions = {"and": np.logical_and, "or": np.logical_or, "bitxor": np.logical_xor}
    functions |= {"min": np.logical_and, "max": np.logical_or}
    values = [np.arange(len(a), dtype=np.float32), -np.arange(len(a), dtype=np.float32)]
    operations = [
        Operation(functools.partial(BinaryOp, op), [a, b], lanes, function(a, b), op)
        for op, function in functions.items()
    ]
    operations.append(Operation(functools.partial(UnaryOp, "not"), [a], lanes, ~a, "not"))
    operations.append(Operation(Select, [a, *values], lanes, np.where(a, *values), "select"))
    check(operations)


@pytest.mark.parametrize("name", NUMBERS)
def test_unary_operations(name: str) -> None:
    dtype = DataType(name)
    a = np.tile(edge_values(dtype), 5)
    operations = []
    with np.errstate(all="ignore"):
        for lanes in (1, 5):
            operations += [
                Operation(functools.partial(UnaryOp, "neg"), [a], lanes, np.negative(a), f"neg {name}"),
                Operation(functools.partial(elementwise, "abs"), [a], lanes, np.abs(a), f"abs {name}"),
            ]
            if dtype.is_integer:
                operations.append(Operation(functools.partial(UnaryOp, "bitnot"), [a], lanes, ~a, f"bitnot {name}"))
    check(operations)


def function_to(target: DataType, function: str) -> Callable[[Expr], Expr]:
    """A function whose result has another element type than its argument."""
    return lambda x: Call(function, (x,), target.with_lanes(x.dtype.lanes))


def cast_to(target: DataType) -> Callable[[Expr], Expr]:
    return lambda x: Cast(target.with_lanes(x.dtype.lanes), x)


def expected_cast(a: np.ndarray, target: DataType) -> np.ndarray:
    """The conversion by NumPy; a float that does not fit an integer saturates, NaN gives zero."""
    wide = a.astype(np.float64) if a.dtype.kind not in "biu" else a
    with np.errstate(all="ignore"):
        if target.is_bool:
            return wide != 0
        if not target.is_integer or a.dtype.kind in "biu":
            return a.astype(target.numpy)
        info = np.iinfo(target.numpy)
        exact = [
            0 if math.isnan(v) else info.max if v > info.max else info.min if v < info.min else int(v) for v in wide
        ]
        return np.array([min(max(v, info.min), info.max) for v in exact], target.numpy)


@pytest.mark.parametrize("source", TENSOR_DTYPES)
def test_casts_to_every_type(source: str) -> None:
    dtype = DataType(source)
    a = np.tile(edge_values(dtype), 8)[:128]
    check(
        Operation(cast_to(target), [a], lanes, expected_cast(a, target), f"{source} to {target!s}, {lanes} lanes")
        for target in map(DataType, TENSOR_DTYPES)
        for lanes in (1, 16)
    )


def test_every_float16_and_bfloat16_widens_and_every_rounding_boundary_narrows() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    single = DataType("float32")
    for name in ("float16", "bfloat16"):
        dtype = DataType(name)
        values = bits.view(dtype.numpy)
        (widened,) = check([Operation(cast_to(single), [values], 16, values.astype(np.float32), f"{name} to float32")])
        exact = np.sort(widened[np.isfinite(widened)].astype(np.float64))
        middles = ((exact[1:] + exact[:-1]) / 2).astype(np.float32)
        near = np.concatenate(
            [middles, np.nextafter(middles, np.float32(9e9)), np.nextafter(middles, np.float32(-9e9))]
        )
        near = near[: len(near) // 16 * 16]
        with np.errstate(over="ignore"):
            expected = near.astype(dtype.numpy)
        check([Operation(cast_to(dtype), [near], 16, expected, f"float32 to {name}", assert_same_bits)])


def test_float64_rounds_once_to_float16() -> None:
    exact = np.sort(np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64))
    middles = (exact[1:] + exact[:-1]) / 2
    near = np.concatenate([middles, middles * (1 + 2**-40), middles * (1 - 2**-40)])
    near = near[: len(near) // 16 * 16]
    check([Operation(cast_to(DataType("float16")), [near], 16, near.astype(np.float16), "float64 to float16")])


REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "pow": np.power,
    "fmod": np.fmod,
    "atan2": np.arctan2,
    "copysign": np.copysign,
}


@pytest.mark.parametrize("name", FLOATS)
def test_functions_of_floats_round_once(name: str) -> None:
    dtype = DataType(name)
    a, b = pairs(dtype)
    operations = []
    for function, reference in REFERENCES.items():
        two = function in ("pow", "fmod", "atan2", "copysign")
        args = [a, b] if two else [edge_values(dtype)[:24].copy()]
        with np.errstate(all="ignore"):
            expected = reference(*[x.astype(np.float64) for x in args]).astype(dtype.numpy)
        formula = functools.partial(elementwise, function)
        # Two C libraries differ by a unit in the last place of float64.
        rounded = {"float32": close_within(1.2e-7), "float64": close_within(4e-16)}.get(name, assert_same)
        operations += [Operation(formula, args, lanes, expected, f"{function} {name}", rounded) for lanes in (1, 8)]
    check(operations)


@pytest.mark.parametrize("name", FLOATS)
def test_fused_multiply_add_rounds_once(name: str) -> None:
    dtype = DataType(name)
    rng = np.random.default_rng(3)
    a, b, c = (rng.normal(size=160).astype(dtype.numpy) for _ in range(3))
    with np.errstate(all="ignore"):
        wide = np.longdouble if name == "float64" else np.float64
        expected = (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(dtype.numpy)
    rounded = close_within(2.3e-16) if name == "float64" else assert_same
    fma = functools.partial(elementwise, "fma")
    check(Operation(fma, [a, b, c], lanes, expected, "fma", rounded) for lanes in (1, 16))


@pytest.mark.parametrize("name", FLOATS)
def test_classification(name: str) -> None:
    dtype = DataType(name)
    a = np.tile(edge_values(dtype), 5)
    wide = a.astype(np.float64)
    functions = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
    check(
        Operation(function_to(DataType("bool"), function), [a], lanes, reference(wide), function)
        for function, reference in functions.items()
        for lanes in (1, 8)
    )


def test_bits() -> None:
    operations = []
    for name in INTEGERS:
        dtype = DataType(name)
        a = np.tile(edge_values(dtype), 8)[:160]
        unsigned = [int(v) & ((1 << dtype.bits) - 1) for v in a]
        ones = np.array([v.bit_count() for v in unsigned], dtype.numpy)
        zeros = np.array([dtype.bits - v.bit_length() for v in unsigned], dtype.numpy)
        operations += [
            Operation(functools.partial(elementwise, "popcount"), [a], 8, ones, "popcount"),
            Operation(functools.partial(elementwise, "count_leading_zeros"), [a], 8, zeros, "clz"),
        ]
    for source, target in [("float32", "int32"), ("bfloat16", "uint16"), ("float16", "bfloat16"), ("int64", "float64")]:
        a = np.tile(edge_values(DataType(source)), 8)[:160]
        a = a[a == a]
        a = a[: len(a) // 8 * 8]
        reinterpret = function_to(DataType(target), "reinterpret")
        operations.append(Operation(reinterpret, [a], 8, a, f"reinterpret {source}", assert_same_bits))
    check(operations)


@pytest.mark.parametrize("lanes", [2, 5, 16])
def test_reductions_across_lanes(lanes: int) -> None:
    reductions = {
        "reduce_add": np.add,
        "reduce_mul": np.multiply,
        "reduce_min": np.minimum,
        "reduce_max": np.maximum,
    }
    functions = []
    for name in NUMBERS:
        source, result = Buffer("x", (lanes,), name), Buffer("y", (4,), name)
        value = BufferLoad(source, (Ramp(as_expr(0), as_expr(1), lanes),))
        calls = [Call(reduction, (value,), DataType(name)) for reduction in reductions]
        body = sequence(*[BufferStore(result, call, (as_expr(k),)) for k, call in enumerate(calls)])
        functions.append(PrimFunc(f"of_{name}", (source, result), body))
    module = compile_module(functions, TARGET)
    for name, function in zip(NUMBERS, functions, strict=True):
        dtype = DataType(name)
        a = (np.arange(lanes) % 3 + 1).astype(dtype.numpy)
        found = np.zeros(4, dtype.numpy)
        call_primfunc(module, function, a, found)
        wide = a.astype(np.float64) if dtype.is_float else a.astype(dtype.numpy)
        expected = np.array([int(f.reduce(wide, dtype=wide.dtype)) for f in reductions.values()]).astype(dtype.numpy)
        assert_same(found, expected, name)
