"""Links of README.md and the documentation lead to files and headings that are there."""

from __future__ import annotations

import posixpath
import re

import pytest
from pages import ROOT, anchors, links, pages

PAGES = pages()


def broken(page: str, text: str) -> list[str]:
    """The relative links of ``page`` that lead to no file, or to no heading of one."""
    found = []
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if not (ROOT / target).exists() or (anchor and anchor not in anchors(PAGES.get(target, ""))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    assert broken(page, PAGES[page]) == []


def test_broken_links_are_found() -> None:
    text = "[a](gone.md) [b](../README.md#gone) [c](../README.md#develop-tilewright) [![d](no.png)](cli.md) [e](#f)\n"
    assert broken("docs/new.md", text) == ["gone.md", "../README.md#gone", "no.png", "#f"]


def test_anchors_are_those_of_github() -> None:
    text = "# One\n## Where do I change ...?\n## `x` & y\n## One\n```\n# no heading\n```\n"
    assert anchors(text) == {"one", "where-do-i-change-", "x--y", "one-1"}


def test_every_page_is_reached_from_the_first() -> None:
    reached, left = set(), ["README.md"]
    while left:
        page = left.pop()
        if page in reached or page not in PAGES:
            continue
        reached.add(page)
        for link in links(PAGES[page]):
            left.append(posixpath.normpath(posixpath.join(posixpath.dirname(page), link.partition("#")[0])))
    assert set(PAGES) - reached == set()
