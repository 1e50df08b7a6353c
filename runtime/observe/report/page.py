"""Turn data into a page: one HTML file that loads nothing from elsewhere."""

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
        title: of the page.
        data: plain data, which the page unpacks: compressed, since text of programs takes a tenth of its size then.
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
