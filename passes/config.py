"""Typed options of passes: a key such as ``tensorir.UnrollLoop`` names a dataclass whose fields are the options.

A pass registers its options beside itself and reads them from its context::

    @register_config_option("tensorir.UnrollLoop")
    @dataclass(frozen=True)
    class UnrollLoopConfig:
        auto_max_step: int = field(default=0, metadata={"doc": "unroll loops of at most this many steps"})

    ctx.get_config("tensorir.UnrollLoop").auto_max_step

and a user sets them with ``PassContext(config={"tensorir.UnrollLoop": {"auto_max_step": 16}})``.
"""

from __future__ import annotations

import dataclasses
import numbers
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from tilewright.passes.diagnostics import order_by_similarity
from tilewright.tensorir.errors import ArgumentTypeError, ConfigTypeError, PassError, UnknownConfigError, add_note
from tilewright.tensorir.lazy import Registry

C = TypeVar("C")

_UNION_TYPES = (typing.Union, types.UnionType)


@dataclass(frozen=True)
class _Option:
    """A registered key: its dataclass, and the resolved type of each of its fields."""

    config_type: type[Any]
    field_types: Mapping[str, Any]


class _Later:
    """An option whose dataclass is created on first use."""

    def __init__(self, key: str, make: Callable[[], type[Any]]) -> None:
        self._key = key
        self._make = make
        self._made: dict[None, _Option] = {}

    def option(self) -> _Option:
        """Create the option once; concurrent threads get the same one."""
        if not self._made:
            self._made.setdefault(None, _option_of(self._key, self._make()))
        return self._made[None]


_OPTIONS: Registry[str, _Option | _Later] = Registry("tilewright.passes.everything")


@overload
def register_config_option(key: str, config_type: type[C]) -> type[C]: ...
@overload
def register_config_option(key: str, config_type: None = None) -> Callable[[type[C]], type[C]]: ...
def register_config_option(key: str, config_type: type[Any] | None = None) -> Any:
    """Make ``key`` a key of ``PassContext(config=...)``, whose values are instances of the dataclass ``config_type``.

    Without ``config_type`` it is a class decorator. Registering the same class again changes nothing; a class defined
    anew by the same code (a notebook cell run twice) replaces the old one.

    Raises:
        TypeError: ``config_type`` is no dataclass, or has a field without a default.
        PassError: the key belongs to another class.
    """
    if config_type is None:
        return lambda decorated: register_config_option(key, decorated)
    option = _option_of(key, config_type)
    if _OPTIONS.registered(key, config_type.__module__) is not None:
        known = _option(key).config_type
        if _identity(known) != _identity(config_type):
            raise PassError(f"config option {key!r} is already registered with {known.__qualname__}")
    _OPTIONS[key] = option
    return config_type


def _option_of(key: str, config_type: Any) -> _Option:
    if not isinstance(config_type, type) or not dataclasses.is_dataclass(config_type):
        raise ArgumentTypeError(f"config option {key!r} needs a dataclass; found {config_type!r}")
    fields = [field for field in dataclasses.fields(config_type) if field.init]
    for field in fields:
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ArgumentTypeError(
                f"config option {key!r}: field {field.name!r} of {config_type.__name__} has no default"
            )
    hints = typing.get_type_hints(config_type)
    return _Option(config_type, {field.name: hints[field.name] for field in fields})


def register_config_option_later(key: str, make: Callable[[], type[Any]]) -> None:
    """Make ``key`` an option whose dataclass is created on first use, as few programs use it."""
    _OPTIONS[key] = _Later(key, make)


def unregister_config_option(key: str) -> None:
    """Remove an option, if it is registered."""
    _OPTIONS.loaded.pop(key, None)


def default_config(key: str) -> Any:
    """Return the dataclass of ``key`` with its defaults.

    Raises:
        UnknownConfigError: no such key (also an AttributeError).
    """
    return _option(key).config_type()


def make_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the values of ``PassContext(config=...)`` to checked dataclass instances.

    A value is a mapping of field names to values, or an instance of the registered dataclass. A key may also name one
    field, as ``build.workers`` does, and the value is the field's. The value of a switch, an option whose only field is
    a bool, may be that bool: ``{"tensorir.CheckBounds": True}``.

    Raises:
        UnknownConfigError: a key or a field is unknown (also an AttributeError).
        ConfigTypeError: a value or a field has the wrong type (also a TypeError).
    """
    if not isinstance(config, Mapping):
        raise ConfigTypeError(f"config: expected a mapping of keys to options, found {_describe(config)}")
    given: dict[str, Any] = {}
    fields: dict[str, dict[str, Any]] = {}
    for key, value in config.items():
        section, dot, name = str(key).rpartition(".")
        if key not in _OPTIONS and dot and section in _OPTIONS:
            fields.setdefault(section, {})[name] = value
        else:
            given[key] = value
    made = {key: _make_value(key, value) for key, value in given.items()}
    for key, values in fields.items():
        others = {field: getattr(made[key], field) for field in _option(key).field_types} if key in made else {}
        made[key] = _make_value(key, {**others, **values})
    return made


def list_configs() -> dict[str, dict[str, dict[str, Any]]]:
    """Return every registered key with its fields: ``{key: {field: {"type": str, "default": value, "doc": str}}}``."""
    return {
        key: {
            field.name: {
                "type": type_text(option.field_types[field.name]),
                "default": field.default if field.default_factory is dataclasses.MISSING else field.default_factory(),
                "doc": str(field.metadata.get("doc", "")),
            }
            for field in dataclasses.fields(option.config_type)
            if field.init
        }
        for key, option in [(key, _option(key)) for key in sorted(_OPTIONS)]
    }


def type_text(hint: Any) -> str:
    """Format a type like its annotation: ``int``, ``tuple[int, ...]``, ``str | None``."""
    if hint is type(None):
        return "None"
    if hint is Ellipsis:
        return "..."
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNION_TYPES:
        return " | ".join(type_text(argument) for argument in arguments)
    if origin is typing.Literal:
        return " | ".join(repr(argument) for argument in arguments)
    if origin is not None:
        return f"{origin.__name__}[{', '.join(type_text(argument) for argument in arguments)}]"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _identity(config_type: type[Any]) -> tuple[str, str]:
    return config_type.__module__, config_type.__qualname__


def _option(key: str) -> _Option:
    option = _OPTIONS.get(key)
    if option is None:
        listed = ", ".join(order_by_similarity(str(key), _OPTIONS)) or "none is registered"
        raise UnknownConfigError(f"unknown config option {key!r}. Options, nearest first: {listed}")
    return option.option() if isinstance(option, _Later) else option


def _make_value(key: str, value: Any) -> Any:
    option = _option(key)
    if isinstance(value, option.config_type):
        value = {name: getattr(value, name) for name in option.field_types}
    elif isinstance(value, bool) and list(option.field_types.values()) == [bool]:
        value = dict.fromkeys(option.field_types, value)
    elif not isinstance(value, Mapping):
        raise ConfigTypeError(
            f"config option {key!r}: expected a mapping or {option.config_type.__name__}, found {_describe(value)}"
        )
    checked: dict[str, Any] = {}
    for name, given in value.items():
        if name not in option.field_types:
            listed = ", ".join(order_by_similarity(str(name), option.field_types))
            raise UnknownConfigError(f"config option {key!r} has no field {name!r}. Fields, nearest first: {listed}")
        try:
            checked[name] = _conform(given, option.field_types[name])
        except _MismatchError:
            raise ConfigTypeError(
                f"config option {key!r}: field {name!r}: expected {type_text(option.field_types[name])}, "
                f"found {_describe(given)}"
            ) from None
    try:
        return option.config_type(**checked)
    except Exception as error:
        add_note(error, f"in config option {key!r}")
        raise


def _describe(value: object) -> str:
    return f"{type(value).__name__} ({value!r})"


class _MismatchError(Exception):
    """A value does not have the declared type; the caller reports the field."""


def _conform(value: Any, hint: Any) -> Any:
    """Return ``value`` if it is of type ``hint``; integers count as floats, and NumPy's scalars as Python's.

    A list stands for a tuple where a tuple is declared (JSON has no tuples).
    """
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin in _UNION_TYPES:
        return _conform_union(value, typing.get_args(hint))
    if origin is typing.Literal:
        return _accept(value, any(value is v or (type(value) is type(v) and value == v) for v in typing.get_args(hint)))
    if origin in (tuple, list, set, frozenset, dict) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _conform_container(value, origin, typing.get_args(hint))
    if hint is int:
        return int(_accept(value, isinstance(value, numbers.Integral) and not isinstance(value, bool)))
    if hint is float:
        return float(_accept(value, isinstance(value, numbers.Real) and not isinstance(value, bool)))
    if hint is None:
        return _accept(value, value is None)
    runtime_type = origin if origin is not None else hint
    return _accept(value, not isinstance(runtime_type, type) or isinstance(value, runtime_type))


def _accept(value: Any, accepted: bool) -> Any:
    if not accepted:
        raise _MismatchError
    return value


def _conform_union(value: Any, alternatives: tuple[Any, ...]) -> Any:
    # An exact type first, so that an int for ``float | int`` stays an int.
    for alternative in sorted(alternatives, key=lambda hint: hint is not type(value)):
        try:
            return _conform(value, alternative)
        except _MismatchError:
            continue
    raise _MismatchError


def _conform_container(value: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _accept(value, isinstance(value, Mapping))
        key_type, item_type = arguments
        return {_conform(key, key_type): _conform(item, item_type) for key, item in value.items()}
    if origin is tuple:
        _accept(value, isinstance(value, (tuple, list)))
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_conform(item, arguments[0]) for item in value)
        _accept(value, len(value) == len(arguments))
        return tuple(_conform(item, hint) for item, hint in zip(value, arguments, strict=True))
    _accept(value, isinstance(value, origin))
    return origin(_conform(item, arguments[0]) for item in value)
