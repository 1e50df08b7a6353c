"""A process runs no more threads than its affinity mask, its quota and the user's setting permit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.fresh import FreshProcesses

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

pytestmark = [
    pytest.mark.skipif(len(CORES) < 2, reason="needs two cores, and a system that pins processes"),
    pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="needs the run time of each thread"),
]

#: Builds and runs a network; prints the target's threads, those of the pool, and how many ran (for .15 s of processor
#: time, then for up to 20 seconds until the expected number ran: other processes may use the cores). The arguments:
#: code to run before Tilewright is imported, code to run afterwards, the number of threads to request (0: none), and
#: the kind of target.
SCRIPT = """
import os, pathlib, sys, json, time
os.environ["TILEWRIGHT_CACHE"] = "on" if "TILEWRIGHT_CACHE_DIR" in os.environ else "off"
exec(sys.argv[1])
import numpy as np
import tilewright as tw
from tilewright import graphir as gi
from tilewright.codegen.threads import thread_limit
exec(sys.argv[2])

def times():
    return {task: int(open(f"/proc/self/task/{task}/schedstat").read().split()[0])
            for task in os.listdir("/proc/self/task")}

rng = np.random.default_rng(0)
weight = rng.standard_normal((512, 512)).astype("f4")
x = gi.var("x", shape=("n", 512))
mod = tw.IRModule.from_expr(gi.Function([x], gi.nn.relu(gi.matmul(x, gi.const(weight)))))
asked, kind = int(sys.argv[3]), sys.argv[4]
target = tw.Target(kind, num_threads=asked or None)
lower, ran = tw.runtime.lower_model.lower, []
tw.runtime.lower_model.lower = lambda *args: (ran.append(1), lower(*args))[1]
model = tw.build(mod, target)
values = rng.standard_normal((1000, 512)).astype("f4")
model(values)
before, end, processor = times(), time.perf_counter() + 20, time.process_time() + 0.15
most, working = min(target.num_threads, thread_limit(), len(os.sched_getaffinity(0))), 0
while time.process_time() < processor or working < most and time.perf_counter() < end:
    found = model(values)
    working = sum(time - before.get(task, 0) > 2e6 for task, time in times().items())
wide = np.maximum(values.astype("f8") @ weight, 0)
print(json.dumps({
    "threads": target.num_threads, "limit": thread_limit(), "ran": working,
    "right": bool(np.allclose(found, wide, rtol=1e-3, atol=0.05)), "passes": len(ran),
}))
"""

PINNED = f"os.sched_setaffinity(0, [{CORES[0] if CORES else 0}])"
WIDE = f"os.sched_setaffinity(0, {CORES})"


Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs the script with the code ``before`` the import of Tilewright and ``after`` it; returns its output."""
    processes = FreshProcesses()

    def run(
        before: str = "", after: str = "", threads: int = 0, kind: str = "llvm", **environment: str
    ) -> dict[str, Any]:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(("NUMBA_", "TILEWRIGHT_"))}
        ended = processes.run(SCRIPT, [before, after, str(threads), kind], {**inherited, **environment})
        assert ended.status == 0, ended.errors
        found: dict[str, Any] = json.loads(ended.output)
        assert found.pop("right")
        return found

    yield run
    processes.stop()


def quota(root: Path, cores: float) -> str:
    """Return code that makes a process find a quota of ``cores`` cores."""
    for name, text in {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "31 23 0:28 / /groups rw - cgroup2 cgroup2 rw\n",
        "groups/cpu.max": f"{round(cores * 100000)} 100000\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return f"from tilewright.tensorir import cores; cores.ROOT = pathlib.Path({str(root)!r})"


def test_all_cores_of_the_mask_are_used(run: Run) -> None:
    found = run()
    assert (found["threads"], found["limit"]) == (len(CORES), len(CORES))
    assert found["ran"] > 1


@pytest.mark.parametrize("when", ["before the import", "after the import", "after numba's import"])
def test_process_pinned_to_one_core_builds_serial_code(run: Run, when: str) -> None:
    before = {"before the import": PINNED, "after the import": "", "after numba's import": "import numba"}[when]
    found = run(before, "" if before == PINNED else PINNED)
    assert (found["threads"], found["limit"], found["ran"]) == (1, 1, 1)


@pytest.mark.parametrize("kind", ["llvm", "numba"])
@pytest.mark.parametrize("before", ["", "import numba"])
def test_more_threads_than_a_pinned_process_has_do_not_run(run: Run, kind: str, before: str) -> None:
    found = run(before, PINNED, threads=8, kind=kind)
    assert (found["threads"], found["limit"], found["ran"]) == (8, 1, 1)


@pytest.mark.parametrize("kind", ["llvm", "numba"])
def test_quota_limits_the_threads(run: Run, tmp_path: Path, kind: str) -> None:
    found = run(after=quota(tmp_path, 0.5), kind=kind)
    assert (found["threads"], found["ran"]) == (1, 1)
    found = run(after=quota(tmp_path, 1.0), kind=kind, threads=4)
    assert (found["limit"], found["ran"]) == (1, 1)


def test_quota_of_one_core_and_a_half_is_worth_two_threads(run: Run, tmp_path: Path) -> None:
    found = run(after=quota(tmp_path, 1.5))
    assert (found["threads"], found["limit"]) == (2, 2)
    assert found["ran"] == 2


def test_number_of_threads_that_the_user_names_is_taken(run: Run, tmp_path: Path) -> None:
    found = run(NUMBA_NUM_THREADS="3")
    assert (found["threads"], found["limit"]) == (3, 3)
    found = run(after=quota(tmp_path, 1.0), NUMBA_NUM_THREADS="2")
    assert (found["threads"], found["limit"], found["ran"]) == (2, 2, 2)
    found = run(NUMBA_NUM_THREADS="1", threads=2)
    assert (found["threads"], found["limit"], found["ran"]) == (2, 1, 1)


@pytest.mark.parametrize("kind", ["llvm", "numba"])
def test_target_of_one_thread_runs_one(run: Run, kind: str) -> None:
    found = run(threads=1, kind=kind)
    assert (found["threads"], found["ran"]) == (1, 1)


def test_mask_counts_when_the_pool_starts(run: Run) -> None:
    found = run(PINNED, WIDE)
    assert (found["threads"], found["limit"]) == (len(CORES), len(CORES))
    assert found["ran"] > 1


def test_build_that_was_kept_for_many_threads_runs_on_one_core(run: Run, tmp_path: Path) -> None:
    first = run(threads=8, TILEWRIGHT_CACHE_DIR=str(tmp_path))
    assert (first["limit"], first["passes"]) == (len(CORES), 1)
    again = run(PINNED, threads=8, TILEWRIGHT_CACHE_DIR=str(tmp_path))
    assert again == {"threads": 8, "limit": 1, "ran": 1, "passes": 0}
    # Without a request, the build is for one thread, and so a different one.
    assert run(PINNED, TILEWRIGHT_CACHE_DIR=str(tmp_path))["passes"] == 1


@pytest.mark.parametrize("threads", ["", "2"])
def test_program_on_one_core_ends_when_a_thread_that_is_gone_started_the_pool(threads: str) -> None:
    script = f"""
import os, threading
from tilewright.codegen.threads import ensure_threads
{PINNED}
starter = threading.Thread(target=ensure_threads)
starter.start()
starter.join()
"""
    environment = {**os.environ, "NUMBA_NUM_THREADS": threads}
    if not threads:
        del environment["NUMBA_NUM_THREADS"]
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=600)
