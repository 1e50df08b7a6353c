"""Test the code of kernels in the page of a report: its columns, its colors, and the links between its lines."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.runtime.observe.report.conftest import texts

STAGES = ["operators", "tensor", "scheduled", "lowered", "llvm", "assembly"]


@pytest.fixture
def code(shown: Any) -> Any:
    """Show the product and its rectifier at all stages."""
    shown.click("#tab-kernels")
    shown.locator("#kernels tbody tr[data-name=dense_relu] td").first.click()
    for stage in ("tensor", "lowered"):
        shown.click(f"button[data-pane={stage}]")
    return shown


def linked(view: Any) -> dict[str, list[str]]:
    """Return the texts of the marked lines of each pane."""
    return {stage: view.locator(f".pane[data-pane={stage}] .line.linked").all_text_contents() for stage in STAGES}


@pytest.mark.parametrize("width", [1280, 1920])
def test_columns_are_wide_enough_for_their_lines(code: Any, width: int) -> None:
    code.set_viewport_size({"width": width, "height": 900})
    assert code.evaluate("document.documentElement.scrollWidth") <= width
    for stage, letters in (("scheduled", 72), ("llvm", 72), ("assembly", 48)):
        line = code.locator(f".pane[data-pane={stage}] .line").first
        size = float(line.evaluate("node => parseFloat(getComputedStyle(node).fontSize)"))
        letter = 0.603 * size  # of DejaVu Sans Mono
        assert code.locator(f".pane[data-pane={stage}] pre").bounding_box()["width"] >= letters * letter


@pytest.mark.parametrize(
    ("stage", "kind", "expected"),
    [
        ("scheduled", "keyword", {"primfunc", "for", "block", "reads", "writes"}),
        ("scheduled", "type", {"float32", "Buffer"}),
        ("llvm", "keyword", {"define", "getelementptr", "load", "store", "br"}),
        ("llvm", "type", {"ptr", "i64", "float"}),
        ("assembly", "keyword", {"retq"}),
        ("assembly", "label", {"tw.dense_relu:"}),
    ],
)
def test_code_is_highlighted(code: Any, stage: str, kind: str, expected: set[str]) -> None:
    found = {text.strip() for text in code.locator(f".pane[data-pane={stage}] .code-{kind}").all_text_contents()}
    assert expected <= found


def test_highlighting_changes_no_text(code: Any, data: dict[str, Any]) -> None:
    for stage in STAGES[1:]:
        lines = code.locator(f".pane[data-pane={stage}] .line").all_text_contents()
        assert lines == data["kernels"]["dense_relu"][stage].split("\n")


def test_an_instruction_leads_back_to_the_operator(code: Any) -> None:
    instruction = re.compile(r"vfmadd|vmulps")
    code.locator(".pane[data-pane=assembly] .line").filter(has_text=instruction).first.hover()
    found = linked(code)
    assert [line.split()[0] for line in found["operators"]] == ["nn.dense"]
    sums = found["tensor"] + found["scheduled"]
    assert all("dense[vi0, vi1] = dense[vi0, vi1] + x[vi0, vk]" in line for line in sums)
    assert all("dense[ramp(" in line for line in found["lowered"])
    assert all(re.search("fmul|fadd", line) for line in found["llvm"])
    assert len(found["assembly"]) == len(found["llvm"]) == len(found["lowered"]) == len(found["scheduled"]) == 1


def test_the_source_for_numba_is_linked_with_what_it_is_made_of(code: Any) -> None:
    code.click("button[data-pane=numba]")
    source = code.locator(".pane[data-pane=numba] .line")
    source.filter(has_text=re.compile(r"^ *dense.*\] = .*\+")).first.hover()
    found = linked(code)
    assert [line.split()[0] for line in found["operators"]] == ["nn.dense"]
    assert found["tensor"] and all("dense[vi0, vi1] = dense[vi0, vi1] + x[vi0, vk]" in line for line in found["tensor"])
    assert any("vfmadd" in line or "vmulps" in line for line in found["assembly"])
    code.locator(".pane[data-pane=tensor] .line", has_text="relu[vi0, vi1] = max(").hover()
    marked = code.locator(".pane[data-pane=numba] .line.linked").all_text_contents()
    assert any(re.search(r"relu\[.* if .* else", line) for line in marked) and not any(" + " in line for line in marked)


def test_an_operator_leads_to_its_instructions(code: Any) -> None:
    code.locator(".pane[data-pane=operators] .line", has_text="nn.relu").hover()
    found = linked(code)
    assert any("relu[vi0, vi1] = max(" in line for line in found["scheduled"])
    assert not any("dense[vi0, vi1] = " in line for line in found["scheduled"] + found["tensor"])
    assert any("store <" in line for line in found["llvm"])
    assert any(re.search("vmovups.*, .*\\(", line) for line in found["assembly"])
    assert not any("vfmadd" in line for line in found["assembly"])


def test_a_click_keeps_the_lines_marked_and_scrolls_to_them(code: Any) -> None:
    code.locator(".pane[data-pane=operators] .line", has_text="nn.relu").click()
    code.locator("h1").hover()
    assert linked(code)["assembly"]
    for stage in ("scheduled", "lowered", "llvm", "assembly"):
        frame = code.locator(f".pane[data-pane={stage}] pre").bounding_box()
        line = code.locator(f".pane[data-pane={stage}] .line.linked").first.bounding_box()
        assert frame["y"] <= line["y"] <= frame["y"] + frame["height"], stage
    code.locator(".pane[data-pane=operators] .line", has_text="nn.relu").click()
    code.locator("h1").hover()
    assert not linked(code)["assembly"]


def test_the_remarks_of_a_kernel_are_beside_it(code: Any, data: dict[str, Any]) -> None:
    own = [remark for remark in data["remarks"] if remark["function"] == "dense_relu"]
    assert own
    said = code.locator("#kernel-remarks li").all_text_contents()
    assert sorted(line.split(" ", 1)[1] for line in said) == sorted(remark["message"] for remark in own)
    assert texts(code, "#kernel-remarks summary") == [f"{sum(one['kind'] == 'declined' for one in own)} declined"]
