"""Declare nodes of either IR: roles of fields, and methods generated from them.

A class of nodes states its fields once, as a dataclass does, each with a role. ``node.py`` derives from these what the
loop-level IR needs (parts, rebuilding), ``graphir/node.py`` what graphs need (children); printing, structural equality
and hash of both read ``node_fields``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform as dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Python 3.10 has no ``typing.dataclass_transform``; only type checkers need it."""
        return lambda decorated: decorated


def field_of(role: str, **kwargs: Any) -> Any:
    """A field of that role."""
    return dataclasses.field(metadata={"role": role}, **kwargs)


def child(**kwargs: Any) -> Any:
    """A field that holds one owned node, or None."""
    return field_of("child", **kwargs)


def children(**kwargs: Any) -> Any:
    """A field that holds a tuple of owned nodes."""
    return field_of("children", **kwargs)


def definition(**kwargs: Any) -> Any:
    """A field that holds a variable, or a tuple of variables, which this node defines."""
    return field_of("definition", **kwargs)


def derived(*, init: Literal[False] = False, **kwargs: Any) -> Any:
    """A field computed from the others in ``__post_init__``; no part of the node's identity or text."""
    return field_of("derived", init=init, **kwargs)


def role_of(field: dataclasses.Field[Any]) -> str:
    """The role of a field; without one it holds plain data."""
    role: str = field.metadata.get("role", "data")
    return role


def declared_fields(cls: Any) -> tuple[tuple[str, str], ...]:
    """``node_fields`` of a class: name and role of each field that is part of the node."""
    return tuple((f.name, role_of(f)) for f in dataclasses.fields(cls) if role_of(f) != "derived")


def optional_fields(cls: Any) -> set[str]:
    """The fields that may hold None."""
    return {field.name for field in dataclasses.fields(cls) if "None" in str(field.type)}


def parameters(cls: Any) -> tuple[list[str], list[str], dict[str, Any]]:
    """The parameters of the function that makes a node, lines that compute default values, and the names in those."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    namespace: dict[str, Any] = {"missing": dataclasses.MISSING}
    params, lines = [], []
    for field in fields:
        name = field.name
        if field.default is not dataclasses.MISSING:
            namespace[f"default_{name}"] = field.default
            params.append(f"{name}=default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            namespace[f"make_{name}"] = field.default_factory
            params.append(f"{name}=missing")
            lines.append(f"    if {name} is missing: {name} = make_{name}()")
        else:
            params.append(name)
    return params, lines, namespace


def written(cls: Any, name: str, params: list[str], lines: list[str], namespace: dict[str, Any]) -> Callable[..., Any]:
    """A method of a class, compiled from its lines."""
    exec(f"def {name}({', '.join(params)}):\n" + "\n".join(lines), namespace)
    made: Callable[..., Any] = namespace[name]
    made.__qualname__ = f"{cls.__qualname__}.{name}"
    return made
