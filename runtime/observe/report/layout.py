"""Place the nodes of a picture of a graph: in layers, each node below its operands.

The steps are those of Sugiyama, Tagawa and Toda ("Methods for visual understanding of hierarchical system structures",
1981): layers by the longest path, nodes of a layer ordered by the mean position of their neighbours in the next layer,
and then coordinates as near to that mean as the order allows, by pooling adjacent violators (Barlow, Bartholomew,
Bremner, Brunk: "Statistical inference under order restrictions", 1972). Where Graphviz is installed, ``dot`` is used
instead, with better results.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import subprocess
from collections.abc import Sequence

#: Pixels between neighbours in a layer, and between layers.
GAP = 24.0
LAYER_GAP = 34.0
#: Sweeps over the layers, each down and up.
_SWEEPS = 6
#: Maximum number of nodes for ``dot``, which takes too long for larger graphs.
_MOST_FOR_DOT = 600
_DOT_SECONDS = 20.0

Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Layout:
    """A picture: sizes in pixels, y grows downwards.

    Attributes:
        width: total width.
        height: total height.
        centers: centers of the nodes.
        paths: paths of the edges: points from one node to the other.
        engine: the program that placed them: ``"dot"`` or ``"own"``.
    """

    width: float
    height: float
    centers: list[Point]
    paths: list[list[Point]]
    engine: str


def place(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], use_dot: bool = True) -> Layout:
    """Lay out an acyclic graph.

    Args:
        sizes: widths and heights of the nodes.
        edges: pairs of nodes, the upper one first.
        use_dot: whether to use Graphviz, if it is installed.
    """
    if use_dot and 0 < len(sizes) <= _MOST_FOR_DOT:
        placed = _by_dot(sizes, edges)
        if placed is not None:
            return placed
    return _by_layers(sizes, edges)


def _by_dot(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout | None:
    dot = shutil.which("dot")
    if dot is None:
        return None
    inch = 72.0
    lines = ["digraph {", f"nodesep={GAP / inch:.3f}; ranksep={LAYER_GAP / inch:.3f};"]
    lines += ['node [shape=box, fixedsize=true, label=""]; edge [arrowhead=none];']
    lines += [f"n{number} [width={w / inch:.4f}, height={h / inch:.4f}];" for number, (w, h) in enumerate(sizes)]
    lines += [f"n{a} -> n{b};" for a, b in edges]
    try:
        done = subprocess.run(
            [dot, "-Tplain"], input="\n".join([*lines, "}"]), capture_output=True, text=True, timeout=_DOT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return _from_plain(done.stdout, len(sizes), edges)


def _from_plain(text: str, count: int, edges: Sequence[tuple[int, int]]) -> Layout | None:
    """Read the output of ``dot -Tplain``: lengths in inches, y grows upwards, edges as splines of Bezier curves."""
    inch, width, height = 72.0, 0.0, 0.0
    centers: list[Point] = [(0.0, 0.0)] * count
    found: dict[tuple[int, int], list[list[Point]]] = {}
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if words[0] == "graph":
            width, height = float(words[2]) * inch, float(words[3]) * inch
        elif words[0] == "node":
            centers[int(words[1][1:])] = (float(words[2]) * inch, height - float(words[3]) * inch)
        elif words[0] == "edge":
            numbers = [float(word) * inch for word in words[4 : 4 + 2 * int(words[3])]]
            points = [(x, height - y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
            found.setdefault((int(words[1][1:]), int(words[2][1:])), []).append(points)
    if any(edge not in found for edge in edges):
        return None
    paths = [found[edge].pop() if len(found[edge]) > 1 else found[edge][0] for edge in edges]
    return Layout(width, height, centers, paths, "dot")


def _by_layers(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    count = len(sizes)
    layer = _layers(count, edges)
    widths = [width for width, _ in sizes]
    chains: list[list[int]] = []  # for each edge the nodes on its path: both ends, and dummy nodes between them
    for above, below in edges:
        chain = [above]
        for level in range(layer[above] + 1, layer[below]):
            chain.append(len(layer))
            layer.append(level)
            widths.append(0.0)
        chains.append([*chain, below])
    levels: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, level in enumerate(layer):
        levels[level].append(node)
    up: list[list[int]] = [[] for _ in layer]
    down: list[list[int]] = [[] for _ in layer]
    for chain in chains:
        for above, below in itertools.pairwise(chain):
            down[above].append(below)
            up[below].append(above)
    _order(levels, up, down)
    xs = _coordinates(levels, up, down, widths)
    left = min((xs[node] - widths[node] / 2 for node in range(len(layer))), default=0.0)
    heights = [max((sizes[node][1] for node in level if node < count), default=0.0) for level in levels]
    ys: list[float] = []
    bottom = 0.0
    for height in heights:
        ys.append(bottom + height / 2)
        bottom += height + LAYER_GAP
    centers = [(xs[node] - left, ys[layer[node]]) for node in range(len(layer))]
    paths = [_curve([centers[node] for node in chain], sizes[chain[0]][1], sizes[chain[-1]][1]) for chain in chains]
    right = max((centers[node][0] + widths[node] / 2 for node in range(len(layer))), default=0.0)
    return Layout(right, max(0.0, bottom - LAYER_GAP), centers[:count], paths, "own")


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Assign layers: a node is one below its lowest operand; a node without operands is right above its first user."""
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        above[b].append(a)
        below[a].append(b)
    waiting = [len(nodes) for nodes in above]
    layer = [0] * count
    ready = [node for node in range(count) if not waiting[node]]
    for node in ready:  # grows in the loop
        for user in below[node]:
            layer[user] = max(layer[user], layer[node] + 1)
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    for node in range(count):
        if not above[node] and below[node]:
            layer[node] = min(layer[user] for user in below[node]) - 1
    return layer


def _order(levels: list[list[int]], up: list[list[int]], down: list[list[int]]) -> None:
    """Order each layer by the mean position of neighbours in the previous layer, in alternating sweeps down and up."""
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        neighbours = up if forward else down
        place: dict[int, int] = {}
        for level in levels if forward else reversed(levels):
            current = {node: number for number, node in enumerate(level)}

            def mean(node: int, current: dict[int, int] = current, place: dict[int, int] = place) -> float:
                near = [place[other] for other in neighbours[node] if other in place]  # noqa: B023 - used at once
                return sum(near) / len(near) if near else float(current[node])

            level.sort(key=mean)
            place = {node: number for number, node in enumerate(level)}


def _coordinates(
    levels: list[list[int]], up: list[list[int]], down: list[list[int]], widths: Sequence[float]
) -> list[float]:
    """Compute the center of each node: near the mean of its neighbours, in the order of its layer, without overlaps."""
    xs = [0.0] * len(widths)
    for level in levels:
        right = 0.0
        for node in level:
            xs[node] = right + widths[node] / 2
            right += widths[node] + GAP
    for sweep in range(2 * _SWEEPS):
        neighbours = up if sweep % 2 == 0 else down
        for level in levels if sweep % 2 == 0 else reversed(levels):
            wanted = [
                sum(xs[other] for other in neighbours[node]) / len(neighbours[node]) if neighbours[node] else xs[node]
                for node in level
            ]
            # Positions minus the space taken by the nodes to the left must not decrease.
            taken, room = [], 0.0
            for number, node in enumerate(level):
                if number:
                    room += (widths[level[number - 1]] + widths[node]) / 2 + GAP
                taken.append(room)
            free = _not_decreasing([x - room for x, room in zip(wanted, taken, strict=True)])
            for node, x, room in zip(level, free, taken, strict=True):
                xs[node] = x + room
    return xs


def _not_decreasing(values: Sequence[float]) -> list[float]:
    """Find the nearest non-decreasing numbers by least squares."""
    blocks: list[tuple[float, int]] = []  # a mean and the number of its values
    for value in values:
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            other, number = blocks.pop()
            mean, count = (mean * count + other * number) / (count + number), count + number
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]


def _curve(points: list[Point], first_height: float, last_height: float) -> list[Point]:
    """Return a spline of Bezier curves through the points, vertical at each, in the format of ``dot``: the start, and
    then three points for each piece."""
    (x0, y0), (x1, y1) = points[0], points[-1]
    points = [(x0, y0 + first_height / 2), *points[1:-1], (x1, y1 - last_height / 2)]
    path = [points[0]]
    for (ax, ay), (bx, by) in itertools.pairwise(points):
        middle = (ay + by) / 2
        path += [(ax, middle), (bx, middle), (bx, by)]
    return path
