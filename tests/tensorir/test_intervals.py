"""Interval arithmetic agrees with arithmetic on all numbers of two intervals."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable

import pytest

from tilewright.tensorir.arith.interval import EVERYTHING, INFINITY, OPERATIONS, Interval
from tilewright.tensorir.folding import trunc_div

INTERVALS = [Interval(a, b) for a, b in itertools.combinations_with_replacement((-7, -3, -1, 0, 1, 2, 9), 2)]

#: Operations whose interval is the least that holds all values, with what they are on numbers (None: not defined).
EXACT: dict[str, Callable[[int, int], int | None]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else None,
    "truncdiv": lambda a, b: trunc_div(a, b) if b else None,
    "min": min,
    "max": max,
}

#: Operations whose interval holds all values.
SOUND: dict[str, Callable[[int, int], int | None]] = {
    "floormod": lambda a, b: a % b if b else None,
    "truncmod": lambda a, b: a - trunc_div(a, b) * b if b else None,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "shr": lambda a, b: a >> b if b >= 0 else None,
}


def numbers(of: Interval) -> range:
    return range(int(of.lower), int(of.upper) + 1)


@pytest.mark.parametrize("name", EXACT)
def test_an_interval_is_that_of_its_numbers(name: str) -> None:
    operation, on_numbers = OPERATIONS[name], EXACT[name]
    for a, b in itertools.product(INTERVALS, INTERVALS):
        values = [each for x in numbers(a) for y in numbers(b) if (each := on_numbers(x, y)) is not None]
        found = operation(a, b)
        assert found == (Interval(min(values), max(values)) if values else EVERYTHING), (a, b)


@pytest.mark.parametrize("name", SOUND)
def test_an_interval_holds_all_numbers(name: str) -> None:
    operation, on_numbers = OPERATIONS[name], SOUND[name]
    for a, b in itertools.product(INTERVALS, INTERVALS):
        values = [each for x in numbers(a) for y in numbers(b) if (each := on_numbers(x, y)) is not None]
        found = operation(a, b)
        assert all(found.contains(value) for value in values), (a, b)
        if a.is_point and b.is_point and values:
            assert found.is_point, (a, b)


def test_an_intersection_and_a_union_are_those_of_the_ends() -> None:
    for a, b in itertools.product(INTERVALS, INTERVALS):
        both = set(numbers(a)) & set(numbers(b))
        assert set(numbers(a.intersect(b))) == both
        assert a.union(b) == Interval(min(a.lower, b.lower), max(a.upper, b.upper))


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("mul", Interval(0, INFINITY), Interval(0, 0), Interval(0, 0)),
        ("mul", Interval(-INFINITY, 2), Interval(3, 4), Interval(-INFINITY, 8)),
        ("mul", Interval(2, INFINITY), Interval(3, INFINITY), Interval(6, INFINITY)),
        ("floordiv", Interval(0, INFINITY), Interval(4, 4), Interval(0, INFINITY)),
        ("floordiv", Interval(-INFINITY, 9), Interval(2, INFINITY), Interval(-INFINITY, 4)),
        ("floordiv", Interval(5, 9), Interval(0, 0), EVERYTHING),
        ("floordiv", Interval(5, 9), Interval(-INFINITY, INFINITY), Interval(-9, 9)),
        ("floordiv", Interval(1 << 62, (1 << 62) + 1), Interval(1, 1), Interval(1 << 62, (1 << 62) + 1)),
    ],
)
def test_ends_that_are_not_known(name: str, a: Interval, b: Interval, expected: Interval) -> None:
    found = OPERATIONS[name](a, b)
    assert found == expected
    for end, given in zip(found, expected, strict=True):
        assert math.isinf(end) or (type(end) is int and end == given)
