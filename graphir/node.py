"""Declare the nodes of the graph IR: each is a slotted dataclass whose fields state their roles.

The parts of a node, its reconstruction from other parts, the variables that it binds, structural equality and hash, and
the text of a node without a form of its own are derived from the declaration. A field is one of

* ``child``      -- one node (or None),
* ``children``   -- a tuple of nodes,
* ``outer``      -- one node that is evaluated outside the scope of the variables that this one binds,
* ``applied``    -- the callee: a node, or plain data that names it,
* ``attributes`` -- data about the callee: it counts in comparisons where that is an operator; beside a function it only
  records where the call comes from,
* ``definition`` -- a variable (or tuple of variables) that the node binds for its other fields,
* ``note``       -- data that does not count in comparisons: names of variables, places in the source,
* ``given``      -- the type, where it cannot be inferred from the other fields alone,
* ``data``       -- plain data: attributes, names, numbers.

Every class ends with ``span: str | None = note(default=None)``, and sets its ``type`` in ``__post_init__`` (None if it
does not). A class whose constructor accepts more than its fields hold, such as any iterable for a tuple, has an
``__init__`` with the parameters of its fields. Nodes have identity semantics; ``structural_equal`` compares graphs.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

from tilewright.tensorir.declaration import (
    child,
    children,
    dataclass_transform,
    declared_fields,
    definition,
    field_of,
    optional_fields,
    parameters,
    written,
)

__all__ = ["applied", "attributes", "child", "children", "definition", "given", "node", "note", "outer"]

T = TypeVar("T")

#: Roles of fields that hold parts of the node.
_PARTS = ("outer", "definition", "child", "children", "applied")


def outer(**kwargs: Any) -> Any:
    """Declare a field that holds one node, outside the scope of the variables that this node binds."""
    return field_of("outer", **kwargs)


def applied(names: tuple[type, ...], **kwargs: Any) -> Any:
    """Declare a field that holds the callee: a node, or an object of one of the classes ``names``, which is data."""
    return dataclasses.field(metadata={"role": "applied", "names": names}, **kwargs)


def attributes(**kwargs: Any) -> Any:
    """Declare a field of data about the callee, behind the callee's field."""
    return field_of("attributes", **kwargs)


def note(**kwargs: Any) -> Any:
    """Declare a field of plain data that does not count in comparisons."""
    return field_of("note", **kwargs)


def given(**kwargs: Any) -> Any:
    """Declare the field of a type that is inferred unless it is given; a node that is rebuilt with parts of the same
    types keeps it."""
    return field_of("given", **kwargs)


@dataclass_transform(
    frozen_default=True,
    eq_default=False,
    field_specifiers=(child, children, outer, applied, attributes, definition, note, given),
)
def node(cls: type[T]) -> type[T]:
    """Declare ``cls``, a subclass of ``FrozenExpr``, as a node (a class decorator)."""
    made: Any = dataclasses.dataclass(init=False, slots=True, eq=False, repr=False)(cls)
    fields = declared_fields(made)
    # In order of evaluation: parts outside the scope of definitions come before these.
    made.node_fields = tuple(sorted(fields, key=lambda field: field[1] != "outer"))
    if "__init__" not in vars(made):
        made.__init__ = _initializer(made)
    if any(role in _PARTS for _, role in fields):
        made.children = property(_children(made))
        made.with_children = _with_children(made)
    for name, role in (("bound", "definition"), ("outside", "outer")):
        parts = _tuple_of([_items(made, field) for field in made.node_fields if field[1] == role])
        if parts != "()":
            setattr(made, name, property(written(made, name, ["node"], [f"    return {parts}"], {})))
    return made  # type: ignore[no-any-return]


def _initializer(cls: Any) -> Any:
    """Return ``__init__``. Slots are set by their descriptors, as the class does not let others set them."""
    params, lines, namespace = parameters(cls)
    names = [param.partition("=")[0] for param in params]
    if "type" not in names:
        lines.append("    type = None")
        names.insert(0, "type")
    namespace.update({f"set_{name}": getattr(cls, name).__set__ for name in names})
    lines += [f"    set_{name}(self, {name})" for name in names]
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    return written(cls, "__init__", ["self", *_ordered(cls, params)], lines, namespace)


def same_types(new: Sequence[Any], old: Sequence[Any]) -> bool:
    """Return whether types need no new inference: they are the same objects or equal. Inference costs more than
    comparing."""
    for a, b in zip(new, old, strict=True):
        if a.type is not b.type and (a.type is None or a.type != b.type):
            return False
    return True


def _ordered(cls: Any, params: list[str]) -> list[str]:
    """Return the parameters of ``__init__``, keyword-only ones last."""
    keywords = {field.name for field in dataclasses.fields(cls) if field.kw_only}
    first = [param for param in params if param.partition("=")[0] not in keywords]
    return [*first, *(["*"] if keywords else []), *[param for param in params if param not in first]]


def _is_tuple(cls: Any, name: str) -> bool:
    return any(field.name == name and str(field.type).startswith("tuple") for field in dataclasses.fields(cls))


def _items(cls: Any, field: tuple[str, str]) -> str:
    """Return the source text of the parts that a field holds, as items of a tuple."""
    name, _ = field
    return f"*node.{name}" if _is_tuple(cls, name) else f"node.{name}"


def _tuple_of(items: list[str]) -> str:
    if len(items) == 1 and items[0].startswith("*"):
        return items[0][1:]  # the tuple itself
    return f"({''.join(item + ', ' for item in items)})"


def _missing(cls: Any) -> dict[str, str]:
    """For the fields that may hold no part, return the condition that they hold none."""
    optional = optional_fields(cls)
    roles = dict(cls.node_fields)
    conditions = {name: f"node.{name} is None" for name in roles if name in optional and roles[name] == "child"}
    conditions |= {name: f"isinstance(node.{name}, names_{name})" for name in roles if roles[name] == "applied"}
    return conditions


def _namespace(cls: Any) -> dict[str, Any]:
    fields = {f"names_{f.name}": f.metadata["names"] for f in dataclasses.fields(cls) if "names" in f.metadata}
    return {"cls": cls, "islice": itertools.islice, "same_types": same_types, **fields}


def _children(cls: Any) -> Any:
    """Generate ``children``, written out field by field, as passes read it of every node."""
    parts = {name: _items(cls, (name, role)) for name, role in cls.node_fields if role in _PARTS}
    missing = _missing(cls)
    lines = []
    if len(missing) == 1:
        ((name, condition),) = missing.items()
        there = _tuple_of([item for other, item in parts.items() if other != name])
        lines.append(f"    if {condition}: return {there}")
    else:
        parts |= {name: f"*(() if {condition} else (node.{name},))" for name, condition in missing.items()}
    lines.append(f"    return {_tuple_of(list(parts.values()))}")
    return written(cls, "children", ["node"], lines, _namespace(cls))


def _with_children(cls: Any) -> Any:
    """Generate ``with_children``, which takes the new parts in order of evaluation."""
    lines, missing = ["    rest = iter(children)"], _missing(cls)
    parts = [(name, role) for name, role in cls.node_fields if role in _PARTS]
    values = {name: f"node.{name}" for name, _ in cls.node_fields}
    for number, (name, _) in enumerate(parts):
        taken = "next(rest)"
        if _is_tuple(cls, name):
            taken = "tuple(rest)" if number == len(parts) - 1 else f"tuple(islice(rest, len(node.{name})))"
        elif name in missing:
            taken = f"node.{name} if {missing[name]} else next(rest)"
        lines.append(f"    new_{name} = {taken}")
        values[name] = f"new_{name}"
    for name, role in cls.node_fields:
        if role == "given":
            same = []
            for other, _ in parts:
                if _is_tuple(cls, other):
                    same.append(f"same_types(new_{other}, node.{other})")
                elif other in missing:
                    same.append(f"new_{other} is node.{other}")
                else:
                    same.append(f"same_types((new_{other},), (node.{other},))")
            lines.append(f"    known = node.{name} if {' and '.join(same)} else None")
            values[name] = "known"
    keywords = {field.name: bool(field.kw_only) for field in dataclasses.fields(cls)}
    order = sorted((field.name for field in dataclasses.fields(cls)), key=lambda name: keywords[name])
    arguments = [f"{name}={values[name]}" if keywords[name] else values[name] for name in order]
    lines.append(f"    return cls({', '.join(arguments)})")
    return written(cls, "with_children", ["node", "children"], lines, _namespace(cls))
