"""Notebooks show modules and functions of both IRs as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tilewright import graphir as gi
from tilewright.tensorir import parse

KERNEL = "primfunc @k(A: Buffer[(4,), float32]) { for i in range(4) { if i < 2 { A[i] = float32(1.0) } } }"


class Reader(HTMLParser):
    """The text of a page, and which of it is behind a click; fails where tags are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.shown, self.hidden, self.summary = "", "", ""
        self.feed(page)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if "summary" in self.stack:
            self.summary += data
        elif "details" in self.stack:
            self.hidden += data
        else:
            assert self.stack[-1] == "pre"
            self.shown += data


def chain(length: int) -> gi.Function:
    x = gi.var("x", shape=(4,))
    value: gi.Expr = x
    for _ in range(length):
        value = gi.tanh(value)
    return gi.Function([x], value)


@pytest.mark.parametrize("shown", [chain(3), gi.IRModule.from_expr(chain(3)), parse(KERNEL)])
def test_a_short_text_is_shown_whole_and_escaped(shown: Any) -> None:
    page = shown._repr_html_()
    read = Reader(page)
    assert read.shown == str(shown).rstrip("\n")
    assert (read.hidden, read.summary) == ("", "")
    if "<" in read.shown:
        assert "&lt;" in page


def test_a_text_with_characters_of_html_stays_text() -> None:
    attacked = chain(1).with_attr("name", "<script>alert(1)</script> & more")
    page = attacked._repr_html_()
    assert "<script>" not in page
    assert Reader(page).shown == str(attacked)


def test_the_rest_of_a_long_text_is_behind_a_click() -> None:
    module = gi.IRModule.from_expr(chain(100))
    read = Reader(module._repr_html_())
    lines = str(module).rstrip("\n").split("\n")
    assert read.shown.split("\n") == lines[:40]
    assert read.hidden.split("\n") == lines[40:]
    assert read.summary == f"{len(lines) - 40} more lines"


def test_a_very_long_text_ends_with_how_much_is_left_out() -> None:
    read = Reader(chain(6000)._repr_html_())
    assert len(read.hidden.split("\n")) < 5000
    assert re.search(r"\.\.\. and \d+ more lines", read.hidden)
