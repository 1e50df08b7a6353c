"""Show text of the IR in notebooks: monospaced, a screenful first, the rest behind a click."""

from __future__ import annotations

import html

#: Numbers of lines shown at first and in all: browsers become slow with the text of a large model.
_SHOWN_LINES = 40
_MAX_LINES = 5000

_STYLE = "margin:0;line-height:1.3;white-space:pre;overflow-x:auto"


def html_text(text: str) -> str:
    """``text`` as HTML, escaped."""
    lines = text.rstrip("\n").split("\n")
    shown, more = lines[:_SHOWN_LINES], lines[_SHOWN_LINES:_MAX_LINES]
    found = _preformatted(shown)
    if more:
        left_out = len(lines) - _MAX_LINES
        if left_out > 0:
            more.append(f"... and {left_out} more lines; str() has them")
        found += f"<details><summary>{len(lines) - _SHOWN_LINES} more lines</summary>{_preformatted(more)}</details>"
    return f"<div>{found}</div>"


def _preformatted(lines: list[str]) -> str:
    return f'<pre style="{_STYLE}">{html.escape(chr(10).join(lines))}</pre>'
