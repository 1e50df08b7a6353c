"""Rewrite links of Markdown pages that are shown in another place than the one they were written for.

README.md links to files beside it. A package index has none of them: the backend rewrites the links to the repository
(``[project.urls] Source`` in pyproject.toml), and leaves their text alone while no address is stated there. The pages
of ``make docs`` are rewritten in the same way.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

#: A link or an image, whose text may hold brackets once more: an image that is a link.
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_FENCED = re.compile(r"^(```.*?^```[^\n]*)$", re.MULTILINE | re.DOTALL)
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:|/")
_IMAGES = (".png", ".svg", ".jpg", ".gif")


def relinked(markdown: str, folder: str, target: Callable[[str], str | None]) -> str:
    """Replace the targets of relative links, but those within the page and those in blocks of code.

    Args:
        folder: the folder of the page, relative to the root of the repository, with ``/``.
        target: returns the new target of a path that is relative to the root; None leaves the text of the link alone,
            and nothing of an image.
    """

    def replace(found: re.Match[str]) -> str:
        mark, text, link = found.groups()
        text = _LINK.sub(replace, text)
        path, hash_, anchor = link.partition("#")
        if not path or _ABSOLUTE.match(path):
            return f"{mark}[{text}]({link})"
        new = target(posixpath.normpath(posixpath.join(folder, path)))
        if new is None:
            return "" if mark else text
        return f"{mark}[{text}]({new}{hash_}{anchor})"

    parts = _FENCED.split(markdown)
    return "".join(part if number % 2 else _LINK.sub(replace, part) for number, part in enumerate(parts))


def write_description(root: Path, project: Path) -> None:
    """Write README.md of ``root`` to ``build/README.md`` of ``project``, with links that hold without the repository.

    Raises:
        ValueError: pyproject.toml states no version.
    """
    (project / "build").mkdir(exist_ok=True)
    (project / "build" / "README.md").write_text(_description(root), encoding="utf-8")


def _description(root: Path) -> str:
    settings = (root / "pyproject.toml").read_text(encoding="utf-8")
    url = source_url(settings)
    found = re.search(r'^version = "([^"]+)"$', settings, re.MULTILINE)
    if found is None:
        raise ValueError("pyproject.toml has no version")
    tag = f"v{found.group(1)}"

    def target(path: str) -> str | None:
        if url is None:
            return None
        return f"{url}/{'raw' if path.endswith(_IMAGES) else 'blob'}/{tag}/{path}"

    return relinked((root / "README.md").read_text(encoding="utf-8"), "", target)


def source_url(settings: str) -> str | None:
    """Return the address of the repository that pyproject.toml states, without a slash at the end."""
    table = re.search(r"^\[project\.urls\]\n((?:(?!\[).*\n)*)", settings, re.MULTILINE)
    found = table and re.search(r'^Source = "([^"]+?)/?"$', table.group(1), re.MULTILINE)
    return found.group(1) if found else None
