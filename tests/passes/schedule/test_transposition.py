"""Formulas that read along another dimension than they write: square tiles, which compute the same values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.schedule.kernels import TARGET, loops_of, run, scheduled
from tilewright.passes.schedule.rule import Declined, Nest, offered_plans
from tilewright.passes.schedule.transposition import ScheduleTransposition, Transposition
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Var
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import PrimFunc

RNG = np.random.default_rng(11)


def formula(shape: tuple[object, ...], read: tuple[object, ...], at: Callable[..., object]) -> PrimFunc:
    """``2 * x[at(..)]`` for each place of ``shape``."""
    x = te.placeholder(read, name="x")
    return te.create_prim_func("f", [x], [te.compute(shape, lambda *place: x[at(*place)] * 2.0, name="t")])


def transpose(rows: object, columns: object) -> PrimFunc:
    return formula((rows, columns), (columns, rows), lambda i, j: (j, i))


def plans(func: PrimFunc) -> list[Transposition] | Declined:
    schedule = Schedule(func)
    (ref,) = schedule.get_blocks()
    found = offered_plans(ScheduleTransposition(), Nest(schedule, ref, TARGET, True))
    return found if isinstance(found, Declined) else list(found)


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (19, 33), (5, 70), (64, 4), (1, 9), (3, 3)])
def test_values_stay(rows: int, columns: int) -> None:
    x = RNG.standard_normal((columns, rows)).astype("f4")
    np.testing.assert_array_equal(run(scheduled(transpose(rows, columns))[0], [x], (rows, columns)), x.T * 2)


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 20])
def test_one_schedule_serves_any_size(rows: int) -> None:
    func, ctx = scheduled(transpose(Var("m"), 20))
    assert any("'transposition'" in remark.message and remark.kind == "applied" for remark in ctx.remarks)
    x = RNG.standard_normal((20, rows)).astype("f4")
    np.testing.assert_array_equal(run(func, [x], (rows, 20), m=rows), x.T * 2)


@pytest.mark.parametrize(
    ("func", "row", "sizes"),
    [
        (transpose(64, 64), "vi0", [8, 4]),
        (transpose(64, 5), "vi0", [4]),
        (transpose(6, 64), "vi0", [4]),
        # Two dimensions that walk memory like one have room together for a tile.
        (formula((2, 4, 64), (64, 2, 4), lambda b, i, j: (j, b, i)), "vi1", [8, 4]),
        # Of two dimensions along which the operand lies, the last one.
        (formula((4, 16, 64), (64, 20), lambda b, i, j: (j, b + i)), "vi1", [8, 4]),
        # Blocks of four channels take no larger tiles.
        (formula((3, 16, 64), (3, 4, 64, 4), lambda b, i, j: (b, i // 4, j, i % 4)), "vi1", [4]),
    ],
)
def test_tiles_are_offered_largest_first(func: PrimFunc, row: str, sizes: list[int]) -> None:
    assert plans(func) == [Transposition("t", row, size) for size in sizes]


def scaled_blocks(pixels: int) -> PrimFunc:
    """Lay out eight channels as a block, each element times a factor of its channel: the batch norm of an image."""
    x, scale = te.placeholder((2, 16, pixels), name="x"), te.placeholder((1, 16, 1), name="scale")
    shape = (2, 2, pixels, 8)
    made = te.compute(shape, lambda n, c, p, i: x[n, c * 8 + i, p] * scale[0, c * 8 + i, 0], name="t")
    return te.create_prim_func("f", [x, scale], [made])


def test_factors_along_the_columns_are_vectors_of_their_own() -> None:
    assert plans(scaled_blocks(64)) == [Transposition("t", "vp", size) for size in (8, 4)]


@pytest.mark.parametrize("pixels", [1, 7, 8, 19])
def test_blocks_of_scaled_channels_have_their_values(pixels: int) -> None:
    x, scale = RNG.standard_normal((2, 16, pixels)).astype("f4"), RNG.standard_normal((1, 16, 1)).astype("f4")
    found = run(scheduled(scaled_blocks(pixels))[0], [x, scale], (2, 2, pixels, 8))
    np.testing.assert_array_equal(found, (x * scale).reshape(2, 2, 8, pixels).swapaxes(2, 3))


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (formula((64, 64), (64, 64), lambda i, j: (i, j)), "reads along the dimension that it writes"),
        (formula((64, 64), (64, 128), lambda i, j: (i, j * 2)), "or along no common other dimension"),
        (transpose(3, 64), "no tile of 8 or 4 rows and columns fits"),
    ],
)
def test_what_no_tile_helps_is_declined(func: PrimFunc, reason: str) -> None:
    found = plans(func)
    assert isinstance(found, Declined) and reason in found.reason


def test_rows_and_columns_of_a_tile_are_the_inner_loops() -> None:
    func, _ = scheduled(transpose(64, 48))
    assert [(loop.kind, str(loop.extent)) for loop in loops_of(func)] == [
        ("parallel", "8"),
        ("serial", "6"),
        ("serial", "8"),
        ("vectorized", "8"),
    ]
    assert [bool(loop.annotations.get("transpose")) for loop in loops_of(func)] == [False, False, True, False]


@pytest.mark.parametrize(
    ("func", "loops"),
    [
        (transpose(48, 640), [("i0", 6), ("i1", 80)]),  # whole rows of the result
        (transpose(640, 48), [("i0", 8), ("i1", 6), ("i0", 10)]),  # whole parts of the operand's rows
        (formula((16, 64, 48), (16, 48, 64), lambda b, i, j: (b, j, i)), [("i0", 16), ("i2", 6), ("i1", 8)]),
        (formula((16, 48, 64), (16, 64, 48), lambda b, i, j: (b, j, i)), [("i0", 16), ("i1", 6), ("i2", 8)]),
    ],
    ids=["long columns", "long rows", "long rows of many", "long columns of many"],
)
def test_tiles_follow_each_other_along_the_longer_dimension(func: PrimFunc, loops: list[tuple[str, int]]) -> None:
    found = [(loop.var.name.split("_")[0], loop.extent.value) for loop in loops_of(scheduled(func)[0])]
    assert found[:-2] == loops


@pytest.mark.parametrize(("rows", "columns"), [(331, 9), (9, 331)])
def test_values_stay_where_tiles_are_cut_off_along_the_longer_dimension(rows: int, columns: int) -> None:
    x = RNG.standard_normal((columns, rows)).astype("f4")
    np.testing.assert_array_equal(run(scheduled(transpose(rows, columns))[0], [x], (rows, columns)), x.T * 2)


@pytest.mark.parametrize(("batch", "tasks"), [(2, 8), (64, 64)])
def test_tasks_are_other_dimensions_where_there_are_enough(batch: int, tasks: int) -> None:
    func, _ = scheduled(formula((batch, 64, 48), (batch, 48, 64), lambda b, i, j: (b, j, i)))
    (outer,) = [loop for loop in loops_of(func) if loop.kind == "parallel"]
    assert outer.extent.value == tasks


def test_smaller_tile_is_tried_where_the_largest_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = ScheduleTransposition.apply

    def fails_for_large(rule: ScheduleTransposition, schedule: Schedule, plan: Transposition) -> None:
        if plan.size > 4:
            raise ScheduleError("too large")
        apply(rule, schedule, plan)

    monkeypatch.setattr(ScheduleTransposition, "apply", fails_for_large)
    _, ctx = scheduled(transpose(64, 48))
    assert [r.message for r in ctx.remarks if r.kind == "plan"] == ["plan of transposition: block t, row vi0, size 4"]


def test_dimension_of_the_columns_has_no_rows() -> None:
    schedule = Schedule(transpose(64, 48))
    with pytest.raises(ScheduleError, match="row: expected one of vi0, found vi1"):
        ScheduleTransposition().apply(schedule, Transposition("t", "vi1", 8))
