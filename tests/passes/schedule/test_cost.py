"""The cost model ranks plans, and the next best one is made when those before do not fit."""

from __future__ import annotations

import itertools

import pytest

from tests.passes.schedule.kernels import dense, scheduled
from tilewright.passes.schedule.contraction import ContractionPlan, ScheduleContraction
from tilewright.passes.schedule.cost import (
    TileSpace,
    choose_tile,
    exchanged_tiles,
    ranked_tiles,
    tile_registers,
    tiles_of_a_strip,
    tiles_per_task,
)
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.target import Target

TARGET = Target("llvm", mcpu="x86-64-v3", num_threads=2)


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("rows", [None, 1, 7, 100])
@pytest.mark.parametrize("columns", [None, 8, 40])
def test_tiles_are_ranked_once_each_and_fit_the_registers(
    rows: int | None, columns: int | None, registers: int
) -> None:
    tiles = list(ranked_tiles(TileSpace(rows, columns, 8, registers)))
    assert tiles[0] == choose_tile(rows, columns, 8, registers)
    assert len(set(tiles)) == len(tiles)
    assert all(tile_registers(*tile) <= registers for tile in tiles)


def test_tiles_without_waste_come_before_those_with_much() -> None:
    tiles = list(ranked_tiles(TileSpace(12, 64, 8, 16)))
    assert tiles.index((6, 2)) < tiles.index((2, 2)) < tiles.index((1, 1))


@pytest.mark.parametrize(("rows", "vectors"), [(5, None), (None, 3), (4, 2), (100, None)])
def test_what_is_set_of_tiles_holds_for_all_of_them(rows: int | None, vectors: int | None) -> None:
    tiles = list(ranked_tiles(TileSpace(64, 256, 8, 16), rows, vectors))
    assert tiles
    assert {height for height, _ in tiles} == {rows} or rows is None
    assert {width for _, width in tiles} == {vectors} or vectors is None


def test_next_tile_is_planned_when_the_best_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[ContractionPlan] = []
    apply = ScheduleContraction.apply

    def fails_once(rule: ScheduleContraction, schedule: Schedule, plan: ContractionPlan) -> None:
        tried.append(plan)
        if len(tried) == 1:
            raise ScheduleError("not this one")
        apply(rule, schedule, plan)

    monkeypatch.setattr(ScheduleContraction, "apply", fails_once)
    _, ctx = scheduled(dense(64, 64, 64))
    first, second = tried
    best = itertools.islice(ranked_tiles(TileSpace(64, 64, 8, TARGET.tile_registers)), 2)
    assert [(plan.tile.rows, plan.tile.vectors) for plan in (first, second)] == list(best)
    assert any("'contraction'" in remark.message and remark.kind == "applied" for remark in ctx.remarks)


@pytest.mark.parametrize("tiles", [1, 7, 12, 60])
@pytest.mark.parametrize("parts", [1, 4, 100])
def test_tasks_have_as_many_tiles_each_and_are_enough(tiles: int, parts: int) -> None:
    each = tiles_per_task(tiles, parts, TARGET)
    assert tiles % each == 0
    assert parts * tiles // each >= min(parts * tiles, 4 * TARGET.num_threads)


def test_strip_of_scores_stays_in_the_cache() -> None:
    for columns in (64, 1024, 4096):
        tiles = tiles_of_a_strip(10_000, columns, 6, 1, TARGET)
        assert tiles * 6 <= 24 or tiles * 6 * columns * 4 <= 128 << 10


@pytest.mark.parametrize(("lanes", "sizes"), [(2, []), (4, [4]), (8, [8, 4]), (64, [16, 8, 4])])
def test_tiles_to_exchange_are_as_wide_as_a_vector_and_fit_registers(lanes: int, sizes: list[int]) -> None:
    assert list(exchanged_tiles(lanes)) == sizes
