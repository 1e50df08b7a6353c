"""Test the pictures of graphs in the page of a report: their place, zoom, colors, and what a node says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.observe.report.conftest import texts


@pytest.fixture
def graph(shown: Any) -> Any:
    shown.click("#tab-graph")
    return shown


def box_of(view: Any, selector: str) -> tuple[float, float, float, float]:
    """Return the box around all elements: left, top, right, bottom."""
    boxes = [node.bounding_box() for node in view.locator(selector).all()]
    return (
        min(box["x"] for box in boxes),
        min(box["y"] for box in boxes),
        max(box["x"] + box["width"] for box in boxes),
        max(box["y"] + box["height"] for box in boxes),
    )


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("width", [1280, 1920])
def test_a_graph_fits_its_frame_in_the_middle(graph: Any, side: str, width: int) -> None:
    graph.set_viewport_size({"width": width, "height": 900})
    graph.click("#fit")
    left, top, right, bottom = box_of(graph, f"#{side} .node rect")
    frame = graph.locator(f"#{side} .picture").bounding_box()
    assert left >= frame["x"] and right <= frame["x"] + frame["width"]
    assert top >= frame["y"] and bottom <= frame["y"] + frame["height"]
    assert (left + right) / 2 == pytest.approx(frame["x"] + frame["width"] / 2, abs=6)
    assert (top + bottom) / 2 == pytest.approx(frame["y"] + frame["height"] / 2, abs=6)


def test_the_wheel_zooms_at_the_pointer(graph: Any) -> None:
    node = graph.locator("#before .node rect").nth(2)
    before = node.bounding_box()
    graph.mouse.move(before["x"] + before["width"] / 2, before["y"] + before["height"] / 2)
    graph.mouse.wheel(0, -300)
    graph.wait_for_timeout(100)
    after = node.bounding_box()
    assert after["width"] > 1.3 * before["width"]
    for place, size in (("x", "width"), ("y", "height")):  # what is under the pointer stays there
        assert after[place] + after[size] / 2 == pytest.approx(before[place] + before[size] / 2, abs=3)
    graph.mouse.wheel(0, 300)
    graph.wait_for_timeout(100)
    assert node.bounding_box()["width"] == pytest.approx(before["width"], rel=0.02)
    assert graph.evaluate("scrollY") == 0


def test_dragging_moves_the_graph_and_chooses_nothing(graph: Any) -> None:
    node = graph.locator("#before .node rect").nth(2)
    before = node.bounding_box()
    x, y = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
    graph.mouse.move(x, y)
    graph.mouse.down()
    graph.mouse.move(x + 40, y + 25, steps=4)
    graph.mouse.up()
    after = node.bounding_box()
    assert (after["x"] - before["x"], after["y"] - before["y"]) == pytest.approx((40, 25), abs=2)
    assert graph.locator(".node.marked").count() == 0


#: Paints a pixel in the color of a node; returns its red, green, blue and opacity.
PAINTED = """node => {
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.fillStyle = getComputedStyle(node).fill;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}"""


def heat(view: Any, selector: str) -> float:
    """Return how far the color of a node is from that of an idle one."""
    nodes = [view.locator(one).first for one in (selector, "#after .input rect")]
    a, b = (node.evaluate(PAINTED) for node in nodes)
    return float(sum(abs(x - y) for x, y in zip(a, b, strict=True)))


def test_nodes_are_colored_by_time(graph: Any, data: dict[str, Any]) -> None:
    calls = data["profile"]["attributes"]["calls"]
    by_time = sorted(calls, key=lambda call: call["median"])
    heats = [heat(graph, f"#after .node[data-title={call['kernel']}] rect") for call in by_time]
    assert heats == sorted(heats) and heats[-1] > 60
    softmax = heat(graph, "#before .node[data-title='nn.softmax'] rect")  # an operator has the color of its kernel
    assert softmax == heat(graph, "#after .node[data-title=softmax] rect")


def rows(view: Any) -> dict[str, str]:
    names, values = texts(view, "#chosen td:first-child"), texts(view, "#chosen td.text")
    return dict(zip(names, values, strict=True))


def test_a_node_says_its_attributes_its_type_and_its_time(graph: Any) -> None:
    graph.locator("#before .node[data-title='nn.softmax']").click()
    found = rows(graph)
    assert graph.locator("#chosen h3").inner_text() == "nn.softmax"
    assert found["axis"] == "-1"
    assert found["result"] == "16 x 32 float32"
    assert found["symbolic"] == "n x 32 float32"
    assert found["time of its kernel"].endswith("s") and found["share"].endswith("%")
    graph.click("#chosen button")
    assert graph.locator("#kernel").inner_text() == "@softmax"


def test_a_node_shows_given_sizes_instead_of_symbols(graph: Any) -> None:
    notes = [text for text in graph.locator(".node text").all_text_contents() if "float32" in text]
    assert notes == ["16 x 32 float32"] * (7 + 5)
