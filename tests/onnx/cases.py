"""The onnx package's backend test-suite: its cases, one run of one of them, and a command that runs many.

python -m tests.onnx.cases --filter '^test_resize' --target both
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import glob
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto
from onnx.backend.test.loader import load_model_tests

import tilewright as tw
from tilewright.graphir.frontend.onnx import from_onnx
from tilewright.graphir.frontend.onnx.tensors import to_array
from tilewright.tensorir.errors import TilewrightError, UnsupportedOperatorError

#: Folders of the suite. The networks of ``real`` need files from the network, which a test does not fetch.
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a case ended: ``passed``, ``failed`` or ``unsupported``, and why."""

    status: str
    reason: str = ""


@functools.cache
def all_cases() -> dict[str, Any]:
    """The cases of the suite by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # generating the node cases overflows and divides by zero on purpose
        return {case.name: case for kind in KINDS for case in load_model_tests(kind=kind)}


@functools.cache
def _folders() -> dict[str, str]:
    return {name: case.kind for name, case in all_cases().items()}


def folder_of(name: str) -> str:
    """The folder of the suite that a case is in."""
    return _folders()[name]


def model_of(case: Any) -> ModelProto:
    """The model of a case."""
    return case.model if case.model is not None else onnx.load(os.path.join(case.model_dir, "model.onnx"))


def data_sets(case: Any, model: ModelProto) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """Inputs and expected outputs."""
    if case.data_sets is not None:
        for inputs, expected in case.data_sets:
            yield [_array(value) for value in inputs], [_array(value) for value in expected]
        return
    for folder in sorted(glob.glob(os.path.join(case.model_dir, "test_data_set_*"))):
        yield _files(folder, "input", len(model.graph.input)), _files(folder, "output", len(model.graph.output))


def _array(value: Any) -> Any:
    """Values of some types come as tensors of the onnx package."""
    return to_array(value, None) if isinstance(value, TensorProto) else value


def _files(folder: str, kind: str, count: int) -> list[Any]:
    arrays = []
    for number in range(count):
        path = os.path.join(folder, f"{kind}_{number}.pb")
        if not os.path.exists(path):
            break
        tensor = TensorProto()
        with open(path, "rb") as file:
            tensor.ParseFromString(file.read())
        arrays.append(to_array(tensor, None))
    return arrays


def run_case(case: Any, target: str) -> Outcome:
    """Import, build and run one case."""
    try:
        model = model_of(case)
        initializers = {tensor.name for tensor in model.graph.initializer}
        names = [info.name for info in model.graph.input if info.name not in initializers]
        for inputs, expected in data_sets(case, model):
            found = run_model(model, dict(zip(names, inputs, strict=False)), target)
            for a, b in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
                check(a, b, case.rtol, case.atol)
    except UnsupportedOperatorError as error:
        return Outcome("unsupported", _first_line(error))
    except AssertionError as error:
        return Outcome("failed", f"wrong result: {' '.join(str(error).split())[:200]}")
    except TilewrightError as error:
        status = "unsupported" if "is not supported" in str(error) else "failed"
        return Outcome(status, f"{type(error).__name__}: {_first_line(error)}")
    except Exception as error:  # whatever a case makes happen is what the table says of it
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome("failed", f"{type(error).__name__}: {_first_line(error)} ({place.name}, line {place.lineno})")
    return Outcome("passed")


def run_model(model: ModelProto, inputs: dict[str, Any], target: str) -> Any:
    """The results of ``model``. Scalars and short vectors, which may decide on shapes, are given at import if they have
    to be: integers first, then all."""
    arrays = {name: np.asarray(value) for name, value in inputs.items() if isinstance(value, (np.ndarray, np.generic))}
    short = {name: value for name, value in arrays.items() if value.ndim <= 1 and value.size <= 64}
    integers = {name: value for name, value in short.items() if value.ndim == 0 or value.dtype.kind in "iub"}
    for values in ({}, integers, short):
        try:
            module = from_onnx(model, values=values)
            break
        except UnsupportedOperatorError:
            if values is short:
                raise
    with tw.PassContext(opt_level=3):
        executable = tw.build(module, target=tw.Target(target, num_threads=1))
    return executable(*[value for name, value in inputs.items() if name not in values])


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith("in node")]
    return f"{lines[0][:300]}{f' [{notes[0]}]' if notes else ''}"


def check(found: np.ndarray, expected: Any, rtol: float, atol: float) -> None:
    """As the suite's own runner compares: type, shape and values."""
    if not isinstance(expected, np.ndarray) and not np.isscalar(expected):
        raise UnsupportedOperatorError(f"a result that is a {type(expected).__name__} is not supported")
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype, f"type {found.dtype}, expected {expected.dtype}"
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    if found.dtype.kind in "fV" or found.dtype.name == "bfloat16":
        found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def main() -> None:
    """Run the cases that a pattern names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", help="a regular expression that the name must match somewhere")
    parser.add_argument("--target", default="llvm", choices=["llvm", "numba", "both"])
    parser.add_argument("--quiet", action="store_true", help="only the counts")
    options = parser.parse_args()
    counts: dict[str, int] = {}
    for name, case in all_cases().items():
        if not re.search(options.filter, name):
            continue
        for target in ("llvm", "numba") if options.target == "both" else (options.target,):
            outcome = run_case(case, target)
            counts[outcome.status] = counts.get(outcome.status, 0) + 1
            if not options.quiet and outcome.status != "passed":
                print(f"{outcome.status:12} {target:6} {name}: {outcome.reason}", flush=True)
            if outcome.status == "unsupported":
                break
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no such case")


if __name__ == "__main__":
    sys.exit(main())
