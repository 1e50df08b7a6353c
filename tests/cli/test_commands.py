"""Test the output of each command, the files that it writes, and its exit codes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import Result

import tilewright as tw
from tests.runtime.observe.report.conftest import builds_of
from tilewright import passes
from tilewright.cli.group import cli
from tilewright.cli.reference import MARK, reference
from tilewright.graphir.expr import Call, Function
from tilewright.graphir.visitor import rewrite
from tilewright.passes import pipelines
from tilewright.runtime.artifact import Artifact

Command = Callable[..., Result]
MODEL = "network.py:network"


def test_an_artifact_is_compiled_and_run(command: Command, tmp_path: Path) -> None:
    options = ["--mcpu", "x86-64-v3", "--mattr", "-avx2", "--threads", 1]
    found = command("compile", MODEL, "-o", tmp_path / "net.tw", *options)
    assert found.exit_code == 0, found.output
    assert found.stdout == ""  # what is written is a file
    artifact = Artifact.open(tmp_path / "net.tw")
    assert artifact.stored.target["mcpu"] == "x86-64-v3" and "avx2" not in artifact.features
    assert "-mcpu=x86-64-v3 -mattr=-avx2" in command("inspect", tmp_path / "net.tw").stdout
    assert command("run", tmp_path / "net.tw", "-d", "batch=2", "-r", 1).exit_code == 0


def test_an_artifact_serves_all_sizes(command: Command, tmp_path: Path) -> None:
    found = command("compile", MODEL, "-o", tmp_path / "net.tw", "--shape", "batch=3")
    assert found.exit_code == 2 and "all sizes" in " ".join(found.stderr.split())


@pytest.mark.parametrize("name", ["compile", "bisect"])
def test_commands_that_need_a_graph_refuse_an_artifact(command: Command, tmp_path: Path, name: str) -> None:
    found = command(name, "network.tw", "-o", tmp_path / "out")
    assert found.exit_code == 2 and f"network.tw is compiled already; {name} needs the graph" in found.stderr


def test_an_artifact_is_described(command: Command) -> None:
    found = command("inspect", "network.tw", "--weights")
    assert found.exit_code == 0
    for text in (
        "all checksums are right",
        "(x: Tensor[(batch, 12), float32]) -> Tensor[(batch, 4), float32]",
        "without 1 weights",
        "runs here    yes",
        "nn.dense, tanh",
        "float32",
    ):
        assert text in found.stdout, text
    assert "complete" in command("inspect", "graph.tw").stdout


@pytest.mark.parametrize("option", [("-d", "batch=3"), ("-s", "batch=3"), ("-s", "x=3,12")])
def test_the_description_has_sizes_that_are_given(command: Command, models: Path, option: tuple[str, str]) -> None:
    facts = json.loads(command("inspect", "network.tw", "--json", *option).stdout)
    assert facts["signature"] == "(x: Tensor[(3, 12), float32]) -> Tensor[(3, 4), float32]"
    assert facts["arena"] == [str(tw.load(models / "network.tw").arena_bytes(batch=3))]
    assert command("inspect", "network.tw", "-d", "rows=3").exit_code == 2


def test_the_description_of_an_artifact_is_data_too(command: Command) -> None:
    facts = json.loads(command("inspect", "graph.tw", "--json").stdout)
    model = tw.load("graph.tw")
    assert facts["signature"] == str(model.signature)
    assert facts["weight_bytes"] == sum(array.nbytes for array in Artifact.open("graph.tw").functions[0].constants)
    assert facts["features"] == sorted(Artifact.open("graph.tw").features)
    assert facts["size"] == Path("graph.tw").stat().st_size
    assert [use["operators"] for use in facts["kernels"]] == [["nn.dense", "tanh"]]
    assert facts["obstacles"] == []


def test_a_stage_is_printed_and_a_kernel_of_it(command: Command, models: Path) -> None:
    found = command("ir", "network.py:network", "--stage", "graph", "--inline")
    assert found.exit_code == 0 and "main" in tw.graphir.parse(found.stdout)
    assert "dense_tanh" in command("ir", "network.py:network", "--list").stdout
    loops = command("ir", "graph.tw", "--kernel", "dense_tanh")
    expected = tw.load(models / "graph.tw").ir("scheduled", kernel="dense_tanh")
    assert loops.exit_code == 0 and loops.stdout.strip() == expected.strip()
    assert (
        "tw.dense_tanh:" in command("ir", "network.py:network", "--kernel", "dense_tanh", "--stage", "assembly").stdout
    )


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["graph.tw", "--kernel", "dense_tan"], 2, "did you mean dense_tanh?"),
        (["graph.tw", "--stage", "loops"], 2, "expected one of graph, optimized, tensor"),
        (["graph.tw", "-d", "batch=1"], 2, "No such option"),
        (["network.tw"], 1, "without"),
    ],
)
def test_a_stage_that_cannot_be_printed_says_why(command: Command, options: list[str], code: int, message: str) -> None:
    found = command("ir", *options)
    assert found.exit_code == code and message in found.output


def test_a_profile_is_printed_and_written(command: Command, tmp_path: Path) -> None:
    files = ["--json", tmp_path / "profile.json", "--trace", tmp_path / "trace.json"]
    found = command("profile", MODEL, "-d", "batch=2", "-r", 2, *files)
    assert found.exit_code == 0, found.output
    assert "dense_tanh" in found.stdout and "of roof" in found.stdout
    assert json.loads((tmp_path / "profile.json").read_text())["kind"] == "profile"
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    alone = command("profile", "graph.tw", "-r", 1, "--json", "-", "--order", "kernel")
    assert json.loads(alone.stdout)["kind"] == "profile"


def test_a_profile_has_totals_by_type_of_operator(command: Command) -> None:
    found = command("profile", MODEL, "-d", "batch=2", "-r", 1)
    totals = found.stdout.partition("operator  calls")[2]
    assert "nn.dense" in totals or "matmul" in totals


def test_an_explanation_is_printed(command: Command) -> None:
    found = command("explain", MODEL, "-d", "batch=2", "-r", 2)
    assert found.exit_code == 0, found.output
    assert "what would change it" in found.stdout and "one thread, because" in found.stdout
    every = command("explain", MODEL, "--no-measure", "--all")
    assert " declined: " in every.stdout and "to change it:" in every.stdout
    data = json.loads(command("explain", MODEL, "-r", 1, "--json").stdout)
    assert data["kernels"][0]["sentence"]


def test_a_profile_of_an_artifact_without_its_graph_says_how_to_get_one(command: Command) -> None:
    found = command("profile", "network.tw")
    assert found.exit_code == 1 and "graph=True" in found.stderr and found.stdout == ""


def test_a_report_compares_with_another_level(command: Command, tmp_path: Path) -> None:
    found = command("report", MODEL, "-o", tmp_path / "report.html", "-r", 1, "--against-level", 0)
    assert "at level 0" in found.stderr
    one, two = builds_of(tmp_path / "report.html")
    assert [one["settings"]["opt_level"], two["settings"]["opt_level"]] == [0, 2]


def test_a_report_is_written(command: Command, tmp_path: Path) -> None:
    found = command("report", MODEL, "-o", tmp_path / "report.html", "-r", 1, "--title", "A network of mine")
    assert found.exit_code == 0, found.output
    assert "A network of mine" in (tmp_path / "report.html").read_text(encoding="utf-8")


# passes


def test_every_pass_is_listed_with_its_level_and_what_it_does(command: Command) -> None:
    found = json.loads(command("passes", "--json").stdout)
    assert [each["name"] for each in found] == passes.list_passes()
    for each in found:
        assert each["opt_level"] == passes.get_pass(each["name"]).info.opt_level
        assert len(each["description"]) > 10 and "\n" not in each["description"]
    lines = command("passes").stdout.splitlines()
    assert any(line.split()[:2] == ["FuseOps", "1"] for line in lines)


def test_one_pass_is_described_with_its_options(command: Command) -> None:
    shown = command("passes", "UnrollLoop").stdout
    for text in ("UnrollLoop (level always, tilewright.passes.tensor.unroll_loop)", "tensorir.UnrollLoop.max_unroll"):
        assert text in shown
    found = json.loads(command("passes", "UnrollLoop", "--json").stdout)
    assert found["config"]["tensorir.UnrollLoop"]["max_unroll"]["default"] == 1024


def test_options_of_passes_are_listed(command: Command) -> None:
    assert json.loads(command("passes", "--configs", "--json").stdout) == json.loads(
        json.dumps(tw.PassContext.list_configs())
    )
    assert "tensorir.UnrollLoop.max_unroll" in command("passes", "--configs").stdout


def test_an_unknown_pass_suggests_the_nearest(command: Command) -> None:
    found = command("passes", "FuseOp")
    assert found.exit_code == 2 and "FuseOps" in found.stderr


# bisect


def broken_graph_pipeline(target: Any) -> passes.Sequential:
    """The graph passes, with one that is wrong among them: it makes of every tanh a sigmoid."""

    @passes.function_pass(opt_level=1, name="TanhToSigmoid")
    def wrong(func: Function, mod: tw.IRModule, ctx: tw.PassContext) -> Function:
        def changed(old: tw.graphir.Expr, new: tw.graphir.Expr) -> tw.graphir.Expr:
            return tw.graphir.sigmoid(new.args[0]) if isinstance(new, Call) and new.op.name == "tanh" else new

        found = rewrite(func, changed)
        assert isinstance(found, Function)
        return found

    return passes.Sequential([passes.get_pass("InferType"), wrong, pipelines.graph_pipeline(target)], name="graph")


def test_a_sound_model_is_found_to_be_so(command: Command) -> None:
    found = command("bisect", MODEL, "-d", "batch=2", "-O", 2)
    assert found.exit_code == 0, found.output
    assert "no pass changes the results" in found.stdout and "FuseOps" in found.stdout
    assert json.loads(command("bisect", MODEL, "-O", 1, "--json").stdout)["found"] is False


def test_a_broken_pass_is_named_with_operator_and_element(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pipelines.STAGES, "optimized", broken_graph_pipeline)
    found = command("bisect", MODEL, "-O", 2, "-o", tmp_path / "test_wrong.py")
    assert found.exit_code == 3, found.output
    for text in ("pass TanhToSigmoid changes", "tanh(", "element", f"reproducer: {tmp_path / 'test_wrong.py'}"):
        assert text in found.stdout, text
    assert "def test_" in (tmp_path / "test_wrong.py").read_text()
    data = json.loads(command("bisect", MODEL, "-O", 2, "--json").stdout)
    assert (data["pass"], data["found"]) == ("TanhToSigmoid", True) and "tanh" in data["operator"]


def test_a_pass_that_fails_is_found_by_leaving_passes_out(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    @passes.module_pass(opt_level=1, name="Failing")
    def failing(mod: tw.IRModule, ctx: tw.PassContext) -> tw.IRModule:
        raise RuntimeError("not today")

    def pipeline(target: Any) -> passes.Sequential:
        return passes.Sequential([pipelines.graph_pipeline(target), failing], name="graph")

    monkeypatch.setitem(pipelines.STAGES, "optimized", pipeline)
    found = command("bisect", MODEL, "-O", 1)
    assert found.exit_code == 3, found.output
    assert "Failing" in found.stdout and "not today" in found.stderr


# Documents.


PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_examples_of_the_document_run_as_they_stand(
    command: Command, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = pytest.importorskip("onnx")
    (tmp_path / "network.py").write_text((models / "network.py").read_text() + "\nmake = network\n")
    np.save(tmp_path / "photos.npy", np.ones((8, 3, 4, 4), "f4"))
    helper = onnx.helper
    image, scores = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("image", ["batch", 3, "h", "w"]), ("scores", ["batch", 3, 1, 1]))
    )
    graph = helper.make_graph([helper.make_node("GlobalAveragePool", ["image"], ["scores"])], "test", [image], [scores])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, tmp_path / "classifier.onnx")
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^tilewright (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {example.split()[0] for example in examples} == set(cli.commands)
    for example in examples:
        if "onnxruntime" in example and importlib.util.find_spec("onnxruntime") is None:
            continue
        short = ["--seconds", "0"] if example.startswith("bench") else []
        found = command(*shlex.split(example), *short)
        assert found.exit_code == 0, (example, found.output)
    for written in ("results.npz", "classifier.tw", "trace.json", "report.html"):
        assert (tmp_path / written).exists()


def test_the_reference_of_the_commands_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    if page.partition(MARK)[2] != reference():
        pytest.fail("run: python -m tilewright.cli.reference docs/cli.md")


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_and_option_has_help(command: Command, name: str) -> None:
    assert command(name, "--help").exit_code == 0
    assert cli.commands[name].help
    for parameter in cli.commands[name].params:
        assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), parameter.name


def test_as_many_cores_are_used_as_threads_and_given_back(command: Command) -> None:
    before = sorted(os.sched_getaffinity(0))
    found = json.loads(command("bench", MODEL, "--threads", 1, "-r", 2, "--json").stdout)
    assert found["cores"] == before[:1]
    assert sorted(os.sched_getaffinity(0)) == before
