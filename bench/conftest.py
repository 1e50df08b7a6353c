"""Print the tables at the end of a benchmark run: every row with its ratios, the passes by size, the figures with
goals."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

WIDTH = 160

#: Figures that are ratios of times, with their units.
RATIOS = {
    "vs_static": "times the static build",
    "slowdown": "times the median when quiet",
    "overhead": "times the unwatched build",
    "overhead_work": "times the unwatched build's processor time",
    "slowdown_99": "times the median when quiet (99th percentile)",
}


def pytest_configure(config: pytest.Config) -> None:
    """Hide pytest-benchmark's own table, which has 12 columns of statistics, unless ``--benchmark-verbose``."""
    if config.pluginmanager.hasplugin("benchmark"):
        config.option.benchmark_quiet = True


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the tables if benchmarks ran."""
    session = getattr(config, "_benchmarksession", None)
    if session is None or session.disabled:
        return
    rows = [bench.extra_info for bench in session.benchmarks if "median" in bench.extra_info]
    if not rows:
        return
    console = Console(width=None if terminalreporter.isatty else WIDTH)
    console.print()
    console.print(_all_rows(rows))
    by_size = [row for row in rows if "per_operator" in row]
    if by_size:
        console.print(_passes(by_size))
    figures = _figures(rows)
    if figures.row_count:
        console.print(figures)


def _time(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.3f} {unit}"
    return f"{value / 1e-6:.2f} us"


def _all_rows(rows: list[dict[str, Any]]) -> Table:
    caption = (
        "vs NumPy: times faster, same computation, calls in turns. Share: of the rate that a probe of the limit, "
        "with as much work, reaches in the same round. Best: the same for the fastest calls; of a limit, its fastest."
    )
    table = Table(title="Benchmarks", title_justify="left", caption=caption, caption_justify="left")
    table.add_column("name", no_wrap=True)
    for heading in ("threads", "median", "NumPy", "vs NumPy", "achieved", "limit", "share", "best"):
        table.add_column(heading, justify="right")
    for row in rows:
        unit = row.get("unit", "")
        best = f"{row['best']:.1f} {unit}" if unit and "best" in row else ""
        table.add_row(
            row["title"],
            str(row["threads"]),
            _time(row["median"]),
            _time(row["numpy_median"]) if "numpy_median" in row else "",
            f"{row['vs_numpy']:.2f}" if "vs_numpy" in row else "",
            f"{row['achieved']:.1f} {unit}" if "achieved" in row else "",
            f"{row['limit']} {row['limit_rate']:.1f}" if "limit" in row else "",
            f"{row['share']:.0%}" if "share" in row else "",
            f"{row['best_share']:.0%}" if "best_share" in row else best,
        )
    return table


def _passes(rows: list[dict[str, Any]]) -> Table:
    rows = sorted(rows, key=lambda row: row["operators"])
    table = Table(title="Graph passes on chains: microseconds for each operator", title_justify="left")
    table.add_column("pass", no_wrap=True)
    for row in rows:
        table.add_column(f"{row['operators']:,}", justify="right")
    table.add_column("longest / the one before", justify="right")
    for name in rows[-1]["per_operator"]:
        values = [row["per_operator"].get(name) for row in rows]
        grows = f"{values[-1] / values[-2]:.2f}" if len(values) > 1 and values[-2] else ""
        table.add_row(name, *[f"{value * 1e6:.2f}" if value is not None else "" for value in values], grows)
    return table


def _figures(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Figures with a goal", title_justify="left")
    for heading in ("figure", "threads", "measured", "goal", ""):
        table.add_column(heading)
    for row in rows:
        for key, goal in row.get("goals", {}).items():
            measured, wanted, met = _figure(row, key, goal)
            table.add_row(row["title"], str(row["threads"]), measured, wanted, "met" if met else "not met")
    return table


def _figure(row: dict[str, Any], key: str, goal: float) -> tuple[str, str, bool]:
    """Return the measured figure, the goal, and whether it is met; a missed goal never fails a run."""
    if key == "share":
        measured = f"{row['share']:.0%} of {row['limit']} (fastest calls: {row['best_share']:.0%})"
        return measured, f"at least {goal:.0%}", row["share"] >= goal
    if key == "vs_numpy":
        return f"{row[key]:.2f} times NumPy", f"at least {goal:g} times", row[key] >= goal
    if key == "kernels":
        passes = len(row["kernels"])
        moved = f"{passes} kernel, {row['bytes'] / 1e6:.1f} MB: 3 arrays once each"
        return moved, "one pass over memory", passes == goal
    if key == "linear":
        return f"{row[key]:.2f} times ten times the tenth", f"at most {goal:g}", row[key] <= goal
    if key in RATIOS:
        return f"{row[key]:.2f} {RATIOS[key]}", f"at most {goal:g}", row[key] <= goal
    return _time(row[key]), f"under {_time(goal)}", row[key] < goal
