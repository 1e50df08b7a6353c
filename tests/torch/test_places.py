"""Remarks, profiles and errors name the lines of the program that PyTorch captured."""

from __future__ import annotations

import inspect
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
