"""``NumericCheck``: broken passes of all kinds are found, with operator and element; correct builds pass."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tilewright as tw
from tests.runtime.observe.numeric.broken_passes import (
    Shorter,
    drop_epilogue,
    failure,
    model,
    negate_subtract,
    off_by_one,
    operators,
    random,
    replace_calls,
    swap_operands,
    wrong_fold,
)
from tilewright import graphir as gi
from tilewright.graphir.runtime_sizes import bind_size, fresh_symbol
from tilewright.graphir.visitor import call_nodes, count_operators
from tilewright.passes import PassContext, Sequential, function_pass, primfunc_pass
from tilewright.passes.graph import FoldConstant
from tilewright.passes.tensor import LowerBlocks
from tilewright.runtime.observe.numeric import NumericError
from tilewright.tensorir import BufferStore, For, PrimFunc
from tilewright.tensorir.expr import cast
from tilewright.tensorir.functor import Mutator


def test_swapped_operands_are_found(check: tw.NumericCheck) -> None:
    found = failure(check, model(), "graph", swap_operands)
    assert found.pass_name == "SwapOperands"
    assert found.function == "main"
    assert found.operator.startswith("subtract(")
    assert operators(found) == ["subtract"]
    assert found.pipeline == ("SwapOperands",)
    assert found.element is not None
    assert float(found.element.found) == pytest.approx(-float(found.element.expected), rel=1e-6)


def test_wrong_fold_is_found_with_its_element(check: tw.NumericCheck) -> None:
    found = failure(check, model(), "graph", wrong_fold)
    assert (found.pass_name, operators(found)) == ("WrongFold", ["exp"])
    assert found.element is not None
    assert found.element.index == (5,)
    assert float(found.element.found) == pytest.approx(1.01 * float(found.element.expected), rel=1e-5)
    assert found.place == [call.op.name for call in call_nodes(model()["main"])].index("exp") + 1


def test_dropped_epilogue_of_a_fused_group_is_found(check: tw.NumericCheck) -> None:
    found = failure(check, model(), "optimized", drop_epilogue)
    assert found.pass_name == "DropEpilogue"
    assert operators(found) == ["nn.relu"]
    assert found.pipeline[-1] == "DropEpilogue"


@pytest.mark.parametrize("stage", ["tensor", "scheduled"])
def test_loop_that_is_one_step_short_is_found(check: tw.NumericCheck, stage: str) -> None:
    found = failure(check, model(), stage, off_by_one, opt_level=0 if stage == "scheduled" else 3)
    assert found.pass_name == "OffByOne"
    assert found.function.startswith("dense")
    assert 1 <= found.place <= 5  # in the first layer; all others are wrong as well
    assert len(operators(found)) <= 3
    assert found.pipeline[-1] == "OffByOne"
    assert "LowerToTensorIR" in found.pipeline


def test_pass_over_the_lowered_model_is_found(check: tw.NumericCheck) -> None:
    @primfunc_pass(opt_level=0, name="LowOffByOne")
    def low(func: PrimFunc, mod: tw.IRModule, ctx: PassContext) -> PrimFunc:
        return func if func.name == "main" else func.with_body(Shorter().mutate(func.body))

    found = failure(check, model(), "lowered", low, opt_level=0)
    assert found.pass_name == "LowOffByOne"
    assert len(operators(found)) <= 3
    assert found.pipeline[-2:] == ("PlanMemory", "LowOffByOne")


def test_first_of_two_broken_passes_is_named(check: tw.NumericCheck) -> None:
    found = failure(check, model(), "graph", Sequential([wrong_fold, swap_operands], name="mine"))
    assert found.pass_name == "WrongFold"


def test_model_of_500_operators_shrinks_to_one(check: tw.NumericCheck) -> None:
    """The broken pass touches one operator in the middle."""
    mod = model(56)
    assert count_operators(mod["main"]) >= 500
    wrong = [call for call in call_nodes(mod["main"]) if call.op.name == "subtract"][30]

    @function_pass(opt_level=0, name="SwapOne")
    def swap_one(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
        def make(call: gi.Call) -> gi.Expr:
            same = call is wrong or call.span == "thirtieth"
            return gi.subtract(call.args[1], call.args[0]) if same else call

        return replace_calls(func, "subtract", make)

    object.__setattr__(wrong, "span", "thirtieth")
    with PassContext(instruments=[check]), pytest.raises(NumericError) as caught:
        swap_one(mod)
    found = caught.value.failure
    assert found.place == call_nodes(mod["main"]).index(wrong) + 1
    assert operators(found) == ["subtract"]
    assert found.questions <= 60


def test_message_says_everything(check: tw.NumericCheck) -> None:
    text = failure(check, model(), "graph", swap_operands).message()
    for part in ("pass SwapOperands", "function: @main", "operator: subtract(", "(operator ", "element: [", "expected",
                 "found", "ulps", "smallest graph", "subtract(%value_0, %value_1)"):  # fmt: skip
        assert part in text


def test_sound_build_is_clean_at_every_stage() -> None:
    check = tw.NumericCheck(seed=1, folder=None)
    with PassContext(opt_level=3, instruments=[check]):
        tw.build(model(), target="llvm")
    names = [name for step in check.steps for name in step.passes]
    assert {"FoldConstant", "FuseOps", "LowerToTensorIR", "ScheduleKernels", "LowerIntrin", "PlanMemory"} <= set(names)
    assert not {"graph", "lower", "schedule", "kernels", "tensor_pipeline"} & set(names)  # pipelines are not steps
    assert {step.status for step in check.steps} == {"ok"}
    assert all(step.after is not None and step.after.greatest < 64 for step in check.steps)


def test_build_for_numba_is_checked() -> None:
    check = tw.NumericCheck(seed=1, folder=None)
    with PassContext(opt_level=3, instruments=[check]):
        tw.build(model(1), target=tw.Target("numba", num_threads=1))
    assert {step.status for step in check.steps} == {"ok"}
    assert check.steps[-1].passes == ("PlanMemory",)
    found = failure(tw.NumericCheck(seed=1, folder=None), model(1), "scheduled", off_by_one, target="numba")
    assert found.pass_name == "OffByOne"


def test_budget_continues_from_pass_to_pass() -> None:
    check = tw.NumericCheck(seed=1, folder=None)
    with PassContext(opt_level=3, instruments=[check]):
        tw.build(model(), target="llvm")
    data = json.loads(check.to_json())["steps"]
    assert [step["greatest_after"] for step in data[:-1]] == [step["greatest_before"] for step in data[1:]]
    lines = check.render().splitlines()
    assert lines[0].split("  ")[0] == "pass" and len(lines) == len(data) + 2
    for step in data:
        assert step["scaled_after"] <= step["greatest_after"]  # the unit of the greatest number is the greatest unit


def test_symbolic_dimensions_take_sizes_from_the_inputs() -> None:
    check = tw.NumericCheck({"x": random(5, 16)}, folder=None)
    with PassContext(opt_level=3, instruments=[check]):
        tw.build(model(2, "batch"), target="llvm")
    assert {step.status for step in check.steps} == {"ok"}
    found = failure(tw.NumericCheck(sizes={"batch": 6}, folder=None), model(2, "batch"), "tensor", off_by_one)
    assert found.pass_name == "OffByOne"


def test_segments_of_a_model_with_run_time_sizes_are_checked() -> None:
    x = gi.var("x", shape=("h",))
    places = gi.squeeze(gi.get_operator("nonzero")(gi.greater(x, 0.0)), axis=0)
    picked = gi.take(gi.exp(x) - x, places, axis=0)
    mod = tw.IRModule.from_expr(gi.Function([x], (picked * 2.0, gi.sum(picked))))
    check = tw.NumericCheck({"x": random(40)}, folder=None)
    with PassContext(opt_level=3, instruments=[check]):
        built = tw.build(mod, target="llvm")
    assert len(built(random(40))) == 2
    assert {step.status for step in check.steps} == {"ok"}
    assert sum("PlanMemory" in step.passes for step in check.steps) == 2
    found = failure(tw.NumericCheck({"x": random(40)}, folder=None), mod, "optimized", negate_subtract())
    assert found.pass_name == "Negate"


def test_size_that_is_an_input_is_read_for_its_segment() -> None:
    n, size = fresh_symbol(), gi.var("n", shape=(), dtype="int64")
    mod = tw.IRModule.from_expr(gi.Function([size], bind_size(gi.zeros(shape=(n,)) + 1.0, size, n)))
    check = tw.NumericCheck({"n": np.array(7)}, folder=None)
    with PassContext(instruments=[check]):
        tw.build(mod, target="llvm")
    assert {step.status for step in check.steps} == {"ok"}


def test_branches_loops_and_tuples_are_run() -> None:
    x, flag = gi.var("x", shape=(4, 6)), gi.var("flag", shape=(), dtype="bool")
    i, state = gi.var("i", shape=(), dtype="int64"), gi.var("state", shape=(4, 6))
    body = gi.Function([i, state], gi.Tuple([gi.tanh(state) + x]))
    loop = gi.TupleGetItem(gi.Loop(gi.const(3), None, body, [gi.exp(x)]), 0)
    parts = gi.split(loop, indices_or_sections=2, axis=1)
    result = gi.If(flag, gi.exp(parts[0]) - parts[1], gi.sqrt(gi.abs(parts[1])))
    mod = tw.IRModule.from_expr(gi.Function([x, flag], (result, loop)))
    given = {"x": random(4, 6), "flag": np.array(True)}
    check = tw.NumericCheck(given, folder=None)
    with PassContext(opt_level=3, instruments=[check]):
        tw.build(mod, target="llvm")
    assert {step.status for step in check.steps} == {"ok"}
    found = failure(tw.NumericCheck(given, folder=None), mod, "graph", negate_subtract())
    assert operators(found) == ["subtract"]


def test_pass_that_changes_nothing_is_not_checked(check: tw.NumericCheck) -> None:
    @function_pass(opt_level=0, name="Nothing")
    def nothing(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
        return func

    with PassContext(instruments=[check]):
        nothing(model())
    assert check.steps == []


def test_error_leaves_the_instrument_ready_for_the_next_build(check: tw.NumericCheck) -> None:
    failure(check, model(), "graph", swap_operands)
    with PassContext(opt_level=1, instruments=[check]):
        tw.build(model(), target="llvm")
    assert [step.status for step in check.steps].count("failed") == 1
    assert check.steps[-1].passes == ("PlanMemory",)


def tanh_model() -> tw.IRModule:
    x = gi.var("x", shape=("n",))
    return tw.IRModule.from_expr(gi.Function([x], gi.tanh(x)))


def test_kernel_that_writes_outside_of_its_memory_is_noticed() -> None:
    class Further(Mutator):
        def mutate_BufferStore(self, store: BufferStore) -> BufferStore:
            moved = cast("int64", store.value * 0.0 + 3.0)  # no analysis can derive its value
            return BufferStore(store.buffer, store.value, (store.indices[0] + moved,))

    @primfunc_pass(opt_level=0, name="Further")
    def further(func: PrimFunc, mod: tw.IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(Further().mutate(func.body))

    check = tw.NumericCheck({"x": random(64)}, folder=None)
    found = failure(check, tanh_model(), "scheduled", further, 0)
    assert found.pass_name == "Further"
    assert found.error is not None and "writes outside of the memory" in found.error
    assert operators(found) == ["tanh"]


def test_pass_that_code_needs_is_blamed_itself(check: tw.NumericCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """All loop nests go through it before they run; the interpreter shows that they were correct before."""
    right = LowerBlocks.transform_function

    def wrong(self: LowerBlocks, func: PrimFunc, mod: tw.IRModule, ctx: PassContext) -> PrimFunc:
        made = right(self, func, mod, ctx)
        return made.with_body(Shorter().mutate(made.body))

    monkeypatch.setattr(LowerBlocks, "transform_function", wrong)
    with PassContext(opt_level=1, instruments=[check]), pytest.raises(NumericError) as caught:
        tw.build(model(1), target="llvm")
    assert caught.value.failure.pass_name == "LowerBlocks"
    assert "found after pass LowerToTensorIR" in caught.value.failure.note


def test_module_that_no_code_can_be_made_of_is_a_failure() -> None:
    class Longer(Mutator):
        def mutate_For(self, loop: For) -> For:
            return For(loop.var, loop.min, loop.extent + 1, loop.kind, self.mutate(loop.body), loop.annotations)

    @primfunc_pass(opt_level=0, name="TooLong")
    def too_long(func: PrimFunc, mod: tw.IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(Longer().mutate(func.body))

    found = failure(tw.NumericCheck({"x": random(64)}, folder=None), tanh_model(), "tensor", too_long, 0)
    assert found.pass_name == "TooLong"
    assert found.error is not None and "index i0 of x reaches n" in found.error


def test_module_that_a_pass_makes_for_itself_is_not_taken_for_the_model(check: tw.NumericCheck) -> None:
    @function_pass(opt_level=0, name="Asks")
    def asks(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
        z = gi.var("z", shape=(2,))
        FoldConstant()(tw.IRModule.from_expr(gi.Function([z], z + gi.exp(gi.const(1.0)))))
        return func

    with PassContext(opt_level=3, instruments=[check]):
        Sequential([asks, FoldConstant()])(model())
    assert {step.status for step in check.steps} == {"ok"}


def test_a_pass_that_does_not_run_twice_is_reported_with_its_reason() -> None:
    runs = []

    @function_pass(opt_level=0, name="Once")
    def once(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
        runs.append(func)
        if len(runs) > 1:
            raise RuntimeError("the table was used up")
        return func.with_body(gi.exp(func.body))

    x = gi.var("x", shape=(4,))
    check = tw.NumericCheck(folder=None)
    with pytest.raises(NumericError) as caught, PassContext(instruments=[check]):
        once(tw.IRModule.from_expr(gi.Function([x], gi.tanh(x))))
    assert caught.value.failure.minimized is None
    assert "the table was used up" in caught.value.failure.note
