"""Register the function that converts each ATen overload."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright.tensorir.errors import ArgumentValueError

if TYPE_CHECKING:
    from tilewright.graphir.expr import Expr

#: Maps a node and the arguments of its overload to its result, or to its results in order: None for one that is none.
Converter = Callable[..., "Expr | Sequence[Expr | None]"]

F = TypeVar("F", bound=Callable[..., Any])

#: The converters by the names of overloads.
_CONVERTERS: dict[str, Converter] = {}
#: What precedes the name of an overload on complex numbers.
COMPLEX = "complex "
#: Held during a registration.
_lock = threading.Lock()


def converter(*names: str, of_complex: bool = False) -> Callable[[F], F]:
    """Register the decorated function as converter of the overloads ``names``, such as ``aten.add.Tensor``.

    A function defined anew by the same code (a notebook cell run twice) replaces the old one.

    Args:
        names: the names of the overloads.
        of_complex: whether it converts them where an argument or a result is complex: a tensor of floats with a last
            axis of two.

    Raises:
        ArgumentValueError: one of them already has a converter.
    """

    def register(function: F) -> F:
        with _lock:
            for name in names:
                key = COMPLEX + name if of_complex else name
                found = _CONVERTERS.get(key)
                if found is not None and _definition(found) != _definition(function):
                    raise ArgumentValueError(f"{key}: two converters")
                _CONVERTERS[key] = function
        return function

    return register


def _definition(function: Converter) -> tuple[str, str]:
    return getattr(function, "__module__", ""), getattr(function, "__qualname__", repr(function))


def find_converter(name: str, of_complex: bool = False) -> Converter | None:
    """Return the converter of an overload, or None."""
    return _CONVERTERS.get(COMPLEX + name if of_complex else name)


def converted_overloads() -> list[str]:
    """Return the names of all overloads that have a converter, sorted."""
    return sorted(_CONVERTERS)
