"""The pages of the documentation, as text: what tests of links, commands and names read."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCED = re.compile(r"^(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<body>.*?)^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(`+)(.+?)\1(?!`)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.MULTILINE)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)")


def pages() -> dict[str, str]:
    """The Markdown of every page, and of the notebooks, by its path relative to the root."""
    beside = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md"]
    found = [*beside, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(found)}
    for path in sorted((ROOT / "docs").rglob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        texts[path.relative_to(ROOT).as_posix()] = "\n\n".join(prose)
    return texts


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and text of the fenced blocks."""
    return [(found["language"].strip(), found["body"]) for found in _FENCED.finditer(text)]


def inline_code(text: str) -> list[str]:
    """The code within sentences and tables, each on one line."""
    return [" ".join(found.group(2).split()) for found in _INLINE.finditer(_FENCED.sub("", text))]


def links(text: str) -> list[str]:
    """The targets of links and images, also of images that are links."""
    found = []
    for link in _LINK.finditer(_FENCED.sub("", text)):
        found.append(link.group(1))
        found += links(link.group(0)[link.group(0).index("[") + 1 : link.end(1) - link.start()])
    return found


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them; MyST makes the same."""
    made: set[str] = set()
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in made:
            number += 1
        made.add(name)
    return made
