"""``Sequential``: order, gating, required passes, cycles, and unknown names in the context."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes import ModulePass, PassContext, PassInfo, Sequential, module_pass, register_pass
from tilewright.tensorir.errors import PassError, UnknownPassError

pytestmark = pytest.mark.usefixtures("scratch_registry")


class Step(ModulePass):
    """Writes its name to a list when it runs."""

    def __init__(self, name: str, ran: list[str], level: int = 0, required: tuple[str, ...] = ()) -> None:
        self.info = PassInfo(name, level, required)
        self.ran = ran

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        self.ran.append(self.info.name)
        return mod


@pytest.fixture
def ran() -> list[str]:
    return []


def test_the_children_run_in_order_each_on_the_result_of_the_one_before(mod: IRModule) -> None:
    seen = []

    def copying(name: str) -> Any:
        def transform(mod: Any, ctx: Any) -> Any:
            seen.append((name, mod))
            return IRModule(mod.functions)

        return module_pass(transform, opt_level=0, name=name)

    result = Sequential([copying("A"), copying("B")])(mod)
    assert [name for name, _ in seen] == ["A", "B"]
    assert seen[0][1] is mod
    assert seen[1][1] not in (mod, result)


def test_an_empty_pipeline_returns_its_input(mod: IRModule) -> None:
    assert Sequential([])(mod) is mod
    assert Sequential()(mod) is mod


def test_the_defaults_are_level_zero_and_the_name_sequential() -> None:
    assert Sequential([]).info == PassInfo("sequential", 0, ())


def test_each_child_is_gated_by_the_level_of_the_context(mod: IRModule, ran: list[str]) -> None:
    pipeline = Sequential([Step(f"L{level}", ran, level) for level in range(4)])
    for level in range(4):
        ran.clear()
        with PassContext(opt_level=level):
            pipeline(mod)
        assert ran == [f"L{i}" for i in range(level + 1)]


def test_disabled_children_do_not_run_and_required_ones_do(mod: IRModule, ran: list[str]) -> None:
    pipeline = Sequential([Step("A", ran), Step("B", ran, 3), Step("C", ran, 3)])
    with PassContext(opt_level=0, disabled_pass=["A"], required_pass=["C"]):
        pipeline(mod)
    assert ran == ["C"]


def test_the_pipeline_itself_is_not_gated_when_called_directly(mod: IRModule, ran: list[str]) -> None:
    with PassContext(opt_level=0):
        Sequential([Step("A", ran)], opt_level=3, name="high")(mod)
    assert ran == ["A"]


def test_a_pipeline_inside_a_pipeline_is_gated_as_a_whole_and_then_child_by_child(
    mod: IRModule, ran: list[str]
) -> None:
    inner = Sequential([Step("A", ran), Step("B", ran, 2)], opt_level=1, name="inner")
    outer = Sequential([inner, Step("C", ran)])
    for level, expected in [(0, ["C"]), (1, ["A", "C"]), (2, ["A", "B", "C"])]:
        ran.clear()
        with PassContext(opt_level=level):
            outer(mod)
        assert ran == expected


def test_required_passes_run_right_before_the_pass_that_requires_them(mod: IRModule, ran: list[str]) -> None:
    register_pass(Step("Before1", ran))
    register_pass(Step("Before2", ran))
    Sequential([Step("A", ran), Step("B", ran, required=("Before1", "Before2"))])(mod)
    assert ran == ["A", "Before1", "Before2", "B"]


def test_required_passes_are_transitive(mod: IRModule, ran: list[str]) -> None:
    register_pass(Step("Deepest", ran))
    register_pass(Step("Deep", ran, required=("Deepest",)))
    register_pass(Step("Near", ran, required=("Deep",)))
    Sequential([Step("A", ran, required=("Near",))])(mod)
    assert ran == ["Deepest", "Deep", "Near", "A"]


def test_a_pass_that_two_others_require_runs_for_each_of_them(mod: IRModule, ran: list[str]) -> None:
    register_pass(Step("Shared", ran))
    Sequential([Step("A", ran, required=("Shared",)), Step("B", ran, required=("Shared",))])(mod)
    assert ran == ["Shared", "A", "Shared", "B"]


def test_a_pass_that_is_not_enabled_does_not_pull_in_what_it_requires(mod: IRModule, ran: list[str]) -> None:
    register_pass(Step("Before", ran))
    with PassContext(opt_level=0):
        Sequential([Step("A", ran, 1, required=("Before",))])(mod)
    assert ran == []


def test_a_required_pass_runs_whatever_its_own_level_is(mod: IRModule, ran: list[str]) -> None:
    register_pass(Step("Before", ran, 3))
    with PassContext(opt_level=0):
        Sequential([Step("A", ran, required=("Before",))])(mod)
    assert ran == ["Before", "A"]


def test_a_disabled_pass_still_runs_where_another_pass_requires_it(mod: IRModule, ran: list[str]) -> None:
    before = Step("Before", ran)
    with PassContext(disabled_pass=["Before"]):
        Sequential([before, Step("A", ran, required=("Before",))])(mod)
    assert ran == ["Before", "A"]


def test_a_pipeline_knows_its_own_passes_as_required_without_the_registry(mod: IRModule, ran: list[str]) -> None:
    Sequential([Step("A", ran), Step("B", ran, required=("A",))])(mod)
    assert ran == ["A", "A", "B"]


def test_a_pass_of_the_pipeline_goes_before_the_registered_one_of_its_name(mod: IRModule, ran: list[str]) -> None:
    register_pass(Step("A", []))
    Sequential([Step("B", ran, required=("A",)), Step("A", ran)])(mod)
    assert ran == ["A", "B", "A"]


def test_a_pass_inside_an_inner_pipeline_may_require_one_of_the_outer(mod: IRModule, ran: list[str]) -> None:
    inner = Sequential([Step("B", ran, required=("A",))], name="inner")
    Sequential([Step("A", ran), inner])(mod)
    assert ran == ["A", "A", "B"]


def test_required_passes_of_an_inner_pipeline_run_before_it(mod: IRModule, ran: list[str]) -> None:
    register_pass(Step("Before", ran))
    Sequential([Sequential([Step("A", ran)], name="inner", required=["Before"])])(mod)
    assert ran == ["Before", "A"]


def test_a_cycle_is_an_error_that_shows_it_before_anything_runs(mod: IRModule, ran: list[str]) -> None:
    register_pass(Step("CycleA", ran, required=("CycleB",)))
    register_pass(Step("CycleB", ran, required=("CycleC",)))
    register_pass(Step("CycleC", ran, required=("CycleA",)))
    with pytest.raises(PassError, match="CycleA -> CycleB -> CycleC -> CycleA"):
        Sequential([Step("First", ran), Step("Start", ran, required=("CycleA",))])(mod)
    assert ran == []


def test_a_pass_that_requires_itself_is_a_cycle(mod: IRModule, ran: list[str]) -> None:
    with pytest.raises(PassError, match="A -> A"):
        Sequential([Step("A", ran, required=("A",))])(mod)


def test_a_cycle_through_a_pipeline_is_found(mod: IRModule, ran: list[str]) -> None:
    register_pass(lambda: Sequential([Step("Inner", ran, required=("Outer",))], name="Pipe"), name="Pipe")
    register_pass(Step("Outer", ran, required=("Pipe",)))
    with pytest.raises(PassError, match="Outer -> Pipe -> Inner -> Outer"):
        Sequential([Step("Start", ran, required=("Outer",))])(mod)


def test_a_pipeline_may_bear_the_name_of_a_pass_in_it(mod: IRModule, ran: list[str]) -> None:
    Sequential([Sequential([Step("A", ran), Step("B", ran, required=("A",))], name="A")])(mod)
    assert ran == ["A", "A", "B"]


def test_a_disabled_pass_cannot_close_a_cycle(mod: IRModule, ran: list[str]) -> None:
    with PassContext(disabled_pass=["A"]):
        Sequential([Step("A", ran, required=("A",)), Step("B", ran)])(mod)
    assert ran == ["B"]


def test_a_disabled_pass_in_an_inner_pipeline_cannot_close_a_cycle(mod: IRModule, ran: list[str]) -> None:
    inner = Sequential([Step("A", ran, required=("A",)), Step("B", ran)], name="inner")
    with PassContext(disabled_pass=["A"]):
        Sequential([inner])(mod)
    assert ran == ["B"]


def test_of_two_passes_with_one_name_the_first_is_meant(mod: IRModule) -> None:
    first: list[str] = []
    second: list[str] = []
    Sequential([Step("A", first), Step("A", second), Step("B", [], required=("A",))])(mod)
    assert (len(first), len(second)) == (2, 1)


def test_a_required_name_that_nobody_knows_suggests_the_nearest(mod: IRModule, ran: list[str]) -> None:
    register_pass(Step("SimplifyShapes", ran))
    pipeline = Sequential([Step("A", ran, required=("SimplifyShape",))])
    with pytest.raises(
        UnknownPassError, match=r"'SimplifyShape' in required of pass A\. Did you mean 'SimplifyShapes'"
    ):
        pipeline(mod)


@pytest.mark.parametrize("setting", ["disabled_pass", "required_pass"])
def test_an_unknown_name_in_the_context_suggests_the_nearest_of_the_pipeline(
    setting: str, mod: IRModule, ran: list[str]
) -> None:
    pipeline = Sequential([Sequential([Step("FoldSpecialThings", ran)], name="inner")])
    with (
        pytest.raises(UnknownPassError, match=rf"'foldspecialthing' in {setting}\. Did you mean 'FoldSpecialThings'"),
        PassContext(**{setting: ["foldspecialthing"]}),
    ):
        pipeline(mod)
    assert ran == []


def test_an_unknown_name_in_the_context_suggests_the_nearest_of_the_registry(mod: IRModule, ran: list[str]) -> None:
    register_pass(Step("VectorizeEverything", ran))
    with (
        pytest.raises(UnknownPassError, match="Did you mean 'VectorizeEverything'"),
        PassContext(disabled_pass=["VectorizeEverythin"]),
    ):
        Sequential([])(mod)


@pytest.mark.parametrize("setting", ["disabled_pass", "required_pass"])
def test_names_that_the_registry_or_an_outer_pipeline_knows_are_fine(
    setting: str, mod: IRModule, ran: list[str]
) -> None:
    register_pass(Step("Registered", ran))
    outer = Sequential([Step("OnlyOutside", ran, 3), Sequential([Step("Inside", ran)], name="inner")], name="outer")
    with PassContext(**{setting: ["Registered", "OnlyOutside", "inner"]}):
        outer(mod)


def test_an_unknown_name_is_no_error_until_a_pipeline_runs(mod: IRModule, ran: list[str]) -> None:
    with PassContext(disabled_pass=["NoSuchPass"]):
        Step("A", ran)(mod)
    assert ran == ["A"]


def test_a_class_instead_of_a_pass_is_explained() -> None:
    @module_pass(opt_level=0)
    class Nothing:
        def transform_module(self, mod: Any, ctx: Any) -> Any:
            return mod

    with pytest.raises(TypeError, match=r"make one by calling it: Nothing\(\)"):
        Sequential([Nothing])  # type: ignore[list-item]


def test_an_explicit_context_reaches_the_children(mod: IRModule, ran: list[str]) -> None:
    Sequential([Step("A", ran), Step("B", ran, 1)])(mod, PassContext(opt_level=0))
    assert ran == ["A"]


def test_after_a_failure_the_pipeline_is_forgotten(mod: IRModule, ran: list[str]) -> None:
    def fail(mod: Any, ctx: Any) -> Any:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        Sequential([Step("OnlyThere", ran), module_pass(fail, opt_level=0)])(mod)
    with pytest.raises(UnknownPassError):
        Sequential([Step("A", ran, required=("OnlyThere",))])(mod)


def test_cyclic_garbage_is_not_searched_while_a_pipeline_runs(mod: IRModule) -> None:
    seen: list[bool] = []

    @module_pass(opt_level=0)
    def look(mod: IRModule, ctx: PassContext) -> IRModule:
        seen.append(gc.isenabled())
        return mod

    Sequential([look, Sequential([look])])(mod)
    assert seen == [False, False]
    assert gc.isenabled()


def test_search_for_garbage_rests_until_the_last_thread_is_through(mod: IRModule) -> None:
    entered, first_is_through = threading.Event(), threading.Event()
    seen: list[bool] = []

    @module_pass(opt_level=0)
    def wait(mod: IRModule, ctx: PassContext) -> IRModule:
        entered.set()
        assert first_is_through.wait(120)
        seen.append(gc.isenabled())
        return mod

    @module_pass(opt_level=0)
    def start_another(mod: IRModule, ctx: PassContext) -> IRModule:
        other.start()
        assert entered.wait(120)
        return mod

    other = threading.Thread(target=lambda: wait(mod))
    start_another(mod)
    first_is_through.set()
    other.join()
    assert seen == [False]
    assert gc.isenabled()


def test_search_for_garbage_goes_on_after_a_pipeline_failed(mod: IRModule) -> None:
    @module_pass(opt_level=0)
    def fail(mod: IRModule, ctx: PassContext) -> IRModule:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        Sequential([fail])(mod)
    assert gc.isenabled()
