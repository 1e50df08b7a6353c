"""Test reports: the content of the page, that it is self-contained, and the environment variable."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.runtime.observe.report.conftest import builds_of, data_of, network
from tilewright import graphir as gi
from tilewright.tensorir.errors import InputError


def test_it_loads_nothing_from_elsewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)\s*=|url\(|@import|\bfetch\(|XMLHttpRequest|import\(""", text)
    assert "default-src 'none'" in text


def test_names_of_a_model_are_no_html(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<title>Two &lt;i&gt;layers&lt;/i&gt;</title>" in text
    assert "<b>layer" not in text


def test_it_has_the_time_of_each_pass(data: dict[str, Any]) -> None:
    assert [span["name"] for span in data["timing"]["spans"]] == ["graph", "lower", "schedule", "kernels"]
    assert {"FuseOps", "ScheduleKernels"} <= {total["name"] for total in data["timing"]["attributes"]["flat"]}


def test_it_has_the_text_after_each_pass_that_changed_something(data: dict[str, Any]) -> None:
    (history,) = data["history"]
    names = [step["name"] for step in history["steps"]]
    assert names[0] == "input"
    assert names.index("FuseOps") < names.index("LowerToTensorIR") < names.index("PlanMemory")
    for step in history["steps"]:
        for name, version in step["changed"].items():
            assert version is None or version < len(history["functions"][name]["versions"])


def test_it_has_the_graph_before_and_after_fusion(data: dict[str, Any]) -> None:
    before = [node["title"] for node in data["graph"]["before"]["nodes"]]
    assert before == ["x", "nn.dense", "nn.relu", "nn.dense", "add", "nn.softmax", "result"]
    (after,) = data["graph"]["after"]
    assert [node["kernel"] for node in after["nodes"]] == [None, "dense_relu", "dense_add", "softmax", None]


def test_it_explains_each_kernel_in_a_sentence(data: dict[str, Any]) -> None:
    assert set(data["explained"]) == {"dense_relu", "dense_add", "softmax"}
    for found in data["explained"].values():
        assert "roof" in found["sentence"] and found["seconds"] > 0


def test_a_kernel_in_the_graph_has_the_labels_of_its_operators(data: dict[str, Any]) -> None:
    before = {node["label"]: node["title"] for node in data["graph"]["before"]["nodes"] if node["label"]}
    kernels = [node for node in data["graph"]["after"][0]["nodes"] if node["kernel"]]
    assert [[before[label] for label in node["labels"]] for node in kernels] == [
        ["nn.dense", "nn.relu"],
        ["nn.dense", "add"],
        ["nn.softmax"],
    ]


def test_an_operator_without_a_label_gets_its_number(data: dict[str, Any]) -> None:
    labels = [node["label"] for node in data["graph"]["before"]["nodes"][1:-1]]
    assert labels == ["first <b>layer</b>", "#1", "#2", "#3", "#4"]


def test_each_kernel_is_there_at_every_stage(data: dict[str, Any]) -> None:
    assert set(data["kernels"]) == {"dense_relu", "dense_add", "softmax"}
    for name, texts in data["kernels"].items():
        for stage in ("tensor", "scheduled", "lowered"):
            assert f"primfunc @{name}(" in texts[stage]
        assert f"def {name}(" in texts["numba"]
        assert f"@tw.{name}(" in texts["llvm"]
        assert f"tw.{name}:" in texts["assembly"]


def test_the_profile_has_the_origins_of_the_graph(data: dict[str, Any]) -> None:
    calls = data["profile"]["attributes"]["calls"]
    assert [[origin["label"] for origin in call["origins"]] for call in calls] == [
        ["first <b>layer</b>", "#1"],
        ["#2", "#3"],
        ["#4"],
    ]
    assert data["profile"]["attributes"]["sizes"] == {"n": 16}


def test_remarks_are_there(data: dict[str, Any]) -> None:
    assert any(remark["pass_name"] == "PlanMemory" for remark in data["remarks"])


def test_the_settings_of_the_build_are_there(data: dict[str, Any]) -> None:
    assert data["settings"]["opt_level"] == 3
    assert data["settings"]["target"].startswith("llvm ")


def test_each_line_of_a_kernel_knows_the_lines_that_it_comes_from(data: dict[str, Any]) -> None:
    stages = ["tensor", "scheduled", "lowered", "llvm", "assembly"]
    for name, texts in data["kernels"].items():
        before = 2 if name != "softmax" else 1  # the operators
        sizes = {}
        for stage in [*stages, "numba"]:
            origins = data["lines"][name][stage]
            before = sizes["tensor"] if stage == "numba" else before
            assert len(origins) == texts[stage].count("\n") + 1
            assert all(0 <= line < before for found in origins for line in found)
            before = sizes[stage] = len(origins)
        source = zip(texts["numba"].split("\n"), data["lines"][name]["numba"], strict=True)
        assert all(origins for line, origins in source if "] = " in line or line.strip().startswith("for "))
        loops = zip(texts["lowered"].split("\n"), data["lines"][name]["lowered"], strict=True)
        assert all(origins for line, origins in loops if " = " in line and "primfunc" not in line)


def test_two_builds_are_compared_for_equal_inputs(tmp_path: Path) -> None:
    builds = []
    for level in (1, 2):
        with tw.PassContext(opt_level=level):
            builds.append(tw.build(network()))
    one, two = builds_of(tw.report(builds, tmp_path / "r.html", repeat=1))
    assert [one["settings"]["opt_level"], two["settings"]["opt_level"]] == [1, 2]
    assert one["profile"]["attributes"]["sizes"] == two["profile"]["attributes"]["sizes"]


def test_models_with_other_inputs_are_compared_each_with_its_own(tmp_path: Path) -> None:
    x = gi.var("other", shape=(8,))
    one, two = builds_of(tw.report([network(), gi.Function([x], gi.exp(x))], tmp_path / "r.html", repeat=1))
    assert one["profile"] is not None and two["profile"] is not None


def test_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a model, or several to compare, found an empty sequence"):
        tw.report([], tmp_path / "r.html")


def test_inputs_are_made_up_where_none_are_given(tmp_path: Path) -> None:
    path = tw.report(tw.build(network()), tmp_path / "made_up.html", repeat=1)
    assert data_of(path)["profile"]["attributes"]["sizes"] == {"n": 1}


def test_inputs_may_have_names(tmp_path: Path) -> None:
    named = {"x": np.zeros((3, 32), "f4")}
    assert data_of(tw.report(tw.build(network()), tmp_path / "r.html", named, repeat=1))["profile"] is not None


def test_inputs_that_do_not_suit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected"):
        tw.report(tw.build(network()), tmp_path / "r.html", [np.zeros((3, 31), "f4")])
    assert not (tmp_path / "r.html").exists()


def test_a_module_is_built_under_the_current_context(tmp_path: Path) -> None:
    with tw.PassContext(opt_level=1):
        path = tw.report(network(), tmp_path / "r.html", repeat=1)
    assert data_of(path)["settings"]["opt_level"] == 1


def test_the_report_is_of_the_build_and_not_of_the_context_around_it(tmp_path: Path) -> None:
    with tw.PassContext(opt_level=3, disabled_pass=["FuseOps"]):
        model = tw.build(network())
    names = {
        total["name"]
        for total in data_of(tw.report(model, tmp_path / "r.html", repeat=1))["timing"]["attributes"]["flat"]
    }
    assert "FuseOps" not in names
    assert "FoldConstant" in names


def test_the_target_numba_has_its_source(tmp_path: Path) -> None:
    x = gi.var("x", shape=(8,))
    data = data_of(tw.report(tw.build(gi.Function([x], gi.exp(x)), target="numba"), tmp_path / "r.html", repeat=1))
    assert set(data["kernels"]["exp"]) == {"tensor", "scheduled", "lowered", "numba"}
    assert [call["kernel"] for call in data["profile"]["attributes"]["calls"]] == ["exp"]


def test_a_model_in_several_functions_has_a_history_for_each(tmp_path: Path) -> None:
    x = gi.var("x", shape=("n",))
    model = tw.build(gi.Function([x], gi.nonzero(x) + gi.const(np.arange(1, dtype="int64"))))
    data = data_of(tw.report(model, tmp_path / "r.html", [np.array([0, 1, 2], "f4")], repeat=1))
    assert len(data["history"]) == len(data["graph"]["after"]) == 2
    assert data["profile"] is not None


SCRIPT = """
import tilewright as tw
from tilewright import graphir as gi
x = gi.var("x", shape=(4,))
for function in (gi.exp, gi.tanh):
    tw.build(gi.Function([x], function(x)))
"""


def test_the_environment_asks_for_a_report_of_each_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_REPORT", str(tmp_path / "net.html"))
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net-2.html", "net.html"]
    assert list(data_of(tmp_path / "net-2.html")["kernels"]) == ["tanh"]
