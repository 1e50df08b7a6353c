"""Test layouts of graphs: nodes do not overlap, and edges lead downwards."""

from __future__ import annotations

import itertools
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.runtime.observe.report.layout import GAP, Layout, place

Sizes = list[tuple[float, float]]
Edges = list[tuple[int, int]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Sizes, Edges]:
    """Draw acyclic graphs: edges go from lower to higher numbers."""
    count = draw(st.integers(1, 14))
    lengths = st.floats(10, 200)
    sizes = draw(st.lists(st.tuples(lengths, st.floats(10, 50)), min_size=count, max_size=count))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    return sizes, edges


def box(layout: Layout, sizes: Sizes, node: int) -> tuple[float, float, float, float]:
    (x, y), (w, h) = layout.centers[node], sizes[node]
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


@given(graphs())
@settings(deadline=None)
def test_nodes_do_not_overlap(graph: tuple[Sizes, Edges]) -> None:
    sizes, edges = graph
    layout = place(sizes, edges, use_dot=False)
    for a, b in itertools.combinations(range(len(sizes)), 2):
        (al, at, ar, ab), (bl, bt, br, bb) = box(layout, sizes, a), box(layout, sizes, b)
        assert ar <= bl + 1e-6 or br <= al + 1e-6 or ab <= bt + 1e-6 or bb <= at + 1e-6


@given(graphs())
@settings(deadline=None)
def test_all_of_it_is_inside_of_the_picture(graph: tuple[Sizes, Edges]) -> None:
    sizes, edges = graph
    layout = place(sizes, edges, use_dot=False)
    for node in range(len(sizes)):
        left, top, right, bottom = box(layout, sizes, node)
        assert left >= -1e-6
        assert top >= -1e-6
        assert right <= layout.width + 1e-6
        assert bottom <= layout.height + 1e-6


@given(graphs())
@settings(deadline=None)
def test_a_node_is_below_what_it_is_made_of(graph: tuple[Sizes, Edges]) -> None:
    sizes, edges = graph
    layout = place(sizes, edges, use_dot=False)
    for above, below in edges:
        assert box(layout, sizes, above)[3] < box(layout, sizes, below)[1]


@given(graphs(), st.booleans())
@settings(deadline=None, max_examples=30)
def test_a_path_leads_from_one_node_to_the_other(graph: tuple[Sizes, Edges], use_dot: bool) -> None:
    sizes, edges = graph
    layout = place(sizes, edges, use_dot=use_dot)
    for (above, below), path in zip(edges, layout.paths, strict=True):
        assert len(path) % 3 == 1  # a start, and three points for each piece of the spline
        for node, (x, y) in ((above, path[0]), (below, path[-1])):
            left, top, right, bottom = box(layout, sizes, node)
            assert left - 2 <= x <= right + 2
            assert top - 2 <= y <= bottom + 2


def test_neighbours_keep_their_distance() -> None:
    layout = place([(50, 20)] * 4, [(0, 1), (0, 2), (0, 3)], use_dot=False)
    xs = sorted(x for x, _ in layout.centers[1:])
    assert xs[1] - xs[0] == pytest.approx(50 + GAP)
    assert layout.centers[0][0] == pytest.approx(xs[1])  # above the middle


def test_edges_do_not_cross_where_they_need_not() -> None:
    # Two chains, given with their lower halves the other way round.
    edges = [(0, 3), (1, 2), (3, 5), (2, 4)]
    layout = place([(30, 20)] * 6, edges, use_dot=False)
    xs = [x for x, _ in layout.centers]
    assert (xs[0] < xs[1]) == (xs[3] < xs[2]) == (xs[5] < xs[4])


def test_an_empty_graph_is_an_empty_picture() -> None:
    assert place([], []).width == 0


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_places_the_nodes_where_it_is_installed() -> None:
    assert place([(50, 20), (50, 20)], [(0, 1)]).engine == "dot"


def test_without_graphviz_the_picture_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert place([(50, 20), (50, 20)], [(0, 1)]).engine == "own"


def test_graphviz_that_fails_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/nonexistent/dot")
    assert place([(50, 20), (50, 20)], [(0, 1)]).engine == "own"
