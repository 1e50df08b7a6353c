"""Print how many lines and branches the tests run, of each package and in all, and the files that lack most.

``make coverage`` runs this after the tests. The figures are those of coverage.py, whose own report adds lines and
branches up to one. Modules whose tests are skipped, as PyTorch is not installed, are left out, and it says so.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "coverage"

#: Modules whose tests need PyTorch, which is an extra.
OPTIONAL = ("graphir/frontend/torch/", "runtime/torch/")
#: The goals, in percent.
LINES, BRANCHES = 95.0, 85.0
#: How many files are listed.
LISTED = 40


def measured() -> dict[str, dict[str, Any]]:
    """Return the summary of each measured file, by its name."""
    report = FOLDER / "report.json"
    subprocess.run([sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(report)], cwd=ROOT, check=True)
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {name: values["summary"] for name, values in files.items()}


def rates(summaries: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the percentages of lines and of branches that run; of nothing, all."""
    found = []
    for covered, every in (("covered_lines", "num_statements"), ("covered_branches", "num_branches")):
        total = sum(each[every] for each in summaries)
        found.append(100.0 * sum(each[covered] for each in summaries) / total if total else 100.0)
    return found[0], found[1]


def _row(name: str, summaries: list[dict[str, Any]]) -> tuple[str, ...]:
    lines, branches = rates(summaries)
    missing = sum(each["missing_lines"] for each in summaries), sum(each["missing_branches"] for each in summaries)
    return name, f"{lines:.1f} %", f"{branches:.1f} %", f"{missing[0]:,}", f"{missing[1]:,}"


def main() -> int:
    files = measured()
    if importlib.util.find_spec("torch") is None:
        files = {name: found for name, found in files.items() if not name.startswith(OPTIONAL)}
        print(f"Left out, as PyTorch is not installed: {', '.join(OPTIONAL)}")
    table = Table("", "lines", "branches", "lines not run", "branches not run")
    for name in sorted(files, key=lambda name: -files[name]["missing_lines"])[:LISTED]:
        table.add_row(*_row(name, [files[name]]))
    table.add_section()
    for room in dict.fromkeys(name.partition("/")[0] for name in files):
        table.add_row(*_row(room, [files[name] for name in files if name.startswith(f"{room}/")]))
    table.add_section()
    table.add_row(*_row("all", [*files.values()]))
    Console(width=110).print(table)
    lines, branches = rates([*files.values()])
    print(f"Goals: {LINES:.0f} % of lines, {BRANCHES:.0f} % of branches")
    return int(lines < LINES or branches < BRANCHES)


if __name__ == "__main__":
    sys.exit(main())
