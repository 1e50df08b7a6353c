"""Test the page of a report in a browser: its content, its reactions to clicks, and that the console stays empty.

Needs the package ``playwright`` and Chromium: ``make browser`` installs both.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="make browser installs playwright and Chromium")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="make browser installs playwright and Chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture
def shown(browser: Any, page: Path) -> Iterator[Any]:
    """Open the page; the console must be empty when the test is over."""
    view = browser.new_page(viewport={"width": 1280, "height": 900})
    said: list[str] = []
    view.on("console", lambda message: said.append(message.text))
    view.on("pageerror", lambda error: said.append(str(error)))
    view.on("request", lambda request: None if request.url.startswith("file:") else said.append(request.url))
    view.goto(page.as_uri())
    view.wait_for_selector("body[data-ready]")
    yield view
    view.close()
    assert said == []


def texts(view: Any, selector: str) -> list[str]:
    return [str(text) for text in view.locator(selector).all_inner_texts()]


def test_the_overview_comes_first(shown: Any) -> None:
    assert shown.locator("h1").inner_text() == "Two <i>layers</i>"
    assert shown.locator("#overview").is_visible()
    assert shown.locator("#kernels").is_hidden()
    assert "kernels" in texts(shown, "#overview .fact span")


@pytest.mark.parametrize("tab", ["overview", "passes", "graph", "kernels", "memory"])
def test_each_tab_fits_the_width_of_the_window(shown: Any, tab: str) -> None:
    shown.click(f"#tab-{tab}")
    assert shown.locator(f"#{tab}").is_visible()
    assert shown.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_slider_shows_what_a_pass_changed(shown: Any) -> None:
    shown.click("#tab-passes")
    names = []
    for _ in range(int(shown.locator("#slider").get_attribute("max"))):
        shown.click("#next")
        names.append(shown.locator("#step").inner_text().split(": ")[1])
    assert names.index("FuseOps") < names.index("LowerToTensorIR")
    shown.evaluate(f"slider.value = {names.index('FuseOps') + 1}; slider.oninput()")
    assert any("nn.relu" in line for line in texts(shown, "#difference td.gone"))
    assert any("fn (" in line for line in texts(shown, "#difference td.add"))


def test_the_difference_is_that_of_the_texts(shown: Any, data: dict[str, Any]) -> None:
    shown.click("#tab-passes")
    history = data["history"][0]
    number = next(n for n, step in enumerate(history["steps"]) if step["name"] == "PlanMemory")
    shown.evaluate(f"slider.value = {number}; slider.oninput()")
    while shown.locator("tr.skip").count():
        shown.locator("tr.skip").first.click()
    function = history["functions"]["main"]
    version = history["steps"][number]["changed"]["main"]
    for side, runs in (("1", function["versions"][version - 1]), ("2", function["versions"][version])):
        pairs = zip(runs[::2], runs[1::2], strict=True)
        lines = [function["lines"][first + place] for first, count in pairs for place in range(count)]
        found = shown.locator(f"#difference tr td:nth-child({side})").all_text_contents()
        assert [line for line in found if line] == [line for line in lines if line]


def test_a_click_on_a_pass_in_the_flame_chart_leads_to_its_change(shown: Any) -> None:
    shown.click("#tab-passes")
    shown.locator("#flame rect[data-name=ScheduleKernels]").first.dispatch_event("click")
    assert shown.locator("#step").inner_text().endswith("ScheduleKernels")


def test_a_click_on_a_kernel_in_the_graph_marks_its_operators(shown: Any) -> None:
    shown.click("#tab-graph")
    shown.locator("#after .node[data-title=dense_add]").click()
    marked = [node.get_attribute("data-title") for node in shown.locator("#before .node.marked").all()]
    assert marked == ["nn.dense", "add"]
    shown.click("#chosen button")
    assert shown.locator("#kernels").is_visible()
    assert shown.locator("#kernel").inner_text() == "@dense_add"


def test_a_click_on_a_kernel_shows_its_code_side_by_side(shown: Any) -> None:
    shown.click("#tab-kernels")
    shown.locator("#kernels tbody tr[data-name=softmax] td").first.click()
    assert texts(shown, "#operators li") == ["nn.softmax #4"]
    panes = {pane.get_attribute("data-pane"): pane for pane in shown.locator(".pane").all()}
    assert list(panes) == ["scheduled", "numba", "llvm", "assembly"]
    for name, expected in (("scheduled", "primfunc @softmax("), ("numba", "def softmax("), ("assembly", "tw.softmax:")):
        assert expected in panes[name].locator("pre").text_content()
    tops = {round(pane.bounding_box()["y"]) for pane in panes.values()}
    assert len(tops) == 1  # next to each other


def test_panes_come_and_go(shown: Any) -> None:
    shown.click("#tab-kernels")
    shown.click("button[data-pane=lowered]")
    assert shown.locator(".pane[data-pane=lowered]").count() == 1
    shown.click("button[data-pane=lowered]")
    assert shown.locator(".pane[data-pane=lowered]").count() == 0


def test_the_roofline_has_a_point_for_each_call_and_leads_to_the_kernel(shown: Any) -> None:
    shown.click("#tab-kernels")
    assert shown.locator("#roofline circle").count() == 3
    shown.locator("#roofline circle[data-name=dense_relu]").dispatch_event("click")
    assert shown.locator("#kernel").inner_text() == "@dense_relu"


def test_a_column_sorts_the_kernels(shown: Any) -> None:
    shown.click("#tab-kernels")
    shown.locator("#kernels th", has_text="kernel").first.click()
    names = texts(shown, "#kernels tbody tr td:first-child")
    assert names == sorted(names, reverse=True)


def test_the_memory_plan_has_a_box_for_each_value(shown: Any, data: dict[str, Any]) -> None:
    shown.click("#tab-memory")
    values = data["profile"]["attributes"]["arena"]["allocations"]
    assert shown.locator("#arena rect").count() == len(values)


def test_the_address_leads_to_a_tab(shown: Any, page: Path) -> None:
    shown.goto(page.as_uri() + "#memory")
    shown.reload()
    shown.wait_for_selector("body[data-ready]")
    assert shown.locator("#memory").is_visible()
