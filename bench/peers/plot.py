"""Draw the rows as hand-written SVG: a dot for each library, at its time relative to the fastest peer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.peers.drive import BEFORE, EMPTY, LIMIT, MOST, OURS, Row
from bench.peers.report import TITLES, groups, ordered

COLOURS = {
    OURS: "#d1242f",
    BEFORE: "#ff8182",
    "onnxruntime": "#0969da",
    "openvino": "#8250df",
    "torch_eager": "#bc4c00",
    "torch_compile": "#9a6700",
    MOST: "#cf6ad6",
    EMPTY: "#8c959f",
}
LEFT, RIGHT, LINE, TOP = 300, 40, 17, 64
WIDTH = 960
LEAST, MOST = 0.25, 4.0
TICKS = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)


def _x(value: float) -> float:
    """Return the position of a value on the logarithmic axis; values beyond the ends are drawn at them."""
    place = math.log(min(max(value, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return LEFT + place * (WIDTH - LEFT - RIGHT)


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "#1f2328", weight: str = "400") -> str:
    style = f'text-anchor="{anchor}" fill="{colour}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _dots(row: Row, y: float) -> list[str]:
    base = row.median(row.peers()[0])
    found = []
    for name in reversed(ordered(set(row.times) - {LIMIT})):  # ours last: on top
        value = row.ratio(row.peers()[0]) if name == OURS else row.median(name) / base
        title = f"<title>{escape(f'{TITLES[name]}: {value:.2f}')}</title>"
        radius = 5 if name == OURS else 4
        found.append(
            f'<circle cx="{_x(value):.1f}" cy="{y - 4:.1f}" r="{radius}" fill="{COLOURS[name]}">{title}</circle>'
        )
    if row.case.goal is not None:
        x = _x(row.case.goal)
        found.append(f'<path d="M{x:.1f} {y - 11:.1f}v14" stroke="#1a7f37" stroke-width="2"/>')
    return found


def svg(rows: Sequence[Row]) -> str:
    """Draw the picture: a line for each row that has a peer."""
    rows = [row for row in rows if row.peers()]
    body: list[str] = []
    y = float(TOP)
    for group, of in groups(rows).items():
        y += LINE * 1.4
        body.append(_text(12, y, group, weight="600"))
        for row in of:
            y += LINE
            label = f"{row.case.name}, {row.threads} thread{'s' * (row.threads > 1)}"
            body.append(_text(LEFT - 12, y, label, "end", "#57606a"))
            body.append(f'<path d="M{LEFT} {y - 4:.1f}H{WIDTH - RIGHT}" stroke="#eaeef2"/>')
            body += _dots(row, y)
    height = y + LINE
    axis: list[str] = []
    for tick in TICKS:
        colour = "#8c959f" if tick == 1.0 else "#d0d7de"
        axis.append(f'<path d="M{_x(tick):.1f} {TOP}V{height - 8:.1f}" stroke="{colour}"/>')
        axis.append(_text(_x(tick), TOP - 6, f"{tick:g}", "middle", "#57606a"))
    legend: list[str] = []
    x = 12.0
    for name in ordered({name for row in rows for name in row.times} - {LIMIT}):
        legend.append(f'<circle cx="{x + 5:.1f}" cy="16" r="5" fill="{COLOURS[name]}"/>')
        legend.append(_text(x + 14, 20, TITLES[name]))
        x += 30 + 7.2 * len(TITLES[name])
    legend.append(f'<path d="M{x + 4:.1f} 9v14" stroke="#1a7f37" stroke-width="2"/>')
    legend.append(_text(x + 14, 20, "goal"))
    legend.append(
        _text(12, 42, "time of a call, relative to the fastest other library; left is faster", colour="#57606a")
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="system-ui, sans-serif" font-size="12">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *legend, *axis, *body, "</svg>", ""])
