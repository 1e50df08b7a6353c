"""Tilewright: a tensor compiler for CPUs, written in Python, with every pass open to read, time and change."""

from __future__ import annotations

from tilewright import graphir as graphir
from tilewright import passes as passes
from tilewright import tensorir as tensorir
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.timing import PassTimingInstrument
from tilewright.runtime.build import build
from tilewright.runtime.executable import Executable
from tilewright.tensorir.errors import TilewrightError
from tilewright.tensorir.target import Target

__version__ = "0.1.0"

__all__ = [
    "Executable",
    "IRModule",
    "PassContext",
    "PassTimingInstrument",
    "Target",
    "TilewrightError",
    "build",
    "graphir",
    "passes",
    "tensorir",
]
