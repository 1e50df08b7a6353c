"""Modules run as they are after any pass, with every engine; the steps of kernels are recorded one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes import PassContext, PassInstrument
from tilewright.runtime.observe.numeric import Tolerance, random_inputs
from tilewright.runtime.observe.numeric.compare import as_tolerance, default_tolerance, first_mismatch, mismatch
from tilewright.runtime.observe.numeric.evaluate import Evaluator, GraphFacts, Inputs, kind_of
from tilewright.runtime.observe.numeric.reference import longest_sum
from tilewright.runtime.observe.numeric.replay import facts_of
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import InputError


def image_network() -> tw.IRModule:
    """Build convolutions of several kinds, slices of a larger value, a pool and a product."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> gi.Constant:
        return gi.const((random.standard_normal(shape) / 4).astype(np.float32))

    x = gi.var("x", shape=("n", 3, 12, 12))
    y = gi.nn.relu(gi.nn.conv2d(x, normal(32, 3, 3, 3), padding=(1, 1)) + normal(32, 1, 1))
    parts = [
        gi.nn.relu(gi.nn.conv2d(y, normal(16, 32, 3, 3), padding=(1, 1))),
        gi.tanh(gi.nn.conv2d(y, normal(32, 32, 1, 1))),
    ]
    y = gi.concatenate(parts, axis=1)
    y = gi.nn.conv2d(y, normal(48, 1, 3, 3), padding=(1, 1), groups=48)
    y = gi.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2))
    y = gi.nn.dense(gi.nn.batch_flatten(gi.nn.global_avg_pool2d(y)), normal(10, 48))
    return tw.IRModule.from_expr(gi.Function([x], (gi.nn.softmax(y), gi.argmax(y, axis=1))))


class Stages(PassInstrument):
    """Keep every module that a pass made, and the facts about the graph that it came from."""

    def __init__(self) -> None:
        self.found: list[tuple[str, tw.IRModule, GraphFacts | None]] = []
        self.facts: GraphFacts | None = None

    def run_after_pass(self, mod: tw.IRModule, info: Any) -> None:
        self.facts = facts_of(mod) or self.facts
        if not self.found or self.found[-1][1] is not mod:
            self.found.append((info.name, mod, self.facts))


@pytest.mark.parametrize("opt_level", [0, 3])
def test_every_stage_of_a_build_computes_the_same(opt_level: int) -> None:
    mod, stages = image_network(), Stages()
    with PassContext(opt_level=opt_level, instruments=[stages]):
        tw.build(mod, target="llvm")
    inputs = Inputs(tuple(random_inputs(mod, 1, {"n": 2}).values()))
    evaluator = Evaluator(tw.Target("llvm"))
    expected = evaluator.run(mod, inputs)
    kinds = set()
    for name, made, facts in stages.found:
        found = evaluator.run(made, inputs, facts)
        kinds.add(kind_of(made))
        np.testing.assert_allclose(found[0], expected[0], rtol=2e-5, atol=2e-5, err_msg=name)
        np.testing.assert_array_equal(found[1], expected[1], err_msg=name)
    assert kinds == {"graph", "kernels", "lowered"}


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_engines_compute_the_same(engine: Any) -> None:
    x = gi.var("x", shape=(2, 6))
    parts = gi.split(gi.exp(x), indices_or_sections=2, axis=1)
    mod = tw.IRModule.from_expr(gi.Function([x], (gi.nn.softmax(parts[0] + parts[1]), gi.sum(x))))
    inputs = Inputs(tuple(random_inputs(mod).values()))
    lowered = Evaluator(tw.Target("llvm"), engine).as_kernels(mod)
    for given in (mod, lowered):
        found = Evaluator(tw.Target("llvm"), engine).run(given, inputs)
        for a, b in zip(found, Evaluator(tw.Target("llvm")).run(mod, inputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_steps_show_what_each_kernel_reads_and_writes() -> None:
    x = gi.var("x", shape=(4,))
    mod = tw.IRModule.from_expr(gi.Function([x], gi.tanh(gi.sum(x) * 2.0)))
    evaluator, value = Evaluator(tw.Target("llvm")), np.arange(4, dtype=np.float32)
    _, steps = evaluator.run_kernels(mod, Inputs((value,)))
    np.testing.assert_array_equal(steps[0].inputs[0], value)
    np.testing.assert_array_equal(steps[0].outputs[0], 6)
    assert [origin.operator for step in steps for origin in step.origins] == ["sum", "multiply", "tanh"]


def test_random_inputs_are_the_same_for_the_same_seed() -> None:
    mod = image_network()
    first, again, other = random_inputs(mod, 5), random_inputs(mod, 5), random_inputs(mod, 6, {"n": 1})
    assert first["x"].shape == (4, 3, 12, 12) and other["x"].shape == (1, 3, 12, 12)
    np.testing.assert_array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"][:1], other["x"])


def test_longest_sum_is_that_of_the_largest_product() -> None:
    x, w = gi.var("x", shape=(5, 300)), gi.var("w", shape=(7, 300))
    mod = tw.IRModule.from_expr(gi.Function([x, w], gi.sum(gi.nn.dense(x, w))))
    assert longest_sum(mod, {}) == pytest.approx(300)


def test_worst_element_is_the_one_that_is_most_times_its_bound_off() -> None:
    expected = np.array([[1.0, 100.0], [1000.0, 0.0]])
    found = np.array([[1.5, 101.0], [1001.0, 0.0]], np.float32)
    off = mismatch(2, found, expected, Tolerance(1e-3, 0))
    assert off is not None and (off.result, off.index, off.expected, off.found) == (2, (0, 0), "1.0", "1.5")
    assert off.ulps == 0.5 / 2**-23
    assert mismatch(0, found, expected, Tolerance(1, 0)) is None


def test_nan_and_another_shape_are_infinitely_far() -> None:
    expected = np.array([1.0, 2.0])
    off = mismatch(0, np.array([1.0, np.nan], np.float32), expected, Tolerance(1, 1))
    assert off is not None and off.index == (1,) and off.found == "nan" and off.excess == np.inf
    shape = first_mismatch([np.zeros(3, np.float32)], [expected], [Tolerance(1, 1)])
    assert shape is not None and shape.found == "shape (3,)"


def test_tolerance_grows_with_sums_and_with_what_the_model_is_off_by() -> None:
    exact = np.linspace(1, 2, 100)
    near, far = exact.astype(np.float32), (exact + 1e-2).astype(np.float32)
    plain = default_tolerance(exact, near, 1)
    assert default_tolerance(exact, near, 10000).rtol == pytest.approx(100 * plain.rtol)
    assert default_tolerance(exact, far, 1).atol > 0.1
    assert default_tolerance(exact, exact.astype(np.float16), 1).rtol > 1000 * plain.rtol
    assert default_tolerance(np.arange(3), np.arange(3), 9) == Tolerance(0, 0)


def test_tolerances_are_checked() -> None:
    float32 = DataType("float32")
    assert as_tolerance({"float16": 1.0}, float32) is None
    assert as_tolerance({"float32": (1.0, 2.0)}, float32) == Tolerance(1.0, 2.0)
    with pytest.raises(ValueError, match="not negative"):
        as_tolerance(-1.0, float32)
    with pytest.raises(TypeError, match="tolerance"):
        as_tolerance("small", float32)  # type: ignore[arg-type]


def test_main_of_loop_nests_needs_facts() -> None:
    lowered = gi.parse("primfunc @main(x: Buffer[(4,), float32]) {\n  x[0] = float32(1)\n}")
    with pytest.raises(InputError, match="does not declare its inputs"):
        Evaluator(tw.Target("llvm")).run(lowered, Inputs(()))
