"""Test the comparison of two builds in the page of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.observe.report.conftest import builds_of, texts


def cells(view: Any, table: str, name: str) -> list[str]:
    return texts(view, f"#{table} tr[data-name={name!r}] td")


def test_the_comparison_comes_first(compared: Any) -> None:
    assert compared.locator("#compare").is_visible()
    assert texts(compared, "#tabs button")[:2] == ["Compare", "Overview"]


@pytest.mark.parametrize("width", [1280, 1920])
def test_it_fits_the_width_of_the_window(compared: Any, width: int) -> None:
    compared.set_viewport_size({"width": width, "height": 900})
    assert compared.evaluate("document.documentElement.scrollWidth") <= width


def test_settings_that_differ_are_marked(compared: Any) -> None:
    assert cells(compared, "compared-settings", "opt_level") == ["opt_level", "1", "3"]
    marked = [row.get_attribute("data-name") for row in compared.locator("#compared-settings tr.differs").all()]
    assert marked == ["opt_level"]


def test_passes_are_side_by_side(compared: Any, compared_page: Path) -> None:
    one, two = (
        {row["name"]: row for row in build["timing"]["attributes"]["flat"]} for build in builds_of(compared_page)
    )
    found = texts(compared, "#compared-passes td:first-child")
    assert sorted(found) == sorted(one.keys() | two.keys())
    marked = {row.get_attribute("data-name") for row in compared.locator("#compared-passes tr.differs").all()}
    assert marked == one.keys() ^ two.keys() and "ScheduleKernels" in marked
    assert cells(compared, "compared-passes", "FuseOps")[1:3] == ["1", "1"]


def test_kernels_are_side_by_side_with_their_times(compared: Any, compared_page: Path) -> None:
    name, one, two, first, second, ratio, _ = cells(compared, "compared-kernels", "nn.softmax")
    assert (name, one, two) == ("nn.softmax", "softmax", "softmax")
    times = [
        next(call["median"] for call in build["profile"]["attributes"]["calls"] if call["kernel"] == "softmax")
        for build in builds_of(compared_page)
    ]
    found = [float(text.split()[0]) for text in (first, second)]
    assert found == pytest.approx([1e6 * time for time in times], abs=0.06)
    assert float(ratio.removesuffix("x")) == pytest.approx(times[1] / times[0], abs=0.006)
    assert float(cells(compared, "compared-kernels", "nn.dense, nn.relu")[5].removesuffix("x")) > 0


def test_the_calls_of_both_are_bars_on_one_scale(compared: Any, compared_page: Path) -> None:
    calls = sum(len(build["profile"]["attributes"]["calls"]) for build in builds_of(compared_page))
    assert compared.locator("#compared-times rect").count() == calls
    frame = compared.locator("#compared-times").bounding_box()
    for bar in compared.locator("#compared-times rect").all():
        box = bar.bounding_box()
        assert frame["x"] <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"]


def test_each_column_says_what_it_is(compared: Any) -> None:
    titles = [cell.get_attribute("title") for cell in compared.locator("#compare th").all()]
    assert len(titles) == 3 + 7 + 7 and all(titles)


def test_a_kernel_leads_to_its_code_in_its_build(compared: Any) -> None:
    compared.locator("#compared-kernels tr[data-name='nn.softmax'] button").nth(1).click()
    assert compared.evaluate("location.hash") == "#2/kernels/softmax"
    assert compared.locator("#kernel").inner_text() == "@softmax"
    vectors = "vectorized" in compared.locator(".pane[data-pane=scheduled]").text_content()
    compared.select_option("#build", "0")
    assert compared.evaluate("location.hash") == "#kernels"
    compared.click("#kernels tbody tr[data-name=softmax] td >> nth=0")
    assert vectors and "vectorized" not in compared.locator(".pane[data-pane=scheduled]").text_content()
    compared.go_back()
    compared.go_back()
    assert compared.evaluate("location.hash") == "#2/kernels/softmax"
    assert "vectorized" in compared.locator(".pane[data-pane=scheduled]").text_content()
