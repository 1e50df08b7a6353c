"""Cases of the suite in processes of their own: one that crashes, hangs or takes too much memory ends its process and
is counted, and the next case gets a new one.

    python -m tests.onnx.guarded                            runs everything on both targets and writes the table,
                                                            docs/onnx.md, and what passes, passing.txt
    python -m tests.onnx.guarded --target numba --again     runs on one target what did not pass when it last ran
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import queue
import resource
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.onnx.cases import Outcome, all_cases, folder_of, model_of, run_case
from tests.onnx.process import ROOT, LineProcess, ProcessError

PASSING = Path(__file__).with_name("passing.txt")
RECORDS = ROOT / "build"
TARGETS = ("llvm", "numba")

#: Of one case: seconds (a network has a hundred kernels), and bytes of address space.
TIME_LIMIT, NETWORK_TIME_LIMIT, MEMORY_LIMIT = 60.0, 1200.0, 16 << 30


class Worker:
    """A process that runs cases, one line in and one line out for each."""

    def __init__(self, target: str) -> None:
        self.process = LineProcess(["tests.onnx.guarded", "--worker", target], TIME_LIMIT)

    def run(self, name: str) -> Outcome:
        """The outcome of a case, ``crashed`` and ``hung`` among them."""
        try:
            limit = NETWORK_TIME_LIMIT if folder_of(name) == "real" else TIME_LIMIT
            return Outcome(*json.loads(self.process.ask(name, limit)))
        except ProcessError as error:
            return Outcome(error.status, error.reason)

    def stop(self) -> None:
        """End the process."""
        self.process.stop()


def run_guarded(names: Iterable[str], target: str, workers: int = 2) -> Iterator[tuple[str, Outcome]]:
    """Each case with its outcome, in order."""
    free: queue.Queue[Worker] = queue.Queue()
    every = [Worker(target) for _ in range(workers)]
    for worker in every:
        free.put(worker)

    def run(name: str) -> tuple[str, Outcome]:
        worker = free.get()
        try:
            return name, worker.run(name)
        finally:
            free.put(worker)

    try:
        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(run, names)
    finally:
        for worker in every:
            worker.stop()


def serve(target: str) -> None:
    """Run the process of a worker."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that a case prints is taken for an outcome
    for line in sys.stdin:
        outcome = run_case(all_cases()[line.strip()], target)
        results.write(json.dumps([outcome.status, outcome.reason]) + "\n")


def recorded(target: str) -> dict[str, Outcome]:
    """The outcomes of earlier runs, each case's last."""
    path = RECORDS / f"onnx-{target}.jsonl"
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {name: Outcome(status, reason) for name, status, reason in rows}


def run_and_record(names: Iterable[str], target: str, workers: int) -> dict[str, Outcome]:
    """The outcomes of cases, which are written down one by one, so that a run that ends early is not lost."""
    found = {}
    RECORDS.mkdir(exist_ok=True)
    with (RECORDS / f"onnx-{target}.jsonl").open("a", encoding="utf-8") as record:
        for name, outcome in run_guarded(names, target, workers):
            found[name] = outcome
            record.write(json.dumps([name, outcome.status, outcome.reason]) + "\n")
            record.flush()
            if outcome.status in ("crashed", "hung"):
                print(f"{outcome.status} {target} {name}", flush=True)
    return found


def operator_of(name: str) -> str:
    """The operator that a case of the suite is about: what its model calls, but helpers of a written-out body."""
    case = all_cases()[name]
    operators = [node.op_type for node in model_of(case).graph.node]
    return operators[0] if len(set(operators)) == 1 else "(several operators)"


def write_table(outcomes: dict[str, dict[str, Outcome]], path: Path) -> None:
    """The conformance table as Markdown: counts by folder and target, and by operator what does not pass and why."""
    folders: dict[str, collections.Counter[tuple[str, str]]] = collections.defaultdict(collections.Counter)
    operators: dict[str, list[str]] = collections.defaultdict(list)
    for target, found in outcomes.items():
        for name, outcome in found.items():
            folders[folder_of(name)][target, outcome.status] += 1
    statuses = ("passed", "failed", "unsupported", "crashed", "hung")
    lines = [
        "# ONNX conformance",
        "",
        "Results of the onnx package's backend test suite: each case is imported, built at `opt_level=3`, run, and",
        "compared with its expected outputs.",
        "Generated by `python -m tests.onnx.guarded`; do not edit by hand.",
        "",
        f"| folder | target | {' | '.join(statuses)} |",
        f"|---|---|{'---|' * len(statuses)}",
    ]
    for folder, counts in folders.items():
        for target in outcomes:
            cells = " | ".join(str(counts[target, status]) for status in statuses)
            lines.append(f"| {folder} | {target} | {cells} |")
    for target in outcomes:
        total = collections.Counter(outcome.status for outcome in outcomes[target].values())
        lines.append(f"| all | {target} | {' | '.join(str(total[status]) for status in statuses)} |")
    for name in next(iter(outcomes.values())):
        operators[operator_of(name)].append(name)
    lines += [
        "",
        "## By operator",
        "",
        f"| operator | {' | '.join(f'passed, {t}' for t in outcomes)} | cases | reasons for failures |",
    ]
    lines.append(f"|---|{'---|' * len(outcomes)}---|---|")
    for operator, names in sorted(operators.items()):
        passed = [sum(found[name].status == "passed" for name in names) for found in outcomes.values()]
        reasons = {
            found[name].reason.replace("|", "\\|").replace("\n", " ")[:110]
            for found in outcomes.values()
            for name in names
            if found[name].status != "passed"
        }
        why = "; ".join(sorted(reasons)[:3]) + (f"; and {len(reasons) - 3} more" if len(reasons) > 3 else "")
        lines.append(f"| {operator} | {' | '.join(map(str, passed))} | {len(names)} | {why} |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", metavar="TARGET", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--again", action="store_true", help="only what has not passed in an earlier run")
    options = parser.parse_args(arguments)
    if options.worker:
        serve(options.worker)
        return
    names = list(all_cases())
    outcomes: dict[str, dict[str, Outcome]] = {}
    for target in TARGETS:
        known = recorded(target)
        wanted = [name for name in names if not (options.again and name in known and known[name].status == "passed")]
        if target in (options.target or TARGETS):
            known.update(run_and_record(wanted, target, options.workers))
        outcomes[target] = {name: known[name] for name in names if name in known}
        print(target, dict(collections.Counter(outcome.status for outcome in outcomes[target].values())), flush=True)
        if len(outcomes[target]) < len(names):
            print(f"{len(names) - len(outcomes[target])} cases have not run on {target} yet: the table is without it")
            del outcomes[target]
    if not outcomes:
        return
    write_table(outcomes, ROOT / "docs" / "onnx.md")
    passing = [
        name
        for name in names
        if folder_of(name) != "real" and all(found[name].status == "passed" for found in outcomes.values())
    ]
    PASSING.write_text("\n".join(passing) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
