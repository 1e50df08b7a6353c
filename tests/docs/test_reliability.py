"""The table of bad input in docs/reliability.md names errors, tests and entry points that exist."""

from __future__ import annotations

import re

from pages import ROOT

from tests.fuzz.entries import ENTRIES
from tilewright.graphir.module import UnknownFunctionError
from tilewright.tensorir import errors

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| (.*?) \| (.+?) \| (.+?) \| \[`(\w+)`\]\(\.\./(tests/[\w/]+\.py)\) \|$", re.MULTILINE)
ROWS = _ROW.findall(PAGE)


def test_the_table_is_read() -> None:
    section = PAGE[PAGE.index("| entry point |") :]
    assert len(ROWS) == section[: section.index("\n\n")].count("\n") - 1 > 70


def test_every_test_of_the_table_exists() -> None:
    missing = [
        f"{name} in {path}"
        for *_, name, path in ROWS
        if not re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not missing


def test_every_error_of_the_table_exists() -> None:
    known = {*vars(errors), UnknownFunctionError.__name__}
    named = {name for _, _, said, *_ in ROWS for name in re.findall(r"`(\w+)`", said)}
    assert named <= known and len(named) > 15


def test_every_entry_point_that_is_fuzzed_is_in_the_table() -> None:
    assert {*ENTRIES} <= {entry for entry, *_ in ROWS}
