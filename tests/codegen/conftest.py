"""Share a registry of instructions that is empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright import tensorir as ti
from tilewright.tensorir import tensor_intrins as registry
from tilewright.tensorir.intrinsics import INTRINSICS


@pytest.fixture
def no_instructions() -> Iterator[None]:
    """Begin without instructions, and forget those that a test registers."""
    before = dict(registry._REGISTERED)
    for name in before:
        del INTRINSICS[name]
    registry._REGISTERED.clear()
    yield
    for name in registry._REGISTERED:
        del INTRINSICS[name]
    registry._REGISTERED.clear()
    for each in before.values():
        ti.tensor_intrin(each.name, each.description, llvm=each.llvm, numba=each.cfunc)
