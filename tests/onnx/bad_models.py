"""Make models from text, check that one is refused, and bound the memory that this may take."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
from onnx import ModelProto

import tilewright as tw
from tilewright.tensorir.errors import TilewrightError


def parsed(graph: str, opset: int = 21, more: str = "") -> ModelProto:
    """A model in the onnx package's textual syntax."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{more}]> agraph {graph}')


def refused(source: Any, error: type[TilewrightError], message: str) -> str:
    """Check that a model is refused; gives the whole message, with its notes."""
    with pytest.raises(error, match=message) as caught:
        tw.from_onnx(source)
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


@contextmanager
def little_memory(more: int = 1 << 30) -> Iterator[None]:
    """At most ``more`` bytes of address space beyond what the process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
