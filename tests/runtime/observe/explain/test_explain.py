"""Test the reasons for a kernel's speed: each with the smallest model that shows it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import tensorir as ti
from tilewright.passes.diagnostics import Remark
from tilewright.runtime import loaded_code, lower_model
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.observe.explain.explanation import Explanation
from tilewright.runtime.observe.explain.loops import LoopFacts
from tilewright.runtime.observe.explain.reasons import KernelFacts, Reason, reasons
from tilewright.runtime.observe.profile.profile import CallProfile
from tilewright.tensorir.errors import InputError

#: Eight floats in a vector.
TARGET = tw.Target("llvm", mcpu="x86-64-v3", num_threads=2)


def built(result: Any, *inputs: Any, level: int = 2, target: tw.Target = TARGET, **context: Any) -> tw.Executable:
    with tw.PassContext(opt_level=level, **context):
        return tw.build(tw.IRModule.from_expr(gi.Function(list(inputs), result)), target)


def static(model: tw.Executable, *inputs: Any) -> list[Reason]:
    """Return the reasons of a model's only kernel, without times."""
    (kernel,) = model.explain(*inputs, measure=False).kernels
    return list(kernel.reasons)


def of_kind(kind: str, found: list[Reason]) -> Reason:
    (reason,) = [each for each in found if each.kind == kind]
    return reason


def kinds(found: list[Reason]) -> set[str]:
    return {reason.kind for reason in found}


X = gi.var("x", shape=(1024, 64))
ROWS = gi.var("x", shape=("n", 7))


def test_a_kernel_in_whole_vectors_on_all_threads_has_no_reasons() -> None:
    model = built(gi.exp(X), X)
    assert static(model) == []
    assert model.explain(measure=False).kernels[0].sentence == "nothing is known to slow it down"


def test_lanes_along_one_element() -> None:
    func = ti.parse("""
primfunc @scale(x: Buffer[(64, 1), float32], w: Buffer[(1, 64), float32], y: Buffer[(64, 1), float32])
    attrs {"num_inputs": 2, "num_outputs": 1, "schedule": "auto"} {
  for i in range(64) {
    for k in range(1) {
      block scale(vi: spatial(64) = i, vk: spatial(1) = k) {
        reads x[vi, vk], w[vk, vi]
        writes y[vi, vk]
        y[vi, vk] = x[vi, vk] * w[vk, vi]
      }
    }
  }
}
""")
    with tw.PassContext(opt_level=2, disabled_pass=["DropUnitDims"]):
        model = tw.build(func, TARGET)
    reason = of_kind("vectors", static(model))
    assert reason.text == "not vectorized, because the lane dimension k of scale has extent 1"
    assert reason.change == "a layout or a shape whose last dimension is longer than 1"


def test_loops_that_are_not_scheduled() -> None:
    reason = of_kind("vectors", static(built(gi.exp(X), X, level=1)))
    assert reason == Reason(
        "vectors", "not vectorized, because loops are not scheduled at opt_level 1", "opt_level 2 or 3"
    )


def test_schedules_that_are_disabled() -> None:
    reason = of_kind("vectors", static(built(gi.exp(X), X, disabled_pass=["ScheduleKernels"])))
    assert reason.text.endswith("the pass ScheduleKernels is disabled")


def test_vectors_that_are_switched_off() -> None:
    reason = of_kind("vectors", static(built(gi.exp(X), X, config={"tensorir.VectorizeLoop": {"enable": False}})))
    assert reason.change == "config tensorir.VectorizeLoop.enable=true"


def test_sums_that_keep_their_order() -> None:
    reason = of_kind("vectors", static(built(gi.mean(X, axis=(1,)), X)))
    assert reason.text == "not vectorized, because sums of floats keep their order at opt_level 2"
    assert reason.change.startswith("opt_level 3")
    assert "vectors" not in kinds(static(built(gi.mean(X, axis=(1,)), X, level=3)))


def test_too_little_work_for_threads() -> None:
    x = gi.var("x", shape=(8, 64))
    reason = of_kind("threads", static(built(gi.nn.relu(x), x)))
    assert reason.text.startswith("one thread, because the work of ") and "the threshold of 20,000" in reason.text
    assert "tensorir.ParallelizeLoop.min_work" in reason.change
    assert "threads" not in kinds(static(built(gi.nn.relu(x), x, config={"tensorir.ParallelizeLoop": {"min_work": 1}})))


def test_a_threshold_on_sizes() -> None:
    x = gi.var("x", shape=("n", 8))
    model = built(gi.nn.relu(x), x)
    unknown, few = static(model), static(model, np.ones((3, 8), "f4"))
    assert of_kind("threads", unknown).text.startswith("one thread unless n ")
    assert "below the threshold n >= " in of_kind("threads", few).text and "(n = 3)" in of_kind("threads", few).text
    assert "threads" not in kinds(static(model, np.ones((100_000, 8), "f4")))


def test_a_target_of_one_thread() -> None:
    target = tw.Target("llvm", mcpu="x86-64-v3", num_threads=1)
    assert of_kind("threads", static(built(gi.exp(X), X, target=target))).text.endswith("the target has one")


@pytest.mark.parametrize(("columns", "used"), [(7, 7), (13, 5)])
def test_a_masked_tail(columns: int, used: int) -> None:
    x, y = gi.var("x", shape=("n", columns)), gi.var("y", shape=(columns,))
    reason = of_kind("tail", static(built(gi.nn.relu(x + y), x, y)))
    assert reason.text.startswith(f"masked tail of {used} of 8 lanes in ")
    assert reason.change.endswith("whose length is a multiple of 8")


def test_a_tail_of_sizes_that_become_known() -> None:
    x, y = gi.var("x", shape=(64, "m")), gi.var("y", shape=("m",))
    model = built(gi.nn.relu(x + y), x, y)
    assert "tail" not in kinds(static(model))
    found = static(model, np.ones((64, 11), "f4"), np.ones(11, "f4"))
    assert of_kind("tail", found).text.startswith("masked tail of 3 of 8 lanes")
    assert "tail" not in kinds(static(model, np.ones((64, 16), "f4"), np.ones(16, "f4")))


def test_a_tail_after_many_whole_vectors_is_not_worth_a_word() -> None:
    x, y = gi.var("x", shape=("n", 807)), gi.var("y", shape=(807,))
    assert "tail" not in kinds(static(built(gi.nn.relu(x + y), x, y)))


@pytest.fixture(scope="module")
def convolution() -> tw.Executable:
    x = gi.var("x", shape=(1, 16, 20, 20))
    weight = gi.const(np.random.default_rng(0).standard_normal((32, 16, 3, 3)).astype("f4"))
    return built(gi.nn.softmax(gi.nn.conv2d(x, weight), axis=2), x)


def test_a_layout_copy_and_its_cause(convolution: tw.Executable) -> None:
    reason = of_kind("copy", list(convolution.explain(measure=False)["layout_transform"].reasons))
    assert reason.text == (
        "a layout copy between an input and conv2d, caused by conv2d, which works in blocks of channels"
    )
    assert "AlterOpLayout" in reason.change


def test_only_kernels_that_do_nothing_else_are_copies(convolution: tw.Executable) -> None:
    for name in ("conv2d", "layout_transform_softmax"):
        assert "copy" not in kinds(list(convolution.explain(measure=False)[name].reasons))


def test_rules_that_declined(convolution: tw.Executable) -> None:
    declined = convolution.explain(measure=False)["layout_transform"].declined
    assert {message.partition(" declined: ")[0] for message in declined} >= {"contraction", "rows", "columns"}


def test_the_rule_before_the_one_that_scheduled_a_slow_kernel(facts: KernelFacts) -> None:
    said = [("declined", "rows declined: no reduction"), ("applied", "scheduled by the rule 'columns'")]
    remarks = [Remark("ScheduleKernels", "k", kind, message) for kind, message in said]
    found = list(reasons(dataclasses.replace(facts, remarks=remarks, measured=measured(0.1, "memory"))))
    assert (
        of_kind("rule", found).text == "scheduled by the rule 'columns', after the rule 'rows' declined (no reduction)"
    )
    fast = dataclasses.replace(facts, remarks=remarks, measured=measured(0.9, "memory"))
    assert "rule" not in kinds(list(reasons(fast)))


def measured(of_roof: float, bound: str, level: str = "memory") -> CallProfile:
    return CallProfile(0, "k", (), 1, 1e-3, 1e-3, 1.0, 100, "float32", 100, of_roof * 1e-3, bound, level, 256, 2, 1.0)


@pytest.fixture
def facts() -> KernelFacts:
    """Return the facts of a kernel that has no reasons but its roof."""
    settings = BuildSettings.of(tw.PassContext(2))
    return KernelFacts((), LoopFacts(True, [None], ()), 256, {}, TARGET, settings, None)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (measured(0.94, "memory"), "memory-bound at 94 % of the roof"),
        (measured(0.94, "memory", "L2"), "memory-bound at 94 % of the roof (its data fit L2)"),
        (measured(0.6, "compute", "L2"), "compute-bound at 60 % of the roof"),
        (measured(0.01, "memory"), "reaches 1 % of its memory roof"),
    ],
)
def test_the_roof(facts: KernelFacts, call: CallProfile, text: str) -> None:
    (reason,) = reasons(dataclasses.replace(facts, measured=call))
    assert reason.text == text


@pytest.mark.parametrize(
    ("threads", "imbalance", "text"),
    [
        (1, 2.0, "its loops are parallel, but one thread did all of the work"),
        (2, 1.63, "its busiest thread works 1.6 times as long as the mean of all threads"),
        (2, 1.2, None),
        (1, None, None),
    ],
)
def test_threads_that_wait_for_one(facts: KernelFacts, threads: int, imbalance: float | None, text: str | None) -> None:
    call = dataclasses.replace(measured(0.9, "memory"), threads=threads, imbalance=imbalance)
    found = list(reasons(dataclasses.replace(facts, measured=call)))
    assert [reason.text for reason in found if reason.kind == "threads"] == ([text] if text else [])


def test_measured_kernels_come_with_times_the_longest_first() -> None:
    x = gi.var("x", shape=("n", 64))
    weight = gi.const(np.ones((64, 64), "f4"))
    found = built(gi.nn.softmax(gi.nn.dense(x, weight)), x).explain(np.ones((512, 64), "f4"), repeat=3)
    seconds = [kernel.seconds for kernel in found.kernels]
    assert len(seconds) == 2 and all(seconds) and seconds == sorted(seconds, key=lambda each: -(each or 0))
    assert sum(kernel.share or 0 for kernel in found.kernels) == pytest.approx(1)
    assert all("roof" in kinds(list(kernel.reasons)) for kernel in found.kernels)


def test_inputs_are_drawn_and_given_ones_are_checked() -> None:
    model = built(gi.exp(X), X)
    assert model.explain(repeat=2).kernels[0].seconds
    with pytest.raises(InputError):
        model.explain(np.ones((2, 2), "f4"))


def test_explaining_compiles_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(gi.exp(X), X)
    for module in (loaded_code, lower_model):
        monkeypatch.setattr(module, "compile_functions", lambda *_: pytest.fail("compiled again"))
    assert model.explain(measure=False).kernels


def test_the_target_numba_is_explained_too() -> None:
    model = built(gi.exp(X), X, target=tw.Target("numba", num_threads=1))
    assert kinds(static(model)) == {"threads"}


def test_the_text_has_a_line_for_what_would_change_it() -> None:
    model = built(gi.exp(X), X, level=1)
    found = model.explain(measure=False)
    first, second = found.render().splitlines()
    assert first.startswith("exp: not vectorized, because") and second == "    to change it: " + "; ".join(
        found["exp"].changes
    )


def test_a_limit_says_how_many_are_left_out(convolution: tw.Executable) -> None:
    found: Explanation = convolution.explain(measure=False)
    assert found.render(limit=1).endswith("(2 more)")
    with pytest.raises(ValueError, match="found -1"):
        found.render(limit=-1)


def test_data_has_the_sentence(convolution: tw.Executable) -> None:
    found = convolution.explain(measure=False)
    data = json.loads(found.to_json())
    assert [each["sentence"] for each in data["kernels"]] == [each.sentence for each in found.kernels]
