"""Provide pages to read: drawn, or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as Pictures
from PIL import ImageDraw, ImageFont

Image = npt.NDArray[np.uint8]

#: The first sentence of *Alice's Adventures in Wonderland*, L. Carroll, 1865.
TEXT = (
    "Alice was beginning to get very tired",
    "of sitting by her sister on the bank,",
    "and of having nothing to do: once or",
    "twice she had peeped into the book her",
    "sister was reading, but it had no",
    "pictures or conversations in it.",
)
FONT_SIZE, LINE_HEIGHT, MARGIN = 36, 60, 40


def draw_page(lines: Sequence[str] = TEXT) -> Image:
    """Draw a white page with black text on it, ``[height, width, 3]``."""
    font: Any = ImageFont.load_default(FONT_SIZE)
    width = max(int(font.getlength(line)) for line in lines) + 2 * MARGIN
    page = Pictures.new("RGB", (width, LINE_HEIGHT * len(lines) + 2 * MARGIN), "white")
    pen = ImageDraw.Draw(page)
    for number, line in enumerate(lines):
        pen.text((MARGIN, MARGIN + number * LINE_HEIGHT), line, fill="black", font=font)
    return np.asarray(page)


def load_page(path: Path) -> Image:
    """Load a picture from a file, in the order of colours that the reader takes: blue, green, red."""
    with Pictures.open(path) as picture:
        return np.ascontiguousarray(np.asarray(picture.convert("RGB"))[..., ::-1])
