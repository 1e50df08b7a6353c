"""Register the function that converts each ONNX operator."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tilewright.graphir.expr import Expr
from tilewright.tensorir import forking
from tilewright.tensorir.errors import ArgumentValueError

if TYPE_CHECKING:
    from tilewright.graphir.frontend.onnx.node import Node

#: Maps a node to its result, or to its results in order. Results that the node omits may be missing at the end.
Converter = Callable[["Node"], "Expr | Sequence[Expr]"]

F = TypeVar("F", bound=Converter)

#: The converters of an operator (domain and name), each with the opset from which on it holds, ascending.
_CONVERTERS: dict[tuple[str, str], tuple[tuple[int, Converter], ...]] = {}
#: Held during a registration.
_lock = forking.Lock()


def converter(name: str, since: int = 1, domain: str = "") -> Callable[[F], F]:
    """Register the decorated function as converter of the operator ``name`` from opset ``since`` on, until a later one
    takes over.

    A function defined anew by the same code (a notebook cell run twice) replaces the old one.

    Args:
        name: the name of the ONNX operator.
        since: the first version of the operator's domain whose definition the function converts.
        domain: the domain of the operator; empty for ONNX's own.

    Raises:
        ValueError: there already is a converter for that opset.
    """

    def register(function: F) -> F:
        key = normalized_domain(domain), name
        with _lock:
            found: dict[int, Converter] = dict(_CONVERTERS.get(key, ()))
            if since in found and _definition(found[since]) != _definition(function):
                raise ArgumentValueError(f"{name}: two converters from opset {since} on")
            found[since] = function
            # Replaced as a whole: other threads may be looking for a converter.
            _CONVERTERS[key] = tuple(sorted(found.items(), key=operator.itemgetter(0)))
        return function

    return register


def _definition(function: Converter) -> tuple[str, str]:
    return getattr(function, "__module__", ""), getattr(function, "__qualname__", repr(function))


def find_converter(domain: str, name: str, opset: int) -> Converter | None:
    """Return the converter of an operator as defined in ``opset``, or None."""
    definitions = _CONVERTERS.get((normalized_domain(domain), name), ())
    return next((function for since, function in reversed(definitions) if since <= opset), None)


def normalized_domain(domain: str) -> str:
    """Return the one name of a domain: the default domain has two names in files."""
    return "" if domain == "ai.onnx" else domain


def converted_operators() -> list[tuple[str, str, int]]:
    """Return domain, name and first opset of every converter, sorted."""
    return sorted((domain, name, since) for (domain, name), found in _CONVERTERS.items() for since, _ in found)
