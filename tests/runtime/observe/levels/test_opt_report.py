"""Test reports of the effect of each optimization level on a model."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.codegen.llvm import ModuleText
from tilewright.runtime.observe.levels.opt_report import OptReport, PassUse
from tilewright.runtime.process_caches import process_caches
from tilewright.tensorir.errors import InputError


def network() -> gi.IRModule:
    """Build a product with computed weights, and an activation that level 3 approximates."""
    x = gi.var("x", shape=("n", 16))
    weight = gi.exp(gi.const(np.full((16, 16), 0.1, "f4")))
    return gi.IRModule.from_expr(gi.Function([x], gi.tanh(gi.nn.dense(x, weight))))


@pytest.fixture(scope="module")
def report() -> OptReport:
    return tw.opt_report(network(), [np.ones((8, 16), "f4")], repeat=2)


def use(report: OptReport, level: int, name: str) -> PassUse:
    (found,) = [each for each in report.levels[level].passes if each.name == name]
    return found


def test_there_is_a_report_for_each_level(report: OptReport) -> None:
    assert [level.level for level in report.levels] == [0, 1, 2, 3]


def test_a_pass_that_ran_says_how_many_runs_changed_something(report: OptReport) -> None:
    assert use(report, 1, "FuseOps") == PassUse("FuseOps", 1, 1)
    assert use(report, 1, "DeadCodeElimination") == PassUse("DeadCodeElimination", 1, 0)
    fold = use(report, 3, "FoldConstant")
    assert fold.runs > fold.changed >= 1


def test_a_pass_of_a_higher_level_says_from_where_on_it_runs(report: OptReport) -> None:
    assert use(report, 0, "FuseOps") == PassUse("FuseOps", 0, 0, "from opt_level 1 on")
    assert use(report, 2, "Winograd").reason == "from opt_level 3 on"


def test_a_disabled_pass_says_so() -> None:
    with tw.PassContext(disabled_pass=["FuseOps"]):
        report = tw.opt_report(network(), repeat=1)
    assert use(report, 3, "FuseOps").reason == "disabled"
    assert use(report, 0, "FuseOps").reason == "disabled"


def test_a_required_pass_runs_below_its_level() -> None:
    with tw.PassContext(required_pass=["FuseOps"]):
        report = tw.opt_report(network(), repeat=1)
    assert use(report, 0, "FuseOps").runs == 1


def test_fusion_makes_fewer_kernels(report: OptReport) -> None:
    assert [level.kernels for level in report.levels] == [3, 1, 1, 1]


def test_times_and_memory_are_there(report: OptReport) -> None:
    for level in report.levels:
        assert level.build_seconds >= level.pass_seconds > 0
        assert level.call_seconds is not None
        assert level.call_seconds > 0
        assert level.weight_bytes == 16 * 16 * 4
    assert report.levels[0].speedup == 1
    assert report.levels[0].arena_bytes >= 16 * 16 * 4 + 8 * 16 * 4


def test_levels_with_the_same_code_are_named() -> None:
    x = gi.var("x", shape=(64,))
    mod = gi.IRModule.from_expr(gi.Function([x], x * 2.0))
    report = tw.opt_report(mod, repeat=1)
    texts = []
    for level in range(4):
        with tw.PassContext(opt_level=level):
            texts.append(tw.build(mod).ir("lowered"))
    expected = [next((n for n in range(level) if texts[n] == texts[level]), None) for level in range(4)]
    assert [level.same_as for level in report.levels] == expected
    assert 2 in expected
    assert "opt_level 3 gives the same code as 2" in report.render()


def test_levels_with_other_code_are_not(report: OptReport) -> None:
    assert [level.same_as for level in report.levels] == [None] * 4


def test_nothing_is_taken_from_earlier_builds_or_kept_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    tw.build(network())
    made = []
    compile_text = ModuleText.compile

    def noting(*args):
        made.append(args)
        return compile_text(*args)

    monkeypatch.setattr(ModuleText, "compile", noting)
    models = dict(process_caches().models._models)
    tw.opt_report(network(), repeat=1)
    assert len(made) >= 8  # for each level the kernels, and main
    assert dict(process_caches().models._models) == models


def test_inputs_that_do_not_suit_are_refused() -> None:
    with pytest.raises(InputError, match="expected"):
        tw.opt_report(network(), [np.ones((8, 17), "f4")], repeat=1)


def test_the_text_has_a_line_for_each_level_and_each_pass(report: OptReport) -> None:
    lines = report.render().splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["0", "1", "2", "3"]
    assert any(line.split()[0] == "FuseOps" and line.endswith("from opt_level 1 on") for line in lines if line)


def test_json_is_the_dictionary(report: OptReport) -> None:
    found = json.loads(report.to_json())
    assert found["levels"][3]["level"] == 3
    assert found == json.loads(json.dumps(report.as_dict()))


def test_a_notebook_gets_tables(report: OptReport) -> None:
    assert report._repr_html_().count("<table>") == 2
