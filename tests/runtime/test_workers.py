"""Other processes make the same kernels as this one, and failures there are handled here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.tensor.vectorize_loop import VectorizeLoop
from tilewright.runtime import kernel_supply, worker, worker_pool
from tilewright.runtime.process_caches import fresh_caches
from tilewright.runtime.worker_pool import WorkerError, WorkerEstimate, WorkerPool, start_ahead
from tilewright.tensorir import PrimFunc
from tilewright.tensorir.encoding import encode

TARGET = tw.Target("llvm", num_threads=2)
VALUES = np.random.default_rng(3).standard_normal((5, 12)).astype("f4")


def network(count: int = 4) -> gi.IRModule:
    """Build some kernels with loops that are too short for threads, about which a pass gives remarks."""
    value = x = gi.var("x", shape=("rows", "columns"))
    for number in range(count):
        value = gi.nn.softmax(gi.exp(value) * float(number + 1), axis=number % 2)
    return tw.IRModule.from_expr(gi.Function([x], value))


def build(workers: object, **settings: object) -> tuple[tw.Executable, list[str]]:
    """Build the network; return it and the remarks of the passes."""
    config = {"build.workers": workers}
    with tw.PassContext(opt_level=3, config=config, **settings) as context:  # type: ignore[arg-type]
        model = tw.build(network(), target=TARGET)
    return model, [str(remark) for remark in context.remarks]


class Eager:
    """An executor that answers at once, so that no request can be cancelled."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    def submit(self, request: bytes) -> Future[bytes]:
        future: Future[bytes] = Future()
        future.set_running_or_notify_cancel()
        self.requests.append(request)
        try:
            future.set_result(worker.answer_request(request))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Eager]:
    """Replace other processes by an executor that makes all kernels but the first one."""
    made = Eager()
    monkeypatch.setattr(kernel_supply, "pool", lambda count: made)
    monkeypatch.setattr(WorkerEstimate, "processes", lambda self, size, code_seconds: 1)
    yield made


def order_of_kernels(monkeypatch: pytest.MonkeyPatch, **config: object) -> list[tuple[bool, int]]:
    """Build a model of several kernels; return, in the order in which they are made, whether each is a product, and
    its size."""
    found: list[tuple[bool, int]] = []
    make = kernel_supply.KernelSupply._make

    def noting(self: kernel_supply.KernelSupply, wanted: kernel_supply.ScheduledKernel, *rest: object) -> None:
        found.append((wanted.function.attrs["kind"] == "contraction", wanted.size))
        make(self, wanted, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel_supply.KernelSupply, "_make", noting)
    x = gi.var("x", shape=(6, 8))
    value = gi.nn.dense(x, gi.const(np.ones((9, 8), "f4")))
    value = gi.nn.relu(gi.nn.dense(gi.nn.softmax(value, axis=0), gi.const(np.ones((7, 9), "f4"))))
    value = gi.reshape(gi.nn.softmax(gi.nn.softmax(value, axis=0)), (42,))
    with fresh_caches(), tw.PassContext(opt_level=3, config=config):
        tw.build(gi.Function([x], gi.cumsum(value, axis=0)), target=TARGET)
    assert len({size for _, size in found}) > 3 and {product for product, _ in found} == {True, False}
    return found


def test_kernels_that_llvm_takes_longer_for_are_made_first_and_products_last(monkeypatch: pytest.MonkeyPatch) -> None:
    found = order_of_kernels(monkeypatch)
    products = [size for product, size in found if product]
    others = [size for product, size in found if not product]
    assert [product for product, _ in found] == [False] * len(others) + [True] * len(products)
    assert others == sorted(others) and products == sorted(products, reverse=True)


def test_with_other_processes_the_smallest_kernel_is_made_first_and_then_the_largest(
    eager: Eager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_supply, "start_ahead", lambda kernels, cores: 1)
    monkeypatch.setattr(eager, "submit", lambda request: Future())  # nothing is begun elsewhere
    sizes = [size for _, size in order_of_kernels(monkeypatch, **{"build.workers": 2})]
    assert sizes == [min(sizes), *sorted(sizes, reverse=True)][: len(sizes)]


def test_kernels_from_elsewhere_are_the_same_and_so_is_what_is_said(eager: Eager) -> None:
    expected, said = build(1)
    eager.requests.clear()
    found, repeated = build(2)
    assert len(eager.requests) >= 3
    assert repeated == said and said
    np.testing.assert_array_equal(found(VALUES), expected(VALUES))
    for stage in expected.stages:
        assert found.ir(stage) == expected.ir(stage)


def test_kernels_from_elsewhere_are_for_the_same_features(eager: Eager, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(sorted(TARGET.features & {"avx2", "dotprod"})), None)
    if name is None:
        pytest.skip("nothing to take away from this processor")
    reduced = tw.Target(TARGET, mattr=f"-{name}")
    monkeypatch.setattr(sys.modules[__name__], "TARGET", reduced)
    expected, _ = build(1)
    eager.requests.clear()
    found, _ = build(2)
    assert len(eager.requests) >= 3
    assert found.ir("assembly") == expected.ir("assembly")
    assert found.target == reduced


def test_requests_and_answers_hold_text_and_object_code_alone(eager: Eager) -> None:
    build(2)
    for request in eager.requests:
        for message in (request, worker.answer_request(request)):
            assert message.startswith(b"tilewright kernel ")
            assert b"cbuiltins" not in message and not message.startswith(b"\x80")


def test_a_process_makes_kernels_and_ends_with_this_one() -> None:
    pool = WorkerPool()
    pool.grow(1)
    kernel = tw.tensorir.parse("""
primfunc @k(a: Buffer[(64,), float32], b: Buffer[(64,), float32]) attrs {"num_inputs": 1, "num_outputs": 1} {
  for i in range(64) {
    b[i] = a[i] + 1.0
  }
}
""")
    request = worker.encode_request(encode(kernel), TARGET, tw.PassContext(opt_level=3))
    assert request is not None
    answer = worker.decode_answer(pool.submit(request).result(300))
    here = worker.decode_answer(worker.answer_request(request))
    assert answer.lowered == here.lowered and answer.code == here.code
    with pytest.raises(WorkerError, match="did not compile the kernel"):
        pool.submit(b"no request").result(300)
    (process,) = pool.processes()
    process.kill()  # it is started again
    process.wait()
    assert worker.decode_answer(pool.submit(request).result(300)).code == here.code
    (process,) = pool.processes()
    pool.end()
    assert process.wait(120) is not None


def test_a_process_loads_what_makes_kernels_alone() -> None:
    program = "import sys; from tilewright.runtime import worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    rest = (
        "numba",
        "onnx",
        "tilewright.passes.pipelines",
        "tilewright.passes.schedule.schedule_kernels",
        "tilewright.passes.lower.lower_to_tensorir",
        "tilewright.tensorir.schedule.schedule",
        "tilewright.runtime.compile_functions",
        "tilewright.runtime.build_cache",
    )
    assert "tilewright.passes.tensor.pipeline" in loaded and not set(rest) & set(loaded)


def test_a_process_that_nobody_asks_ends() -> None:
    program = "from tilewright.runtime import worker; worker._IDLE_SECONDS = 0.2; worker.serve()"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.wait(300) == 0


@pytest.mark.parametrize("each", [4, 100])  # processes start before the kernels are scheduled, or after the first
def test_where_no_process_starts_kernels_are_made_here(
    each: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected, said = build(1)
    monkeypatch.setattr(worker_pool, "_pool", WorkerPool())
    monkeypatch.setattr(worker_pool, "_refused", False)
    monkeypatch.setattr(WorkerEstimate, "processes", lambda self, size, code_seconds: 1)
    monkeypatch.setattr(worker_pool, "_KERNELS_EACH", each)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    found, repeated = build(2)
    assert repeated == said and worker_pool._pool.processes() == []
    np.testing.assert_array_equal(found(VALUES), expected(VALUES))
    assert not worker_pool.can_start()


def test_a_program_that_is_no_python_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_pool.can_start()
    for executable in ("", "/opt/editor/editor"):
        monkeypatch.setattr(sys, "executable", executable)
        assert not worker_pool.can_start()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_a_pool_of_its_own() -> None:
    program = """
import os, warnings
warnings.simplefilter("ignore")
from tilewright.runtime import worker_pool
from tilewright.runtime.worker_pool import WorkerError, pool
try:
    pool(1).submit(b"no request").result(300)
except WorkerError:
    pass
(process,) = pool(1).processes()
child = os.fork()
if child == 0:
    os._exit(len(worker_pool._pool.processes()))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert process.poll() is None
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
print("the script runs", flush=True)
import test_workers as tests
tests.worker_pool._start_seconds = 1e-9
made, said = tests.build(2)
print(len(tests.worker_pool._pool.processes()), flush=True)
{then}
"""


@pytest.mark.parametrize("how", ["file", "-c", "stdin"])
def test_no_script_runs_twice_and_no_process_stays(how: str, tmp_path: Path) -> None:
    script = SCRIPT.format(folder=str(Path(__file__).parent), then="")
    path = tmp_path / "script.py"
    path.write_text(script)
    command = {"file": [str(path)], "-c": ["-c", script], "stdin": ["-"]}[how]
    run = subprocess.run(
        [sys.executable, *command], input=script if how == "stdin" else "", capture_output=True, text=True, timeout=600
    )
    assert run.stdout.split("\n")[:2] == ["the script runs", "1"], run.stderr
    assert run.stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_ends_the_program_and_its_processes(tmp_path: Path) -> None:
    then = "print(*[p.pid for p in tests.worker_pool._pool.processes()], flush=True)\nimport time\ntime.sleep(60)"
    script = SCRIPT.format(folder=str(Path(__file__).parent), then=then)
    program = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that run in the background of a shell ignore the signal, and so would the program.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert program.stdout is not None
    lines = [program.stdout.readline() for _ in range(3)]
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=300)
    assert errors.count("KeyboardInterrupt") == 1
    helper = int(lines[2])
    for _ in range(100):
        if not _runs(helper):
            break
        time.sleep(0.1)
    assert not _runs(helper)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_error_of_a_pass_elsewhere_is_the_error_here(eager: Eager, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: VectorizeLoop, func: PrimFunc, mod: gi.IRModule, ctx: tw.PassContext) -> PrimFunc:
        raise ValueError(f"no vectors in {func.name}") if func.name != first[0] else RuntimeError("first")

    first: list[str] = [""]
    monkeypatch.setattr(VectorizeLoop, "transform_function", fail)
    errors = []
    for workers in (1, 2):
        with pytest.raises(ValueError, match="no vectors") as raised:
            build(workers)
        errors.append((str(raised.value), raised.value.__notes__))
    assert errors[0] == errors[1]
    assert any("VectorizeLoop" in note for note in errors[0][1])


def test_an_executor_makes_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    answer_request = worker.answer_request

    def noting(request: bytes) -> bytes:
        asked.append(request)
        return answer_request(request)

    monkeypatch.setattr(kernel_supply, "answer_request", noting)
    expected, said = build(1)
    with ThreadPoolExecutor(2) as executor:
        found, repeated = build(executor)
    assert asked and repeated == said
    np.testing.assert_array_equal(found(VALUES), expected(VALUES))


class Broken(ThreadPoolExecutor):
    """An executor all of whose processes have died."""

    def submit(self, *_: object) -> Future[bytes]:  # type: ignore[override]
        future: Future[bytes] = Future()
        future.set_exception(OSError("dead"))
        return future


def test_what_an_executor_does_not_make_is_made_here() -> None:
    expected, said = build(1)
    with Broken(1) as executor:
        found, repeated = build(executor)
    assert repeated == said
    np.testing.assert_array_equal(found(VALUES), expected(VALUES))


def test_who_makes_kernels_is_no_part_of_a_model(tmp_path: Path, eager: Eager) -> None:
    alone, _ = build(1)
    with ThreadPoolExecutor(1) as executor:
        together, _ = build(executor)
    alone.export(tmp_path / "alone.tw")
    together.export(tmp_path / "together.tw")
    assert (tmp_path / "alone.tw").read_bytes() == (tmp_path / "together.tw").read_bytes()


def test_who_watches_has_all_passes_in_this_process(eager: Eager) -> None:
    timing = tw.PassTimingInstrument()
    build(2, instruments=[timing])
    assert eager.requests == [] and "VectorizeLoop" in timing.render()


def test_processes_start_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_start_seconds", 0.5)
    monkeypatch.setattr(worker_pool, "_pool", WorkerPool())
    estimate = WorkerEstimate(cores=4)
    assert estimate.processes(10**9, 0.0) == 0  # nothing is known yet
    estimate.made(size=200, seconds=0.2)
    assert estimate.processes(10**9, 0.0) == 0  # still not enough is known
    estimate.made(size=100, seconds=0.1)
    assert estimate.processes(size=300, code_seconds=0.0) == 0
    assert estimate.processes(size=1500, code_seconds=0.0) == 3
    assert estimate.processes(size=1000, code_seconds=0.0) == 2  # each has as much to do as it takes to start
    assert estimate.processes(size=10**6, code_seconds=0.0) == 3
    assert WorkerEstimate(cores=1).processes(10**9, 0.0) == 0


def test_processes_start_while_many_kernels_are_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, said = build(1)
    pool = WorkerPool()
    monkeypatch.setattr(worker_pool, "_pool", pool)
    monkeypatch.setattr(worker_pool, "_KERNELS_EACH", 4)
    monkeypatch.setattr(WorkerEstimate, "processes", lambda self, size, code_seconds: 0)  # none starts later
    found, repeated = build(2)
    assert len(pool.processes()) == 1
    assert repeated == said
    np.testing.assert_array_equal(found(VALUES), expected(VALUES))
    pool.end()


def test_few_kernels_or_cores_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_pool", WorkerPool())
    assert start_ahead(kernels=8, cores=8) == 0
    assert start_ahead(kernels=1000, cores=1) == 0
    assert worker_pool._pool.processes() == []


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_are_an_error(workers: int) -> None:
    with pytest.raises(ValueError, match="workers must be at least 1"):
        tw.PassContext(config={"build": {"workers": workers}})
    with pytest.raises(TypeError, match=r"field 'workers'"):
        tw.PassContext(config={"build.workers": "many"})
