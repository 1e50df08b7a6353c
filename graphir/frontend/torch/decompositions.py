"""Choose the overloads that a program is decomposed to: PyTorch's core ATen, and those that are worth having whole.

A whole overload says what is meant: one attention, one normalization, one resize. Its operator is faster, and rounds
less often, than the dozen operators that PyTorch's tables would make of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from tilewright.graphir.frontend.torch.importer import load_converters
from tilewright.graphir.frontend.torch.registry import converted_overloads


@functools.cache
def _whole() -> frozenset[str]:
    load_converters()
    return frozenset(converted_overloads())


def export_table() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions for exported programs, without those of overloads that have a converter."""
    table = torch.export.default_decompositions()
    for overload in list(table):
        if str(overload) in _whole():
            del table[overload]
    return table  # type: ignore[no-any-return]


@functools.cache
def compile_table() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions for graphs of ``torch.compile``, without those of overloads that have a
    converter."""
    table = torch._decomp.core_aten_decompositions()
    return {overload: function for overload, function in table.items() if str(overload) not in _whole()}
