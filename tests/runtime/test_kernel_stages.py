"""``model.ir(stage, kernel=...)`` shows one kernel, as it is inside of the whole model."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.lower.kernel_calls import kernel_calls


@pytest.fixture(scope="module")
def model() -> tw.Executable:
    """A model of two kernels, one of which is called twice."""
    x = gi.var("x", shape=("n", 16))
    weights = [gi.const(np.full((16, 16), value, "f4")) for value in (0.1, 0.2)]
    hidden = gi.tanh(gi.nn.dense(x, weights[0]))
    again = gi.tanh(gi.nn.dense(gi.nn.softmax(hidden), weights[1]))
    return tw.build(gi.Function([x], again), tw.Target("llvm", mcpu="x86-64-v3", num_threads=1))


@pytest.mark.parametrize("stage", ["tensor", "scheduled", "lowered"])
def test_loops_of_a_kernel_are_those_of_the_model(model: tw.Executable, stage: str) -> None:
    text = model.ir(stage, kernel="softmax")
    assert text.startswith("primfunc @softmax(") and text.count("primfunc") == 1
    assert text.strip() in model.ir(stage)


def test_generated_code_holds_the_kernel_alone(model: tw.Executable) -> None:
    llvm, assembly = (model.ir(stage, kernel="dense_tanh") for stage in ("llvm", "assembly"))
    assert "define void @tw.dense_tanh(" in llvm and "softmax" not in llvm
    assert "tw.dense_tanh:" in assembly and "softmax" not in assembly
    body = llvm[llvm.index("define void @tw.dense_tanh(") :].split("\n", 1)[1].split("\n}")[0]
    assert body in model.ir("llvm")


def test_merged_kernels_are_found_by_either_name() -> None:
    inputs = [gi.var(f"x{count}", shape=("n", count, 7, 7)) for count in (32, 64)]
    results = [gi.tanh(x * gi.const(np.float32(0.1 * k + 0.3))) for k, x in enumerate(inputs)]
    target = tw.Target("llvm", mcpu="x86-64-v3", num_threads=1)
    model = tw.build(gi.Function(inputs, gi.Tuple(results)), target, opt_level=3)
    calls = kernel_calls(model._built.segments[0].lowered().modules["lowered"])
    (kernel,), formulas = {call.kernel for call in calls}, [str(call.formula) for call in calls]
    assert len(set(formulas)) == 2
    for formula in formulas:
        assert model.ir("assembly", kernel=formula) == model.ir("assembly", kernel=kernel)
        assert f"primfunc @{formula}(" in model.ir("tensor", kernel=formula)
    assert model.ir("tensor", kernel=kernel).count("primfunc") == 2


def test_kernels_of_the_target_numba_are_python() -> None:
    x = gi.var("x", shape=(4,))
    model = tw.build(gi.Function([x], gi.exp(x)), "numba")
    assert "def exp(" in model.ir("numba", kernel="exp") and "def main" not in model.ir("numba", kernel="exp")


@pytest.mark.parametrize(
    ("stage", "kernel", "message"),
    [
        ("graph", "softmax", "the stage 'graph' has no kernels; expected one of tensor, scheduled, lowered, llvm"),
        ("lowered", "softmx", "the model has no kernel 'softmx'; did you mean softmax?"),
        ("tensor", "q", "the model has no kernel 'q'; it has .*dense_tanh"),
        ("machine", "softmax", "unknown stage 'machine'"),
    ],
)
def test_a_stage_or_a_kernel_that_is_not_there_is_an_error(
    model: tw.Executable, stage: str, kernel: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model.ir(stage, kernel=kernel)
