"""Run the command line: ``python -m bench.peers``, from the top of the repository."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.peers import drive, plot, report
from bench.peers.suite import CASES

PEERS = ("onnxruntime", "openvino", "torch_eager", "torch_compile", drive.MOST, drive.EMPTY)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="The suite beside other libraries.")
    parser.add_argument("--only", default="", metavar="REGEX", help="only cases whose group or name matches")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default: 1,2)")
    parser.add_argument(
        "--peers", default=",".join(PEERS), help=f"libraries (default: {','.join(PEERS)}); may be empty"
    )
    parser.add_argument(
        "--before", type=Path, metavar="FOLDER", help="another checkout, with its .venv, to measure as a library"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="to measure each row, after loading (default: 3)")
    parser.add_argument("--spin", action="store_true", help="let threads of ONNX Runtime spin inside of a call")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an SVG; the Markdown shows it")
    return parser.parse_args(arguments)


def _summary(row: drive.Row) -> str:
    """Return a line for the terminal."""
    found = [f"{report.TITLES[name]} {report.time(row.median(name))}" for name in row.times if name != drive.LIMIT]
    value, share = report.ratio(row), row.share()
    found += [] if value is None else [f"ratio {value:.2f}"]
    found += [] if share is None else [f"{share:.0%} of limit"]
    found += [] if row.others is None or row.others < 0.5 else [f"others kept {row.others:.1f} cores busy"]
    found += [f"{name}: {reason}" for name, reason in row.failed.items()]
    return f"{row.case.name} [{row.threads}]: {'; '.join(found)}"


def main(arguments: Sequence[str]) -> int:
    """Measure the selected cases; return the exit status."""
    options = _arguments(arguments)
    cases = [case for case in CASES if re.search(options.only, f"{case.group}: {case.name}")]
    if options.list:
        print(*[f"{case.group}: {case.name}" for case in cases], sep="\n")
        return 0
    peers = [name for name in options.peers.split(",") if name]
    unknown = [name for name in peers if name not in PEERS]
    if unknown or not cases:
        print(f"no such library: {', '.join(unknown)}" if unknown else f"no case has {options.only!r} in its name")
        return 2
    threads = [int(number) for number in options.threads.split(",")]
    before = options.before and options.before.resolve()
    if before and not drive.python_of(before).exists():
        print(f"--before takes a checkout with its .venv (make there), found no {drive.python_of(before)}")
        return 2
    libraries = [drive.OURS, *([drive.BEFORE] if before else []), *peers]
    rows: list[drive.Row] = []
    for case in cases:
        for row in drive.measure(case, libraries, threads, options.seconds, options.spin, before):
            rows.append(row)
            print(_summary(row), flush=True)
        _write(options, rows)  # after every case: a run takes long, and may be stopped
    return 0


def _write(options: argparse.Namespace, rows: Sequence[drive.Row]) -> None:
    picture = ""
    if options.plot:
        options.plot.write_text(plot.svg(rows))
        if options.markdown:
            picture = os.path.relpath(options.plot, options.markdown.resolve().parent)
    if options.markdown:
        options.markdown.write_text(report.markdown(rows, picture))
    if options.json:
        options.json.write_text(json.dumps(report.as_dict(rows), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
