"""Provide the metadata of compiled node classes to ``dataclasses``; part of an accelerated wheel only.

``build_support/node_classes.py`` expands node classes, and adds a call of :func:`describe` after each.
"""

from __future__ import annotations

import dataclasses
from typing import Any


def describe(cls: Any, fields: list[tuple[Any, ...]]) -> None:
    """Give ``cls`` the parts of ``dataclasses.dataclass`` besides the constructor: ``dataclasses.fields``,
    ``dataclasses.replace`` and ``match`` work as on an interpreted node, and its fields cannot be set. (Compiled code
    sets them in memory, and ``object.__setattr__`` still works.)

    Args:
        fields: name, annotation and, where it has one, default or ``dataclasses.field`` of each field.
    """
    twin = dataclasses.make_dataclass(cls.__name__, fields, frozen=True, eq=False, repr=False)
    for name in ("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__replace__"):
        if hasattr(twin, name):
            setattr(cls, name, getattr(twin, name))
    # A class with comparisons that is made through CPython's C interface loses its hash.
    cls.__hash__ = object.__hash__
    cls.__setattr__, cls.__delattr__ = _refuse_to_set, _refuse_to_delete


def _refuse_to_set(_: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
