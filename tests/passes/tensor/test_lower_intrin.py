"""``LowerIntrin``: accuracy of each function in compiled code over all of float32, special values, and what stays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen.llvm import call_primfunc, compile_module
from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext
from tilewright.passes.tensor.intrin import EXPANSIONS
from tilewright.passes.tensor.lower_intrin import LowerIntrin, lower_intrinsics
from tilewright.tensorir import assert_structural_equal, interpret, parse, verify
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, Ramp, Var, call, const
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc
from tilewright.tensorir.target import Target

TARGET = Target("llvm", num_threads=1)
LANES = 16
TWO_OPERANDS = ("pow", "atan2", "fmod")

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    fading = np.exp(-np.abs(x))
    return np.where(x < 0, fading, 1.0) / (1.0 + fading)


#: Each function in float64, whose error is a thousandth of float32's last place or less.
ORACLES: dict[str, Callable[..., np.ndarray]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "erf": _erf,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
}

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, 16777217.0]
SPECIAL += [1.4e-45, -1.4e-45, 1.1754944e-38, -1.1754944e-38, 3.4028235e38, -3.4028235e38, 1e-8, -1e-8]

#: Where a function changes its form, saturates, overflows or cancels.
CRITICAL = [0.0, 1e-8, 2**-13, 0.01, 0.5, 0.6, 2 / 3, 1.0, 4 / 3, math.pi / 2, math.pi, 3.925, 9.01, 20.0, 87.336]
CRITICAL += [88.7228, 103.97, 127.99, 150.0, 1e5 * math.pi, 131072.0, 1e8, 5.6e22]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def _samples(stride: int = 9973) -> np.ndarray:
    """Special values, every ``stride``-th bit pattern of float32, and neighbourhoods of critical points."""
    rng = np.random.default_rng(3)
    patterns = np.arange(0, 2**32, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = [point * (1 + 2.0**-scale * rng.uniform(-1, 1, 500)) for point in CRITICAL for scale in (4, 10, 20)]
    near += [rng.uniform(-bound, bound, 10_000) for bound in (0.1, 1.5, 5.0, 20.0, 110.0, 1e5)]
    near.append(np.round(rng.uniform(-1e6, 1e6, 5000)) * (math.pi / 2))  # zeros of sine and cosine
    values = np.concatenate([np.array(SPECIAL), *near]).astype(np.float32)
    values = np.concatenate([values, -values, patterns])
    return values[: len(values) // LANES * LANES]


def _sample_pairs() -> list[np.ndarray]:
    """All pairs of special values, pairs with moderate powers, of any bit patterns, and with large quotients."""
    rng = np.random.default_rng(4)
    first, second = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    count = 100_000
    bases = rng.lognormal(0, 3, count) * rng.choice([-1.0, 1.0], count)
    exponents = np.where(rng.random(count) < 0.5, rng.normal(0, 10, count), rng.integers(-40, 40, count))
    anything = rng.integers(0, 2**32, (2, count), dtype=np.uint64).astype(np.uint32).view(np.float32)
    divisors = np.ldexp(rng.uniform(1, 2, count), rng.integers(-149, -20, count)).astype(np.float32)
    multiples = divisors * np.floor(np.exp2(rng.uniform(0, 60, count)))  # remainders close to 0 and to the divisor
    largest, smallest = np.full(16, 3.4028235e38), np.arange(1, 17) * 2.0**-149
    x = np.concatenate([first, largest, bases, anything[0], multiples]).astype(np.float32)
    y = np.concatenate([second, smallest, exponents, anything[1], divisors]).astype(np.float32)
    size = len(x) // LANES * LANES
    return [x[:size].copy(), y[:size].copy()]


def _kernel(value: Callable[..., Expr], arity: int, size: int, lanes: int, dtype: str = "float32") -> PrimFunc:
    """``out[i] = value(a[i], b[i])``, in vectors."""
    buffers = [Buffer(name, (const(size, "int64"),), DataType(dtype)) for name in "ab"[:arity]]
    out = Buffer("out", (const(size, "int64"),), DataType(dtype))
    i = Var("i")
    index = Ramp(i * lanes, const(1, "int64"), lanes) if lanes > 1 else i
    store = BufferStore(out, value(*[BufferLoad(buffer, (index,)) for buffer in buffers]), (index,))
    body = For(i, const(0, "int64"), const(size // lanes, "int64"), "serial", store)
    return PrimFunc("kernel", (*buffers, out), body, {"num_outputs": 1})


def _lower(func: PrimFunc, opt_level: int = 2) -> PrimFunc:
    with PassContext(opt_level=opt_level):
        lowered = LowerIntrin(TARGET)(IRModule({"kernel": func}))["kernel"]
    assert isinstance(lowered, PrimFunc)
    verify(lowered)
    return lowered


def _calls(func: PrimFunc) -> set[str]:
    return {node.name for node in walk(func.body) if isinstance(node, Call)}


def _run(func: PrimFunc, *args: np.ndarray) -> np.ndarray:
    out = np.empty_like(args[0])
    call_primfunc(compile_module([func], TARGET), func, *args, out)
    return out


def _errors(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units in the last place of the exact value (2**-149 below the normal range); infinite for a wrong
    NaN, infinity or sign of zero. Beyond the largest float32 the next power of two stands for infinity."""
    huge = 2.0**128
    size = np.abs(exact)
    exponent = np.frexp(np.where(np.isfinite(size), size, 1.0))[1] - 1
    unit = np.exp2(np.clip(exponent, -126, 127) - 23.0)
    distance = np.abs(np.clip(found.astype(np.float64), -huge, huge) - np.clip(exact, -huge, huge)) / unit
    distance = np.where(np.isnan(found) & np.isnan(exact), 0.0, distance)
    wrong = np.isnan(found) != np.isnan(exact)
    wrong |= np.isinf(exact) & (found != exact)
    wrong |= (exact == 0) & (np.signbit(found) != np.signbit(exact))
    return np.where(wrong, np.inf, distance)


def _check(name: str, found: np.ndarray, args: list[np.ndarray], limit: float) -> None:
    exact = ORACLES[name](*[arg.astype(np.float64) for arg in args])
    errors = _errors(found, exact)
    worst = int(np.argmax(errors))
    point = ", ".join(float(arg[worst]).hex() for arg in args)
    message = f"{name}({point}): {errors[worst]:.3f} ulp off, found {found[worst]!r}, exact {exact[worst]!r}"
    assert errors[worst] <= limit, message


@pytest.mark.parametrize(("opt_level", "limit"), [(2, 2.0), (3, 4.0)])
@pytest.mark.parametrize("name", sorted(ORACLES))
def test_compiled_function_is_accurate_over_all_of_float32(name: str, opt_level: int, limit: float) -> None:
    args = _sample_pairs() if name in TWO_OPERANDS else [_samples()]
    func = _lower(_kernel(lambda *xs: call(name, *xs), len(args), len(args[0]), LANES), opt_level)
    assert name == "sqrt" or name not in _calls(func)
    _check(name, _run(func, *args), args, limit)


@pytest.mark.parametrize("name", sorted(EXPANSIONS))
def test_interpreted_vectors_and_compiled_scalars_are_as_accurate(name: str) -> None:
    """The interpreter rounds each operation by itself, so nothing may depend on a code generator that contracts."""
    lanes = 2048
    args = _sample_pairs() if name in TWO_OPERANDS else [_samples(1_999_993)]
    args = [np.ascontiguousarray(arg[: len(arg) // lanes * lanes][: 8 * lanes]) for arg in args]
    vectors = _lower(_kernel(lambda *xs: call(name, *xs), len(args), len(args[0]), lanes))
    found = np.empty_like(args[0])
    interpret(vectors, *args, found)
    _check(name, found, args, 2.0)
    scalars = _lower(_kernel(lambda *xs: call(name, *xs), len(args), len(args[0]), 1))
    _check(name, _run(scalars, *args), args, 2.0)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "pow"])
def test_without_fused_multiply_add_functions_lose_little(name: str) -> None:
    lanes = 2048
    args = _sample_pairs() if name in TWO_OPERANDS else [_samples(1_999_993)]
    args = [np.ascontiguousarray(arg[: len(arg) // lanes * lanes][: 8 * lanes]) for arg in args]
    func = _kernel(lambda *xs: call(name, *xs), len(args), len(args[0]), lanes)
    lowered = lower_intrinsics(func, Target("llvm", mcpu="x86-64-v2"))
    assert "fma" not in _calls(lowered)
    found = np.empty_like(args[0])
    interpret(lowered, *args, found)
    _check(name, found, args, 4.0)


@pytest.mark.parametrize(("opt_level", "limit"), [(2, 2.0), (3, 4.0)])
@pytest.mark.parametrize(
    "exponent", [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.25, 0.5, 0.75, 1.5, -0.25, -0.5, -0.75, -1.5, -2.0, 1 / 3]
)
def test_power_of_a_constant_is_that_of_a_variable(exponent: float, opt_level: int, limit: float) -> None:
    x = _samples(99_991)
    func = _lower(_kernel(lambda a: call("pow", a, const(exponent, a.dtype)), 1, len(x), LANES), opt_level)
    _check("pow", _run(func, x), [x, np.full_like(x, exponent)], limit)


@pytest.mark.parametrize(
    ("exponent", "roots"), [(0.25, 2), (0.5, 1), (0.75, 2), (1.5, 1), (-0.25, 2), (-0.5, 1), (1 / 3, 0), (-0.75, 0)]
)
def test_powers_of_quarters_are_roots(exponent: float, roots: int) -> None:
    func = _lower(_kernel(lambda a: call("pow", a, const(exponent, a.dtype)), 1, LANES, LANES), 3)
    assert [node.name for node in walk(func.body) if isinstance(node, Call)].count("sqrt") == roots


def test_power_of_two_is_one_multiplication() -> None:
    func = _lower(_kernel(lambda a: call("pow", a, const(2.0, a.dtype)), 1, LANES, LANES))
    assert not _calls(func)


def test_huge_arguments_of_a_sine_do_not_disturb_the_other_lanes() -> None:
    x = np.tile(np.array([1.0, 3e38, math.nan, 2.0, math.inf, -1e10, -0.0, 0.5], np.float32), 4)
    func = _lower(_kernel(lambda a: call("sin", a), 1, len(x), LANES))
    _check("sin", _run(func, x), [x], 2.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sigmoid", "log", "sin"])
def test_half_types_are_computed_in_float32(name: str, dtype: str) -> None:
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    x = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(kind)
    func = _lower(_kernel(lambda a: call(name, a), 1, len(x), LANES, dtype))
    assert name not in _calls(func)
    found = _run(func, x)
    exact = ORACLES[name](x.astype(np.float64))
    step = 2.0 ** (-10 if dtype == "float16" else -7)
    # The double rounding is off by at most a little more than half a unit, which is step times the value.
    finite = np.isfinite(exact) & (np.abs(exact) < float(ml_dtypes.finfo(kind).max))
    assert np.array_equal(np.isnan(found.astype(np.float32)), np.isnan(exact))
    smallest = float(ml_dtypes.finfo(kind).smallest_subnormal)
    error = np.abs(found.astype(np.float64) - exact)[finite]
    assert np.all(error <= np.maximum(0.501 * step * np.abs(exact[finite]), 0.501 * smallest))


def test_functions_of_float64_stay_calls() -> None:
    func = _kernel(lambda a: call("exp", a), 1, 16, 1, "float64")
    assert _lower(func) is func


def test_an_argument_and_a_shared_call_are_computed_once() -> None:
    def twice(a: Expr) -> Expr:
        value = call("tanh", call("exp", a))
        return value * value

    once = _lower(_kernel(lambda a: call("tanh", call("exp", a)), 1, LANES, LANES))
    shared = _lower(_kernel(twice, 1, LANES, LANES))
    assert sum(1 for _ in walk(shared.body)) - sum(1 for _ in walk(once.body)) <= 4


@pytest.mark.parametrize("lanes", [1, LANES])
def test_long_chains_of_calls_do_not_nest_deeply(lanes: int) -> None:
    def chain(a: Expr) -> Expr:
        for _ in range(60):
            a = call("sin", a)
        return a

    x = np.linspace(-3, 3, 4 * LANES, dtype=np.float32)
    func = _lower(_kernel(chain, 1, len(x), lanes))
    exact = x.astype(np.float64)
    for _ in range(60):
        exact = np.sin(exact)
    np.testing.assert_allclose(_run(func, x), exact, rtol=1e-5)
    assert str(parse(str(func))) == str(func)


def test_conditions_bounds_and_lets_may_hold_calls(keeps_results: Callable[..., PrimFunc]) -> None:
    text = """
    primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32]) {
      for i in range(8) {
        let e: float32 = exp(A[i])
        if tanh(e) > 0.5 {
          for j in range(int64(sigmoid(A[i]) * 4.0)) {
            B[i] = B[i] + log(e)
          }
        } else {
          B[i] = 0.0
        }
      }
    }
    """
    after = keeps_results(lower_intrinsics, text, rtol=1e-5)
    assert not _calls(after) & set(EXPANSIONS)


def test_divisions_of_nonnegative_indices_truncate(rewrites: Callable[..., None]) -> None:
    before = """
    primfunc @f(A: Buffer[(n,), float32], B: Buffer[(n,), float32], n: int64) {
      for i in range(n) {
        B[i] = A[i // 8 * 8 + i % 8]
      }
      for j in range(-4, extent=8) {
        B[(j // 2 + 2) % 2] = A[0]
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(n,), float32], B: Buffer[(n,), float32], n: int64) {
      for i in range(n) {
        B[i] = A[truncdiv(i, 8) * 8 + truncmod(i, 8)]
      }
      for j in range(-4, extent=8) {
        B[truncmod(j // 2 + 2, 2)] = A[0]
      }
    }
    """
    rewrites(lower_intrinsics, before, expected)


def test_divisions_truncate_where_a_condition_says_that_nothing_is_negative(rewrites: Callable[..., None]) -> None:
    """... and only there, though it is the same division; one by a negative number never does."""
    program = """
    primfunc @f(A: Buffer[(64,), float32], n: int64) {{
      for i in range(64) {{
        if i >= n {{
          A[{inside}] = 1.0
        }}
        A[(i - n) // 3 + 40] = 2.0
        A[i // -2 + 40] = 3.0
      }}
    }}
    """
    rewrites(lower_intrinsics, program.format(inside="(i - n) // 3"), program.format(inside="truncdiv(i - n, 3)"))


def test_equal_divisions_are_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Expr] = []
    prove = Analyzer.prove

    def counted(self: Analyzer, condition: Expr) -> bool:
        asked.append(condition)
        return prove(self, condition)

    monkeypatch.setattr(Analyzer, "prove", counted)
    lines = "\n".join("A[(n + 7 - i) // 3] = A[(n + 7 - i) // 3] + 1.0" for _ in range(10))
    lower_intrinsics(parse(f"primfunc @f(A: Buffer[(64,), float32], n: int64) {{ for i in range(8) {{ {lines} }} }}"))
    assert len(asked) == 1  # the dividend, which has a negative part; the divisor is a positive number


@pytest.mark.parametrize(
    ("index", "lowered"),
    [
        ("(i * n + j) // 4 % 5", "truncmod(truncdiv(i * n + j, 4), 5)"),
        ("min(i + 1, n) // (n + 1)", "truncdiv(min(i + 1, n), n + 1)"),
        ("(i + k) // 4", "truncdiv(i + k, 4)"),
        ("(i + l) // 4", "(i + l) // 4"),
        ("(i - j) // 4", "(i - j) // 4"),
        ("(i + B[0]) // 4", "(i + B[0]) // 4"),
        ("(i + low) // 4", "(i + low) // 4"),
    ],
)
def test_divisions_are_truncated_where_no_part_of_an_operand_is_negative(index: str, lowered: str) -> None:
    text = """primfunc @f(A: Buffer[(64,), float32], B: Buffer[(1,), int64], n: int64) {
      for i in range(8) { for j in range(n, extent=4) { for low in range(-2, extent=4) {
        let k: int64 = j * 2
        let l: int64 = B[0]
        A[INDEX] = 0.0
      } } }
    }"""
    expected = parse(text.replace("INDEX", lowered))
    assert_structural_equal(lower_intrinsics(parse(text.replace("INDEX", index))), expected)


def test_functions_that_skip_optimization_are_lowered_too() -> None:
    func = _kernel(lambda a: call("exp", a), 1, LANES, LANES).with_attr("SkipOptimization", True)
    assert "exp" not in _calls(_lower(func))


def test_the_text_of_an_expansion_parses_back() -> None:
    func = _lower(_kernel(lambda a: call("sin", a), 1, LANES, LANES))
    assert str(parse(str(func))) == str(func)
