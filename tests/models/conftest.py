"""Real networks with trained weights, which ``make models`` installs: without it these tests are skipped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def example(request: pytest.FixtureRequest) -> Iterator[Callable[[str], ModuleType]]:
    """``example("ocr/reader")``: a module of an example, imported as its ``run.py`` imports it; forgotten afterwards,
    as modules of two examples may have one name."""
    before = dict(sys.modules)
    with pytest.MonkeyPatch.context() as patch:

        def load(name: str) -> ModuleType:
            folder, module = name.split("/")
            patch.syspath_prepend(str(EXAMPLES / folder))
            __import__(module)
            return sys.modules[module]

        yield load
    for name, module in list(sys.modules.items()):
        if name not in before and str(EXAMPLES) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="session")
def peer() -> Callable[[Path], Callable[..., Array]]:
    """``peer(model file)``: the model in ONNX Runtime, as a function of its inputs in order."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="`make models` installs ONNX Runtime")

    def load(path: Path) -> Callable[..., Array]:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]

        def run(*inputs: Array) -> Array:
            result: Array = session.run(None, dict(zip(names, inputs, strict=True)))[0]
            return result

        return run

    return load


def relative_error(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest number."""
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    return float(np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max())


@pytest.fixture
def agree(record_property: Callable[[str, object], None]) -> Callable[[Array, Array], None]:
    """``agree(found, expected)``: asserts that they do, to a thousandth of the largest number."""

    def check(found: Array, expected: Array) -> None:
        error = relative_error(found, expected)
        record_property("relative error", error)
        assert error <= 1e-3

    return check
