"""Compile functions of tests, and compare their results with PyTorch's."""

from __future__ import annotations

from typing import Any

import torch


def compile_(function: Any, **options: Any) -> Any:
    """Compile a function or module as one graph, unless the options say otherwise."""
    return torch.compile(function, backend="tilewright", **{"fullgraph": True, **options})


def assert_close(found: Any, expected: Any) -> None:
    """Assert that nested results agree: values, element types, and strides."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, check_stride=True, equal_nan=True)


def causes(error: BaseException) -> list[BaseException]:
    """Return an error of a compilation and the errors that PyTorch wraps in it."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and each not in found:
            found.append(each)
            waiting += [each.__cause__, each.__context__, getattr(each, "inner_exception", None)]
    return found
