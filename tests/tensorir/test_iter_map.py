"""Iteration maps against brute force: what a few indices determine of a few variables with small ranges."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.arith.iter_map import affine, coefficient, iter_sum, multiples, only_split, run_length
from tilewright.tensorir.arith.iter_solver import Span, inverse, is_injective
from tilewright.tensorir.arith.quotients import whole_number
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Expr, IntImm, Var, as_expr
from tilewright.tensorir.folding import fold_binary

PROPERTY = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
I, J, K, N = Var("i"), Var("j"), Var("k"), Var("n")
TABLE = Buffer("table", (64,), "int64")


def op(name: str, a: object, b: object) -> Expr:
    """The operation as it stands, not simplified."""
    return BinaryOp(name, as_expr(a), as_expr(b))


@functools.cache
def indices(depth: int) -> st.SearchStrategy[Expr]:
    """Draw an index as schedules and layouts make them of loop variables."""
    leaves = st.sampled_from([I, J, K]).map(lambda var: var)
    if depth == 0:
        return leaves
    inner = indices(depth - 1)
    sizes = st.sampled_from([2, 3, 4, 6, 8, 12]).map(IntImm)
    fused = st.builds(lambda a, size, b: op("add", op("mul", a, size), b), inner, sizes, inner)
    split = st.builds(op, st.sampled_from(["floordiv", "floormod"]), inner, sizes)
    moved = st.builds(op, st.sampled_from(["add", "sub"]), inner, st.integers(0, 5))
    turned = st.builds(op, st.just("sub"), st.integers(0, 5), inner)
    return st.one_of(leaves, fused, split, split, moved, turned)


@st.composite
def maps(draw: Any) -> tuple[list[Expr], dict[Var, tuple[int, int]]]:
    """A few indices, and the ranges (least value, extent) of the variables that occur in them."""
    exprs = draw(st.lists(indices(2), min_size=1, max_size=3))
    if draw(st.booleans()):  # the parts of one number
        whole, size = draw(indices(1)), IntImm(draw(st.sampled_from([2, 4, 6])))
        exprs[-1:] = [op("floordiv", whole, size), op("floormod", whole, size)]
    used = [var for var in (I, J, K) if any(iter_sum(expr, (var,)) != iter_sum(expr, ()) for expr in exprs)]
    starts = st.sampled_from([0, 0, 0, 2, 3])
    return exprs, {var: (draw(starts), draw(st.sampled_from([1, 2, 3, 4, 6, 8]))) for var in used}


def value(expr: Expr, at: dict[Var, int]) -> int:
    if isinstance(expr, Var):
        return at[expr]
    if isinstance(expr, IntImm):
        return expr.value
    assert isinstance(expr, BinaryOp)
    result = fold_binary(expr.op, value(expr.a, at), value(expr.b, at), expr.dtype)
    assert result is not None
    return int(result)


def points(ranges: dict[Var, tuple[int, int]]) -> Iterator[dict[Var, int]]:
    for values in itertools.product(*[range(low, low + extent) for low, extent in ranges.values()]):
        yield dict(zip(ranges, values, strict=True))


def as_spans(ranges: dict[Var, tuple[int, int]]) -> tuple[dict[Var, Span], Analyzer]:
    analyzer = Analyzer()
    for var, (low, extent) in ranges.items():
        analyzer.bind(var, low, extent)
    return {var: (as_expr(low), as_expr(extent)) for var, (low, extent) in ranges.items()}, analyzer


@PROPERTY
@given(maps())
def test_what_is_found_injective_is(made: tuple[list[Expr], dict[Var, tuple[int, int]]]) -> None:
    exprs, ranges = made
    images = [tuple(value(expr, at) for expr in exprs) for at in points(ranges)]
    if is_injective(exprs, *as_spans(ranges)):
        assert len(set(images)) == len(images)


@PROPERTY
@given(maps())
def test_the_inverse_finds_the_point_and_leaves_the_ranges_elsewhere(
    made: tuple[list[Expr], dict[Var, tuple[int, int]]],
) -> None:
    exprs, ranges = made
    places = [Var(f"place{number}") for number in range(len(exprs))]
    found = inverse(exprs, places, *as_spans(ranges))
    if found is None:
        return
    images = {tuple(value(expr, at) for expr in exprs): at for at in points(ranges)}
    for image in itertools.product(*[sorted(set(taken)) for taken in zip(*images, strict=True)]):
        at = {var: value(expr, dict(zip(places, image, strict=True))) for var, expr in found.items()}
        if image in images:
            assert at == images[image]
        else:
            assert any(not low <= at[var] < low + extent for var, (low, extent) in ranges.items())


@pytest.mark.parametrize(
    ("exprs", "extents"),
    [
        ((I, J), (4, 4)),
        ((op("add", op("mul", I, 8), J),), (4, 8)),
        ((op("add", op("mul", J, 6), I),), (4, 8)),
        ((op("sub", 7, I), J), (8, 4)),
        ((op("floordiv", I, 4), J, op("floormod", I, 4)), (12, 3)),
        ((op("floormod", op("floordiv", I, 2), 3), op("floormod", I, 2), op("floordiv", I, 6)), (13, 1)),
        ((op("floordiv", op("floormod", I, 6), 2), op("floormod", I, 2), op("floordiv", I, 6)), (13, 1)),
        ((op("floordiv", op("add", op("mul", I, 8), J), 4), op("floormod", op("add", op("mul", I, 8), J), 4)), (3, 8)),
        ((I, op("add", I, J)), (4, 4)),
    ],
)
def test_maps_of_splits_and_fusions_have_an_inverse(exprs: Sequence[Expr], extents: tuple[int, int]) -> None:
    ranges = {I: (0, extents[0]), J: (0, extents[1])}
    spans, analyzer = as_spans(ranges)
    assert is_injective(exprs, spans, analyzer)
    places = [Var(f"place{number}") for number in range(len(exprs))]
    found = inverse(exprs, places, spans, analyzer)
    assert found is not None
    for at in points(ranges):
        image = {place: value(expr, at) for place, expr in zip(places, exprs, strict=True)}
        assert {var: value(expr, image) for var, expr in found.items()} == at


@pytest.mark.parametrize(
    ("exprs", "extents"),
    [
        ((op("add", I, J),), (4, 4)),
        ((op("add", op("mul", I, 6), J),), (4, 8)),
        ((op("floordiv", I, 4), J), (12, 3)),
        ((op("floormod", I, 4), J), (12, 3)),
        ((op("floordiv", I, 8), op("floormod", I, 4), J), (16, 3)),
        ((op("mul", I, I), J), (4, 4)),
    ],
)
def test_maps_that_lose_or_hide_a_variable_are_not_injective(exprs: Sequence[Expr], extents: tuple[int, int]) -> None:
    spans, analyzer = as_spans({I: (0, extents[0]), J: (0, extents[1])})
    assert not is_injective(exprs, spans, analyzer)


def test_symbolic_sizes_split_and_fuse() -> None:
    spans, analyzer = {I: (as_expr(0), N * 4), J: (as_expr(0), N)}, Analyzer()
    analyzer.bind_nonnegative(N)
    assert is_injective([op("floordiv", I, N), op("floormod", I, N), J], spans, analyzer)
    assert not is_injective([op("floordiv", I, N * 2), op("floormod", I, N), J], spans, analyzer)


@PROPERTY
@given(indices(2))
def test_coefficients_splits_and_runs_are_those_of_the_values(expr: Expr) -> None:
    places = [{I: at, J: 5, K: 7} for at in range(48)]
    line = [value(expr, at) for at in places]
    factor, split, run = coefficient(expr, I), only_split(expr, I), run_length(expr, I)
    if factor is not None:
        assert {b - a for a, b in itertools.pairwise(line)} == {factor}
    if split is not None:
        assert len({whole - value(split.value(I), at) for whole, at in zip(line, places, strict=True)}) == 1
    if run is None:
        assert len(set(line)) == 1
    else:
        assert all(len(set(line[start : start + run])) == 1 for start in range(0, 48 - run, run))


@PROPERTY
@given(indices(2))
def test_a_sum_of_multiples_is_the_index(expr: Expr) -> None:
    found = multiples(expr, (I, J))
    if found is None:
        return
    factors, rest = found
    for at in points({I: (-3, 9), J: (2, 5), K: (-1, 3)}):
        others = {K: at[K]}  # nothing else occurs in the rest
        assert value(rest, others) + sum(factor * at[var] for var, factor in factors.items()) == value(expr, at)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (op("add", op("mul", I, 6), 5), ({I: 6}, 5)),
        (op("sub", op("mul", op("add", I, 2), 3), op("add", J, I)), ({I: 2, J: -1}, 6)),
        (op("mul", 4, op("sub", J, 1)), ({J: 4}, -4)),
        (op("floordiv", N, 4), ({}, op("floordiv", N, 4))),
        (op("mul", I, N), None),
        (op("mul", I, J), None),
        (op("floordiv", I, 4), None),
        (op("floordiv", op("add", I, J), 1), None),
        (BufferLoad(TABLE, (I,)), None),
    ],
)
def test_sums_of_constant_multiples(expr: Expr, expected: tuple[dict[Var, int], object] | None) -> None:
    assert multiples(expr, (I, J)) == (None if expected is None else (expected[0], as_expr(expected[1])))


@pytest.mark.parametrize(
    ("expr", "is_affine"),
    [
        (op("add", op("mul", I, N), J), True),
        (op("sub", op("mul", op("floordiv", K, 4), I), J), True),
        (op("floormod", I, 4), False),
        (op("floordiv", op("add", I, J), 1), False),
        (op("mul", I, J), False),
    ],
)
def test_sums_of_multiples_by_sizes(expr: Expr, is_affine: bool) -> None:
    assert (affine(expr, (I, J)) is not None) == is_affine


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (op("floordiv", I, 6), 6),
        (op("floordiv", op("floordiv", I, 6), 2), 12),
        (op("floordiv", op("floormod", I, 12), 6), 6),
        (BufferLoad(TABLE, (op("floordiv", I, 4),)), 4),
        (op("add", BufferLoad(TABLE, (op("floordiv", I, 6),)), op("mul", op("floordiv", I, 4), N)), 2),
        (op("mul", op("floordiv", I, 6), op("floordiv", I, 4)), 2),
        (op("floordiv", op("add", I, 1), 6), 1),
        (BufferLoad(TABLE, (J,)), None),
    ],
)
def test_neighbours_of_one_value(expr: Expr, expected: int | None) -> None:
    assert run_length(expr, I) == expected


NUMBERS = (I, op("floordiv", I, 3), op("add", I, J))


@st.composite
def neighbours(draw: Any) -> tuple[Expr, Expr]:
    """Indices of two neighbouring dimensions, of 4 and 6 elements, that may be parts of one number."""
    number = draw(st.sampled_from(NUMBERS))
    kind = draw(st.sampled_from(("floor", "trunc")))
    outer = number
    steps = st.tuples(st.sampled_from(("div", "div", "mod")), st.sampled_from([2, 3, 4, 6, 24]))
    for name, divisor in draw(st.lists(steps, min_size=1, max_size=3)):
        outer = op(kind + name, outer, divisor)
    for name in draw(st.lists(st.sampled_from(("add", "sub", "behind")), max_size=2)):
        outer = op("add", J, outer) if name == "behind" else op(name, outer, op("mul", J, 5))
    return outer, op(draw(st.sampled_from((kind, kind, "floor"))) + "mod", number, draw(st.sampled_from([6, 6, 4])))


@PROPERTY
@given(neighbours())
def test_parts_of_one_number_are_put_together(made: tuple[Expr, Expr]) -> None:
    outer, inner = made
    found = whole_number(Analyzer(), outer, IntImm(4), inner, IntImm(6))
    if found is None:
        return
    number, remainder = found
    whole = op(remainder, number, 24) if remainder else number
    for at in points({I: (-50, 100), J: (0, 2)}):
        assert value(whole, at) == value(outer, at) * 6 + value(inner, at)


@pytest.mark.parametrize(
    ("outer", "remainder"),
    [
        (op("floordiv", I, 6), ""),
        (op("floordiv", op("floordiv", I, 2), 3), ""),
        (op("floormod", op("floordiv", I, 6), 4), "floormod"),
        (op("floordiv", op("floormod", I, 24), 6), "floormod"),
        (op("floormod", op("floordiv", I, 6), 5), None),
        (op("floordiv", I, 3), None),
        (op("floordiv", J, 6), None),
        (op("add", op("floordiv", I, 3), J), None),
        (op("sub", J, op("floordiv", I, 6)), None),
        (op("add", J, op("floormod", op("floordiv", I, 6), 4)), None),
    ],
)
def test_quotients_that_go_with_a_remainder(outer: Expr, remainder: str | None) -> None:
    found = whole_number(Analyzer(), outer, IntImm(4), op("floormod", I, 6), IntImm(6))
    assert found == (None if remainder is None else (I, remainder))


@pytest.mark.parametrize(
    ("outer", "whole"),
    [
        (op("add", op("floordiv", I, 6), J), op("add", I, op("mul", J, 6))),
        (op("sub", op("floordiv", I, 6), J), op("add", I, op("mul", op("sub", 0, J), 6))),
        (op("add", J, op("add", op("floordiv", I, 6), N)), op("add", I, op("mul", op("add", J, N), 6))),
        (op("sub", op("add", J, op("floordiv", I, 6)), N), op("add", I, op("mul", op("sub", J, N), 6))),
    ],
)
def test_quotients_that_are_a_term_of_a_sum_go_with_a_remainder(outer: Expr, whole: Expr) -> None:
    assert whole_number(Analyzer(), outer, IntImm(4), op("floormod", I, 6), IntImm(6)) == (whole, "")
