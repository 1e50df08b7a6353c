"""Measure the cost of builds, and its growth: ``python bench/bench_builds.py [NAME ...]``; bench/README.md describes
the method.

Each measurement runs in its own process (``build_worker.py``), one after another.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from build_cases import Model

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # ``bench.peers`` makes some of the networks

#: The folder of kept byte code, as after an installation, outside of the tree.
BYTE_CODE = Path(tempfile.gettempdir()) / "tilewright-bench-bytecode"
PEERS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
#: The numbers of layers of the networks by which growth is measured.
GROWTH = {"layers of BERT": (2, 12, 48), "distinct dense layers": (1000, 10000)}
#: The greatest increase of the time for a layer that still counts as linear growth.
LINEAR_WITHIN = 0.2

Answer = dict[str, Any]


@dataclasses.dataclass
class Sheet:
    """A table.

    Attributes:
        title: its heading.
        note: the meaning of the columns, below the title.
        headings: the headings of the columns; the first one's cells are words, the others' numbers.
        rows: the cells as text.
    """

    title: str
    note: str
    headings: Sequence[str]
    rows: list[list[str]] = dataclasses.field(default_factory=list)

    def markdown(self) -> str:
        """Return the table with aligned columns."""
        lines = [list(self.headings), *self.rows]
        widths = [max(3, *(len(line[at]) for line in lines)) for at in range(len(self.headings))]
        texts = [
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
            for line in lines
        ]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        body = "\n".join(f"| {' | '.join(cells)} |" for cells in (texts[0], rule, *texts[1:]))
        return f"## {self.title}\n\n{self.note}\n\n{body}\n"


@dataclasses.dataclass(frozen=True)
class Bench:
    """The settings of a measurement.

    Attributes:
        python: the interpreter whose Tilewright is measured.
        repeat: the number of processes that repeat a measurement.
        limit: the time limit of a process in seconds.
        folder: the folder for the models.
        pieces: the pieces of Python work that a process does before its measurement, and again after it.
    """

    python: str
    repeat: int
    limit: float
    folder: Path
    pieces: int

    def ask(self, job: Answer, cache: Path | None = None, python: str | None = None) -> Answer:
        """Return the answer of a new process. ``cache``: the folder of kept builds; None: keep none."""
        unwanted = ("TILEWRIGHT_", "PYTHONDONTWRITEBYTECODE")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        environment.setdefault("PYTHONPYCACHEPREFIX", str(BYTE_CODE))
        if cache is None:
            environment["TILEWRIGHT_CACHE"] = "off"
        else:
            environment["TILEWRIGHT_CACHE_DIR"] = str(cache)
        command = [python or self.python, str(HERE / "build_worker.py"), json.dumps({**job, "pieces": self.pieces})]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=self.limit)
        except subprocess.TimeoutExpired:
            return {"failed": f"more than {self.limit:.0f} s"}
        if done.returncode or not done.stdout:
            return {"failed": f"the process ended with status {done.returncode}: {done.stderr[-200:]}"}
        answer: Answer = json.loads(done.stdout)
        return answer

    def medians(self, ask: Callable[[], Answer]) -> Answer:
        """Return the median of each number in the answers of ``ask``, over the repeats."""
        answers = [ask() for _ in range(self.repeat)]
        failed = [answer for answer in answers if "failed" in answer]
        return failed[0] if failed else {key: statistics.median(one[key] for one in answers) for key in answers[0]}

    def job(self, kind: str, model: Model, path: str) -> Answer:
        """Return a job about a model at ``path``."""
        return {"kind": kind, "model": path, "shapes": model.shapes, "classes": model.classes}

    def write(self, model: Model, name: str) -> str:
        """Return the path of a model; write it unless it is a file already."""
        if model.make is None:
            return "digits"
        made = model.make()
        if isinstance(made, Path):
            return str(made)
        path = self.folder / f"{name}.onnx"
        path.write_bytes(made.SerializeToString())
        return str(path)


def say(text: str) -> None:
    """Print progress to the standard error."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def seconds(answer: Answer, key: str = "cpu") -> str:
    """Format a time of an answer."""
    if "failed" in answer:
        return "failed"
    return f"{answer[key]:.2f}" if answer[key] >= 0.095 else f"{answer[key]:.3f}"


def units(answer: Answer, key: str = "cpu") -> str:
    """Format a time in units of Python work."""
    return "" if "failed" in answer else f"{answer[key] / answer[f'unit_{key}']:.1f}"


def builds(bench: Bench, names: Sequence[str]) -> Iterator[Sheet]:
    """Measure builds: cold, beside the peers, with what a neighbour has kept, and with the model itself kept."""
    import build_cases

    peer_headings = [f"{peer}, {unit}" for peer, unit in itertools.product(PEERS.values(), ("CPU s", "units"))]
    cold = Sheet(
        "Builds",
        "Seconds of CPU and of wall time, and the same in units of Python work (about a tenth of a second each). "
        "`read`: CPU seconds from the ONNX file to a module. The peers' columns are CPU seconds, and units, until "
        "their session can be called.",
        ("network", "read", "CPU s", "wall s", "CPU units", "wall units", *peer_headings),
    )
    kept = Sheet(
        "Builds with what is kept",
        "CPU seconds of a build in a program that finds nothing kept, the code that the build of a neighbouring model "
        "has kept, and the model itself.",
        ("network", "neighbour", "cold", "after the neighbour", "share", "kept whole", "units"),
    )
    failures = []
    for name in names:
        case = build_cases.CASES[name]
        title, other = case.neighbour
        path, neighbour = bench.write(case.model, name), bench.write(other, f"{name}_neighbour")
        job = bench.job("build", case.model, path)
        say(f"{case.title}: cold")
        own = bench.medians(lambda job=job: bench.ask(job))  # type: ignore[misc]
        peers = {}
        for peer in PEERS if case.model.make else ():
            say(f"{case.title}: {PEERS[peer]}")
            asked = bench.job(peer, case.model, path)
            peers[peer] = bench.medians(lambda asked=asked: bench.ask(asked, python=sys.executable))  # type: ignore[misc]
        row = [case.title, seconds(own, "read"), seconds(own), seconds(own, "wall"), units(own), units(own, "wall")]
        for peer in PEERS:
            row += [seconds(peers[peer]), units(peers[peer])] if peer in peers else ["-", "-"]
        cold.rows.append(row)
        found: dict[str, list[Answer]] = {"after": [], "whole": []}
        for _ in range(bench.repeat):
            with tempfile.TemporaryDirectory(dir=bench.folder) as cache:
                say(f"{case.title}: neighbour, after it, kept whole")
                bench.ask(bench.job("build", other, neighbour), Path(cache))
                for answers in found.values():
                    answers.append(bench.ask(job, Path(cache)))
        after, whole = (bench.medians(iter(answers).__next__) for answers in found.values())
        share = "" if "failed" in after or "failed" in own else f"{after['cpu'] / own['cpu']:.0%}"
        kept.rows.append([case.title, title, seconds(own), seconds(after), share, seconds(whole), units(whole)])
        for answer in (own, after, whole, *peers.values()):
            if "failed" in answer:
                failures.append(f"{case.title}: {answer['failed']}")
    if failures:
        cold.note += "\n\nFailed: " + "; ".join(dict.fromkeys(failures)) + "."
    yield cold
    yield kept


def code(bench: Bench, names: Sequence[str]) -> Iterator[Sheet]:
    """Measure the size of the code."""
    import build_cases

    sheet = Sheet(
        "Code",
        "Kernels of the lowered model, characters of its loops as text, lines of LLVM IR, bytes of object code (in "
        "which equal kernels are one).",
        ("network", "kernels", "scheduled, characters", "lowered, characters", "LLVM IR, lines", "object code, bytes"),
    )
    for name in names:
        case = build_cases.CASES[name]
        say(f"{case.title}: code")
        answer = bench.ask(bench.job("code", case.model, bench.write(case.model, name)))
        keys = ("kernels", "scheduled", "lowered", "llvm", "object")
        sheet.rows.append([case.title, *("failed" if "failed" in answer else f"{answer[key]:,}" for key in keys)])
    yield sheet


def nodes(bench: Bench, names: Sequence[str]) -> Iterator[Sheet]:
    """Count the nodes that are made, visited and alive."""
    import build_cases

    headings = [f"{stage}: {what}" for stage in ("optimized", "tensor", "scheduled", "lowered") for what in "mva"]
    sheet = Sheet(
        "Nodes",
        "Thousands of nodes of both IRs that each stage makes (m) and visits (v), and that the module holds after it "
        "(a); `code` is what code generation makes. `build_nodes.py` defines the counts.",
        ("network", *headings, "code: m", "all: m", "all: v"),
    )
    for name in names:
        case = build_cases.CASES[name]
        say(f"{case.title}: nodes")
        answer = bench.ask(bench.job("nodes", case.model, bench.write(case.model, name)))
        if "failed" in answer:
            sheet.rows.append([f"{case.title}: {answer['failed']}", *[""] * (len(sheet.headings) - 1)])
            continue
        _, *stages, last = answer["stages"]
        counts = [count for _, *three in stages for count in three] + [last[1]]
        counts += [sum(stage[at] for stage in answer["stages"]) for at in (1, 2)]
        sheet.rows.append([case.title, *(f"{count / 1000:.1f}" for count in counts)])
    yield sheet


def growth(bench: Bench, names: Sequence[str]) -> Iterator[Sheet]:
    """Measure the growth with deep networks, whatever was named."""
    import build_cases

    sheet = Sheet(
        "Growth",
        "CPU seconds and units of a cold build, CPU milliseconds for each layer, and how many times as much a layer "
        f"takes as in the network of the row before; up to {1 + LINEAR_WITHIN:g} is called linear.",
        ("network", "CPU s", "units", "ms for a layer", "times", "linear"),
    )
    for title, counts in GROWTH.items():
        before = None
        for count in counts:
            say(f"{count:,} {title}")
            path = bench.write(build_cases.Model(lambda t=title, n=count: build_cases.GROWTH[t](n)), "growth")  # type: ignore[misc]
            answer = bench.ask({"kind": "build", "model": path})
            row = [f"{count:,} {title}", seconds(answer), units(answer)]
            if "failed" in answer:
                sheet.rows.append([f"{row[0]}: {answer['failed']}", *row[1:], "", "", ""])
                continue
            each = answer["cpu"] / answer["unit_cpu"] / count
            times = "" if before is None else f"{each / before:.2f}"
            linear = "" if before is None else ("yes" if each / before <= 1 + LINEAR_WITHIN else "no")
            sheet.rows.append([*row, f"{answer['cpu'] / count * 1e3:.1f}", times, linear])
            before = each
    yield sheet


def imports(bench: Bench, names: Sequence[str]) -> Iterator[Sheet]:
    """Measure the cost of imports, interleaved."""
    sheet = Sheet(
        "Imports",
        "CPU seconds of an import in a fresh process, medians of interleaved processes; beside them the addition of "
        "Tilewright to NumPy and numba.",
        ("import", "CPU s", "over NumPy and numba", "units"),
    )
    programs = ("numpy", "numpy,numba", "numpy,numba,tilewright", "tilewright")
    say("imports")
    answers: dict[str, list[Answer]] = {program: [] for program in programs}
    bench.ask({"kind": "imports", "model": programs[-1]})  # writes the byte code
    for program in programs * (3 + 2 * bench.repeat):
        answers[program].append(bench.ask({"kind": "imports", "model": program}))
    found = {program: statistics.median(one["cpu"] for one in answers[program]) for program in programs}
    unit = statistics.median(one["unit_cpu"] for one in answers[programs[0]])
    for program, spent in found.items():
        over = spent - found["numpy,numba"]
        text = f"{over:+.3f}" if "tilewright" in program else ""
        sheet.rows.append([program.replace(",", ", "), f"{spent:.3f}", text, f"{over / unit:+.1f}" if text else ""])
    yield sheet


TABLES: dict[str, Callable[[Bench, Sequence[str]], Iterator[Sheet]]] = {
    one.__name__: one for one in (builds, code, nodes, growth, imports)
}


def main(arguments: Sequence[str]) -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks (default: all)")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), help="tables (default: all)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="processes for each time (3)")
    parser.add_argument("--pieces", type=int, default=5, metavar="N", help="pieces of work before and after (5)")
    parser.add_argument("--limit", type=float, default=1800, metavar="SECONDS", help="time limit of one process (1800)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter whose Tilewright is measured")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables to this file")
    given = parser.parse_args(arguments)
    import build_cases

    unknown = [name for name in given.names if name not in build_cases.CASES]
    if unknown:
        parser.error(f"no such network: {', '.join(unknown)}; there are {', '.join(build_cases.CASES)}")
    for name in ("repeat", "pieces"):
        if getattr(given, name) < 1:
            parser.error(f"--{name}: expected a positive number")
    texts = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(given.python, given.repeat, given.limit, Path(folder), given.pieces)
        for table in given.tables:
            for sheet in TABLES[table](bench, given.names or list(build_cases.CASES)):
                texts.append(sheet.markdown())
                print(texts[-1], flush=True)
                if given.markdown:  # after each table: all of them take long
                    given.markdown.write_text("\n".join(texts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
