"""The onnx package's backend test-suite: its cases, one run of one of them, and a command that runs many.

python -m tests.onnx.cases --filter '^test_resize' --target both
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import glob
import itertools
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto
from onnx.backend.test.loader import load_model_tests

import tilewright as tw
from tilewright.graphir.frontend.onnx import from_onnx
from tilewright.graphir.frontend.onnx.tensors import to_array
from tilewright.tensorir.errors import TilewrightError, UnsupportedOperatorError

#: Folders of the suite. The cases of ``real`` are nine networks, in the package with weights that are all alike.
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a case: ``passed``, ``failed`` or ``unsupported``, and the reason."""

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
    return case.model if case.model is not None else onnx.load(_path_of(case))


def _path_of(case: Any) -> str:
    """The file of a case that is one. The address of a network is that of a file in the package."""
    if case.model_dir is not None:
        return os.path.join(case.model_dir, "model.onnx")
    return os.path.join(os.path.dirname(onnx.__file__), os.path.relpath(case.url, "onnx"))


def data_sets(case: Any, model: ModelProto) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """Inputs and expected outputs."""
    if case.data_sets is not None:
        for inputs, expected in case.data_sets:
            yield [_array(value) for value in inputs], [_array(value) for value in expected]
        return
    if case.model_dir is None:
        yield [_ramp(info) for info in _inputs(model)], [_read(f"{os.path.splitext(_path_of(case))[0]}_output_0.pb")]
        return
    for folder in sorted(glob.glob(os.path.join(case.model_dir, "test_data_set_*"))):
        yield _files(folder, "input", len(model.graph.input)), _files(folder, "output", len(model.graph.output))


def _array(value: Any) -> Any:
    """Values of some types come as tensors of the onnx package."""
    return to_array(value, None) if isinstance(value, TensorProto) else value


def _inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs of a model without a value in the file."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in initializers]


def _ramp(info: ValueInfoProto) -> np.ndarray:
    """The image that the expected results of the networks were made of: numbers that rise from zero to one."""
    shape = tuple(dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim)
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def _files(folder: str, kind: str, count: int) -> list[Any]:
    paths = [os.path.join(folder, f"{kind}_{number}.pb") for number in range(count)]
    return [_read(path) for path in itertools.takewhile(os.path.exists, paths)]


def _read(path: str) -> np.ndarray:
    tensor = TensorProto()
    with open(path, "rb") as file:
        tensor.ParseFromString(file.read())
    return to_array(tensor, None)


def run_case(case: Any, target: str) -> Outcome:
    """Import, build and run one case."""
    try:
        model = model_of(case)
        names = [info.name for info in _inputs(model)]
        for inputs, expected in data_sets(case, model):
            found = run_model(model, dict(zip(names, inputs, strict=False)), target)
            check(found if len(model.graph.output) > 1 else [found], list(expected), case.rtol, case.atol)
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
    shapes = {name: [each.shape for each in value] for name, value in inputs.items() if isinstance(value, list)}
    for values in ({}, integers, short):
        try:
            module = from_onnx(model, shapes=shapes, values=values)
            break
        except UnsupportedOperatorError:
            if values is short:
                raise
    with tw.PassContext(opt_level=3):
        executable = tw.build(module, target=tw.Target(target, num_threads=1))
    given = [value if isinstance(value, list) else [value] for name, value in inputs.items() if name not in values]
    return executable(*[value for part in given for value in part])


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith("in node")]
    return f"{lines[0][:300]}{f' [{notes[0]}]' if notes else ''}"


def check(found: Any, expected: Any, rtol: float, atol: float) -> None:
    """As the suite's own runner compares: type, shape and values, of bfloat16 up to two units in the last place; of a
    sequence those of each element."""
    if isinstance(expected, list):
        assert isinstance(found, (list, tuple)), f"found a {type(found).__name__}, expected a sequence"
        assert len(found) == len(expected), f"{len(found)} elements, expected {len(expected)}"
        for a, b in zip(found, expected, strict=True):
            check(a, b, rtol, atol)
        return
    if not isinstance(expected, np.ndarray) and not np.isscalar(expected):
        raise UnsupportedOperatorError(f"a result that is a {type(expected).__name__} is not supported")
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype, f"type {found.dtype}, expected {expected.dtype}"
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    if found.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)
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
