"""Bad models by the thousand: valid ones with random changes, each imported in a guarded process, some built and run.

A mutant is known by the seed and its number. It must import or raise a ``TilewrightError``; what imports must build and
run or raise one. A crash, a hang, memory beyond a limit or any other exception is a bug.

    python -m tests.onnx.mutants --count 50000 --seed 7     counts, and what went wrong
    python -m tests.onnx.mutants --show 1234 --seed 7       one mutant in this process, with its traceback
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import json
import math
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

import tilewright as tw
from tests.onnx.cases import all_cases
from tests.onnx.mutations import STRUCTURAL, changed_bytes
from tests.onnx.process import LineProcess, ProcessError
from tests.onnx.seed_models import seed_models
from tilewright.graphir.types import TensorType
from tilewright.tensorir.errors import TilewrightError

#: Of one mutant: seconds, and bytes of address space.
TIME_LIMIT, MEMORY_LIMIT = 60.0, 6 << 30

#: One mutant in so many is built and run, if it imports.
BUILD_EVERY = 20

#: Only models whose largest tensor has at most so many elements are run: that takes no longer than they do.
MOST_ELEMENTS = 1 << 20


@functools.cache
def suite_models() -> dict[str, ModelProto]:
    """The node cases of the onnx package, with inputs that are integers, or few numbers, as constants."""
    found = {}
    for name, case in all_cases().items():
        if case.kind == "node" and case.data_sets is not None:
            model = ModelProto()
            model.CopyFrom(case.model)
            for info, value in zip(model.graph.input, case.data_sets[0][0], strict=False):
                known = isinstance(value, np.ndarray) and value.size <= 64 and value.dtype.kind in "ifb"
                if known and (value.dtype.kind != "f" or value.ndim < 2):
                    model.graph.initializer.append(onnx.numpy_helper.from_array(value, info.name))
            found[name] = model
    return found


def mutant(seed: int, number: int, suite: bool = False) -> tuple[str, ModelProto | bytes]:
    """Mutant ``number``: the name of the valid model, and the bad one, as bytes or as an object.

    Args:
        suite: make it from the cases of the onnx package, not from the seed models.
    """
    rng = random.Random(f"{seed}:{number}")
    models = suite_models() if suite else seed_models()
    name = rng.choice(sorted(models))
    model = ModelProto()
    model.CopyFrom(models[name])
    if rng.random() < 0.25:
        return name, changed_bytes(rng, model.SerializeToString())
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        rng.choice(STRUCTURAL)(rng, model)
    return name, model


# What is done with a mutant.


def examine(source: ModelProto | bytes, build: bool, level: int = 0) -> tuple[str, str]:
    """Return how a model ends, and why: imported, built, ran, refused (by a ``TilewrightError``), or bug."""
    stage = "imported"
    try:
        module = tw.from_onnx(source)
        if build:
            with tw.PassContext(opt_level=level):
                executable = tw.build(module, target=tw.Target("llvm", num_threads=1))
            stage = "built"
            arrays = _arrays(module)
            if arrays is not None:
                executable(*arrays)
                stage = "ran"
    except TilewrightError as error:
        return "refused", f"{type(error).__name__} ({stage}): {error}"
    except Exception as error:  # anything else is what this module is to find
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "site-packages" not in frame.filename] or list(frames)
        place = f"{ours[-1].filename.rpartition('/')[2]}:{ours[-1].lineno} {ours[-1].name}"
        return "bug", f"{type(error).__name__} in {place} ({stage}): {str(error)[:200]}"
    return stage, ""


def _arrays(module: Any) -> list[np.ndarray] | None:
    """Inputs for a module, whose symbolic sizes are 3; None if some tensor of it is too large to be run in a test."""
    main = module["main"]
    arrays = []
    for expr in tw.graphir.visitor.post_order(main.body):
        shape = expr.type.shape if isinstance(expr.type, TensorType) else ()
        if math.prod(dim for dim in shape if isinstance(dim, int)) > MOST_ELEMENTS:
            return None
    for param in main.params:
        shape = [dim if isinstance(dim, int) else 3 for dim in param.type.shape]
        if math.prod(shape) > MOST_ELEMENTS:
            return None
        arrays.append(np.ones(shape, param.type.dtype.numpy))
    return arrays


def peak_memory() -> int:
    """The most bytes that this process had in memory since its program began; ``getrusage`` counts those of the process
    that started it, too."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def serve(seed: int, level: int, suite: bool, build_every: int) -> None:
    """Answer each mutant's number with its end, in a worker's process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that is printed on the way is taken for a result
    for line in sys.stdin:
        number = int(line)
        name, source = mutant(seed, number, suite)
        started = time.process_time()
        status, reason = examine(source, number % build_every == 0, level)
        seconds = time.process_time() - started
        results.write(json.dumps([name, status, reason, seconds, peak_memory()]) + "\n")


@dataclasses.dataclass
class End:
    """The end of a mutant.

    Attributes:
        number: which mutant of its seed.
        name: the valid model that it was made from.
        status: as :func:`examine` says, or ``crashed``, ``hung``.
        reason: the error.
        seconds: of processor time.
        peak: the most bytes that its process ever had in memory.
    """

    number: int
    name: str
    status: str
    reason: str
    seconds: float = 0.0
    peak: int = 0

    @property
    def is_bug(self) -> bool:
        """Whether the end is none that a bad model may have."""
        return self.status in ("bug", "crashed", "hung")


@contextlib.contextmanager
def examining(
    seed: int, level: int = 0, suite: bool = False, build_every: int = BUILD_EVERY
) -> Iterator[Callable[[Iterable[int]], Iterator[End]]]:
    """Yield what finds the end of each mutant of ``seed`` whose number it gets. All are examined by one process, until
    one of them ends it."""
    arguments = ["tests.onnx.mutants", "--worker", "--seed", str(seed), "--level", str(level), *["--suite"] * suite]
    arguments += ["--build-every", str(build_every)]
    worker = LineProcess(arguments, TIME_LIMIT)

    def ends(numbers: Iterable[int]) -> Iterator[End]:
        for number in numbers:
            try:
                yield End(number, *json.loads(worker.ask(str(number))))
            except ProcessError as error:
                yield End(number, mutant(seed, number, suite)[0], error.status, error.reason)

    try:
        yield ends
    finally:
        worker.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--level", type=int, default=0, help="the opt_level of those that are built")
    parser.add_argument("--build-every", type=int, default=BUILD_EVERY, help="one mutant in so many is built and run")
    parser.add_argument("--suite", action="store_true", help="from the onnx package's cases, not the seed models")
    parser.add_argument("--show", type=int, metavar="NUMBER")
    options = parser.parse_args(arguments)
    if options.worker:
        serve(options.seed, options.level, options.suite, options.build_every)
        return
    if options.show is not None:
        name, source = mutant(options.seed, options.show, options.suite)
        print(name, source if isinstance(source, bytes) else onnx.printer.to_text(source))
        with tw.PassContext(opt_level=options.level):
            tw.build(tw.from_onnx(source), target=tw.Target("llvm", num_threads=1))
        return
    ends = []
    bugs: dict[str, list[int]] = collections.defaultdict(list)
    numbers = range(options.count)
    with examining(options.seed, options.level, options.suite, options.build_every) as examined:
        for end in examined(numbers):
            ends.append(end)
            if end.is_bug:
                bugs[f"{end.status} {end.reason}"].append(end.number)
    print(dict(collections.Counter(end.status for end in ends)))
    print(f"{sum(end.seconds for end in ends):.1f} s, at most {max(end.seconds for end in ends):.2f} s for one and")
    print(f"{max(end.peak for end in ends) >> 20} MiB in memory")
    for reason, numbers in sorted(bugs.items(), key=lambda item: -len(item[1])):
        print(f"{len(numbers):5} {numbers[:3]} {reason}")


if __name__ == "__main__":
    main()
