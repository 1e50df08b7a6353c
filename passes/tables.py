"""Format tables and numbers: as text for terminals, as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence

_STYLE = "text-align:{};padding:0 .8em 0 0;white-space:pre;font-family:monospace"


def format_seconds(seconds: float) -> str:
    """Format a duration with a suitable unit: ``1.234 s``, ``12.345 ms``, ``0.7 us``."""
    if seconds >= 1.0:
        return f"{seconds:.3f} s"
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def format_bytes(count: int | None, signed: bool = True) -> str:
    """Format a number of bytes with a suitable unit: ``+1.5 MiB``, without the sign if not ``signed``; ``-`` if
    unknown."""
    if count is None:
        return "-"
    size = float(count)
    sign = "+" if signed else ""
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:{sign}.0f} B" if unit == "B" else f"{size:{sign}.1f} {unit}"
        size /= 1024
    return f"{size:{sign}.1f} GiB"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format aligned text: the first column to the left, the others to the right, a line under the header."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), "-" * (sum(widths) + 2 * (len(widths) - 1)), *(line(row) for row in rows)])


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format the same table as HTML, with all text escaped."""

    def line(tag: str, row: Sequence[str]) -> str:
        sides = ["left", *["right"] * (len(row) - 1)]
        cells = (
            f'<{tag} style="{_STYLE.format(side)}">{html.escape(cell)}</{tag}>'
            for side, cell in zip(sides, row, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', header)}</thead><tbody>{body}</tbody></table>"
