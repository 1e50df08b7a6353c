"""Read the indices of formulas, which are Python functions, off their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tilewright.tensorir.errors import ArgumentTypeError


def index_parameters(formula: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a formula that stand for indices: all without a default. One with a default holds what
    the formula is made of, as in ``lambda i, scale=scale: x[i] * scale`` inside of a loop."""
    return [found for found in inspect.signature(formula).parameters.values() if found.default is found.empty]


def index_names(formula: Callable[..., Any], count: int) -> list[str]:
    """Names for the index variables: those of the formula's parameters where it spells them out."""
    if isinstance(formula, FunctionType) and not vars(formula):  # the usual case, without a slow inspect.signature
        code = formula.__code__
        if code.co_argcount == 0 and code.co_flags & inspect.CO_VARARGS:
            return [f"i{number}" for number in range(count)]
    parameters = index_parameters(formula)
    if len(parameters) == count and [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == parameters:
        return [parameter.name for parameter in parameters]
    if not [p for p in parameters if p.kind is p.VAR_POSITIONAL]:
        raise ArgumentTypeError(f"the formula takes {len(parameters)} indices, but the shape has {count} dimensions")
    return [f"i{number}" for number in range(count)]
