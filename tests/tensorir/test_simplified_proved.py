"""Prove with z3 what the analyzer makes of random expressions: equal to the given one, for all integers in the ranges
that it was told (translation validation; Pnueli, Siegel and Singerman, 1998)."""

from __future__ import annotations

import functools
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings

z3 = pytest.importorskip("z3")

from z3_meaning import Meaning, counterexample  # noqa: E402 - it imports z3

from tilewright.tensorir.arith import Analyzer  # noqa: E402
from tilewright.tensorir.expr import BinaryOp, Buffer, Compare, Expr, IntImm, Select, UnaryOp, Var, const  # noqa: E402

#: Loop variables with their extents, a size, and a loop over it.
EXTENTS = {"i": 4, "j": 16, "k": 7}
LOOPS = {name: Var(name) for name in EXTENTS}
SIZE, OVER_SIZE = Var("n"), Var("r")
COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")

PROOFS = settings(deadline=None, suppress_health_check=list(HealthCheck))


def analyzer() -> Analyzer:
    found = Analyzer()
    found.bind_nonnegative(SIZE)
    found.bind(OVER_SIZE, 0, SIZE)
    for name, var in LOOPS.items():
        found.bind(var, 0, EXTENTS[name])
    return found


def ranges(meaning: Meaning) -> list[Any]:
    """Return the facts of :func:`analyzer`."""
    size, row = meaning.of(SIZE), meaning.of(OVER_SIZE)
    told = [size >= 0, row >= 0, row < size]
    for name, var in LOOPS.items():
        told += [meaning.of(var) >= 0, meaning.of(var) < EXTENTS[name]]
    return told


CONSTANTS = st.sampled_from([-7, -3, -1, 0, 1, 2, 3, 4, 5, 8, 12, 16]).map(IntImm)
DIVISORS = st.sampled_from([-4, 2, 3, 4, 5, 6, 8, 12, 16, 28]).map(IntImm)


@functools.cache
def indices(depth: int) -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.sampled_from([*LOOPS.values(), SIZE, OVER_SIZE]), CONSTANTS)
    if depth == 0:
        return leaves
    inner = indices(depth - 1)
    sums = st.builds(BinaryOp, st.sampled_from(["add", "sub"]), inner, inner)
    products = st.builds(BinaryOp, st.just("mul"), inner, CONSTANTS)
    quotients = st.builds(
        BinaryOp,
        st.sampled_from(["floordiv", "floormod", "floordiv", "floormod", "truncdiv", "truncmod"]),
        inner,
        DIVISORS,
    )
    extremes = st.builds(BinaryOp, st.sampled_from(["min", "max"]), inner, inner)
    selects = st.builds(Select, conditions(depth - 1), inner, inner)
    return st.one_of(leaves, sums, sums, products, quotients, quotients, extremes, selects)


@functools.cache
def conditions(depth: int) -> st.SearchStrategy[Expr]:
    compared = st.builds(Compare, st.sampled_from(COMPARES), indices(depth), indices(depth))
    if depth == 0:
        return compared
    inner = conditions(depth - 1)
    both = st.builds(BinaryOp, st.sampled_from(["and", "or"]), inner, inner)
    return st.one_of(compared, compared, both, st.builds(UnaryOp, st.just("not"), inner))


def proved(meaning: Meaning, before: Expr, after: Expr, told: list[Any]) -> None:
    """Fail if the expressions differ; leave the example out if z3 does not decide."""
    try:
        found = counterexample(meaning.of(before) == meaning.of(after), told, seconds=1)
    except TimeoutError:
        assume(False)
    else:
        assert found is None, f"{before!s} became {after!s}, which differs where {found}"


@settings(PROOFS, max_examples=150)
@given(st.one_of(indices(3), conditions(2)))
def test_a_simplified_index_is_equal_for_all_sizes(expr: Expr) -> None:
    meaning = Meaning(unlimited=True)
    proved(meaning, expr, analyzer().simplify(expr), ranges(meaning))


@settings(PROOFS, max_examples=80)
@given(conditions(2), st.one_of(indices(2), conditions(2)))
def test_what_is_simplified_under_a_condition_is_equal_where_it_holds(condition: Expr, expr: Expr) -> None:
    known = analyzer()
    with known.assuming(condition):
        after = known.simplify(expr)
    meaning = Meaning(unlimited=True)
    proved(meaning, expr, after, [*ranges(meaning), meaning.of(condition)])


@functools.cache
def data(dtype: str, depth: int) -> st.SearchStrategy[Expr]:
    """Arithmetic on numbers in memory, which wraps."""
    buffer = Buffer("A", (3,), dtype)
    low, high = (0, 255) if dtype.startswith("u") else (-128, 127)
    numbers = st.one_of(st.integers(low, high), st.sampled_from([0, 1, 2, 4, high])).map(lambda n: const(n, dtype))
    leaves = st.one_of(st.integers(0, 2).map(lambda place: buffer[place]), numbers)
    if depth == 0:
        return leaves
    inner = data(dtype, depth - 1)
    simple = ("add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor")
    operations = st.builds(BinaryOp, st.sampled_from(simple), inner, inner)
    divisors = st.sampled_from([1, 2, 3, 8, 16]).map(lambda n: const(n, dtype))
    divisions = st.builds(BinaryOp, st.sampled_from(["floordiv", "floormod", "truncdiv", "truncmod"]), inner, divisors)
    shifts = st.builds(
        BinaryOp, st.sampled_from(["shl", "shr"]), inner, st.integers(0, 7).map(lambda n: const(n, dtype))
    )
    unary = st.builds(UnaryOp, st.sampled_from(["neg", "bitnot"]), inner)
    compared = st.builds(Compare, st.sampled_from(COMPARES), inner, inner)
    return st.one_of(
        leaves, operations, operations, divisions, shifts, unary, st.builds(Select, compared, inner, inner)
    )


@settings(PROOFS, max_examples=200)
@given(st.sampled_from(["int8", "uint8", "int16", "int32", "uint32", "int64"]).flatmap(lambda dtype: data(dtype, 3)))
def test_simplified_data_is_equal_for_all_numbers_of_the_type(expr: Expr) -> None:
    proved(Meaning(), expr, Analyzer().simplify(expr), [])
