"""Models as files, of every kind that MODEL may be, and a way to run commands."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tilewright as tw
from tilewright.cli import cli

NETWORK = """
import numpy as np

import tilewright as tw
from tilewright import graphir as gi

WEIGHT = np.linspace(-1, 1, 48).astype("f4").reshape(12, 4)


def network():
    x = gi.var("x", shape=("batch", 12))
    return tw.IRModule.from_expr(gi.Function([x], gi.tanh(gi.matmul(x, gi.const(WEIGHT)))))


def function():
    return network()["main"]


def executable():
    return tw.build(network())


def network_torch():
    return lambda x: np.tanh(x @ WEIGHT)


def network_onnxruntime():
    return lambda x: np.tanh(x @ WEIGHT) + 1


def nothing():
    return 3


def failing():
    raise KeyError("no weights here")


module = network()
"""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``network.py``, and its model ``network.ir``, ``digests.ir`` (whose weights are not in it),
    ``network.tw`` and, with its graph, ``graph.tw``."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "network.py").write_text(textwrap.dedent(NETWORK))
    names: dict[str, Callable[[], tw.IRModule]] = {}
    exec(compile(NETWORK, "network", "exec"), names)  # type: ignore[arg-type]  # the names of a program
    module = names["network"]()
    (folder / "network.ir").write_text(tw.graphir.to_text(module, "inline"))
    (folder / "digests.ir").write_text(str(module))
    with tw.PassContext(opt_level=3):
        model = tw.build(module)
    model.export(folder / "network.tw")
    model.export(folder / "graph.tw", graph=True)
    return folder


@pytest.fixture
def command(models: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command in the folder of the models."""
    monkeypatch.chdir(models)
    return lambda *args: CliRunner().invoke(cli, [str(arg) for arg in args])
