"""Fields of plans that are set, by the configuration and by attributes of functions: what comes of them, and of those
that cannot work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.passes.schedule import test_cases, test_chained, test_single_rows, test_strip
from tests.passes.schedule.kernels import (
    TARGET,
    chain,
    column_sums,
    dense,
    row_sums,
    scheduled,
    softmax,
    windows_of_lines,
)
from tilewright import graphir as gi
from tilewright import passes
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.schedule.rule import (
    Declined,
    Nest,
    ScheduleRule,
    register_schedule_rule,
    schedule_rules,
    unregister_schedule_rule,
)
from tilewright.passes.schedule.settings import option_key
from tilewright.runtime.build_cache import settings_text
from tilewright.tensorir import assert_structural_equal, interpret
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ConfigTypeError, ConfigValueError, PassError, ScheduleError, UnknownConfigError
from tilewright.tensorir.expr import call
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import PrimFunc


def exponential_of_product() -> PrimFunc:
    a, b, k = te.placeholder((20, 3), name="a"), te.placeholder((3, 20), name="b"), te.reduce_axis(3, "k")
    product = te.compute((20, 20), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func("f", [a, b], [te.compute((20, 20), lambda i, j: call("exp", product[i, j]), name="e")])


def blocks_of_channels() -> PrimFunc:
    """``a[k, x] * b[o, k, c]``: six blocks of as many channels as a vector has lanes."""
    a, b, k = te.placeholder((5, 10), name="a"), te.placeholder((6, 5, 8), name="b"), te.reduce_axis(5, "k")
    product = te.compute((6, 10, 8), lambda o, x, c: te.sum(a[k, x] * b[o, k, c], axis=k), name="c")
    return te.create_prim_func("f", [a, b], [product])


def transpose() -> PrimFunc:
    x = te.placeholder((2, 19, 33), name="x")
    return te.create_prim_func("f", [x], [te.compute((2, 33, 19), lambda b, i, j: x[b, j, i] * 2.0, name="t")])


def attention() -> PrimFunc:
    return test_chained.attention(13, 17, e=20)


def windows() -> PrimFunc:
    return test_strip.convolution(19, 67)


def one_query() -> PrimFunc:
    return test_single_rows.step(40, 16, 20)


def cases() -> PrimFunc:
    return test_cases.pairs(7)


def plans(ctx: PassContext) -> list[str]:
    return [remark.message for remark in ctx.remarks if remark.kind == "plan"]


def planned(func: PrimFunc, config: dict[str, Any], opt_level: int = 3) -> tuple[PrimFunc, PassContext]:
    with PassContext(opt_level=opt_level, config=config) as ctx, TARGET:
        return ScheduleKernels()(IRModule({func.name: func}))[func.name], ctx


def results(func: PrimFunc) -> list[np.ndarray]:
    """Return the interpreter's results for random inputs."""
    rng = np.random.default_rng(5)
    count = int(func.attrs["num_outputs"])
    arrays = [rng.standard_normal([n.value for n in buffer.shape]).astype("f4") for buffer in func.buffers]
    interpret(func, *arrays)
    return arrays[-count:]


@pytest.mark.parametrize(
    ("func", "rule", "settings"),
    [
        (lambda: dense(13, 20, 5), "contraction", {"rows": 8}),
        (lambda: dense(13, 20, 5), "contraction", {"rows": 64, "vectors": 5}),
        (lambda: dense(13, 20, 5), "contraction", {"rows": 1, "vectors": 1, "lanes": 4, "packed": True}),
        (lambda: dense(13, 20, 5, transposed=True), "contraction", {"packed": False, "vectors": 2}),
        (lambda: dense(50, 20, 5), "contraction", {"tiles": 3}),
        (lambda: dense(13, 20, 5), "contraction", {"row": ""}),
        (lambda: dense(13, 20, 5), "contraction", {"outlined": True}),
        (exponential_of_product, "contraction", {"outlined": False, "rows": 3}),
        (blocks_of_channels, "contraction", {"channels": "", "vectors": 3}),
        (blocks_of_channels, "contraction", {"vectors": 3, "rows": 7}),
        (blocks_of_channels, "contraction", {"columns_inside": True, "tiles": 1}),
        (windows, "contraction", {"strip_height": 4}),
        (windows, "contraction", {"strip_height": 0, "tiles": 2}),
        (windows, "contraction", {"rows": 5, "tiles": 3}),
        (attention, "chained", {"tiles": 1}),
        (attention, "chained", {"first.rows": 3, "second.rows": 2}),
        (attention, "chained", {"first.vectors": 1, "second.lanes": 4, "first.packed": False}),
        (attention, "chained", {"vectors": 1}),
        (one_query, "single rows", {"width": 8}),
        (one_query, "single rows", {"vectors": 1}),
        (one_query, "single rows", {"lanes": 4, "width": 4}),
        (cases, "cases", {"lanes": 4}),
        (cases, "cases", {"tile": [4]}),
        (lambda: softmax(40, 200), "rows", {"vectors": 2}),
        (lambda: column_sums(40), "columns", {"lanes": 4}),
        (lambda: column_sums(40), "columns", {"lanes": 64}),
        (lambda: windows_of_lines(20, 30), "columns", {"line": False}),
        (lambda: windows_of_lines(7, 40), "columns", {"line": True, "lanes": 8}),
        (transpose, "transposition", {"size": 4}),
        (lambda: chain(6, 50, small=True), "elementwise", {"lanes": 4, "chunk": 16}),
        (lambda: chain(6, 50, small=True), "elementwise", {"rows": 0}),
    ],
)
def test_plan_has_what_is_set_and_the_kernel_computes_what_it_did(
    func: Callable[[], PrimFunc], rule: str, settings: dict[str, Any]
) -> None:
    made = func()
    found, ctx = planned(made, {f"{option_key(rule)}.{field}": value for field, value in settings.items()})
    (plan,) = [plan for plan in plans(ctx) if plan.startswith(f"plan of {rule}: ") and "(set)" in plan]
    for path, value in settings.items():
        shown = tuple(value) if isinstance(value, list) else value
        assert f"{path.rpartition('.')[2]} {shown if shown != '' else repr(shown)} (set)" in plan
    for after, before in zip(results(found), results(made), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("func", "rule", "settings", "reason"),
    [
        (lambda: dense(13, 20, 5), "contraction", {"lanes": 6}, "no vector has 6 lanes"),
        (lambda: dense(13, 20, 5), "contraction", {"row": "vz"}, "candidates are vi"),
        (lambda: dense(13, 20, 5), "contraction", {"channels": "vi"}, "there is no candidate"),
        (lambda: dense(13, 20, 5), "contraction", {"neighbours": 4}, "an instruction sums 1 neighbours, not 4"),
        (lambda: dense(13, 20, 5), "contraction", {"strip_height": 4}, "does not slide windows"),
        (lambda: dense(13, 20, 5), "contraction", {"row": "", "rows": 2}, "no dimension for the rows"),
        (blocks_of_channels, "contraction", {"vectors": 4}, "4 do not"),
        (blocks_of_channels, "contraction", {"packed": True}, "can't be packed"),
        (lambda: dense(13, 20, 5), "contraction", {"columns_inside": True}, "not in blocks"),
        (attention, "chained", {"second.row": ""}, "no rows in common"),
        (one_query, "single rows", {"width": 12}, "width 12 is not a multiple of 8 lanes"),
        (one_query, "single rows", {"final": "other"}, "not other"),
        (cases, "cases", {"tile": [0]}, "each positive or None"),
        (cases, "cases", {"tile": [1, 2]}, "a tile has 1 sizes"),
        (transpose, "transposition", {"row": "b"}, "not along b"),
        (transpose, "transposition", {"size": 6}, "no tile of 6 rows"),
        (lambda: chain(6, 50, small=True), "elementwise", {"chunk": 12}, "chunk 12 is not a multiple of 8 lanes"),
        (lambda: chain(6, 50, small=True), "elementwise", {"rows": 2}, "has 2 dimensions"),
    ],
)
def test_what_cannot_work_is_said_and_planned_without(
    func: Callable[[], PrimFunc], rule: str, settings: dict[str, Any], reason: str
) -> None:
    made = func()
    found, ctx = planned(made, {f"{option_key(rule)}.{field}": value for field, value in settings.items()})
    (missed,) = [remark.message for remark in ctx.remarks if remark.kind == "missed"]
    assert missed.startswith("planned without ") and reason in missed
    assert not any("(set)" in plan for plan in plans(ctx))
    assert_structural_equal(found, planned(made, {})[0])


def paths_of(plan: Any) -> Iterator[str]:
    """The fields of a plan and of those inside of it."""
    for field in dataclasses.fields(plan):
        value = getattr(plan, field.name)
        if dataclasses.is_dataclass(value):
            yield from (path if field.metadata.get("flat") else f"{field.name}.{path}" for path in paths_of(value))
        else:
            yield field.name


@pytest.mark.parametrize("func", [attention, one_query, cases, softmax, windows, transpose])
def test_every_field_of_a_plan_is_an_option_that_is_described(
    func: Callable[..., PrimFunc], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, seen = PassContext.list_configs(), set()
    for rule in schedule_rules():

        def applied(own: ScheduleRule[Any], schedule: Schedule, plan: Any) -> None:
            for path in paths_of(plan):
                section, _, field = path.rpartition(".")
                key = ".".join(filter(None, (option_key(own.name), section)))
                seen.add((key, field, listed[key][field]["doc"]))
            raise ScheduleError("only looked at")

        monkeypatch.setattr(type(rule), "apply", applied)
    planned(func() if func is not softmax else softmax(40, 200), {})
    assert seen and all(doc for _, _, doc in seen)


def test_sums_of_floats_may_be_reordered_where_that_is_set() -> None:
    before, _ = planned(row_sums(64), {}, opt_level=2)
    after, ctx = planned(row_sums(64), {"schedule.rows.reassociate": True}, opt_level=2)
    assert "vectorized" in str(after) and "vectorized" not in str(before)
    assert "reassociate True (set)" in plans(ctx)[0]


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"schedule.contraction.rows": 0}, ConfigValueError, r"'schedule.contraction': field 'rows': .* at least 1"),
        ({"schedule.contraction.rows": "8"}, ConfigTypeError, "expected int"),
        ({"schedule.contraction.row": 1}, ConfigTypeError, "expected str"),
        ({"schedule.contraction.colums": 8}, UnknownConfigError, "no field 'colums'. Fields, nearest first"),
        ({"schedule.contractoin.rows": 8}, UnknownConfigError, "nearest first: schedule.contraction"),
        ({"schedule.chained.first.rows": 0}, ConfigValueError, "'schedule.chained.first'"),
    ],
)
def test_what_is_no_field_or_no_value_of_one_is_an_error(
    config: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        PassContext(config=config)


def test_settings_of_a_block_are_for_that_block() -> None:
    a, b, c = (te.placeholder(shape, name=name) for name, shape in (("a", (9, 8)), ("b", (8, 16)), ("c", (16, 24))))
    k, k2 = te.reduce_axis(8, "k"), te.reduce_axis(16, "k2")
    first = te.compute((9, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="first")
    second = te.compute((9, 24), lambda i, j: te.sum(first[i, k2] * c[k2, j], axis=k2), name="second")
    func = te.create_prim_func("f", [a, b, c], [second])
    _, ctx = planned(func, {"schedule.contraction": {"block": "second", "rows": 2}})
    found = {plan.split("block ")[1].split(",")[0].split(" ")[0]: plan for plan in plans(ctx) if "contraction" in plan}
    assert "rows 2 (set)" in found["second"] and "(set)" not in found["first"]


def test_attribute_sets_the_plan_of_one_function_and_is_taken_off() -> None:
    func = dense(13, 20, 5).with_attr("schedule.contraction.rows", 2)
    other = PrimFunc("other", func.params, func.body, dense(13, 20, 5).attrs)
    with PassContext(config={"schedule.contraction.rows": 3}) as ctx, TARGET:
        mod = ScheduleKernels()(IRModule({"dense": func, "other": other}))
    said = {r.function: r.message for r in ctx.remarks if r.kind == "plan" and "contraction" in r.message}
    assert "rows 2 (set)" in said["dense"] and "rows 3 (set)" in said["other"]
    assert not [name for name in mod["dense"].attrs if name.startswith("schedule")]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "schedule.contraction.lanes",
            6,
            "lanes 6 applies to none of its blocks: contraction declined: .* no vector has 6 lanes",
        ),
        ("schedule.transposition.size", 8, "size 8 applies to none of its blocks: another rule schedules"),
        (
            "schedule.chained.tiles",
            2,
            "tiles 2 applies to none of its blocks: chained declined: found 1 sums of products",
        ),
        ("schedule.contraction.rows", 0, "at least 1"),
        ("schedule.contraction.colums", 0, "no field 'colums'"),
    ],
)
def test_attribute_that_fits_nothing_is_an_error(name: str, value: int, message: str) -> None:
    with pytest.raises(PassError, match=message):
        scheduled(dense(13, 20, 5).with_attr(name, value))


def test_attribute_of_a_group_is_its_kernels() -> None:
    @passes.function_pass(opt_level=0, name="SetRows")
    def set_rows(function: gi.Function, mod: IRModule, ctx: PassContext) -> gi.Function:
        def with_rows(node: gi.Expr) -> gi.Expr:
            if isinstance(node, gi.Function) and node.attrs.get("kind") == "contraction":
                return node.with_attr("schedule.contraction.rows", 2)
            return node

        return passes.graph.rewrite_graph(function, with_rows)

    a, b = gi.var("a", shape=(13, 5)), gi.var("b", shape=(5, 20))
    with PassContext(opt_level=3) as ctx:
        model = tw.build(
            gi.Function([a, b], gi.nn.relu(gi.matmul(a, b))), target=TARGET, passes={"optimized": set_rows}
        )
    assert any("rows 2 (set)" in plan for plan in plans(ctx))
    assert "schedule.contraction" not in model.ir("scheduled")


def test_settings_tell_kept_builds_apart() -> None:
    texts = {
        settings_text(TARGET, PassContext(config=config))
        for config in ({}, {"schedule.contraction.rows": 8}, {"schedule.contraction.rows": 4})
    }
    assert len(texts) == 3


@dataclasses.dataclass(frozen=True)
class Splitting:
    block: str
    factor: int = dataclasses.field(metadata={"doc": "iterations of the inner loop", "least": 1})


class SplitOutermost(ScheduleRule[Splitting]):
    """Split the outermost loop of a block, and know of no settings."""

    name = "split outermost"
    plan = Splitting

    def match(self, nest: Nest) -> Splitting | Declined:
        return Splitting(nest.block.name, 2)

    def apply(self, schedule: Schedule, plan: Splitting) -> None:
        schedule.unroll(schedule.split(schedule.get_loops(schedule.get_block(plan.block))[0], [None, plan.factor])[1])


def test_plans_of_users_rules_are_set_as_well() -> None:
    register_schedule_rule(before="elementwise")(SplitOutermost)
    try:
        func, ctx = planned(chain(6, 50, small=True), {"schedule.split_outermost.factor": 3})
        assert "factor 3 (set)" in plans(ctx)[0] and "unrolled(3)" in str(func)
    finally:
        unregister_schedule_rule("split outermost")
    with pytest.raises(UnknownConfigError):
        PassContext(config={"schedule.split_outermost.factor": 3})


def test_plans_hold_plain_data() -> None:
    class Holding(ScheduleRule[Any]):
        name = "holding"
        plan = dataclasses.make_dataclass("Holding", [("loops", Schedule)])

    with pytest.raises(PassError, match="plans hold names, numbers, flags"):
        register_schedule_rule()(Holding)
