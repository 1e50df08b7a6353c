"""The registry of passes by name, to which ``required`` lists, ``disabled_pass`` and the command line refer.

The project's own passes are registered where they are defined, and users register their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from tilewright.passes.base import Pass
from tilewright.passes.diagnostics import suggestion
from tilewright.tensorir.errors import ArgumentTypeError, PassError, PassTypeError, UnknownPassError
from tilewright.tensorir.lazy import Registry

P = TypeVar("P")

#: The passes by name. Those of this project are registered where they are defined.
_REGISTRY: Registry[str, Any] = Registry("tilewright.passes.everything")


@overload
def register_pass(x: P, name: str | None = None, *, override: bool = False) -> P: ...
@overload
def register_pass(x: None = None, name: str | None = None, *, override: bool = False) -> Callable[[P], P]: ...
def register_pass(x: Any = None, name: str | None = None, *, override: bool = False) -> Any:
    """Make a pass known by name, and return ``x``, so that it also serves as a decorator.

    ``x`` is a ``Pass``, or a class of passes or a factory that ``get_pass`` calls without arguments to make a new pass
    each time. ``name`` is by default the name of the pass or of the class's passes, or a factory's ``__name__``. (A
    context enables and disables a pass by the name in its ``info``: both names should be equal.)

    Raises:
        TypeError: ``x`` is none of these, or needs arguments.
        PassError: the name is taken by a pass of another definition, and ``override`` is false.
    """
    if x is None:
        return lambda decorated: register_pass(decorated, name, override=override)
    default_name, definition = _describe(x)
    key = name if name is not None else default_name
    known = _REGISTRY.registered(key, definition[0])
    if known is not None and not override and _describe(known)[1] != definition:
        raise PassError(
            f"pass name {key!r} is taken by {known!r}; register {x!r} under another name, or with override=True"
        )
    _REGISTRY[key] = x
    return x


def unregister_pass(name: str) -> None:
    """Remove the pass called ``name``.

    Raises:
        UnknownPassError: there is none (also a KeyError and a PassError).
    """
    if _REGISTRY.pop(name, None) is None:
        raise unknown_pass(name)


def get_pass(name: str) -> Pass:
    """Return the pass called ``name``.

    Raises:
        UnknownPassError: no pass has this name (also a KeyError and a PassError); the closest ones are listed.
        PassTypeError: the registered factory returned something other than a pass.
    """
    _REGISTRY.load()
    registered = _REGISTRY.get(name)
    if registered is None:
        raise unknown_pass(name)
    if isinstance(registered, Pass):
        return registered
    made = registered()
    if not isinstance(made, Pass):
        raise PassTypeError(f"the factory of pass {name!r}: expected a Pass, found {type(made).__name__}")
    return made


def list_passes() -> list[str]:
    """Return the names of all registered passes, sorted."""
    return sorted(_REGISTRY)


def is_registered(name: str) -> bool:
    """Return whether ``get_pass(name)`` knows the name."""
    return name in _REGISTRY


def unknown_pass(name: str, *, also_known: Iterable[str] = (), where: str = "") -> UnknownPassError:
    """Make the error for an unknown pass name; ``also_known`` names are suggested beside the registered ones."""
    hint = suggestion(str(name), [*_REGISTRY, *also_known])
    return UnknownPassError(f"unknown pass {name!r}{f' in {where}' if where else ''}.{hint}")


def _describe(x: Any) -> tuple[str, tuple[str, str]]:
    """Return the name under which ``x`` is registered, and its definition in the source."""
    if isinstance(x, Pass):
        # A pass made from a function has the function's qualified name.
        return x.info.name, (x.__module__, getattr(x, "__qualname__", type(x).__qualname__))
    if not callable(x):
        raise ArgumentTypeError(
            f"register_pass takes a Pass, a Pass class or a factory; found {type(x).__name__}: {x!r}"
        )
    if isinstance(x, type) and not issubclass(x, Pass):
        raise ArgumentTypeError(
            f"{x.__name__} is no Pass class; decorate it with module_pass, function_pass or primfunc_pass"
        )
    try:
        inspect.signature(x).bind()
    except TypeError as error:
        raise ArgumentTypeError(f"{x!r} needs arguments; register a factory without: {error}") from None
    except ValueError:
        pass  # it is compiled and has no signature: a call will show whether it needs arguments
    info = getattr(x, "info", None) if isinstance(x, type) else None
    name = info.name if info is not None else getattr(x, "__name__", type(x).__name__)
    return name, (getattr(x, "__module__", ""), getattr(x, "__qualname__", name))
