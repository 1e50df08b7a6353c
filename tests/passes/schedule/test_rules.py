"""Test schedule rules: their order, user rules, plans that do not fit, and the remarks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from tests.passes.schedule.kernels import chain, dense, loop_kinds, scheduled, softmax
from tilewright.passes.schedule.rule import (
    Declined,
    Nest,
    ScheduleRule,
    register_schedule_rule,
    schedule_rules,
    unregister_schedule_rule,
)
from tilewright.tensorir.errors import PassError, ScheduleError
from tilewright.tensorir.schedule import Schedule


@dataclasses.dataclass(frozen=True)
class Unrolling:
    block: str
    factor: int
    whole: bool = False


class UnrollOutermost(ScheduleRule[Unrolling]):
    """Unroll the outermost loop of a block, by the first factor that divides it."""

    name = "unroll outermost"
    plan = Unrolling

    def match(self, nest: Nest) -> list[Unrolling] | Declined:
        if nest.block.name == "c":
            return Declined("c stays as it is")
        return [Unrolling(nest.block.name, factor) for factor in (4, 3)]

    def apply(self, schedule: Schedule, plan: Unrolling) -> None:
        loop = schedule.get_loops(schedule.get_block(plan.block))[0]
        extent = schedule.get(loop).extent.value  # type: ignore[union-attr]
        if extent % plan.factor:
            raise ScheduleError(f"{plan.factor} does not divide {extent}")
        schedule.unroll(schedule.split(loop, [None, plan.factor])[1])


@pytest.fixture
def registered() -> Iterator[None]:
    register_schedule_rule(before="transposition")(UnrollOutermost)
    yield
    unregister_schedule_rule("unroll outermost")


def names() -> list[str]:
    return [rule.name for rule in schedule_rules()]


BUILT_IN = [
    "chained",
    "single rows",
    "contraction",
    "cases",
    "rows",
    "columns",
    "transposition",
    "interleaving",
    "elementwise",
]


def test_rules_are_tried_from_whole_kernels_to_single_elements() -> None:
    assert [name for name in names() if name in BUILT_IN] == BUILT_IN  # further families may stand between them


def after(name: str) -> str:
    """Return the rule that is tried right after the only one of that name."""
    found = names()
    assert found.count(name) == 1
    return found[found.index(name) + 1]


@pytest.mark.usefixtures("registered")
def test_a_rule_goes_right_before_the_one_that_it_names() -> None:
    assert after("unroll outermost") == "transposition"


@pytest.mark.usefixtures("registered")
def test_a_rule_that_is_registered_again_is_there_once() -> None:
    register_schedule_rule(before="chained")(UnrollOutermost)
    assert after("unroll outermost") == "chained"


@pytest.mark.parametrize("before", ["nothing", "unroll outermost"])
def test_a_rule_without_a_place_is_an_error(before: str) -> None:
    register_schedule_rule(before=before)(UnrollOutermost)
    try:
        with pytest.raises(PassError, match=f"unknown rule, or in a cycle: 'unroll outermost' before '{before}'"):
            schedule_rules()
    finally:
        unregister_schedule_rule("unroll outermost")


def test_only_what_is_registered_is_taken_out() -> None:
    with pytest.raises(PassError, match="no schedule rule 'nothing'; registered: chained, single rows"):
        unregister_schedule_rule("nothing")


@pytest.mark.usefixtures("registered")
def test_the_first_plan_that_fits_is_applied() -> None:
    func, ctx = scheduled(chain(6, 50, small=True))
    assert "unrolled" in loop_kinds(func)
    said = [(remark.kind, remark.message) for remark in ctx.remarks if "unroll outermost" in remark.message]
    assert said[:3] == [
        ("missed", "the rule 'unroll outermost' does not fit: 4 does not divide 6"),
        ("plan", f"plan of unroll outermost: block {said[1][1].split('block ')[1].split(',')[0]}, factor 3"),
        ("applied", "scheduled by the rule 'unroll outermost'"),
    ]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("chained", "found 0 sums of products, expected two"),
        ("single rows", "found 2 reductions, 0 of which sum rows of a matrix; expected several, one of which does"),
        ("contraction", "is not a sum of products of two loads"),
        ("cases", "a block is a reduction"),
    ],
)
def test_who_declines_says_why(rule: str, reason: str) -> None:
    _, ctx = scheduled(softmax(40, 200))
    declined = [remark.message for remark in ctx.remarks if remark.kind == "declined"]
    assert any(message.startswith(f"{rule} declined: ") and reason in message for message in declined)


def test_plans_are_said_with_their_numbers() -> None:
    _, ctx = scheduled(dense(64, 64, 64))
    (plan,) = [remark.message for remark in ctx.remarks if remark.kind == "plan" and "contraction" in remark.message]
    assert plan == "plan of contraction: block c, row vi, lanes 8, rows 6, vectors 2, packed True, tiles 1"
