"""Check that docs/architecture.md names files, and definitions in them, that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = "tensorir|graphir|passes|codegen|runtime|tilewright|tests|docs"


def missing(text: str) -> Iterator[str]:
    """Yield the paths in ``text`` that do not exist, and the definitions, as "``name`` in ``path``", that are not in
    their file."""
    for path in re.findall(rf"`((?:{ROOMS})/[\w./*]*)`", text):
        if not any(ROOT.glob(path.rstrip("/"))):
            yield path
    for name, path in re.findall(rf"`(\w+)` in `((?:{ROOMS})/[\w./]+\.py)`", text):
        if not re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8")):
            yield f"{name} in {path}"


def test_files_and_definitions_of_the_architecture_exist() -> None:
    assert not list(missing((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))


def test_missing_files_and_definitions_are_found() -> None:
    text = "`runtime/build.py`, `runtime/no.py`, `build` in `runtime/build.py`, `nothing_so` in `runtime/build.py`"
    assert list(missing(text)) == ["runtime/no.py", "nothing_so in runtime/build.py"]
