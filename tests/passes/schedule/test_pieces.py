"""Pieces of a concatenation at unknown places have loops of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import tilewright as tw
from tests.passes.schedule.kernels import run, scheduled
from tilewright import graphir as gi
from tilewright.passes.schedule.cost import MOST_PIECES
from tilewright.passes.schedule.inline import inline_producers
from tilewright.passes.schedule.pieces import separate_pieces
from tilewright.tensorir import parse, structural_equal, to_text
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var
from tilewright.tensorir.guards import if_then_else
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import PrimFunc

Formula = Callable[[Expr, Expr], Expr]


def separated(func: PrimFunc) -> tuple[PrimFunc, list[str]]:
    schedule, remarks = separate_pieces(Schedule(func))
    return schedule.func, remarks


def joined(rows: int, extents: Sequence[Expr | int], formula: Formula = lambda value, i: value) -> PrimFunc:
    """y[r, :] = formula of x0[r, :], x1[r, :], ... one behind the other, with the row ``r``."""
    xs = [te.placeholder((rows, extent), name=f"x{number}") for number, extent in enumerate(extents)]
    ends = [sum(extents[: number + 1], 0) for number in range(len(extents))]

    def element(i: Var, j: Var) -> Expr:
        value = formula(xs[-1][i, j - ends[-2]], i)
        for number in reversed(range(len(xs) - 1)):
            begin = ends[number - 1] if number else 0
            value = if_then_else(j < ends[number], formula(xs[number][i, j - begin], i), value)
        return value

    return te.create_prim_func("joined", xs, [te.compute((rows, ends[-1]), element, name="y")])


BEFORE = """
primfunc @joined(a: Buffer[(3, n), float32], b: Buffer[(3, m), float32], y: Buffer[(3, n + m), float32], n: int64,
                 m: int64) {
  for i in range(3) {
    for j in range(n + m) {
      block y(vi: spatial(3) = i, vj: spatial(n + m) = j) {
        reads a[vi, vj], b[vi, vj - n]
        writes y[vi, vj]
        y[vi, vj] = select(vj < n, a[vi, vj where vj < n] * 2.0, b[vi, vj - n where vj >= n])
      }
    }
  }
}
"""

EXPECTED = """
primfunc @joined(a: Buffer[(3, n), float32], b: Buffer[(3, m), float32], y: Buffer[(3, n + m), float32], n: int64,
                 m: int64) {
  for i in range(3) {
    for j in range(n) {
      block y(vi: spatial(3) = i, vj: spatial(n) = j) {
        reads a[vi, vj]
        writes y[vi, vj]
        y[vi, vj] = a[vi, vj] * 2.0
      }
    }
  }
  for i in range(3) {
    for j in range(m) {
      block y_1(vi: spatial(3) = i, vj: spatial(m) = j) {
        reads b[vi, vj]
        writes y[vi, n + vj]
        y[vi, n + vj] = b[vi, vj]
      }
    }
  }
}
"""


#: The place is known when the kernel runs, and within the row for every value that memory may hold.
READ = BEFORE.replace("n: int64,", "k: Buffer[(1,), uint8], n: int64,").replace(
    "y[vi, vj] = select(vj < n, a[vi, vj where vj < n] * 2.0, b[vi, vj - n where vj >= n])",
    "y[vi, vj] = select(vj < min(int64(k[0]), n), a[vi, vj] * 2.0, 0.0)",
)


def test_each_piece_has_its_own_loops() -> None:
    after, remarks = separated(parse(BEFORE))
    assert structural_equal(after, parse(EXPECTED)), to_text(after)
    assert remarks == ["block y: each of its 2 pieces has its own loops"]


@pytest.mark.parametrize("count", [2, 3, 5, MOST_PIECES])
def test_elements_are_those_of_the_pieces(count: int) -> None:
    sizes = [Var(f"n{number}") for number in range(count)]
    func = joined(3, sizes)
    after, _ = separated(func)
    assert to_text(after).count("block ") == count and "select" not in to_text(after) and "where" not in to_text(after)
    rng = np.random.default_rng(0)
    for extents in (range(count), range(count, 0, -1), [0] * count, [7] * count):
        xs = [rng.standard_normal((3, extent)).astype(np.float32) for extent in extents]
        numbers = {f"n{number}": extent for number, extent in enumerate(extents)}
        for made in (after, scheduled(func)[0]):
            assert (run(made, xs, (3, sum(extents)), **numbers) == np.concatenate(xs, axis=1)).all()


def test_choices_in_a_piece_that_its_conditions_decide_go_away() -> None:
    func = parse(BEFORE.replace("b[vi, vj - n where vj >= n]", "select(vj >= n, b[vi, vj - n where vj >= n], 1.0)"))
    assert structural_equal(separated(func)[0], parse(EXPECTED))


@pytest.mark.parametrize(
    "func",
    [
        pytest.param(joined(3, [16, 32]), id="known places"),
        pytest.param(joined(3, [Var("n")] * (MOST_PIECES + 1)), id="too many"),
        pytest.param(parse(BEFORE.replace("(vi: spatial(3) = i", "(vi: spatial(3) = 2 - i")), id="other loops"),
        pytest.param(parse(BEFORE.replace("vj < n", "vj < n * 2").replace("vj >= n]", "vj >= n * 2]")), id="unproven"),
        pytest.param(parse(BEFORE.replace("vj < n", "vj < vi * n")), id="another place in each row"),
        pytest.param(parse(READ), id="a place that is read"),
    ],
)
def test_other_blocks_stay_whole(func: PrimFunc) -> None:
    after, remarks = separated(func)
    assert after is func and not remarks


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
@pytest.mark.parametrize("target", ["llvm", "numba"])
def test_models_concatenate_what_they_compute(axis: int, dtype: str, target: str) -> None:
    shapes = [[3, 5, 7] for _ in range(3)]
    for number, extent in enumerate((4, 1, 19)):
        shapes[number][axis] = extent
    rng = np.random.default_rng(1)
    given = [(rng.standard_normal(shape) * 3).astype(dtype) for shape in shapes]
    xs = []
    for number, shape in enumerate(shapes):
        xs.append(
            gi.var(
                f"x{number}", shape=tuple(f"d{number}{k}" if k == axis else n for k, n in enumerate(shape)), dtype=dtype
            )
        )
    second = gi.where(gi.equal(xs[1], xs[1]), xs[1], xs[1])
    inner = gi.concatenate(xs[0], second, axis=axis)
    model = tw.build(gi.Function(xs, gi.concatenate(inner, xs[2], axis=axis)), target=target)
    assert (model(*given) == np.concatenate(given, axis=axis)).all()


def test_producers_are_inlined_before() -> None:
    n, m = Var("n"), Var("m")
    x, z = te.placeholder((n,), name="x"), te.placeholder((m,), name="z")
    twice = te.compute((n,), lambda i: x[i] * 2.0, name="twice")
    y = te.compute((n + m,), lambda i: if_then_else(i < n, twice[i], z[i - n]), name="y")
    schedule = Schedule(te.create_prim_func("f", [x, z], [y]))
    inline_producers(schedule)
    after, _ = separate_pieces(schedule)
    assert [ref.name for ref in after.get_blocks()] == ["y", "y_1"]
    assert "select" not in to_text(after.func)
