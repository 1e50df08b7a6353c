"""Processes that are forked, started and ended while models are built and called."""

from __future__ import annotations

import gc
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runtime.load_model import built, result_of, values

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks processes")
ROOT = Path(__file__).resolve().parents[2]


EXPECTED: dict[int, bytes] = {}


def child() -> int:
    """Return the wait status of a forked process that calls a model, builds one that is in the caches and one that is
    not; one that hangs is ended by its alarm."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            signal.alarm(300)
            right = all(result_of(number) == bits for number, bits in EXPECTED.items())
            built(1, 97)
            code = 0 if right and gc.isenabled() else 2
        finally:
            os._exit(code)
    return os.waitpid(process, 0)[1]


@pytest.fixture(autouse=True, scope="module")
def _expected() -> None:
    EXPECTED.update({number: result_of(number) for number in (0, 7)})


@contextmanager
def busy(work: str) -> Iterator[None]:
    """Call or build in three threads meanwhile."""
    model, over, wrong = built(0), threading.Event(), []

    def keep_on() -> None:
        number = 100
        while not over.is_set():
            number += 1
            found = model(values()).tobytes() if work == "call" else result_of(0)
            if work == "build":
                built(number, 64 + number % 8)
            if found != EXPECTED[0]:
                wrong.append(number)

    threads = [threading.Thread(target=keep_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not wrong


#: In a small process: to fork one that has run other tests takes a tenth of a second, and so do its later writes.
FORKS = """
import sys
from tests.runtime import test_forks as here
from tests.runtime.load_model import result_of
here.EXPECTED.update({number: result_of(number) for number in (0, 7)})
with here.busy(sys.argv[1]):
    print(*[here.child() for _ in range(int(sys.argv[2]))])
"""


@pytest.mark.parametrize(
    "times", [4, pytest.param(100, marks=pytest.mark.exhaustive)], ids=["a few times", "a hundred times"]
)
@pytest.mark.parametrize("meanwhile", ["call", "build"])
def test_a_process_forked_while_threads_call_or_build_calls_and_builds(meanwhile: str, times: int) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", FORKS, meanwhile, str(times)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=6000)
    assert done.returncode == 0 and " ".join(["0"] * times) in done.stdout.splitlines(), done  # among words of numba's


def test_a_thread_may_fork_while_others_call() -> None:
    statuses: list[int] = []
    with busy("call"):
        forking = threading.Thread(target=lambda: statuses.extend(child() for _ in range(2)))
        forking.start()
        forking.join()
    assert statuses == [0, 0]


@pytest.mark.parametrize("layer", ["tbb", "omp", "workqueue"])
def test_a_forked_process_uses_only_a_pool_that_is_whole(layer: str) -> None:
    """The pool is whole if the thread that forks has started it and no other thread of Python runs; OpenMP's never."""
    script = """
import os, threading
from tests.runtime.load_model import built, small, values
from tilewright.codegen.threads import ensure_threads, thread_limit

kinds = ["llvm", "numba"]
models = {kind: small(kind) for kind in kinds}
expected = {kind: models[kind](values().ravel()).tobytes() for kind in kinds}

def limit_of_child():
    reading, writing = os.pipe()
    if os.fork() == 0:
        for model in (*models.values(), small("numba")):
            assert model(values().ravel()).tobytes() == expected["llvm"] == expected["numba"]
        os.write(writing, bytes([thread_limit()]))
        os._exit(0)
    os.close(writing)
    os.wait()
    return ord(os.read(reading, 1))

limits = [limit_of_child()]
over = threading.Event()
beside = threading.Thread(target=over.wait)
beside.start()
limits.append(limit_of_child())
over.set()
beside.join()
forking = threading.Thread(target=lambda: limits.append(limit_of_child()))
forking.start()
forking.join()
print(ensure_threads(), *limits)
"""
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    whole = 1 if layer == "omp" else 3
    assert done.returncode == 0 and f"{layer} {whole} 1 1" in done.stdout.splitlines(), done  # among words of numba's


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_of_every_kind_give_the_same_bits(method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(result_of, [0, 7, 0]) == [EXPECTED[0], EXPECTED[7], EXPECTED[0]]


#: What a program does right before it ends.
ENDINGS = {
    "a model is alive": "model(values())",
    "a daemon thread calls": """
for _ in range(2):
    threading.Thread(target=lambda: [model(values()) for _ in itertools.count()], daemon=True).start()
time.sleep(0.1)
""",
    "a thread calls": "threading.Thread(target=lambda: [model(values()) for _ in range(50)]).start()",
    "a daemon thread builds": """
threading.Thread(target=lambda: [built(n, 64 + n) for n in itertools.count(1)], daemon=True).start()
time.sleep(0.3)
""",
    "kernels are compiled in the background": """
from tilewright.runtime.background_compile import BackgroundCompiler
add = BackgroundCompiler.add
def end_at_once(self, functions, known_hash=None):
    add(self, functions, known_hash)
    sys.exit(0)
BackgroundCompiler.add = end_at_once
built(1, 100)
""",
    "a finalizer calls": "atexit.register(lambda: model(values()))",
    "a model is freed by the interpreter": "import builtins; builtins.kept = [model, lambda: model]; model(values())",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_without_a_word(ending: str) -> None:
    script = f"""
import atexit, itertools, sys, threading, time
from tests.runtime.load_model import built, values
model = built(0)
model(values())
{ENDINGS[ending]}
"""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("first", [False, True], ids=["alone", "beside the main one"])
def test_a_subinterpreter_is_refused(first: bool) -> None:
    """By an error of this project, or by NumPy, which does not load twice."""
    interpreters = next((n for n in ("_interpreters", "_xxsubinterpreters") if importlib.util.find_spec(n)), None)
    if interpreters is None:
        pytest.skip("this Python has no module for them")
    code = """
import sys
sys.path.insert(0, "")
try:
    from tests.runtime.load_model import built
    built(0)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""
    script = f"""
import {interpreters} as interpreters
{"from tests.runtime.load_model import built; built(0)" if first else ""}
interpreters.run_string(interpreters.create(), {code!r})
print("goes on")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    error, _, after = done.stdout.rpartition("goes on\n")
    by_numpy = error.startswith(
        (
            "ImportError cannot load module more than once per process",
            "ImportError module numpy",
            "ImportError Interpreter change detected",  # NumPy 1
        )
    )
    if error.startswith("ImportError \n"):  # NumPy 2.5 says it after a page of advice
        by_numpy = "does not support loading in subinterpreters" in error
    assert by_numpy or (not first and error.startswith("ExecutionError expected the main interpreter")), done
    assert (done.returncode, after) == (0, ""), done
