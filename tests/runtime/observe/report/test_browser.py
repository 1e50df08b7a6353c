"""Test the page of a report in a browser: its content, its reactions to clicks, and that the console stays empty.

Needs the package ``playwright`` and Chromium: ``make browser`` installs both.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.observe.report.conftest import texts


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
    shown.evaluate(f"slider.value = {names.index('FuseOps') + 1}; slider.dispatchEvent(new Event('input'))")
    assert any("nn.relu" in line for line in texts(shown, "#difference td.gone"))
    assert any("fn (" in line for line in texts(shown, "#difference td.add"))


def test_the_difference_is_that_of_the_texts(shown: Any, data: dict[str, Any]) -> None:
    shown.click("#tab-passes")
    history = data["history"][0]
    number = next(n for n, step in enumerate(history["steps"]) if step["name"] == "PlanMemory")
    shown.evaluate(f"slider.value = {number}; slider.dispatchEvent(new Event('input'))")
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
    shown.click("button[data-pane=numba]")
    panes = {pane.get_attribute("data-pane"): pane for pane in shown.locator(".pane").all()}
    assert list(panes) == ["operators", "scheduled", "llvm", "assembly", "numba"]
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


def test_the_blocks_in_the_memory_plan_have_names(shown: Any, data: dict[str, Any]) -> None:
    shown.click("#tab-memory")
    values = data["profile"]["attributes"]["arena"]["allocations"]
    names = [name.removesuffix("…") for name in shown.locator("#arena .value .name").all_text_contents()]
    assert len(names) == len(values)
    assert all(value["kernel"].startswith(name) for value, name in zip(values, names, strict=True))
    assert sorted(texts(shown, "#memory td:first-child")) == sorted(value["kernel"] for value in values)


@pytest.mark.parametrize("tab", ["passes", "kernels", "memory"])
def test_each_column_says_what_it_is(shown: Any, tab: str) -> None:
    shown.click(f"#tab-{tab}")
    titles = [cell.get_attribute("title") for cell in shown.locator(f"#{tab} th").all()]
    assert len(titles) >= 6 and all(titles)
    assert len(set(titles)) == len(titles)
