"""Tilewright: a tensor compiler for CPUs, written in Python, with every pass open to read, time and change."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if importlib.util.find_spec(f"{__name__}.tensorir") is None:
    # The folder of the repository, imported as it stands without an installation: the packages lie beside this one.
    _root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.isfile(os.path.join(_root, "tensorir", "__init__.py")):
        __path__.append(_root)
        _needed = ("numpy", "numba", "llvmlite", "ml_dtypes", "lark", "rich", "click")
        _missing = [name for name in _needed if importlib.util.find_spec(name) is None]
        if _missing:
            raise ImportError(
                f"tilewright, imported from the folder of its repository, needs {', '.join(_missing)}, which this "
                f"Python lacks: {sys.executable} -m pip install -e {_root}"
            )

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch.export import ExportedProgram

    from tilewright import graphir as graphir
    from tilewright import passes as passes
    from tilewright import tensorir as tensorir
    from tilewright import transform as transform
    from tilewright.graphir.module import IRModule
    from tilewright.passes.context import PassContext
    from tilewright.passes.graph.gradient import grad
    from tilewright.passes.instruments.timing import PassTimingInstrument
    from tilewright.runtime.build import build
    from tilewright.runtime.executable import Executable, load
    from tilewright.runtime.observe.levels.explain import explain_passes
    from tilewright.runtime.observe.levels.opt_report import opt_report
    from tilewright.runtime.observe.numeric.check import NumericCheck
    from tilewright.runtime.observe.numeric.minimize import minimize
    from tilewright.runtime.observe.report.write import report
    from tilewright.tensorir.errors import TilewrightError
    from tilewright.tensorir.target import Target

__version__ = "0.1.0"


def from_onnx(
    source: str | os.PathLike[str] | bytes | ModelProto,
    shapes: Mapping[str, Sequence[int | str | None] | int | str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> IRModule:
    """Convert an ONNX model to a module; see :func:`tilewright.graphir.frontend.onnx.from_onnx`.

    Raises:
        ImportError: the package onnx is not installed (``pip install tilewright[onnx]``).
    """
    try:
        from tilewright.graphir.frontend.onnx import from_onnx as convert
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "google"):
            raise
        raise ImportError("from_onnx needs the package onnx: pip install tilewright[onnx]") from error
    return convert(source, shapes, values)


def from_exported(program: ExportedProgram) -> IRModule:
    """Convert a program that ``torch.export`` made to a module; see
    :func:`tilewright.graphir.frontend.torch.from_exported`.

    Raises:
        ImportError: PyTorch is not installed (``pip install tilewright[torch]``).
    """
    try:
        from tilewright.graphir.frontend.torch import from_exported as convert
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "sympy"):  # sympy comes with torch
            raise
        raise ImportError("from_exported needs the package torch: pip install tilewright[torch]") from error
    return convert(program)


__all__ = [
    "Executable",
    "IRModule",
    "NumericCheck",
    "PassContext",
    "PassTimingInstrument",
    "Target",
    "TilewrightError",
    "build",
    "explain_passes",
    "from_exported",
    "from_onnx",
    "grad",
    "graphir",
    "load",
    "minimize",
    "opt_report",
    "passes",
    "report",
    "tensorir",
    "transform",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
