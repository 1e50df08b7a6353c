"""Turn data into a self-contained HTML page."""

from __future__ import annotations

import base64
import html
import importlib.resources
import json
import string
import zlib
from typing import Any

#: The parts of the script, in order: they share one scope, and the last one draws the page.
SCRIPTS = (
    "elements.js",
    "units.js",
    "tables.js",
    "routes.js",
    "difference.js",
    "highlight.js",
    "overview.js",
    "passes.js",
    "picture.js",
    "graphs.js",
    "roofline.js",
    "code.js",
    "kernels.js",
    "memory.js",
    "compare.js",
    "search.js",
    "theme.js",
    "main.js",
)


def page(title: str, data: Any) -> str:
    """Return the HTML text.

    Args:
        title: title of the page.
        data: ``{title, builds}``, plain data, stored compressed and unpacked by the page: text of programs shrinks to a
            tenth.
    """
    packed = zlib.compress(json.dumps(data, separators=(",", ":"), allow_nan=False).encode(), 9)
    return string.Template(_asset("page.html")).substitute(
        title=html.escape(title),
        style=_asset("page.css"),
        script="\n".join(["(function () {", '"use strict";', *map(_asset, SCRIPTS), "})();"]),
        data=base64.b64encode(packed).decode("ascii"),
    )


def _asset(name: str) -> str:
    return importlib.resources.files(__package__).joinpath("page_parts").joinpath(name).read_text(encoding="utf-8")
