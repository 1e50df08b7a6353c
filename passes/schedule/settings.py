"""Set fields of plans: ``PassContext(config={"schedule.contraction.rows": 8})``, or an attribute of one function.

A rule's plan is a frozen dataclass of plain data. When the rule is registered, each field of its plan becomes a field
of the option ``schedule.<rule>``, checked like those of passes; the fields of a plan inside of a plan are those of
``schedule.<rule>.<field>``, or those of the rule itself where the field is declared with ``metadata={"flat": True}``.

A field is documented by ``metadata={"doc": ...}``, and its minimum is declared by ``metadata={"least": 1}``.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from tilewright.passes.config import make_config, register_config_option_later, unregister_config_option
from tilewright.passes.context import PassContext
from tilewright.tensorir.errors import ConfigValueError, PassError, TilewrightError, add_note
from tilewright.tensorir.keys import SCHEDULE

P = TypeVar("P")

#: Values that are set, by the names of fields; those of a nested plan as ``first.rows``.
Given = Mapping[str, Any]

NOTHING: Given = types.MappingProxyType({})

_PLAIN = (int, float, bool, str, type(None))


class _Settings:
    """Base class of the options of a rule: for a field that is None the rule chooses the value."""

    _key: ClassVar[str]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, least = getattr(self, field.name), field.metadata.get("least")
            if value is not None and least is not None and value < least:
                raise ConfigValueError(
                    f"config option {self._key!r}: field {field.name!r}: expected at least {least}, found {value}"
                )


def option_key(rule: str) -> str:
    """Return the key of a rule's options: that of ``single rows`` is ``schedule.single_rows``."""
    return f"{SCHEDULE}{rule.replace(' ', '_')}"


def declare_settings(rule: str, plan: type[Any] | None) -> None:
    """Register the fields of a rule's plans as options.

    Raises:
        PassError: the plan is not a dataclass of plain data.
    """
    if not (isinstance(plan, type) and dataclasses.is_dataclass(plan)):
        raise PassError(f"rule {rule!r}: its plans are {plan!r}; expected a frozen dataclass of plain data")
    for section, fields in _sections(rule, plan).items():
        key = ".".join((option_key(rule), *section))
        register_config_option_later(key, functools.partial(_options, key, plan, section, fields))


def _options(key: str, plan: type[Any], section: tuple[str, ...], fields: list[tuple[str, Any, Any]]) -> type[Any]:
    """Make the dataclass of the options for the fields of a plan, or of a nested plan."""
    name = "".join((plan.__name__, *(part.title() for part in section)))
    options = dataclasses.make_dataclass(name, fields, bases=(_Settings,), namespace={"_key": key}, frozen=True)
    options.__module__ = plan.__module__  # the module of the rule decides which other passes depend on the option
    return options


def forget_settings(rule: str, plan: type[Any]) -> None:
    """Unregister the options of a rule."""
    for section in _sections(rule, plan):
        unregister_config_option(".".join((option_key(rule), *section)))


def _sections(rule: str, plan: type[Any]) -> dict[tuple[str, ...], list[tuple[str, Any, Any]]]:
    """Return the option fields of a rule's plan and of each nested plan, in the form of ``make_dataclass``."""
    found: dict[tuple[str, ...], list[tuple[str, Any, Any]]] = {(): []}
    for path, hint, field in _fields(rule, plan):
        option = dataclasses.field(default=None, metadata={**field.metadata})
        found.setdefault(path[:-1], []).append((path[-1], hint | None, option))
    for section, fields in found.items():
        names = [name for name, _, _ in fields]
        if len(set(names)) < len(names):
            raise PassError(
                f"rule {rule!r}: {'.'.join(section) or plan.__name__} has several fields of one name: {names}"
            )
    return found


def _fields(rule: str, plan: type[Any]) -> Iterator[tuple[tuple[str, ...], Any, dataclasses.Field[Any]]]:
    """Yield path, type and declaration of the fields of a plan and of nested plans."""
    hints = typing.get_type_hints(plan)
    for field in dataclasses.fields(plan):
        hint = hints[field.name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            for path, inner, declared in _fields(rule, hint):
                yield (path if field.metadata.get("flat") else (field.name, *path)), inner, declared
        elif hint is tuple:  # compiled classes keep only this of tuple[int, ...]; rules check the elements
            yield (field.name,), tuple[Any, ...], field
        elif _is_plain(hint):
            yield (field.name,), hint, field
        else:
            raise PassError(
                f"rule {rule!r}: field {field.name!r} of {plan.__name__} is {hint}; "
                "plans hold names, numbers, flags, and plans of such"
            )


def _is_plain(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return True
    arguments = [each for each in typing.get_args(hint) if each is not Ellipsis]
    return all(map(_is_plain, arguments)) if arguments else hint in _PLAIN


@dataclasses.dataclass(frozen=True)
class FunctionSettings:
    """Values that users have set for fields of the plans of one function.

    Attributes:
        given: values by the rules' keys.
        own: keys of the rules that attributes of the function set fields for; these must fit.
    """

    given: Mapping[str, Given]
    own: frozenset[str]

    def of(self, rule: str, block: str | None) -> Given:
        """Return the values set for plans of a rule. Where ``block`` is set, the others hold for that block only."""
        given = self.given.get(option_key(rule), NOTHING)
        return NOTHING if block is not None and given.get("block", block) != block else given


_UNSET = FunctionSettings(NOTHING, frozenset())


def settings_of(attrs: Mapping[str, Any], ctx: PassContext) -> FunctionSettings:
    """Read the settings of a context and of the attributes of a function, which take precedence.

    Raises:
        UnknownConfigError, ConfigTypeError, ConfigValueError: an attribute sets no field of a plan, or has a value that
            the field cannot have.
    """
    own = {name: value for name, value in attrs.items() if is_setting(name)}
    config = {key: value for key, value in ctx.config.items() if is_setting(key)}
    if not own and not config:
        return _UNSET
    try:
        checked = make_config(own)
    except TilewrightError as error:
        add_note(error, "in an attribute of the function")
        raise
    given: dict[str, dict[str, Any]] = {}
    for options in (config, checked):
        for key, value in options.items():
            rule, prefix = _rule_of(key)
            set_here = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            for name, chosen in set_here.items():
                if chosen is not None:
                    given.setdefault(rule, {})[prefix + name] = chosen
    return FunctionSettings(given, frozenset(_rule_of(key)[0] for key in checked))


def is_setting(key: str) -> bool:
    """Return whether an option or attribute sets fields of plans."""
    return key.startswith(SCHEDULE)


def _rule_of(key: str) -> tuple[str, str]:
    """Split a key: ``schedule.chained.first`` gives ``("schedule.chained", "first.")``."""
    base, rule, *parts = key.split(".")
    return f"{base}.{rule}", "".join(f"{part}." for part in parts)


def with_settings(plan: P, given: Given) -> P:
    """Return the plan with the fields that are set."""
    if not given:
        return plan
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(plan):  # type: ignore[arg-type]
        value = getattr(plan, field.name)
        if dataclasses.is_dataclass(value):
            wanted: Any = with_settings(value, given if field.metadata.get("flat") else part_of(given, field.name))
        else:
            wanted = given.get(field.name, value)
        if wanted != value:
            changes[field.name] = wanted
    return dataclasses.replace(plan, **changes) if changes else plan  # type: ignore[type-var]


def part_of(given: Given, field: str) -> Given:
    """Return the settings of the nested plan in ``field``."""
    prefix = f"{field}."
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}


def plan_text(plan: Any, given: Given = NOTHING) -> str:
    """Format a plan as a line of text: its fields without defaults and empty names, with those that are set marked."""
    shown: list[str] = []
    for field in dataclasses.fields(plan):
        value = getattr(plan, field.name)
        if dataclasses.is_dataclass(value):
            flat = field.metadata.get("flat")
            inner = plan_text(value, given if flat else part_of(given, field.name))
            shown.append(inner if flat else f"{field.name} ({inner})")
        elif field.name in given:
            shown.append(f"{given_text({field.name: value})} (set)")
        elif value not in ("", field.default):
            shown.append(f"{field.name} {value}")
    return ", ".join(shown)


def given_text(given: Given) -> str:
    """Format the settings as a line of text."""
    return ", ".join(f"{name} {value if value != '' else repr(value)}" for name, value in given.items())
