"""Test how one gets around in the page of a report: the address, Back, search, and the two themes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.observe.report.conftest import opened, texts


def visible(view: Any) -> list[str]:
    return [section.get_attribute("id") for section in view.locator("main > section").all() if section.is_visible()]


@pytest.mark.parametrize("tab", ["overview", "passes", "graph", "kernels", "memory"])
def test_the_address_leads_to_a_tab(shown: Any, page: Path, tab: str) -> None:
    shown.goto(page.as_uri() + f"#{tab}")
    shown.reload()
    shown.wait_for_selector("body[data-ready]")
    assert visible(shown) == [tab]


def test_the_address_leads_to_a_kernel(shown: Any, page: Path) -> None:
    shown.goto(page.as_uri() + "#kernels/softmax")
    shown.reload()
    shown.wait_for_selector("body[data-ready]")
    assert shown.locator("#kernel").inner_text() == "@softmax"


def test_an_unknown_address_shows_the_first_tab(shown: Any, page: Path) -> None:
    shown.goto(page.as_uri() + "#nowhere/at/all")
    assert visible(shown) == ["overview"]


def test_back_and_forward_lead_through_what_was_shown(shown: Any) -> None:
    shown.click("#tab-graph")
    shown.click("#tab-kernels")
    shown.locator("#kernels tbody tr[data-name=softmax] td").first.click()
    shown.locator("#kernels tbody tr[data-name=dense_add] td").first.click()
    shown.go_back()
    assert shown.locator("#kernel").inner_text() == "@softmax"
    shown.go_back()
    shown.go_back()
    assert visible(shown) == ["graph"]
    shown.go_back()
    assert visible(shown) == ["overview"]
    shown.go_forward()
    assert visible(shown) == ["graph"]


def test_moving_the_slider_is_no_step_for_back(shown: Any) -> None:
    shown.click("#tab-passes")
    for _ in range(3):
        shown.click("#next")
    assert shown.evaluate("location.hash") == "#passes/3"
    shown.go_back()
    assert visible(shown) == ["overview"]


def test_search_finds_kernels_operators_and_passes(shown: Any) -> None:
    shown.fill("#search", "softmax")
    found = [line.split()[:2] for line in texts(shown, "#found li")]
    assert found == [["kernel", "softmax"], ["operator", "nn.softmax"]]
    shown.fill("#search", "unroll")
    assert texts(shown, "#found li") == ["pass UnrollLoop"]
    shown.fill("#search", "no such thing")
    assert texts(shown, "#found li") == ["nothing found"]


def test_a_found_kernel_is_opened_by_enter(shown: Any) -> None:
    shown.keyboard.press("/")
    shown.keyboard.type("dense")
    shown.keyboard.press("ArrowDown")
    shown.keyboard.press("Enter")
    assert visible(shown) == ["kernels"]
    assert shown.locator("#kernel").inner_text() == "@dense_add"
    assert shown.locator("#found").is_hidden()


def test_a_found_operator_is_marked_in_the_graph(shown: Any) -> None:
    shown.fill("#search", "operator layer")  # its label is "first <b>layer</b>"
    shown.locator("#found li").first.click()
    assert visible(shown) == ["graph"]
    assert [node.get_attribute("data-title") for node in shown.locator("#before .marked").all()] == ["nn.dense"]
    assert [node.get_attribute("data-title") for node in shown.locator("#after .marked").all()] == ["dense_relu"]


def luminance(view: Any, selector: str, what: str) -> float:
    """Return the relative luminance of a color of an element (Web Content Accessibility Guidelines 2.2)."""
    color = view.locator(selector).first.evaluate(f"node => getComputedStyle(node)[{what!r}]")
    parts = [float(part) / 255 for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: float, b: float) -> float:
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_theme_is_the_systems_until_the_button_changes_it(browser: Any, page: Path, system: str) -> None:
    errors: list[str] = []
    view = opened(browser, page.as_uri(), errors, color_scheme=system)
    is_dark = luminance(view, "body", "backgroundColor") < 0.1
    assert is_dark == (system == "dark")
    view.click("#theme")
    assert (luminance(view, "body", "backgroundColor") < 0.1) != is_dark
    view.close()
    assert errors == []


@pytest.mark.parametrize("system", ["light", "dark"])
def test_text_is_readable_in_either_theme(browser: Any, page: Path, system: str) -> None:
    errors: list[str] = []
    view = opened(browser, page.as_uri() + "#kernels", errors, color_scheme=system)
    paper = luminance(view, "body", "backgroundColor")
    kinds = ["keyword", "type", "number", "name", "call"]
    for selector in ["td", "th", ".soft", *[f".pane .code-{kind}" for kind in kinds]]:
        assert contrast(luminance(view, selector, "color"), paper) >= 4.5, selector
    view.close()
    assert errors == []
