"""Index maps: the texts of traces and what they are read as."""

from __future__ import annotations

import pytest

from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Var
from tilewright.tensorir.schedule.index_map import IndexMap, parse_expr

N = Var("n")


@pytest.mark.parametrize(
    "text",
    [
        "lambda i, j: (j, i)",
        "lambda i: (i // 4, i % 4)",
        "lambda i: (n - i - 1,)",
        "lambda i: (min(i, n), max(i, 3))",
        "lambda i: (i * 4 + 2,)",
    ],
)
def test_a_map_is_read_as_it_is_written(text: str) -> None:
    assert str(IndexMap.parse(text, {"n": N})) == text


def test_a_sign_is_a_subtraction_from_zero() -> None:
    assert str(parse_expr("-n", {"n": N})) == "0 - n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lambda i: i", r"expected an index map such as lambda i, j: \(j, i\), found 'lambda i: i'"),
        ("(1, 2)", "expected an index map"),
        ("lambda i: (m,)", r"unknown name m in 'lambda i: \(m,\)'; known are n, i"),
        ("lambda i: (i ** 2,)", r"not an index expression: 'i \*\* 2'"),
        ("lambda i: (open(i),)", r"not an index expression: 'open\(i\)'"),
        ("lambda i: (1.5,)", "not an index expression: '1.5'"),
        ("lambda i: (", "not an index expression: .*never closed"),
    ],
)
def test_other_python_is_no_map(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        IndexMap.parse(text, {"n": N})


def test_a_map_takes_an_index_for_each_dimension() -> None:
    swap = IndexMap.of(lambda i, j: (j, i), 2)
    assert IndexMap.of(swap, 2) is swap
    for other in (swap, lambda i, j: (j, i)):
        with pytest.raises(ScheduleError, match="the index map takes 2 indices; expected 3, one per dimension"):
            IndexMap.of(other, 3)
    assert [var.name for var in IndexMap.of(lambda *indices: indices[::-1], 3).variables] == ["i0", "i1", "i2"]
