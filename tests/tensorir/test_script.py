"""Check loops that are written as Python: their text, and their values on both targets and in the interpreter, against
NumPy and against Python itself, which runs the same source."""

from __future__ import annotations

import itertools
import linecache
import math
from collections.abc import Callable
from typing import Annotated, Any

import hypothesis.strategies as st
import numpy as np
import pytest
from both_targets import on_both_targets
from compiled_loops import run_compiled
from hypothesis import given, settings

import tilewright as tw
import tilewright.tensorir as ti
from tilewright.tensorir.dtype import TENSOR_DTYPES
from tilewright.tensorir.target import Target

SCALE = 3
WEIGHTS = (1.0, 2.0, 0.5)
RUNS = ("interpreter", "llvm", "numba")


def run(where: str, func: ti.PrimFunc, *args: Any) -> None:
    if where == "interpreter":
        ti.interpret(func, *args)
    else:
        run_compiled(Target(where, num_threads=2 if where == "llvm" else 1), func, *args)


def twice(value: Any) -> Any:
    return value + value


Rows, Columns, Product = ti.Buffer[("n", 5), "float32"], ti.Buffer[(5, 3)], ti.Buffer[("n", 3), np.float32]


@ti.func
def product(a: Rows, b: Columns, c: Product):  # type: ignore[valid-type]
    """The product of matrices."""
    for i, j, k in ti.grid(a.shape[0], 3, 5):
        with ti.block("product"):
            vi, vj, vk = ti.axes("SSR", [i, j, k])
            with ti.init():
                c[vi, vj] = 0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


def test_a_function_of_blocks_is_the_text_that_says_the_same() -> None:
    expected = """
primfunc @product(a: Buffer[(n, 5), float32], b: Buffer[(5, 3), float32], c: Buffer[(n, 3), float32], n: int64) {
  for i in range(n) {
    for j in range(3) {
      for k in range(5) {
        block product(vi: spatial(n) = i, vj: spatial(3) = j, vk: reduction(5) = k) {
          reads a[vi, vk], b[vk, vj]
          writes c[vi, vj]
          init {
            c[vi, vj] = 0.0
          }
          c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
        }
      }
    }
  }
}
"""
    assert isinstance(product, ti.PrimFunc)
    assert ti.to_text(product).split() == expected.split()
    ti.assert_structural_equal(ti.parse(expected), product)


@pytest.mark.parametrize("where", RUNS)
@pytest.mark.parametrize("rows", [1, 7])
def test_a_schedule_takes_a_function_of_blocks(where: str, rows: int) -> None:
    schedule = ti.Schedule(product)
    i, j, _ = schedule.get_loops(schedule.get_block("product"))
    schedule.vectorize(j)
    schedule.split(i, [None, 4])
    rng = np.random.default_rng(rows)
    a, b = rng.standard_normal((rows, 5), "float32"), rng.standard_normal((5, 3), "float32")
    found = np.full((rows, 3), np.nan, "float32")
    run(where, schedule.func, a, b, found, rows)
    np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-6)


@on_both_targets
@pytest.mark.parametrize("handed_over", [False, True])
def test_a_function_is_built_as_it_stands_or_scheduled_by_rules(target: Target, handed_over: bool) -> None:
    func = product.with_attr("schedule", "auto") if handed_over else product
    model = tw.build(func, target)
    rng = np.random.default_rng(2)
    for rows in (1, 19):
        a, b = rng.standard_normal((rows, 5), "float32"), rng.standard_normal((5, 3), "float32")
        np.testing.assert_allclose(model(a, b), a @ b, rtol=1e-5, atol=1e-6)


Vector = Annotated[ti.Buffer, ("n",), "float32"]


@ti.func(name="everything", attrs={"note": 1})
def statements(x: Vector, flags: Annotated[ti.Buffer, ("n",), "bool"], y: Vector, n: int) -> None:
    for i in ti.parallel(n):
        largest = -math.inf
        count = 0
        for d, weight in enumerate(WEIGHTS):  # known now: the body is repeated
            place = i + d - 1
            if place >= 0 and place < n and flags[place]:
                largest = max(largest, x[place] * weight)
                count += 1
            elif not flags[i] or x[i] == 0.0:
                count -= 1
        window = ti.alloc((SCALE,), scope="stack")
        for k in ti.unrolled(SCALE):
            window[k] = x[i - k] if i >= k else 0.0
        total = sum([twice(window[k]) for k in range(SCALE)])
        spread = ti.sqrt(abs(total)) if 0 < i < n - 1 else ti.const(1.0, "float32")
        y[i] = ti.if_then_else(count > 0, largest, total) + spread**2 + ti.cast("float32", count)
    for i in range(1, n, 3):
        y[i] /= 2
    for i in ti.vectorized(4):
        if i < n:
            y[i] = y[i] * x[0]


def statements_of_numpy(x: np.ndarray, flags: np.ndarray) -> np.ndarray:
    n = len(x)
    y = np.zeros(n, "float64")
    for i in range(n):
        places = [(i + d - 1, w) for d, w in enumerate(WEIGHTS)]
        taken = [x[p] * w for p, w in places if 0 <= p < n and flags[p]]
        count = len(taken) - (3 - len(taken)) * (not flags[i] or x[i] == 0)
        total = 2 * x[max(i - SCALE + 1, 0) : i + 1].sum()
        y[i] = (max(taken) if count > 0 else total) + (abs(total) if 0 < i < n - 1 else 1.0) + count
    y[1::3] /= 2
    y[:4] *= x[0]
    return y


@pytest.mark.parametrize("where", RUNS)
def test_every_statement_has_its_meaning(where: str) -> None:
    ti.assert_structural_equal(ti.parse(ti.to_text(statements)), statements)
    assert statements.name == "everything" and statements.attrs == {"note": 1}
    for size in (1, 3, 17):
        rng = np.random.default_rng(size)
        x, flags = rng.standard_normal(size).astype("float32"), rng.integers(0, 2, size).astype("bool")
        found = np.full(size, np.nan, "float32")
        run(where, statements, x, flags, found, size)
        np.testing.assert_allclose(found, statements_of_numpy(x, flags), rtol=2e-5, atol=1e-5)


@on_both_targets
@pytest.mark.parametrize("dtype", [name for name in TENSOR_DTYPES if name != "bool"])
def test_loops_over_every_type(target: Target, dtype: str) -> None:
    vector = ti.Buffer[("n",), dtype]

    @ti.func
    def reversed_prefixes(x: vector, y: vector, n: int):
        running = ti.const(0, dtype)
        for i in range(n):
            running += x[n - 1 - i]
            y[i] = running if running > x[i] else x[i] * 2

    x = np.random.default_rng(3).integers(0, 9, 13).astype(ti.DataType(dtype).numpy)
    sums = np.cumsum(x[::-1].astype("float64"))
    expected = np.where(sums > x.astype("float64"), sums, 2 * x.astype("float64"))
    for run_on in (ti.interpret, lambda *args: run_compiled(target, *args)):
        found = np.zeros_like(x)
        run_on(reversed_prefixes, x, found, 13)
        np.testing.assert_array_equal(found.astype("float64"), expected)


def test_regions_axes_and_conditions_of_blocks_may_be_stated() -> None:
    @ti.func
    def stated(x: Annotated[ti.Buffer, (8, 4)], y: Annotated[ti.Buffer, (8,), "float32"]):
        for i, j in ti.grid(4, 3):
            with ti.block("stated", annotations={"note": 1}):
                vi = ti.spatial(8, i * 3 + j)
                vk = ti.reduce((0, 1), 0)
                ti.where(i * 3 + j < 8)
                ti.needed(vi > vk)
                ti.reads(x[vi, 0:4], x[0, :])
                ti.writes(y[vi])
                y[vi] = x[vi, 0]

    expected = """
primfunc @stated(x: Buffer[(8, 4), float32], y: Buffer[(8,), float32]) {
  for i in range(4) {
    for j in range(3) {
      block stated(vi: spatial(8) = i * 3 + j, vk: reduction(1) = 0) where i * 3 + j < 8 needed vi > vk
        annotations {"note": 1} {
        reads x[vi, 0:+4], x[0, 0:+4]
        writes y[vi]
        y[vi] = x[vi, 0]
      }
    }
  }
}
"""
    ti.assert_structural_equal(stated, ti.parse(expected))


def test_shapes_are_numbers_names_and_formulas_of_them() -> None:
    width, m = 4, ti.Var("m")

    bytes3 = ti.Buffer[("n + 1", width, m), "int8"]

    @ti.func
    def shapes(x: bytes3, s: Annotated[ti.Buffer, ()], y: Annotated[ti.Buffer, ("2 * n",), "int32"], k: ti.Var):
        y[k] = ti.cast("int32", x[n, 0, m - 1])  # noqa: F821
        s[()] = 1

    text = "primfunc @shapes(x: Buffer[(n + 1, 4, m), int8], s: Buffer[(), float32], y: Buffer[(2 * n,), int32], "
    head = ti.to_text(shapes).partition("{")[0]
    assert head.split() == (text + "k: int64, n: int64, m: int64 ) ").replace("shapes(", "shapes( ").split()


def test_what_is_known_is_computed_as_python_does() -> None:
    table, fast = {"a": [1.0, 2.5]}, True

    @ti.func
    def known(x: Annotated[ti.Buffer, (4,)]):
        (first, second), scale = table["a"], 2**3 % 5
        if fast and scale == 3:
            x[0] = first * second if not fast else second
        else:
            x[1] = unknown  # noqa: F821 - not read
        name = f"{'block'}_{scale:02d}"
        with ti.block(name):
            x[min(2, 3)] = len(table) + sum(w * s for w, s in zip(table["a"], (1, 2), strict=True) if w > 1)
        x[(3,)] = [*table["a"], -7.0][-1]

    assert ti.to_text(known.body).split() == (
        ["x[0]", "=", "2.5", "block", "block_03()", "{", "writes", "x[2]", "x[2]", "=", "6.0", "}", "x[3]", "=", "-7.0"]
    )


def test_and_or_and_conditional_expressions_guard_what_python_would_not_evaluate() -> None:
    five = ti.Buffer[(5,), "int64"]

    @ti.func
    def guarded(x: five, y: five):
        for i in range(5):
            far = i < 1 or x[i - 1] > 3
            near = 0 < i < 4 and x[i + 1] // x[i] > 0
            y[i] = x[i + 1] if i != 4 else (1 if far else 2) + (10 if near else 20)

    values, found = np.array([0, 5, 9, 2, 4]), np.zeros(5, "int64")
    ti.interpret(guarded, values, found)
    np.testing.assert_array_equal(found, [5, 9, 2, 4, 22])


def test_numbers_that_a_condition_chooses_among_take_the_type_of_what_they_go_to() -> None:
    double, small = ti.Buffer[(5,), "float64"], ti.Buffer[(5,), "int8"]

    @ti.func
    def chosen(x: double, s: small):
        count = ti.const(0, "int16")
        for i in range(5):
            x[i] = -(1 if i > 2 else 0.5) * 2.0 + (x[0 if i < 2 else 1] if i > 3 else 3)
            s[i] += 1 if i > 2 else (2 if i > 1 else 3)
            count += 1 if i > 2 else 0
        s[0] = ti.cast("int8", count)

    x, s = np.zeros(5), np.full(5, 7, "int8")
    ti.interpret(chosen, x, s)
    np.testing.assert_array_equal(x, [2, 2, 2, 1, 0])
    np.testing.assert_array_equal(s, [2, 10, 9, 8, 8])


# -- Python runs the same source -------------------------------------------------------------------------------------

NAMES = ("s", "t")
SIZE = 7


@st.composite
def expressions(draw: st.DrawFn, loops: tuple[str, ...], depth: int) -> str:
    kind = draw(st.sampled_from(("number", "name", "x", "y") + ("binary", "unary", "conditional") * (depth > 0)))
    if kind == "number":
        return str(draw(st.integers(-5, 5)))
    if kind == "name":
        return draw(st.sampled_from((*NAMES, *loops)))
    below = expressions(loops, depth - 1)
    if kind in ("x", "y"):
        return f"{kind}[({draw(expressions(loops, 0)) if depth <= 0 else draw(below)}) % {SIZE}]" if depth >= 0 else "0"
    a, b = draw(below), draw(below)
    if kind == "unary":
        return draw(st.sampled_from((f"-({a})", f"abs({a})", f"(({a}) // 3)", f"(({a}) % 5)", f"(({a}) & 6)")))
    if kind == "conditional":
        guard = draw(st.booleans())
        taken = f"({a}) // ({b})" if guard else a
        return f"({taken} if {f'({b}) != 0' if guard else draw(conditions(loops, depth - 1))} else {draw(below)})"
    return draw(st.sampled_from((f"({a} + {b})", f"({a} - {b})", f"({a}) * ({b})", f"min({a}, {b})", f"max({a}, {b})")))


@st.composite
def conditions(draw: st.DrawFn, loops: tuple[str, ...], depth: int) -> str:
    a, b = draw(expressions(loops, depth)), draw(expressions(loops, depth))
    kind = draw(st.sampled_from(("<", "<=", "==", "!=", "chain", "reach", "not", "and", "or")))
    if kind == "chain":
        return f"-3 < {a} <= {b}"
    if kind == "reach":  # Python would not find the element
        return f"(0 <= ({a}) < {SIZE} and x[{a}] > ({b}))"
    if kind == "not":
        return f"not ({a} > {b})"
    if kind in ("and", "or"):
        return f"({a} > {b} {kind} {b} != 0)"
    return f"({a}) {kind} ({b})"


@st.composite
def bodies(draw: st.DrawFn, loops: tuple[str, ...] = (), depth: int = 2) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("name", "change", "store", "add") + ("for", "if") * (depth > 0)))
        value = f"({draw(expressions(loops, 2))}) % 1000"
        if kind == "name":
            lines.append(f"{draw(st.sampled_from(NAMES))} = {value}")
        elif kind == "change":
            lines.append(f"{draw(st.sampled_from(NAMES))} {draw(st.sampled_from(('+', '-')))}= {value}")
        elif kind in ("store", "add"):
            place = f"({draw(expressions(loops, 1))}) % {SIZE}"
            lines.append(f"y[{place}] {'+' if kind == 'add' else ''}= {value}")
        elif kind == "for":
            var = f"i{len(loops)}"
            bounds = draw(st.sampled_from(("3", "1, 4", "0, 5, 2", "s % 4")))
            header = draw(st.sampled_from((f"for {var} in range({bounds}):", f"for {var}, {var}b in ti.grid(2, 3):")))
            lines.append(header)
            lines += ["    " + line for line in draw(bodies((*loops, var), depth - 1))]
        else:
            lines.append(f"if {draw(conditions(loops, 1))}:")
            lines += ["    " + line for line in draw(bodies(loops, depth - 1))]
            if draw(st.booleans()):
                lines += ["else:", *["    " + line for line in draw(bodies(loops, depth - 1))]]
    return lines


class Words:
    """The words of tensorir, for a program that Python runs."""

    Buffer = ti.Buffer

    @staticmethod
    def grid(*extents: int) -> Any:
        return itertools.product(*map(range, extents))


def defined(lines: list[str], words: Any) -> Callable[..., None]:
    head = f'def f(x: ti.Buffer[({SIZE},), "int64"], y: ti.Buffer[({SIZE},), "int64"]):'
    text = "\n    ".join([head, *[f"{name} = {number}" for number, name in enumerate(NAMES)], *lines]) + "\n"
    linecache.cache["<random>"] = (len(text), None, text.splitlines(keepends=True), "<random>")
    names: dict[str, Any] = {"ti": words}
    exec(compile(text, "<random>", "exec"), names)
    made: Callable[..., None] = names["f"]
    return made


@settings(max_examples=40, deadline=None)
@given(lines=bodies(), seed=st.integers(0, 2**32 - 1))
def test_random_programs_do_what_python_does(lines: list[str], seed: int) -> None:
    x, y = np.random.default_rng(seed).integers(-9, 9, (2, SIZE))
    expected = y.tolist()
    defined(lines, Words)(x.tolist(), expected)
    func = ti.func(defined(lines, ti))
    found = y.copy()
    ti.interpret(func, x, found)
    assert found.tolist() == [wrapped(value) for value in expected]
    again = ti.parse(ti.to_text(func))
    ti.assert_structural_equal(again, func)


@settings(max_examples=15, deadline=None)
@given(lines=bodies(), seed=st.integers(0, 2**32 - 1))
def test_random_programs_do_the_same_when_they_are_compiled(lines: list[str], seed: int) -> None:
    x, y = np.random.default_rng(seed).integers(-9, 9, (2, SIZE))
    func, expected, found = ti.func(defined(lines, ti)), y.copy(), y.copy()
    ti.interpret(func, x, expected)
    run("llvm", func, x, found)
    np.testing.assert_array_equal(found, expected)


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


@ti.func
def windows(x: Vector, y: Vector, n: int):
    for i in range(n):
        with ti.block("windows"):
            vi = ti.spatial(n, i)
            total = 0.0
            for k in range(3):
                if vi + k < n:
                    total += x[vi + k]
            y[vi] = total


@pytest.mark.parametrize("where", RUNS)
def test_a_block_has_variables_of_its_own(where: str) -> None:
    schedule = ti.Schedule(windows)
    (loop,) = schedule.get_loops(schedule.get_block("windows"))
    _, lanes = schedule.split(loop, [None, 8])
    schedule.vectorize(lanes)
    x, y = np.random.default_rng(0).random(21, "float32"), np.empty(21, "float32")
    for func in windows, schedule.func:
        run(where, func, x, y, 21)
        np.testing.assert_allclose(y, np.convolve(x, np.ones(3), "full")[2:], rtol=1e-5)


def test_variables_may_have_any_name() -> None:
    @ti.func
    def filled(a: ti.Buffer[(4, 2)]):
        for self, stmts in ti.grid(4, 2):
            a[self, stmts] = 1.0

    values = np.zeros((4, 2), "f4")
    ti.interpret(filled, values)
    assert values.all()
