"""Choose the overloads that a program is decomposed to: PyTorch's core ATen, and those that are worth having whole.

A whole overload says what is meant: one attention, one normalization, one resize. Its operator is faster, and rounds
less often, than the dozen operators that PyTorch's tables would make of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tilewright.graphir.frontend.torch.importer import load_converters
from tilewright.graphir.frontend.torch.registry import COMPLEX, converted_overloads


@functools.cache
def _whole() -> frozenset[str]:
    load_converters()
    return frozenset(converted_overloads())


def export_table() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions for exported programs, without those of overloads that have a converter, but for
    complex numbers if that takes none."""
    table = torch.export.default_decompositions()
    for overload in list(table):
        if str(overload) in _whole():
            del table[overload]
    table.update(_for_complex_numbers())
    return table  # type: ignore[no-any-return]


@functools.cache
def compile_table() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions for graphs of ``torch.compile``, without those of overloads that have a
    converter, but for complex numbers if that takes none."""
    table = torch._decomp.core_aten_decompositions()
    kept = {overload: function for overload, function in table.items() if str(overload) not in _whole()}
    return {**kept, **_for_complex_numbers()}


@functools.cache
def _for_complex_numbers() -> dict[Any, Callable[..., Any]]:
    """Return decompositions of complex numbers alone, for overloads that are whole for other numbers."""
    table = torch._decomp.core_aten_decompositions()
    return {
        overload: _of_complex_numbers(function)
        for overload, function in table.items()
        if str(overload) in _whole() and COMPLEX + str(overload) not in _whole() and not _is_composite(overload)
    }


def _is_composite(overload: Any) -> bool:
    """Return whether PyTorch decomposes an overload itself, in C++."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd"))


def _of_complex_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        is_complex = any(map(_is_complex, pytree.tree_leaves((args, kwargs))))
        return function(*args, **kwargs) if is_complex else NotImplemented  # then PyTorch keeps the overload

    return decomposed


def _is_complex(argument: Any) -> bool:
    if isinstance(argument, torch.Tensor):
        return bool(argument.is_complex())
    return isinstance(argument, complex) or (isinstance(argument, torch.dtype) and argument.is_complex)
