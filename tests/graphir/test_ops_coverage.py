"""Every operator has a case in a test of operators."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright import graphir as gi

TEXT = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted(Path(__file__).parent.glob("test_*.py"))
    if path != Path(__file__)
)

#: Operators that are tested as what others are decomposed into.
PARTS = {"nn.dilate": "nn.conv_transpose", "nn.resize_axis": "nn.resize", "nn.resize_nearest": "nn.resize"}


@pytest.mark.parametrize("name", gi.list_operators())
def test_operator_has_a_case(name: str) -> None:
    name = PARTS.get(name, name)
    quoted, called = f'"{re.escape(name)}"', rf"\bgi\.{re.escape(name)}\("
    if name.startswith("nn."):
        quoted += f'|"{re.escape(name[3:])}"'
    assert re.search(f"{quoted}|{called}", TEXT), f"no test of operators names {name}"
