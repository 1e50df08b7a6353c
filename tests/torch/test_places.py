"""Remarks, profiles and errors name the lines of the program that PyTorch captured."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

import tilewright as tw  # noqa: E402
from tests.torch import programs  # noqa: E402
from tests.torch.compiling import compile_  # noqa: E402
from tilewright.passes import PassContext, Remarks  # noqa: E402
from tilewright.runtime.observe.report.collect import collect  # noqa: E402
from tilewright.tensorir.errors import InputError  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


class Model(torch.nn.Module):
    """Two lines that are found again."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.relu(x) @ y
        return torch.softmax(z, -1)


def line_of(function: Callable[..., Any], text: str) -> int:
    """Return the number of the line of a function that has the text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


FILE = Path(__file__).name


def exported(dynamic: Any = None) -> tw.Executable:
    args = [torch.randn(4, 6), torch.randn(6, 5)]
    return tw.build(tw.from_exported(programs.exported(Model(), args, dynamic)))


def test_a_profile_names_the_line_of_each_kernel() -> None:
    args = np.ones((4, 6), "float32"), np.ones((6, 5), "float32")
    text = exported().profile(*args, repeat=1).to_json()
    assert f"{FILE}:{line_of(Model.forward, 'relu')}" in text
    assert f"{FILE}:{line_of(Model.forward, 'softmax')}" in text


def test_a_report_names_the_lines_in_its_graphs_and_at_its_kernels() -> None:
    data = collect(exported(), [np.ones((4, 6), "float32"), np.ones((6, 5), "float32")], repeat=1)
    place = f"{FILE}:{line_of(Model.forward, 'softmax')}"
    assert place in json.dumps(data["graph"])
    assert place in json.dumps(data["profile"]["attributes"]["calls"])


def test_an_error_of_a_call_names_the_line_whose_sizes_do_not_fit() -> None:
    class Positive(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + (x > 0).nonzero()

    model = tw.build(tw.from_exported(programs.exported(Positive(), [torch.ones(4, 1)])))
    line = line_of(Positive.forward, "nonzero")
    with pytest.raises(InputError, match=rf"nonzero.* at .*{FILE}:{line}"):
        model(np.array([[1], [0], [1], [1]], "float32"))


def test_remarks_of_passes_name_lines() -> None:
    remarks = Remarks()
    with PassContext(instruments=[remarks]), torch.no_grad():
        compile_(Model())(torch.randn(4, 6), torch.randn(6, 5))
    assert f"{FILE}:{line_of(Model.forward, 'relu')}" in remarks.render()


def test_what_runs_in_pytorch_is_a_remark_with_its_line() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(x) + x.sin()

    remarks = Remarks()
    with PassContext(instruments=[remarks]):
        compile_(function)(torch.randn(4))
    (remark,) = remarks.select(message="runs in PyTorch")
    assert remark.kind == "missed"
    assert "aten.special_airy_ai.default" in remark.message
    assert f"{FILE}, line {line_of(function, 'airy')}" in remark.message
