"""Serve one model in one library: a process that makes a call on request.

Requests and replies are lines of JSON on the standard streams; output of a library goes to the standard error. The
first line is the :class:`Job`. Between requests the process sleeps: the driver stops it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Run = Callable[[], Any]

PAGE = 4096
#: A process rests if it uses a tenth of a core at most for ``REST_SECONDS``; ``SETTLE_SECONDS`` is the longest wait.
REST_SECONDS, SETTLE_SECONDS = 0.05, 10.0
PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True)
class Job:
    """The task of a worker.

    Attributes:
        library: a name of ``LIBRARIES``.
        torch: the function of ``torch_models`` that computes the same as the model, if there is one.
        model: the path of the ONNX model; empty for a probe.
        inputs: the path of the inputs, an ``.npz`` in the order of the model's.
        threads: the number of threads that a call may use.
        real: the name of the network in ``real_models``, whose import narrows its shapes; mostly empty.
        limit: the limit that a probe measures, ``fma``, ``copy`` or ``read``, and the amount of a call.
        spinning: whether threads may spin inside of a call while they wait for work.
        program: the program of ``programs`` that takes the place of a model.
    """

    library: str
    torch: str
    model: str
    inputs: str
    threads: int
    real: str = ""
    limit: tuple[str, float] = ("", 0.0)
    spinning: bool = False
    program: str = ""


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A loaded model; a call returns the results, one array or several.

    Attributes:
        run: makes a call.
        version: the version of the library.
        amount: the exact amount of work in a call of a probe.
        once: the time of a call that cannot be repeated in this process; it stands for that of others.
        compared: makes a call for its results, if these are not what ``run`` returns.
    """

    run: Run
    version: str
    amount: float = 0.0
    once: float | None = None
    compared: Run | None = None


def page_aligned(array: Array) -> Array:
    """Copy an array to page-aligned memory: all libraries get their inputs like that."""
    raw = np.empty(array.nbytes + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE
    copy: Array = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def load_inputs(path: str) -> dict[str, Array]:
    """Load the arrays by name, in order."""
    with np.load(path) as file:
        return {name: page_aligned(file[name]) for name in file.files}


def tilewright(job: Job) -> Loaded:
    import tilewright as tw

    if job.real:
        import real_models

        module = real_models.CASES[job.real]().module()
    else:
        module = tw.from_onnx(job.model)
    with tw.PassContext(opt_level=3):
        model = tw.build(module, target=tw.Target("llvm", num_threads=job.threads))
    inputs = list(load_inputs(job.inputs).values())
    return Loaded(lambda: model(*inputs), "")


def onnxruntime(job: Job) -> Loaded:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    if job.threads > 1 and not job.spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(job.model, options, providers=["CPUExecutionProvider"])
    inputs = load_inputs(job.inputs)
    return Loaded(lambda: session.run(None, inputs), ort.__version__)


def openvino(job: Job) -> Loaded:
    import openvino as ov

    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": job.threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": False,
    }
    core = ov.Core()
    compiled = core.compile_model(core.read_model(job.model), "CPU", options)
    request, inputs = compiled.create_infer_request(), load_inputs(job.inputs)

    def run() -> list[Array]:
        return list(request.infer(inputs, share_inputs=True, share_outputs=True).values())

    return Loaded(run, ov.__version__.split("-")[0])


def _torch(job: Job, compiled: bool) -> Loaded:
    import torch
    from onnx import load, numpy_helper

    from bench.peers import torch_models

    torch.set_num_threads(job.threads)
    weights = {
        one.name: torch.from_numpy(numpy_helper.to_array(one).copy()) for one in load(job.model).graph.initializer
    }
    function = torch_models.MODELS[job.torch](weights)
    if compiled:
        function = torch.compile(function, dynamic=False)
    inputs = [torch.from_numpy(array) for array in load_inputs(job.inputs).values()]

    def run() -> Any:
        with torch.inference_mode():
            return function(*inputs)

    run()
    return Loaded(run, torch.__version__)


def torch_eager(job: Job) -> Loaded:
    return _torch(job, compiled=False)


def torch_compile(job: Job) -> Loaded:
    return _torch(job, compiled=True)


def limit(job: Job) -> Loaded:
    """Load a probe of the machine in place of a model."""
    from tilewright.runtime.observe.machine import machine

    kind, wanted = job.limit
    run, amount = getattr(machine(job.threads), kind)(wanted)
    return Loaded(run, "", amount)


LIBRARIES: dict[str, Callable[[Job], Loaded]] = {
    one.__name__: one for one in (tilewright, onnxruntime, openvino, torch_eager, torch_compile, limit)
}


def results(found: Any) -> list[Array]:
    """Return the results of a call as arrays."""
    return [np.asarray(one) for one in (found if isinstance(found, (list, tuple)) else [found])]


def seconds(run: Run, calls: int, warm: float) -> float:
    """Return the mean wall time of ``calls`` calls, after untimed ones for ``warm`` seconds: none if 0, else at least
    one."""
    start = time.perf_counter()
    while time.perf_counter() - start < warm:
        run()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def answer(loaded: Loaded, request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request: ``save`` results in a file, or time ``calls``."""
    if "save" in request:
        np.savez(request["save"], *results((loaded.compared or loaded.run)()))
        return {}
    if loaded.once is not None:
        return {"seconds": loaded.once}
    return {"seconds": seconds(loaded.run, request["calls"], request["warm"])}


def reason(error: Exception, library: str) -> str:
    """Return one line about an error for the table."""
    name = library.split("_")[0]
    if isinstance(error, ModuleNotFoundError) and error.name == name:
        return f"{name} is not installed"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def settle(limit: float = SETTLE_SECONDS) -> None:
    """Wait until the process rests, at most ``limit`` seconds: a library may still write what it keeps of a build, in a
    thread of its own, which would take a core from calls on several threads. As the process is stopped between calls,
    such work of a second lasts for many of them."""
    end = time.perf_counter() + limit
    while time.perf_counter() < end:
        spent = time.process_time()
        time.sleep(REST_SECONDS)
        if time.process_time() - spent < REST_SECONDS / 10:
            return


def main(arguments: Sequence[str] = ()) -> int:
    """Serve requests until the driver closes its end."""
    if sys.platform == "linux":  # a stopped process would not notice that its driver is gone
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(**fields: Any) -> None:
        channel.write(json.dumps(fields) + "\n")
        channel.flush()

    job = Job(**json.loads(sys.stdin.readline()))
    start = time.perf_counter()
    try:
        if job.program:
            from bench.peers.program_worker import load as load_program

            loaded = load_program(job)
        else:
            loaded = LIBRARIES[job.library](job)
        loaded.run()
    except Exception as error:
        reply(failed=reason(error, job.library))
        return 1
    took = time.perf_counter() - start
    settle()
    reply(version=loaded.version, load=took, amount=loaded.amount)
    for line in sys.stdin:
        try:
            reply(**answer(loaded, json.loads(line)))
        except Exception as error:
            reply(failed=reason(error, job.library))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
