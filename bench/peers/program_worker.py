"""Load a PyTorch program in one library, for a worker."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.peers import programs
from bench.peers.worker import Job, Loaded, load_inputs

#: Makes the function to call of a module, from the job and whether lengths are dynamic.
Compile = Callable[[nn.Module, Job, "bool | None"], Callable[..., Any]]


def _eager(module: nn.Module, job: Job, dynamic: bool | None) -> Callable[..., Any]:
    return module


def _tilewright(module: nn.Module, job: Job, dynamic: bool | None) -> Callable[..., Any]:
    return torch.compile(module, backend="tilewright", dynamic=dynamic)


def _most(module: nn.Module, job: Job, dynamic: bool | None) -> Callable[..., Any]:
    return torch.compile(module, backend="tilewright", dynamic=dynamic, mode="max-autotune")


def _inductor(module: nn.Module, job: Job, dynamic: bool | None) -> Callable[..., Any]:
    import torch._inductor.config as inductor

    inductor.freezing = True
    return torch.compile(module, dynamic=dynamic)


def _openvino(module: nn.Module, job: Job, dynamic: bool | None) -> Callable[..., Any]:
    import openvino.torch  # noqa: F401 (registers the backend)

    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": str(job.threads),
        "INFERENCE_PRECISION_HINT": "f32",
    }
    options = {"device": "CPU", "config": config, "aot_autograd": True}  # which makes weights constants
    failures = _Failures()
    logger = logging.getLogger("openvino.frontend.pytorch.torchdynamo.backend")
    logger.addHandler(failures)
    logger.setLevel(logging.DEBUG)
    compiled = torch.compile(module, backend="openvino", dynamic=dynamic, options=options)

    def call(*inputs: Any) -> Any:
        found = compiled(*inputs)
        if failures.messages:
            raise RuntimeError(failures.messages[0])
        return found

    return call


class _Failures(logging.Handler):
    """Collects the lines in which OpenVINO's backend says that it left the program to another compiler."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "Failed in OpenVINO" in record.getMessage():
            self.messages.append(record.getMessage())


def _empty(module: nn.Module, job: Job, dynamic: bool | None) -> Callable[..., Any]:
    """Compile by a backend that computes nothing: AOTAutograd's graph returns the results of its first call again."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    def forward(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        kept: list[Any] = []

        def call(*given: Any) -> list[Any]:
            if not kept:
                kept.append(graph(*given))
            return list(kept[0])

        return make_boxed_func(call)  # type: ignore[no-any-return]

    return torch.compile(module, backend=aot_autograd(fw_compiler=forward), dynamic=dynamic)


COMPILERS: dict[str, Compile] = {
    "tilewright": _tilewright,
    "tilewright_most": _most,
    "torch_eager": _eager,
    "torch_compile": _inductor,
    "openvino": _openvino,
    "torch_empty": _empty,
}


def load(job: Job) -> Loaded:
    """Load the program of a job."""
    torch.set_num_threads(job.threads)
    torch._dynamo.config.allow_rnn = True  # otherwise no compiler sees a recurrent layer
    program, module = programs.program(job.program), programs.module(job.program)
    inputs = [torch.from_numpy(array) for array in load_inputs(job.inputs).values()]
    if job.library == "onnxruntime":
        return _exported(job, module, inputs)
    import openvino  # a library's version costs no time of a build

    versions = {
        "openvino": openvino.__version__.split("-")[0],
        "tilewright": "",
        "tilewright_most": "",
        "torch_empty": "",
    }
    version = versions.get(job.library, torch.__version__)
    if program.kind in programs.ONCE:
        return _once(job, module, inputs, program.kind, version)
    function = COMPILERS[job.library](module, job, None)
    if program.kind == "training":
        run, compared = programs.training_step(module, function, inputs)
        run()
        return Loaded(run, version, compared=compared)

    def call() -> Any:
        with torch.no_grad():
            return function(*inputs)

    call()
    return Loaded(call, version)


def _once(job: Job, module: nn.Module, inputs: Sequence[torch.Tensor], kind: str, version: str) -> Loaded:
    """Compile for any length; time the first call, or the first one with another length."""
    first, second = inputs
    given = first if kind == "build" else second
    with torch.no_grad():
        start = time.perf_counter()
        function = COMPILERS[job.library](module, job, True)
        if kind == "new length":
            function(first)
            start = time.perf_counter()
        function(given)
        took = time.perf_counter() - start

    def call() -> Any:
        with torch.no_grad():
            return function(given)

    return Loaded(call, version, once=took)


def _exported(job: Job, module: nn.Module, inputs: Sequence[torch.Tensor]) -> Loaded:
    """Export to ONNX, and load that in ONNX Runtime."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    if job.threads > 1 and not job.spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with tempfile.TemporaryDirectory(prefix="peers-") as folder, torch.no_grad():
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, tuple(inputs), path, dynamo=True, verbose=False)
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    arrays: dict[str, Any] = dict(zip(names, map(np.asarray, inputs), strict=True))
    return Loaded(lambda: session.run(None, arrays), ort.__version__)
