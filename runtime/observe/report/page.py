"""Turn data into a self-contained HTML page."""

from __future__ import annotations

import base64
import html
import importlib.resources
import json
import string
import zlib
from typing import Any


def page(title: str, data: Any) -> str:
    """Return the HTML text.

    Args:
        title: title of the page.
        data: plain data, stored compressed and unpacked by the page: text of programs shrinks to a tenth.
    """
    packed = zlib.compress(json.dumps(data, separators=(",", ":"), allow_nan=False).encode(), 9)
    return string.Template(_asset("page.html")).substitute(
        title=html.escape(title),
        style=_asset("page.css"),
        script=_asset("page.js"),
        data=base64.b64encode(packed).decode("ascii"),
    )


def _asset(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
