"""The judges run by hand, for minutes; that their programs load is seen here."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make torch")


@pytest.mark.parametrize("name", ["families", "generating", "modules", "opinfo", "vision"])
def test_a_judge_loads(name: str) -> None:
    if name == "vision":
        pytest.importorskip("torchvision", reason="the judge by torchvision's models needs torchvision")
    judge = importlib.import_module(f"tests.torch.{name}")
    assert callable(judge.judge if name == "generating" else judge.main)
