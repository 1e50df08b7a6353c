"""Measure how many small mistakes the tests catch: mutation testing of source files drawn at random.

``make mutants`` runs this. Of each drawn file some mutants (:mod:`mutants`) are drawn, and each runs against the tests
that execute the changed statement, the fastest first, until one fails. A mutant that no test catches is printed with
its place: either a test is missing, or the mutant does the same as the program.

Nothing is written into the source. The main process imports all modules and never runs a test; a forked child puts the
code of a mutant into the functions of the module, and runs pytest. Programs that tests start run the code as it is, so
what only those would catch is not caught here.

The test files of a source file are those that run its lines, after ``make coverage`` has recorded that; otherwise those
named like it, that import it, or that lie in the folder of its tests.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import coverage
import mutants
import pytest
from accelerated import package_folders
from coverage_rates import OPTIONAL

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "mutants"
MEASURED = ROOT / "build" / "coverage" / "data"
ROOMS = ("tensorir", "graphir", "passes", "codegen", "runtime")

#: Test files that are tried for a source file, at most.
MOST_FILES = 4
#: Seconds of processor time for the unchanged program's tests; those that have not run by then are left out.
MOST_SECONDS = 60.0
#: Seconds of processor time that tests of a mutant may take, beyond five times those of the unchanged program. Those
#: that take longer caught it, as do those that need more memory.
SPARE_SECONDS = 15.0
SPARE_BYTES = 8 << 30


@dataclass(frozen=True)
class Trial:
    """A mutant and what became of it: caught, late (caught by the time limit), survived, or untested."""

    file: str
    mutant: mutants.Mutant
    outcome: str
    tests: int


@dataclass
class Baseline:
    """The tests of a source file: seconds of those that pass, for each line those that execute it, and whether all ran
    in the time for them."""

    seconds: dict[str, float]
    tests_by_line: dict[int, list[str]]
    complete: bool

    def tests_of(self, mutant: mutants.Mutant) -> list[str]:
        """Return the tests that execute a mutant's statement, the fastest first."""
        first, last = mutant.lines
        found = {test for line in range(first, last + 1) for test in self.tests_by_line.get(line, ())}
        return sorted(found & self.seconds.keys(), key=lambda test: (self.seconds[test], test))


class _Recorder:
    """A plugin of pytest that records which tests execute which lines of one file, and how long they take."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self.complete = True
        self.coverage = coverage.Coverage(data_file=None, include=[str(path)], config_file=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.coverage.switch_context(item.nodeid)
        if time.process_time() > MOST_SECONDS:
            item.session.shouldstop = "the time for the unchanged program is over"
            self.complete = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def baseline(self) -> Baseline:
        lines = self.coverage.get_data().contexts_by_lineno(str(self.path))
        passed = {test: seconds for test, seconds in self.seconds.items() if test not in self.failed}
        by_line = {line: [test for test in tests if test in passed] for line, tests in lines.items()}
        return Baseline(passed, by_line, self.complete)


class _Chooser:
    """A plugin of pytest that keeps the given tests alone, in their order."""

    def __init__(self, tests: list[str]) -> None:
        self.order = {test: number for number, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda item: self.order[item.nodeid])


def draw_files(seed: int, count: int) -> list[str]:
    """Return ``count`` source files that have something to change, drawn at random."""
    found = [path.relative_to(ROOT).as_posix() for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    found = [name for name in found if not name.startswith(OPTIONAL) and not name.endswith("__init__.py")]
    drawn = [name for name in random.Random(seed).sample(found, len(found)) if mutants.places(_source(name))]
    return drawn[:count]


def test_files(file: str) -> list[str]:
    """Return the test files for a source file, at most :data:`MOST_FILES`."""
    if MEASURED.exists():
        found = _files_that_run(file)
        if found:
            return found
    return _files_by_name(file)


def _files_that_run(file: str) -> list[str]:
    """Return few test files that together run all the lines of ``file`` that tests run, as ``make coverage`` saw them:
    always that with the most lines that no earlier one runs, but half of them from those that are meant for it."""
    data = coverage.CoverageData(basename=str(MEASURED))
    data.read()
    measured = next((name for name in data.measured_files() if name.endswith(f"/{file}")), None)
    lines_of: dict[str, set[int]] = defaultdict(set)
    for line, names in data.contexts_by_lineno(measured).items() if measured is not None else ():
        for name in filter(None, names):
            lines_of[name].add(line)
    missing, chosen = set().union(*lines_of.values()), list[str]()
    meant = {name: (_is_meant(file, ROOT / name), _nearness(file, Path(name))) for name in lines_of}
    while lines_of and len(chosen) < MOST_FILES:
        first = len(chosen) < MOST_FILES // 2
        best = max(lines_of, key=lambda name: (first and meant[name], len(lines_of[name] & missing), name))
        missing -= lines_of.pop(best)
        chosen.append(best)
        if not missing:
            missing = set().union(*lines_of.values()) if lines_of else set()
    return chosen


def _is_meant(file: str, test: Path) -> bool:
    """Return whether a test file has the name of a source file, or imports it."""
    module = "tilewright." + file.removesuffix(".py").replace("/", ".")
    room, _, stem = module.rpartition(".")
    imported = re.compile(rf"\b{re.escape(module)}\b|from {re.escape(room)} import .*\b{stem}\b")
    return test.stem == f"test_{stem.strip('_')}" or bool(imported.search(test.read_text(encoding="utf-8")))


def _nearness(file: str, test: Path) -> int:
    """Return how many folders around a test file, within ``tests``, are those around a source file."""
    both = zip(test.parent.parts[1:], Path(file).parent.parts, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], both))


def _files_by_name(file: str) -> list[str]:
    """Return the test files that are likely to test ``file``, most likely first: its name, imports, folder."""
    stem, folder = Path(file).stem.strip("_"), Path(file).parent
    words = set(stem.split("_"))
    ranked = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT)
        near = _nearness(file, name)
        score = 6 * _is_meant(file, path) + 2 * len(words & set(path.stem.split("_"))) / len(words)
        score += near / len(folder.parts)
        if near or score >= 6:
            ranked.append((-score, name.as_posix()))
    return [name for _, name in sorted(ranked)[:MOST_FILES]]


def import_everything() -> None:
    """Import all modules of the package but optional ones, and what the tests import first."""
    folders = package_folders((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for name, folder in folders.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT / folder).with_suffix("").parts
            optional = path.relative_to(ROOT).as_posix().startswith(OPTIONAL)
            if not optional and relative[-1] not in ("__init__", "__main__"):
                importlib.import_module(".".join((name, *relative)))
    for name in ("hypothesis", "onnx", "numba", "ml_dtypes"):
        importlib.import_module(name)


def run_pytest(tests: list[str], plugin: Any) -> int:
    """Run test files with a plugin, quietly; return the exit status. It is for a child process."""
    options = ["-q", "-x", "--tb=no", "-p", "no:randomly", "--no-header", "-W", "ignore"]
    if isinstance(plugin, _Recorder):
        options.remove("-x")
    return int(pytest.main([*options, *tests], plugins=[plugin]))


def measure(file: str, tests: list[str]) -> Baseline:
    """Return the baseline of a source file."""

    def child(answer: Path) -> int:
        recorder = _Recorder(ROOT / file)
        recorder.coverage.start()
        run_pytest(tests, recorder)
        recorder.coverage.stop()
        answer.write_text(json.dumps(asdict(recorder.baseline())), encoding="utf-8")
        return 0

    answer = FOLDER / "baseline.json"
    answer.unlink(missing_ok=True)
    in_child(lambda: child(answer), 3 * MOST_SECONDS)
    if not answer.exists():
        return Baseline({}, {}, False)
    read = json.loads(answer.read_text(encoding="utf-8"))
    by_line = {int(line): names for line, names in read["tests_by_line"].items()}
    return Baseline(read["seconds"], by_line, read["complete"])


def attempt(file: str, mutant: mutants.Mutant, tree: ast.Module, baseline: Baseline) -> Trial:
    """Run the tests of a mutant; return what became of it."""
    tests = baseline.tests_of(mutant)
    if not tests:
        return Trial(file, mutant, "untested", 0)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))

    def child() -> int:
        if not mutants.put_in(str(ROOT / file), tree):
            return -1
        return run_pytest(files, _Chooser(tests))

    status = in_child(child, SPARE_SECONDS + 5 * sum(baseline.seconds[test] for test in tests))
    outcome = {0: "survived", None: "late", 255: "not applicable"}.get(status, "caught")
    return Trial(file, mutant, outcome, len(tests))


def in_child(work: Callable[[], int], seconds: float) -> int | None:
    """Run ``work`` in a forked child without output; return its exit status, None if it took too long. The limit is in
    processor time, which other work on the machine leaves alone; what waits ends after ten times as long."""

    def child() -> None:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 5))
        held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + SPARE_BYTES, held + SPARE_BYTES))
        status = 1
        try:
            status = work()
        finally:
            os._exit(status & 255)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(10 * seconds)
    waits = process.is_alive()
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # programs that tests started, too
    process.join()
    return None if waits or process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL) else process.exitcode


def trials_of(file: str, seed: int, count: int) -> list[Trial]:
    """Draw ``count`` mutants of a file and run them."""
    source = _source(file)
    baseline = measure(file, test_files(file))
    if not baseline.complete:
        print(f"{file}: some of its tests took too long, and what they catch may survive")
    order = list(range(mutants.places(source)))
    random.Random(f"{seed} {file}").shuffle(order)
    found: list[Trial] = []
    while order and len(found) < count:
        mutant, tree = mutants.mutate(source, order.pop())
        trial = attempt(file, mutant, tree, baseline)
        if trial.outcome != "not applicable":
            found.append(trial)
    return found


def _source(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@click.command()
@click.option("--seed", default=19, show_default=True, help="Draws files and mutants.")
@click.option("--files", "count", default=40, show_default=True, help="How many source files are drawn.")
@click.option("--each", default=4, show_default=True, help="How many mutants of each.")
@click.option("--only", multiple=True, help="Take this source file, and no drawn ones.")
def main(seed: int, count: int, each: int, only: tuple[str, ...]) -> None:
    """Run mutants and print those that no test caught."""
    os.chdir(ROOT)
    FOLDER.mkdir(parents=True, exist_ok=True)
    import_everything()
    if not MEASURED.exists():
        print("`make coverage` has not recorded which tests run a file: they are found by name, which misses some, so")
        print("that a mutant without tests below may well be caught by others, and the score is too low.")
    trials: list[Trial] = []
    for file in only or draw_files(seed, count):
        begin = time.monotonic()
        made = trials_of(file, seed, each)
        trials += made
        caught = sum(trial.outcome in ("caught", "late") for trial in made)
        print(f"{file}: {caught} of {len(made)} caught ({time.monotonic() - begin:.0f} s)", flush=True)
        for trial in made:
            if trial.outcome in ("survived", "untested"):
                place, change = f"{file}:{trial.mutant.lines[0]}", f"{trial.mutant.before}  ->  {trial.mutant.after}"
                print(f"  {trial.outcome} {place} ({trial.tests} tests): {change}")
        (FOLDER / "trials.json").write_text(json.dumps([asdict(each) for each in trials], indent=1), encoding="utf-8")
    caught = sum(trial.outcome in ("caught", "late") for trial in trials)
    print(f"{caught} of {len(trials)} mutants caught: {100 * caught / max(1, len(trials)):.1f} %")


if __name__ == "__main__":
    sys.exit(main())
