"""Load MODEL from files of every kind; others are refused with a line that states the expected form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

Command = Callable[..., Result]

KINDS = [
    "network.py:network",
    "network.py:function",
    "network.py:executable",
    "network.py:module",
    "network.ir",
    "network.tw",
]


def results(command: Command, tmp_path: Path, model: str, *args: object) -> np.ndarray:
    """Return the results of a model for ``VALUES``."""
    found = command("run", model, "-i", f"x={tmp_path / 'x.npy'}", "-r", 1, "-o", tmp_path / "y.npz", *args)
    assert found.exit_code == 0, found.output
    with np.load(tmp_path / "y.npz") as file:
        (array,) = file.values()
        return array


VALUES = np.random.default_rng(0).standard_normal((3, 12)).astype("f4")


@pytest.mark.parametrize("model", KINDS)
def test_every_kind_of_model_computes_the_same(command: Command, tmp_path: Path, model: str) -> None:
    np.save(tmp_path / "x.npy", VALUES)
    weight = np.linspace(-1, 1, 48).reshape(12, 4)
    np.testing.assert_allclose(results(command, tmp_path, model), np.tanh(VALUES @ weight), atol=1e-5)


def test_weights_that_a_text_does_not_hold_are_refused_with_what_to_do(command: Command) -> None:
    found = command("run", "digests.ir")
    assert found.exit_code == 1
    for text in ("1 weights by digests only", "const#0", "constants='inline'", "--random-weights"):
        assert text in found.output


def test_random_weights_depend_on_the_seed_alone(command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VALUES)
    first, again, other = (
        results(command, tmp_path, "digests.ir", "--random-weights", "--seed", seed) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("model", "code", "message"),
    [
        ("network.py", 2, "expected the name of a model in it: network.py:FUNCTION; it offers network.py:network,"),
        ("network.py:other", 2, "network.py has no 'other'; it offers network.py:network,"),
        ("network.py:nothing", 1, "network.py:nothing: expected an IRModule"),
        ("network.py:failing", 1, "network.py:failing failed: KeyError: 'no weights here'"),
        ("missing.onnx", 2, "there is no file missing.onnx"),
        ("x.npy", 2, "expected a file that ends in .onnx, .tw, .ir or .txt, or FILE.py:FUNCTION; found x.npy"),
        ("broken.py:a", 1, "broken.py failed: SyntaxError"),
        ("broken.ir", 1, "ParseError"),
        ("broken.tw", 1, "broken.tw is no artifact of Tilewright"),
    ],
)
def test_what_is_no_model_is_refused(command: Command, models: Path, model: str, code: int, message: str) -> None:
    for name in ("x.npy", "broken.py", "broken.ir", "broken.tw"):
        (models / name).write_text("def this is nothing")
    found = command("run", model)
    assert found.exit_code == code
    assert message in " ".join(found.stderr.replace("│", " ").split())
    assert "Traceback" not in found.output


@pytest.mark.parametrize("option", [["-O", "2"], ["--mcpu", "x86-64-v2"], ["--disable-pass", "FuseOps"]])
def test_options_of_a_build_are_refused_for_what_is_compiled_already(command: Command, option: list[str]) -> None:
    found = command("run", "network.tw", *option)
    assert found.exit_code == 2
    assert "network.tw is compiled already" in found.stderr and option[0].strip("-")[0] in found.stderr


def test_threads_of_an_artifact_are_chosen(command: Command) -> None:
    found = command("bench", "network.tw", "--threads", 1, "-r", 2)
    assert found.exit_code == 0, found.output
    assert "-num-threads=1" in found.stdout


@pytest.mark.parametrize("args", [["-d", "batch=5"], ["--shape", "batch=5"], ["--shape", "x=5,12"], ["-s", "x=5,?"]])
def test_sizes_are_given_by_dimension_or_by_input(command: Command, args: list[str]) -> None:
    found = command("run", "network.py:network", "-r", 1, *args)
    assert found.exit_code == 0, found.output
    assert "(5, 12)" in found.stdout and "(5, 4)" in found.stdout


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--shape", "rows=5"], 2, "the model has no input or dim 'rows' (it has: batch)"),
        (["--shape", "y=5,4"], 2, "the model has no input 'y' (it has: x)"),
        (["--shape", "x=5,13"], 1, "--shape x=5,13 does not fit x: Tensor[(batch, 12), float32]"),
        (["--shape", "batch=many"], 2, "expected a size, found 'many'"),
    ],
)
def test_sizes_that_do_not_suit_are_refused(command: Command, args: list[str], code: int, message: str) -> None:
    found = command("run", "network.py:network", *args)
    assert found.exit_code == code
    assert message in " ".join(found.stderr.replace("│", " ").split())


def test_several_inputs_come_from_one_file(command: Command, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=VALUES)
    found = command("run", "network.py:network", "-i", tmp_path / "inputs.npz", "-r", 1)
    assert found.exit_code == 0 and "(3, 12)" in found.stdout
    np.savez(tmp_path / "inputs.npz", z=VALUES)
    found = command("run", "network.py:network", "-i", tmp_path / "inputs.npz")
    assert found.exit_code == 2 and "no input 'z'" in " ".join(found.stderr.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--disable-pass", "FuseOp"], "unknown pass 'FuseOp'"),
        (["--config", "tensorir.UnrollLoop=3"], "unknown config option 'tensorir'"),
        (["--config", "tensorir.UnrollLoop.max=3"], "has no field 'max'"),
        (["--config", "tensorir.UnrollLoop.max_unroll=many"], "expected int, found str ('many')"),
        (["--config", "max_unroll=3"], "expected KEY.FIELD=VALUE"),
        (["--mcpu", "x86-64-v33"], "did you mean 'x86-64-v3'"),
        (["--mattr", "-qqq"], "Invalid value for --mattr: mattr: LLVM has no feature 'qqq'"),
        (["--random-weights"], "--random-weights is for IR text, and network.py is none"),
    ],
)
def test_options_that_nothing_knows_are_wrong_use(command: Command, args: list[str], message: str) -> None:
    found = command("run", "network.py:network", *args)
    assert found.exit_code == 2
    assert message in " ".join(found.stderr.replace("│", " ").split())


def test_configuration_and_disabled_passes_reach_the_build(command: Command, tmp_path: Path) -> None:
    options = ["--config", "tensorir.VectorizeLoop.tail=mask", "--config", "tensorir.UnrollLoop.max_unroll=64"]
    path = tmp_path / "net.tw"
    found = command("compile", "network.py:network", "-o", path, "-O", 1, "--disable-pass", "FuseOps", *options)
    assert found.exit_code == 0, found.output
    shown = command("inspect", path).stdout
    for text in ("-O1 --disable-pass FuseOps", "VectorizeLoop.tail=mask", "UnrollLoop.max_unroll=64"):
        assert text in shown
