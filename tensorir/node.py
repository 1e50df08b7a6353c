"""Declare nodes of the loop-level IR: once, as frozen dataclasses whose fields have roles.

Everything that walks the IR (visitors, mutators, structural equality and hash, printing) is derived from these
declarations. A field is one of

* ``child``      -- one node (or None) that the node owns,
* ``children``   -- a tuple of nodes,
* ``definition`` -- a variable (or tuple of variables) that the node defines for its other fields,
* ``buffer``     -- a buffer that the node uses,
* ``new_buffer`` -- a buffer that the node defines for its other fields,
* ``data``       -- plain data: names, numbers, annotations.

Nodes have identity semantics: ``a == b`` asks whether they are one object. Classes that are ``hash_consed`` have one
object for each structure (:mod:`.consing`). ``structural_equal`` compares programs.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from tilewright.tensorir.consing import LIMIT, NODES, sweep, unique
from tilewright.tensorir.declaration import (
    child,
    children,
    dataclass_transform,
    declared_fields,
    definition,
    derived,
    field_of,
    optional_fields,
    parameters,
    written,
)

__all__ = ["Node", "buffer", "child", "children", "definition", "derived", "new_buffer", "node", "notes_on"]

T = TypeVar("T")


def buffer(**kwargs: Any) -> Any:
    """A field that holds a buffer which this node reads or writes."""
    return field_of("buffer", **kwargs)


def new_buffer(**kwargs: Any) -> Any:
    """A field that holds a buffer which this node defines."""
    return field_of("new_buffer", **kwargs)


class Node:
    """Base of all loop-level IR nodes."""

    __slots__ = ("_kinds", "_leaves", "_notes", "_sources")

    #: Kept by :func:`tilewright.tensorir.occurrences.kinds`; set where the leaves are.
    _kinds: int

    #: Kept by :func:`tilewright.tensorir.occurrences.leaves`, once it was asked for; None before.
    _leaves: frozenset[Any] | None

    #: Kept by :func:`notes_on`.
    _notes: dict[Any, Any]

    #: Kept by :mod:`tilewright.tensorir.sources` for statements whose origin is known.
    _sources: frozenset[int]

    #: (name, role) of each field that is part of the node, in order.
    node_fields: ClassVar[tuple[tuple[str, str], ...]] = ()

    #: Whether there is one node for each structure.
    hash_consed: ClassVar[bool] = False

    def __init__(self) -> None:
        self._leaves = None

    def parts(self) -> tuple[Any, ...]:
        """Return the nodes that this one owns, in the order of its fields; derived from them."""
        return ()

    def rebuild(self, mutator: Any) -> Any:
        """Return the node with the nodes that it owns, uses and defines mutated; itself if none changed."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple([getattr(self, name) for name, _ in self.node_fields])

    def __str__(self) -> str:
        from tilewright.tensorir.printer import to_text  # knows every node class

        return to_text(self)

    def __repr__(self) -> str:
        return str(self)


def notes_on(node: Node) -> dict[Any, Any]:
    """Return the cache of ``node`` for results that are expensive to derive and used again, by the function that
    derives them. It lives as long as the node; nodes do not change, so entries stay valid."""
    try:
        return node._notes
    except AttributeError:
        notes: dict[Any, Any] = {}
        _set(node, "_notes", notes)
        return notes


_set = object.__setattr__


@dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(child, children, definition, buffer, new_buffer, derived)
)
def node(cls: type[T]) -> type[T]:
    """Class decorator: declares ``cls`` as a node (a frozen, slotted dataclass with identity semantics).

    A method of :data:`_COPIERS`, which returns the node with other values of some fields, is replaced by one that
    copies the other fields: those have been checked.
    """
    made = dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)
    made.node_fields = declared_fields(made)  # type: ignore[attr-defined]
    opened = _opened(made)
    for name in _COPIERS:
        if hasattr(made, name):
            setattr(made, name, _copier(made, opened, name))
    made.parts, made.rebuild = _derived_functions(made, hasattr(made, "with_body"))  # type: ignore[attr-defined]
    made.__new__ = _constructor(made, opened)  # type: ignore[method-assign]
    made.__init__ = object.__init__  # type: ignore[method-assign]
    return made


def _constructor(cls: Any, opened: Any) -> Callable[..., Any]:
    """Return ``__new__``, which sets the fields as the dataclass would, but faster, and checks them.

    Nodes are made by the hundred thousand. Python has a fast way to set slots, but not for a frozen class: so fields
    are set while the object is of a subclass that is not frozen.

    Of a hash-consed class it returns the existing node, if there is one. What is given for a type or for several nodes
    may not be the field yet (a name, a list), so that such fields are looked up again once they are there. A class with
    a method ``key`` says itself what tells its nodes apart; None: this one is like no other.
    """
    params, lines, namespace = parameters(cls)
    names = [name for name, _ in cls.node_fields]
    namespace.update(cls=cls, make=object.__new__, opened=opened, unique=unique, **_TABLE)
    lines += ["    self = make(opened)", "    self._leaves = None"]
    lines += [f"    self.{param.partition('=')[0]} = {param.partition('=')[0]}" for param in params]
    lines.append("    self.__class__ = of")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    if not cls.hash_consed:
        lines.append("    return self")
    elif hasattr(cls, "key"):
        lines += ["    key = self.key()", "    return self if key is None else unique(self, key)"]
    else:
        given = "".join(f", {name}" for name in names)
        found = "".join(f", self.{name}" for name in names)
        is_as_given = not any(name == "dtype" or role == "children" for name, role in cls.node_fields)
        lines = [
            f"    key = (cls{given})",
            "    try:",
            "        found = lookup(key)",
            "    except TypeError:",
            "        found = None",
            "    if found is not None: return found",
            *lines,
            *_entered("self", "key" if is_as_given else f"(cls{found})"),
        ]
    made = written(cls, "__new__", ["of", *params], lines, namespace)
    made.__annotations__ = {**cls.__init__.__annotations__, "return": cls.__name__}
    return made


#: The table of hash-consed nodes, for the functions that are written below.
_TABLE: dict[str, Any] = {
    "lookup": NODES.get,
    "add": NODES.setdefault,
    "nodes": NODES,
    "limit": LIMIT,
    "sweep": sweep,
}


def _entered(made: str, key: str) -> list[str]:
    """Lines that enter a node into the table, as :func:`unique` does, and return the one that is there then."""
    return [f"    found = add({key}, {made})", "    if len(nodes) > limit[0]: sweep()", "    return found"]


def _opened(cls: Any) -> Any:
    """Return a subclass of a frozen class whose objects can be changed, and can become objects of ``cls``."""
    plain = {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    return type(cls)(cls.__name__, (cls,), {**plain, "__module__": cls.__module__})


#: The methods that copy a node but for the fields that they take, whose values have the types of those before.
_COPIERS = ("with_body", "with_operands")


def _copier(cls: Any, opened: Any, name: str) -> Callable[..., Any]:
    """Return the method of :data:`_COPIERS` with that name, by fields that are set as in :func:`_constructor`. The
    declared method has the constructor refuse what is no body."""
    types = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    declared = getattr(cls, name)
    given = [field for field in declared.__annotations__ if field != "return"]
    namespace = {"cls": cls, "make": object.__new__, "opened": opened, **_TABLE}
    lines = []
    if name == "with_body":
        namespace |= {"kind": declared.__globals__[types["body"]], "declared": declared}
        lines += [
            "    if body is self.body: return self",
            "    if not isinstance(body, kind): return declared(self, body)",
        ]
    values = {field: field if field in given else f"self.{field}" for field in types}
    if cls.hash_consed:
        lines.append(f"    key = (cls, {', '.join([values[field] for field, _ in cls.node_fields])})")
        lines += ["    found = lookup(key)", "    if found is not None: return found"]
    lines += ["    made = make(opened)", "    made._leaves = None"]
    lines += [f"    made.{field} = {value}" for field, value in values.items()]
    lines += ["    made.__class__ = cls", *(_entered("made", "key") if cls.hash_consed else ["    return made"])]
    return written(cls, name, ["self", *given], lines, namespace)


#: The call by which a mutator rewrites the value of a field, by the field's role.
_MUTATED = {
    "child": "mutator.mutate(old_{0})",
    "children": "mutator.mutate_all(old_{0})",
    "buffer": "mutator.mutate_buffer(old_{0})",
    "new_buffer": "mutator.mutate_new_buffer(old_{0})",
    "definition": "mutator.mutate_definition(old_{0})",
}


def _derived_functions(cls: Any, copies: bool) -> tuple[Callable[[Any], tuple[Any, ...]], Callable[[Any, Any], Any]]:
    """``parts`` and ``rebuild`` of a class of nodes.

    They are generated and compiled, as methods of dataclasses are: passes call them for every node of a program, and a
    loop over the fields that checks the role of each takes several times as long.
    """
    fields = cls.node_fields
    owned = [(name, role) for name, role in fields if role in ("child", "children")]
    types = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    optional = optional_fields(cls)
    items = [f"*node.{name}" if role == "children" else f"node.{name}" for name, role in owned]
    lines = ["def parts(node):"]
    missing = [name for name, _ in owned if name in optional]
    if len(missing) == 1:
        there = [item for item in items if item != f"node.{missing[0]}"]
        lines.append(f"    if node.{missing[0]} is None: return {_tuple_of(there)}")
    if len(missing) < 2:
        lines.append(f"    return {_tuple_of(items)}")
    else:
        lines.append(f"    return tuple(filter(is_there, {_tuple_of(items)}))")
    mutated = {name: _MUTATED[role].format(name) for name, role in fields if role in _MUTATED}
    mutated |= {name: f"None if old_{name} is None else {mutated[name]}" for name in missing}
    lines.append("def rebuild(node, mutator):")
    if not cls.hash_consed:
        statements = [name for name, _ in owned if "Expr" not in types[name]]
        lines.append("    if not mutator._rewrites_expressions:")
        lines += ["    " + line for line in _rebuilt(fields, {name: mutated[name] for name in statements}, copies)]
    lines += _rebuilt(fields, mutated, copies)
    namespace: dict[str, Any] = {"cls": cls, "is_there": functools.partial(operator.is_not, None)}
    exec("\n".join(lines), namespace)
    return namespace["parts"], namespace["rebuild"]


def _tuple_of(items: list[str]) -> str:
    """The tuple of expressions, as text; a tuple that is all of it is used as it is."""
    if len(items) == 1 and items[0].startswith("*"):
        return items[0][1:]
    return f"({''.join(item + ', ' for item in items)})"


def _rebuilt(fields: tuple[tuple[str, str], ...], mutated: dict[str, str], copies: bool) -> list[str]:
    """Lines that return a node with the values of some fields mutated; itself if none changed.

    Args:
        copies: whether ``with_body`` copies a node of which nothing but the body changed.
    """
    if not mutated:
        return ["    return node"]
    lines = []
    for name, value in mutated.items():
        lines += [f"    old_{name} = node.{name}", f"    new_{name} = {value}"]
    unchanged = [f"new_{name} is old_{name}" for name in mutated if name != "body" or not copies]
    same = "node.with_body(new_body)" if copies else "node"
    values = [f"new_{name}" if name in mutated else f"node.{name}" for name, _ in fields]
    return [*lines, f"    return {same} if {' and '.join(unchanged) or 'True'} else cls({', '.join(values)})"]
