"""``docs/operators.md`` is the table of the operators that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.graphir.op import get_operator, list_operators
from tilewright.graphir.operator_table import operator_table

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def test_the_document_is_current() -> None:
    if DOCUMENT.read_text(encoding="utf-8") != operator_table():
        pytest.fail("run: python -m tilewright.graphir.operator_table > docs/operators.md")


def test_every_operator_can_be_lowered_and_says_what_it_is() -> None:
    for name in list_operators():
        op = get_operator(name)
        assert op.__doc__, name
        assert op.decompose is not None or op.compute is not None or getattr(op, "loops", None) is not None, name
