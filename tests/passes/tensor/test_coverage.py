"""Test the facts that CompactBuffer knows where a buffer is read: ranges, conditions word for word, and their
consequences."""

from __future__ import annotations

import pytest

from tilewright.passes.tensor import coverage
from tilewright.passes.tensor.accesses import Access, AccessCollector
from tilewright.passes.tensor.coverage import Knowledge, covers
from tilewright.tensorir import parse
from tilewright.tensorir.expr import Var, as_expr
from tilewright.tensorir.stmt import For, PrimFunc

PROGRAM = """
primfunc @f(C: Buffer[(64,), float32], n: int64) {
  allocate T: Buffer[(64,), float32, stack]
  for i in range(8) {
    for j in range(8) {
      if i * 8 + j < n and j > i {
        T[i * 8 + j] = 0.0
      }
    }
    for k in range(8) {
      if k > i and n > k + i * 8 {
        C[i * 8 + k] = T[i * 8 + k]
      }
    }
  }
}
"""


def accesses(func: PrimFunc) -> tuple[list[Access], list[Access]]:
    """The writes and the reads of the function's only buffer."""
    (usage,) = AccessCollector(func).usages.values()
    return [a for a in usage.accesses if a.is_write], [a for a in usage.accesses if not a.is_write]


def variables(access: Access) -> dict[str, Var]:
    return {place.loop.var.name: place.loop.var for place in access.place.chain() if place.loop is not None}


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows whenever all that holds at a read is taken in."""
    found: list[object] = []
    bind_places = coverage.bind_places

    def counted(*args: object) -> None:
        found.append(args)
        bind_places(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(coverage, "bind_places", counted)
    return found


def test_a_write_under_the_conditions_of_the_read_covers_it_without_a_search(learned: list[object]):
    func = parse(PROGRAM)
    (write,), (read,) = accesses(func)
    known = Knowledge(func)
    outer = next(place for place in read.place.chain() if place.loop is not None)
    with known.at(read):
        assert covers(write, read, outer, known)
    assert learned == []


@pytest.mark.parametrize(
    ("of_read", "covered"),
    [
        ("k > i + 1 and n > k + i * 8", True),  # follows
        ("k > i - 1 and n > k + i * 8", False),
        ("k > i", False),
    ],
)
def test_conditions_may_follow_from_those_of_the_read(learned: list[object], of_read: str, covered: bool):
    func = parse(PROGRAM.replace("k > i and n > k + i * 8", of_read))
    (write,), (read,) = accesses(func)
    known = Knowledge(func)
    outer = next(place for place in read.place.chain() if place.loop is not None)
    with known.at(read):
        assert covers(write, read, outer, known) is covered
    assert len(learned) == 1


@pytest.mark.parametrize(
    ("written", "read", "covered"),
    [
        ("for i in range(64) { T[i // 8, i % 8] = 0.0 }", "T[r, c]", True),
        ("for i in range(60) { T[i // 8, i % 8] = 0.0 }", "T[r, c]", False),
        ("for i in range(64) { T[i // 16, i % 8] = 0.0 }", "T[r, c]", False),
        ("for i in range(8) { for j in range(8) { T[i, (7 - j)] = 0.0 } }", "T[r, c]", True),
        ("for i in range(8) { for j in range(8) { T[j, i] = 0.0 } }", "T[r, c]", True),
        ("for i in range(8) { for j in range(8) { T[i, j] = 0.0 } }", "T[c, r]", True),
        ("for i in range(8) { for j in range(7) { T[i, j] = 0.0 } }", "T[r, c]", False),
        ("for n in range(3) { for i in range(8) { for j in range(8) { T[i, j] = 0.0 } } }", "T[r, c]", True),
        ("for n in range(0) { for i in range(8) { for j in range(8) { T[i, j] = 0.0 } } }", "T[r, c]", False),
        ("for i in range(8) { for j in range(i) { T[i, j] = 0.0 } }", "T[r, c]", False),
        ("for i in range(8) { T[i, i] = 0.0 }", "T[r, r]", True),
        ("for i in range(8) { T[i, i] = 0.0 }", "T[r, c]", False),
        ("for i in range(2) { for j in range(4) { for k in range(8) { T[i * 4 + j, k] = 0.0 } } }", "T[r, c]", True),
        ("for i in range(2) { for j in range(3) { for k in range(8) { T[i * 4 + j, k] = 0.0 } } }", "T[r, c]", False),
        ("for i in range(4) { for k in range(8) { T[i * 2, k] = 0.0 } }", "T[r // 2 * 2, c]", True),
        ("for i in range(4) { for k in range(8) { T[i * 2, k] = 0.0 } }", "T[r, c]", False),
        ("for i in range(4) { for k in range(8) { T[3, k] = 0.0 } }", "T[3, c]", True),
        ("for i in range(4) { for k in range(8) { T[3, k] = 0.0 } }", "T[r, c]", False),
    ],
)
def test_a_write_covers_what_some_iteration_stores(written: str, read: str, covered: bool):
    func = parse(
        "primfunc @f(C: Buffer[(8, 8), float32]) { allocate T: Buffer[(8, 8), float32, stack] for once in range(2) { "
        + f"{written} for r in range(8) {{ for c in range(8) {{ C[r, c] = {read} }} }} }} }}"
    )
    (write,), (found,) = accesses(func)
    known = Knowledge(func)
    outer = next(place for place in found.place.chain() if place.loop is not None)
    with known.at(found):
        assert covers(write, found, outer, known) is covered


def test_what_holds_at_one_read_is_not_taken_to_hold_at_the_next():
    second = "      C[i * 8 + k] = T[i * 8 + k]\n    }\n  }"
    func = parse(PROGRAM.replace("    }\n  }\n}\n", second + "\n}\n"))
    _, (first_read, second_read) = accesses(func)
    known = Knowledge(func)
    at = variables(first_read)
    condition = at["k"] > at["i"]
    with known.at(first_read):
        assert known.prove(condition)
        assert known.prove(at["k"] > at["i"] - 1)
    with known.at(second_read):
        assert not known.prove(condition)
        assert not known.prove(at["k"] > at["i"] - 1)


def test_a_variable_of_several_loops_has_the_range_of_the_loop_around():
    """... and so has an inner variable whose extent depends on it, although its loop is one node."""
    nests = " ".join(f"for i in range({n}) {{ for j in range(8) {{ T[j] = T[j] + 1.0 }} }}" for n in (4, 9, 2))
    func = parse(f"primfunc @f(n: int64) {{ allocate T: Buffer[(64,), float32, stack] {nests} }}")
    i, j = Var("i"), Var("j")
    _, reads = accesses(func)
    for read in reads:
        for place in read.place.chain():
            if place.loop is not None and place.loop.var.name == "i":
                place.loop = For(i, place.loop.min, place.loop.extent, "serial", place.loop.body)
    inner = For(j, as_expr(0), i + 1, "serial", func.body)
    for read in reads:
        for place in read.place.chain():
            if place.loop is not None and place.loop.var is not i:
                place.loop = inner
    known = Knowledge(func)
    largest = []
    for read in reads:
        with known.at(read):
            largest.append(known.ranges.bounds(j).upper)
    assert largest == [3, 8, 1]
