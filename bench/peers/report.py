"""Report the results of a run: Markdown with a table for each group and one of the goals, and JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.peers.drive import BEFORE, EMPTY, LIMIT, MOST, OURS, Row, takes_part
from bench.peers.suite import CONVOLUTIONS, GROUP_GOALS

TITLES = {
    OURS: "Tilewright",
    BEFORE: "Tilewright before",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch_eager": "PyTorch",
    "torch_compile": "PyTorch, compiled",
    MOST: "Tilewright, max-autotune",
    EMPTY: "an empty backend",
    LIMIT: "the machine's limit",
}
INTRODUCTION = """\
Times are medians over calls; ± is half of the interquartile range, relative to the median. Calls of the libraries are
interleaved. **Ratio** is Tilewright's time divided by that of the fastest other library, as the median over
neighbouring calls; below 1 Tilewright is faster. **Error** is the largest difference of Tilewright's results from ONNX
Runtime's, or from NumPy in double precision, relative to the largest result. **Of limit** is the share of the rate that
a probe of the machine reached in the same rounds: multiply-adds, bytes copied or bytes read. Algorithms that need fewer
multiply-adds, such as Winograd's, may exceed 100 %. **Others** is the number of cores that other programs kept busy
meanwhile: from half a core on, times are unreliable, and so are ratios on several threads.
[bench/README.md](../bench/README.md) describes the method and how to run it. This page is written by
`make bench-peers`.
"""


def time(seconds: float) -> str:
    """Format a time with three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:#.3g}".rstrip(".") + f" {unit}"
    return f"{seconds * 1e9:.0f} ns"


def ordered(names: set[str]) -> list[str]:
    """Sort names in the order of ``TITLES``."""
    return [name for name in TITLES if name in names]


def best(row: Row) -> str | None:
    """Return the fastest other library."""
    peers = row.peers()
    return peers[0] if peers else None


def ratio(row: Row) -> float | None:
    """Return our time relative to the fastest other library."""
    return _relative(row, best(row))


def _relative(row: Row, peer: str | None) -> float | None:
    return row.ratio(peer) if peer in row.times and OURS in row.times else None


def groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by their headings."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.case.group, []).append(row)
    return found


def as_dict(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the rows for JSON: seconds throughout."""
    return {
        "machine": machine(),
        "versions": versions(rows),
        "rows": [
            {
                "case": row.case.name,
                "group": row.case.group,
                "threads": row.threads,
                "operations": row.operations,
                "best": best(row),
                "ratio": ratio(row),
                "goal": row.case.goal,
                "share": row.share(),
                "limit": row.case.limit,
                "reference": row.reference,
                "others": row.others,
                "failed": row.failed,
                "libraries": {
                    name: {
                        "median": row.median(name),
                        "spread": row.spread(name),
                        "least": min(row.times[name]),
                        "rounds": len(row.times[name]),
                        "error": row.errors.get(name),
                        "load": row.loads.get(name),
                    }
                    for name in row.times
                },
            }
            for row in rows
        ],
        "goals": [
            dict(zip(("figure", "threads", "measured", "goal", "met"), line, strict=True)) for line in goals(rows)
        ],
    }


def machine() -> str:
    """Describe the processor, and the number of its cores."""
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {os.cpu_count()} cores"


def versions(rows: Sequence[Row]) -> dict[str, str]:
    found = {name: version for row in rows for name, version in row.versions.items() if version}
    return {name: found[name] for name in ordered(set(found))}


def goals(rows: Sequence[Row]) -> Iterator[tuple[str, int, str, str, bool]]:
    """Yield figure, threads, measurement, goal, and whether it is met; a case that failed misses its goal."""
    for row in rows:
        peer = row.case.against or best(row)
        found = _relative(row, peer)
        if row.failed.get(OURS) and (row.case.goal or row.case.goal_seconds):
            wanted = f"{row.case.goal:.2f}" if row.case.goal is not None else time(row.case.goal_seconds or 0.0)
            yield row.case.name, row.threads, "failed", wanted, False
            continue
        if row.case.goal is not None and found is not None:
            met = found <= row.case.goal
            yield row.case.name, row.threads, f"{found:.2f} of {TITLES[peer or '']}", f"{row.case.goal:.2f}", met
        goal, against = row.case.goal_seconds, row.case.against
        if goal is not None and OURS in row.times and (not against or against in row.times):
            median = row.above(against) if against else row.median(OURS)
            shown = f"{time(median)} above {TITLES[against]}" if against else time(median)
            yield row.case.name, row.threads, shown, time(goal), median <= goal
    for (group, against), bound in GROUP_GOALS.items():
        for threads in sorted({row.threads for row in rows}):
            of = [row for row in rows if row.case.group == group and row.threads == threads]
            found_ratios = [_relative(row, against or best(row)) for row in of]
            known = [value for value in found_ratios if value is not None]
            if known:
                mean = statistics.geometric_mean(known)
                title = f"{group}, geometric mean of {len(known)} of {len(of)}"
                shown = f"{mean:.2f} of {TITLES[against] if against else 'the best'}"
                yield title, threads, shown, f"{bound:.2f}", mean <= bound


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    marks = ["---"] + ["--:"] * (len(headings) - 1)
    return [f"| {' | '.join(cells)} |" for cells in (headings, marks, *lines)] + [""]


def _cell(row: Row, name: str) -> str:
    if name in row.times:
        return f"{time(row.median(name))} ±{row.spread(name):.0%}"
    if name in row.failed:
        return "failed: " + row.failed[name].replace("|", "/")
    return "" if takes_part(name, row.case) else "-"


def _rate(row: Row, name: str) -> str:
    return f"{row.operations / row.median(name) / 1e9:.0f}" if name in row.times else _cell(row, name)


def _row(row: Row, libraries: Sequence[str]) -> list[str]:
    if "model" in row.failed or "measuring" in row.failed:
        reason = row.failed.get("model") or row.failed["measuring"]
        return [row.case.name, str(row.threads), f"skipped: {reason}", *[""] * (len(libraries) + 3)]
    found, share = ratio(row), row.share()
    shown = "" if found is None else f"{found:.2f}"
    shown += "" if row.case.goal is None else f" (goal {row.case.goal:.2f})"
    return [
        row.case.name,
        str(row.threads),
        *[_cell(row, name) for name in libraries],
        shown,
        "" if share is None else f"{share:.0%}",
        f"{row.errors[OURS]:.0e}" if OURS in row.errors else "not compared",
        "" if row.others is None else f"{row.others:.1f}",
    ]


def _absent(rows: Sequence[Row]) -> dict[str, str]:
    """Return the libraries without a row, and the reasons."""
    found: dict[str, str] = {}
    measured = {name for row in rows for name in row.times}
    for row in rows:
        for name, reason in row.failed.items():
            if name in TITLES and name not in measured:
                found.setdefault(name, reason)
    return found


def _rates(rows: Sequence[Row]) -> list[str]:
    """Return the multiply-adds of the probe: the median over the rows."""
    found = []
    for threads in sorted({row.threads for row in rows}):
        of = [row for row in rows if row.case.limit == "fma" and row.threads == threads and LIMIT in row.times]
        if of:
            rate = statistics.median(row.operations / row.median(LIMIT) for row in of) / 1e9
            found.append(f"{rate:.0f} GFLOP/s on {threads} thread{'s' * (threads > 1)}")
    return found


def markdown(rows: Sequence[Row], picture: str = "") -> str:
    """Return the page; ``picture`` is the path of the plot from there."""
    found = {name for row in rows for name in row.times} - {LIMIT}
    libraries = ordered(found | {OURS})
    named = ", ".join(f"{TITLES[name]} {version}" for name, version in versions(rows).items())
    lines = ["# Performance", "", INTRODUCTION]
    lines += [f"Machine: {machine()}. Multiply-adds: {', '.join(_rates(rows)) or 'not measured'}. {named}.", ""]
    lines += [f"{TITLES[name]} is left out: {reason}.\n" for name, reason in _absent(rows).items()]
    if picture:
        lines += [f"![Time of each library relative to the fastest library other than Tilewright]({picture})", ""]
    figures = [(*line[:1], str(line[1]), line[2], line[3], "met" if line[4] else "not met") for line in goals(rows)]
    if figures:
        lines += ["## Goals", "", *_table(("figure", "threads", "measured", "at most", ""), figures)]
    for group, of in groups(rows).items():
        shown = [name for name in libraries if any(takes_part(name, row.case) for row in of)]
        headings = ["", "threads", *[TITLES[name] for name in shown], "ratio", "of limit", "error", "others"]
        lines += [f"## {group[0].upper()}{group[1:]}", "", *_table(headings, [_row(row, shown) for row in of])]
        if group == CONVOLUTIONS:
            headings = ["GFLOP/s", "threads", *[TITLES[name] for name in (*shown, LIMIT)]]
            rates = [[row.case.name, str(row.threads), *[_rate(row, name) for name in (*shown, LIMIT)]] for row in of]
            lines += _table(headings, rates)
    return "\n".join(lines).rstrip() + "\n"
