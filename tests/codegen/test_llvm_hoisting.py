"""Test innermost loops: hoisted index arithmetic, stepped pointers, and code alignment."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.codegen.llvm import call_primfunc, compile_module, emit_llvm_ir
from tilewright.tensorir.expr import Buffer, Compare, Expr, Var, as_expr, cast, minimum
from tilewright.tensorir.stmt import BufferStore, For, IfThenElse, PrimFunc, Stmt, sequence
from tilewright.tensorir.target import Target

TARGET = Target("llvm", num_threads=1)


def rows(accesses: int, guarded: bool = False) -> PrimFunc:
    """y[r, j] = x[r, j] + r for the first rows of a matrix of n columns, row after row in the loop over columns."""
    n, m, i, j = Var("n"), Var("m"), Var("i"), Var("j")
    x, y = Buffer("x", (m,)), Buffer("y", (m,))
    stores: list[Stmt] = []
    for row in range(accesses):
        place = (i * accesses + row) * n + j
        stores.append(BufferStore(y, x[place] + float(row), (place,)))
    body = sequence(*stores)
    if guarded:
        body = IfThenElse(j < n - 1, body)
    columns = For(j, as_expr(0), n, "serial", body)
    return PrimFunc("rows", (x, y, n, m), For(i, as_expr(0), as_expr(2), "serial", columns))


def inner_loop(text: str) -> tuple[str, str]:
    """Split the text into the part in front of the loop over columns, and the loop."""
    start, end = text.index("\nloop_j"), text.index("\nend_j")
    return text[:start], text[start:end]


def test_sums_that_a_loop_does_not_change_are_opaque_numbers_before_it():
    before, loop = inner_loop(emit_llvm_ir([rows(12)], TARGET))
    assert before.count("freeze i64") >= 11  # of each row but the first, which is no sum where i * 12 * n is shared
    assert "mul " not in loop and loop.count("freeze") == 1  # of the variable: nothing else counts


def test_short_loops_keep_their_sums():
    before, loop = inner_loop(emit_llvm_ir([rows(2)], TARGET))
    assert "freeze" not in before + loop


def strided(first: Callable[[Var], Expr], extent: int, indices: Callable[[Var, Var], list[Expr]]) -> PrimFunc:
    """y[t + 2, k, m] = x[indices[k]] * m for the iterations t of a loop and m up to ten."""
    n, size, places, j = Var("n"), Var("size"), Var("places"), Var("j")
    x, y = Buffer("x", (size,)), Buffer("y", (places,))
    found = indices(j, n)
    stores: list[Stmt] = []
    for copy in range(10):
        for k, index in enumerate(found):
            stores.append(BufferStore(y, x[index] * float(copy), (((j + 2) * len(found) + k) * 10 + copy,)))
    return PrimFunc("strided", (x, y, n, size, places), For(j, first(n), as_expr(extent), "serial", sequence(*stores)))


def test_addresses_that_a_loop_changes_by_steps_are_pointers():
    func = strided(lambda n: as_expr(0), 5, lambda j, n: [j * 3 + n, n - j, j * n])
    loop = inner_loop(emit_llvm_ir([func], TARGET))[1]
    assert loop.count("phi ptr") == 4  # three into x and one into y, whose addresses are constants apart


def test_quotients_and_bounds_stand_before_the_loop() -> None:
    func = strided(lambda n: as_expr(0), 5, lambda j, n: [j + minimum(n % (n + 3), n // 2)])
    before, loop = inner_loop(emit_llvm_ir([func], TARGET))
    assert "smin" in before and "rem " in before and "div " in before
    assert "smin" not in loop and "rem " not in loop and loop.count("phi ptr") == 2


def test_numbers_that_are_divided_count_in_steps() -> None:
    func = strided(lambda n: as_expr(2), 5, lambda j, n: [(j * 17 + n * 8) // 64, (j * 3 + n) % 7 + minimum(j * n, 9)])
    loop = inner_loop(emit_llvm_ir([func], TARGET))[1]
    assert loop.count("phi i64") == 1 + 3  # the loop's variable, and what is divided or compared
    x, y = np.arange(30, dtype=np.float32), np.zeros((9, 2, 10), np.float32)
    for n in (1, 3, 40):
        call_primfunc(compile_module([func], TARGET), func, x, y.reshape(-1), n, x.size, y.size)
        for j in range(2, 7):
            found = (j * 17 + n * 8) // 64, (j * 3 + n) % 7 + min(j * n, 9)
            assert (y[j + 2] == np.outer(found, np.arange(10))).all(), (n, j)


def test_quotients_stay_in_the_conditions_that_guard_them() -> None:
    x, y, n, j = Buffer("x", (64,)), Buffer("y", (64,)), Var("n"), Var("j")
    stores = [BufferStore(y, x[j + k] * 2.0 + cast("float32", 7 // n), (j + k,)) for k in range(0, 40, 8)]
    guarded = IfThenElse(Compare("gt", n, as_expr(0)), sequence(*stores))
    func = PrimFunc("guarded", (x, y, n), For(j, as_expr(0), as_expr(8), "serial", guarded))
    assert "div " in inner_loop(emit_llvm_ir([func], TARGET))[1]


def test_more_pointers_than_registers_are_not_kept():
    func = strided(lambda n: as_expr(0), 5, lambda j, n: [j + n * row for row in range(16)])
    assert "phi ptr" not in inner_loop(emit_llvm_ir([func], TARGET))[1]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-9, 9)), min_size=1, max_size=4),
    st.integers(-2, 3),
    st.integers(0, 5),
    st.integers(1, 5),
    st.booleans(),
)
def test_pointers_that_step_read_and_write_what_indices_say(
    parts: list[tuple[int, int, int]], first: int, extent: int, n: int, known_later: bool
) -> None:
    shift = 130  # no index is negative: the least sum is -3 * 7 * 5 - 2 * 3 - 9

    def indices(j: Var, size: Var) -> list[Expr]:
        return [(j * a) * size + (j - size) * b - (c - shift) for a, b, c in parts]

    func = strided(lambda size: size + (first - n) if known_later else as_expr(first), extent, indices)
    x = np.arange(300, dtype=np.float32)
    y = np.zeros((10, len(parts), 10), np.float32)
    call_primfunc(compile_module([func], TARGET), func, x, y.reshape(-1), n, x.size, y.size)
    expected = np.zeros_like(y)
    for j in range(first, first + extent):
        for k, (a, b, c) in enumerate(parts):
            expected[j + 2, k] = x[j * a * n + (j - n) * b - c + shift] * np.arange(10)
    assert (y == expected).all()


def windows(parts: list[tuple[int, int, int]], extents: tuple[int, int], first: int) -> PrimFunc:
    """y[c, i, j, k, m] = x[(c * p + i * q) * n + j * s] * m for each k-th (p, q, s) of ``parts``, and m up to ten."""
    n, size, places, c, i, j = (Var(name) for name in ("n", "size", "places", "c", "i", "j"))
    x, y = Buffer("x", (size,)), Buffer("y", (places,))
    place = ((c * extents[0] + (i - first)) * extents[1] + j) * len(parts)
    stores: list[Stmt] = [
        BufferStore(y, x[(c * p + i * q) * n + j * s] * float(copy), ((place + k) * 10 + copy,))
        for copy in range(10)
        for k, (p, q, s) in enumerate(parts)
    ]
    inner = For(j, as_expr(0), as_expr(extents[1]), "serial", sequence(*stores))
    around = For(i, as_expr(first), as_expr(extents[0]), "serial", inner)
    return PrimFunc("windows", (x, y, n, size, places), For(c, as_expr(0), as_expr(3), "serial", around))


def test_addresses_that_an_inner_loop_begins_with_step_in_those_around_it() -> None:
    text = emit_llvm_ir([windows([(3, 2, 1), (1, 5, 2)], (4, 8), 0)], TARGET)
    for name, inner in ("c", "i"), ("i", "j"):
        around = text[text.index(f"\nloop_{name}") : text.index(f"\nloop_{inner}")]
        assert around.count("phi ptr") == 3, name  # two into x, one into y


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4),
    st.tuples(st.integers(0, 3), st.integers(0, 4)),
    st.integers(0, 2),
    st.integers(1, 5),
)
def test_addresses_of_nested_loops_are_what_indices_say(
    parts: list[tuple[int, int, int]], extents: tuple[int, int], first: int, n: int
) -> None:
    func = windows(parts, extents, first)
    x = np.arange(200, dtype=np.float32)
    y = np.zeros((3, *extents, len(parts), 10), np.float32)
    call_primfunc(compile_module([func], TARGET), func, x, y.reshape(-1), n, x.size, y.size)
    expected = np.zeros_like(y)
    for c, i, j in np.ndindex(3, *extents):
        for k, (p, q, s) in enumerate(parts):
            expected[c, i, j, k] = x[(c * p + (i + first) * q) * n + j * s] * np.arange(10)
    assert (y == expected).all()


def test_innermost_loops_start_at_a_line_of_code() -> None:
    assembly = compile_module([rows(12)], TARGET).assembly
    assert assembly.count("\t.p2align\t6\n") == 1  # the loop over columns, not that over rows


def test_what_is_hoisted_is_computed_right_and_out_of_conditions_too():
    for guarded in (False, True):
        func = rows(12, guarded)
        compiled = compile_module([func], TARGET)
        for columns in (0, 1, 2, 7):
            x = np.random.default_rng(1).normal(size=(24, columns)).astype(np.float32)
            y = np.zeros_like(x)
            call_primfunc(compiled, func, x, y, columns, x.size)
            expected = x + np.tile(np.arange(12, dtype=np.float32), 2)[:, None]
            if guarded:
                expected[:, columns - 1 :] = 0
            assert (y == expected).all(), (guarded, columns)
