"""Run one measurement of ``bench_builds`` in its own process: ``python build_worker.py JOB``, a job as JSON.

The answer is a line of JSON. This file reads models from files, and imports nothing of ``bench/`` but the counter of
nodes: so it measures the Tilewright of the Python that runs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import mmap
import os
import pkgutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
#: The default number of pieces of Python work before a measurement, and again after it.
PIECES = 5
#: How many times the size of the model a process writes and gives back before a measurement: see :func:`_touch_memory`.
TOUCHED = 3
#: The folders of Tilewright's modules.
ROOMS = ("tensorir", "graphir", "passes", "codegen", "runtime")


@dataclasses.dataclass(frozen=True)
class Job:
    """A measurement.

    Attributes:
        kind: a key of ``KINDS``.
        model: the path of an ONNX model, or ``digits``.
        shapes: as ``from_onnx`` takes them.
        classes: the number of digits that the digits network distinguishes, if not all.
        pieces: the pieces of Python work before the measurement, and again after it.
    """

    kind: str
    model: str = ""
    shapes: dict[str, list[int | str]] | None = None
    classes: int | None = None
    pieces: int = PIECES


class _Cell:
    """An object that the piece of work creates and calls."""

    __slots__ = ("key", "value")

    def __init__(self, key: int, value: int) -> None:
        self.key = key
        self.value = value

    def plus(self, other: _Cell) -> int:
        return self.value + other.value if self.key != other.key else self.value


def python_work() -> int:
    """Run a fixed piece of interpreter-bound work: objects made, attributes read, methods called, dictionaries filled;
    about a tenth of a second on a core of 2024. The cost of a build in such units hardly depends on the core."""
    total, seen = 0, dict[tuple[int, str], _Cell]()
    for number in range(280_000):
        cell = _Cell(number & 1023, number)
        key = (cell.key, "even" if number % 2 == 0 else "odd")
        known = seen.get(key)
        if known is None or not isinstance(known, _Cell):
            seen[key] = cell
        else:
            total += cell.plus(known) & 255
            seen[key] = known if total & 1 else cell
    return total


def _piece() -> tuple[float, float]:
    """Return CPU and wall seconds of the piece of work, without the collector, which would traverse objects of
    others."""
    enabled = gc.isenabled()
    gc.disable()
    cpu, wall = time.process_time(), time.perf_counter()
    python_work()
    spent = time.process_time() - cpu, time.perf_counter() - wall
    if enabled:
        gc.enable()
    return spent


def _touch_memory(job: Job) -> None:
    """Write to as much memory as the model may need, and give it back. A virtual machine gets memory of its host when
    it first writes to it, at up to 2 ms for a megabyte, which count as time of the process: whoever first uses memory
    since the machine started would pay for all who come later. Large pages, because arrays lie in such."""
    size = TOUCHED * os.path.getsize(job.model) if os.path.exists(job.model) else 0
    if size and sys.platform == "linux":
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            with contextlib.suppress(OSError):  # a kernel without huge pages
                memory.madvise(mmap.MADV_HUGEPAGE)
            for place in range(0, size, mmap.PAGESIZE):
                memory[place] = 1


def measured(job: Job, run: Callable[[], Any]) -> dict[str, float]:
    """Return CPU and wall seconds of ``run``, and of a unit of Python work: the median of pieces before and after."""
    _touch_memory(job)
    pieces = [_piece() for _ in range(job.pieces)]
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    pieces += [_piece() for _ in range(job.pieces)]
    unit_cpu, unit_wall = (statistics.median(column) for column in zip(*pieces, strict=True))
    return {"cpu": cpu, "wall": wall, "unit_cpu": unit_cpu, "unit_wall": unit_wall}


def load_everything() -> None:
    """Import numba and every module of Tilewright, but those for PyTorch: no import falls into a measurement."""
    importlib.import_module("tilewright.codegen.threads").import_pool()
    # An editable installation maps each room to its own folder, which a walk from the top does not find.
    for package in ("tilewright", *(f"tilewright.{room}" for room in ROOMS)):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__") and ".torch." not in module.name:
                importlib.import_module(module.name)


def read(job: Job) -> Any:
    """Read the model as a module."""
    import tilewright as tw

    if job.model != "digits":
        return tw.from_onnx(job.model, shapes=job.shapes)
    sys.path.insert(0, str(EXAMPLES / "digits"))
    data, model = importlib.import_module("data"), importlib.import_module("model")
    weights = data.load_weights()
    for name in ("dense.weight", "dense.bias") if job.classes else ():
        weights[name] = weights[name][: job.classes]
    return model.build_module(weights)


def build(job: Job) -> dict[str, Any]:
    """Return the seconds of reading a model into a module, and of its build."""
    load_everything()
    import tilewright as tw

    start = time.process_time()
    module = read(job)
    spent = time.process_time() - start
    with tw.PassContext(opt_level=3):
        return {"read": spent, **measured(job, lambda: tw.build(module))}


def onnxruntime(job: Job) -> dict[str, Any]:
    """Return the seconds until ONNX Runtime can be called, for one thread."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return measured(job, lambda: ort.InferenceSession(job.model, options, providers=["CPUExecutionProvider"]))


def openvino(job: Job) -> dict[str, Any]:
    """Return the seconds until OpenVINO can be called, for one thread; they include loading its CPU plugin."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import openvino as ov

    core = ov.Core()
    options = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    return measured(job, lambda: core.compile_model(job.model, "CPU", options))


def code(job: Job) -> dict[str, Any]:
    """Measure the code of a model: kernels, characters of scheduled and lowered loops, lines of LLVM IR, bytes of
    object code (in which equal kernels are one)."""
    import tilewright as tw

    with tw.PassContext(opt_level=3):
        model = tw.build(read(job))
    stored = [segment.stored() for segment in model._built.segments]
    kernels = [segment.lowered().modules["lowered"].functions for segment in model._built.segments]
    return {
        "kernels": sum(len(functions) - 1 for functions in kernels),
        "scheduled": len(model.ir("scheduled")),
        "lowered": len(model.ir("lowered")),
        "llvm": model.ir("llvm").count("\n"),
        "object": sum(len(content) for function in stored for content in function.code.objects),
    }


def nodes(job: Job) -> dict[str, Any]:
    """Return the nodes made, visited and alive by stage; see ``build_nodes``. One core, so that all work is in this
    process."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    load_everything()
    import build_nodes

    return {"stages": build_nodes.by_stage(read(job))}


def imports(job: Job) -> dict[str, Any]:
    """Return the CPU seconds of importing the modules in ``model``, separated by commas; and the unit."""
    start = time.process_time()
    for name in job.model.split(","):
        importlib.import_module(name)
    spent = time.process_time() - start
    return {"cpu": spent, "unit_cpu": statistics.median(_piece()[0] for _ in range(job.pieces))}


KINDS: dict[str, Callable[[Job], dict[str, Any]]] = {
    one.__name__: one for one in (build, onnxruntime, openvino, code, nodes, imports)
}


def main(arguments: list[str]) -> int:
    """Measure, and print the findings; return the exit status. Output of libraries goes to the standard error."""
    channel = os.dup(1)
    os.dup2(2, 1)
    job = Job(**json.loads(arguments[0]))
    try:
        found = KINDS[job.kind](job)
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        found = {"failed": f"{type(error).__name__}: {text.splitlines()[0][:200]}"}
    os.write(channel, json.dumps(found).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
