"""Identify the types of files by their content: ``python examples/magika/run.py [FILE or FOLDER ...]``.

Without arguments it looks at the files of this repository. The network is the trained one of the package ``magika``,
compiled by Tilewright; ``make models`` installs the packages.
"""

from __future__ import annotations

import collections
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from file_types import Answer, FileTyper, compile_network

REPOSITORY = Path(__file__).resolve().parents[2]
#: The most files of one call, which bounds the memory for the network's intermediate results.
FILES_PER_CALL = 64
#: Rows of the table.
MOST_SHOWN = 40


def files_below(places: list[Path]) -> list[Path]:
    """List the files among ``places`` and in the folders among them, without hidden or generated ones."""
    found: list[Path] = []
    for place in places:
        inside = sorted(place.rglob("*")) if place.is_dir() else [place]
        for path in inside:
            parts = path.relative_to(place).parts
            if path.is_file() and not any(part.startswith((".", "__pycache__", "build")) for part in parts):
                found.append(path)
    return found


def main() -> int:
    """Do the job; return the exit status."""
    console = Console()
    places = [Path(argument) for argument in sys.argv[1:]]
    missing = [str(place) for place in places if not place.exists()]
    if missing:
        console.print(f"No such file: {', '.join(missing)}")
        return 2
    paths = files_below(places or [REPOSITORY])
    start = time.perf_counter()
    typer = FileTyper(compile_network())
    console.print(f"Imported and compiled the network in {time.perf_counter() - start:.2f} s")

    answers: list[Answer] = []
    start = time.perf_counter()
    for first in range(0, len(paths), FILES_PER_CALL):
        answers += typer.identify([path.read_bytes() for path in paths[first : first + FILES_PER_CALL]])
    console.print(f"Looked at {len(paths):,} files in {time.perf_counter() - start:.2f} s")

    table = Table("file", "type", "score")
    for path, answer in list(zip(paths, answers, strict=True))[:MOST_SHOWN]:
        shown = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path
        table.add_row(str(shown), answer.label, f"{answer.score:.3f}")
    console.print(table)
    counts = collections.Counter(answer.label for answer in answers)
    console.print(", ".join(f"{count} {label}" for label, count in counts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
