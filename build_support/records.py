"""Expand records to plain classes, which mypyc compiles to native ones.

mypyc keeps a ``NamedTuple`` as it is, so that each access looks a field up by name and each method call creates an
object; and it leaves it to ``dataclasses`` to create ``__init__`` while a class is loaded, so that it is interpreted.
This module writes both into the source::

    class Mark(NamedTuple):        class Mark:                             @dataclass(frozen=True)
        line: int                      line: int                           class Digit:
        names: int          ->         names: int                              source: Expr
                                                                               lower: int
                                       def __init__(self, line: int, ...)
                                       def __iter__(self) ...                  def __init__(self, source: Expr, ...)

An expanded named tuple has as many items as fields, and equals a tuple of the same items, with the same hash, but it
is not a tuple: tests for that (the type checker finds most of them) have no place in a compiled module.
"""

from __future__ import annotations

import ast

_COMPARED = """
    def __iter__(self) -> typing.Iterator[Any]:
        return iter({items})

    def __len__(self) -> int:
        return {length}

    def __getitem__(self, index: int) -> Any:
        return {items}[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, {name}):
            return {equal}
        return isinstance(other, tuple) and {items} == other

    def __hash__(self) -> int:
        return hash({items})

    def __repr__(self) -> str:
        return f"{name}({shown})"

    def __reduce__(self) -> Any:
        return ({name}, {items})

    def _replace(self, **changes: Any) -> {name}:
        return {name}({replaced})
"""


def write_out(source: str) -> str:
    """Expand the named tuples in ``source`` to plain classes, and write the constructors of its dataclasses."""
    lines = source.split("\n")
    classes = [each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)]
    for found in reversed(classes):
        if [ast.unparse(base) for base in found.bases] == ["NamedTuple"]:
            _write_out_tuple(found, lines)
        elif _is_plain_dataclass(found):
            _write_constructor(found, lines)
    if len(lines) == source.count("\n") + 1:
        return source
    number = lines.index("from __future__ import annotations") + 1
    lines[number:number] = ["import typing", "from typing import Any"]
    return "\n".join(lines)


def _is_plain_dataclass(found: ast.ClassDef) -> bool:
    """Return whether the constructor of a class is that of a dataclass, and only sets fields to its arguments."""
    if len(found.decorator_list) != 1 or "dataclass" not in ast.unparse(found.decorator_list[0]):
        return False
    methods = {each.name for each in found.body if isinstance(each, ast.FunctionDef)}
    return not methods & {"__init__", "__post_init__", "__new__"} and all(
        default is None or not isinstance(default, ast.Call) for _, _, default in _fields(found)
    )


def _fields(found: ast.ClassDef) -> list[tuple[str, str, ast.expr | None]]:
    """Return name, annotation and default of each field; a call is no default that a header can contain."""
    fields = []
    for item in found.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            annotation, default = _annotation(item), item.value
            if "ClassVar" in annotation:
                continue
            if isinstance(default, ast.Call) and ast.unparse(default.func) in ("field", "dataclasses.field"):
                given = {keyword.arg: keyword.value for keyword in default.keywords}
                if set(given) <= {"default", "compare", "repr", "metadata"}:
                    default = given.get("default")
            fields.append((item.target.id, annotation, default))
    return fields


def _constructor(found: ast.ClassDef) -> list[str]:
    fields = _fields(found)
    parameters = [
        f"{name}: {annotation}" + (f" = {ast.unparse(default)}" if default is not None else "")
        for name, annotation, default in fields
    ]
    made = ["", f"    def __init__(self, {', '.join(parameters)}) -> None:"]
    return made + [f"        self.{name} = {name}" for name, _, _ in fields]


def _write_constructor(found: ast.ClassDef, lines: list[str]) -> None:
    """Append ``__init__`` to the class, so that its other lines stay in place."""
    assert found.end_lineno is not None
    lines[found.end_lineno : found.end_lineno] = _constructor(found)


def _write_out_tuple(found: ast.ClassDef, lines: list[str]) -> None:
    assert found.end_lineno is not None
    names = [name for name, _, _ in _fields(found)]
    items = "(" + "".join(f"self.{name}, " for name in names) + ")"
    compared = _COMPARED.format(
        name=found.name,
        length=len(names),
        items=items,
        equal=" and ".join(f"self.{name} == other.{name}" for name in names),
        shown=", ".join(f"{name}={{self.{name}!r}}" for name in names),
        replaced=", ".join(f"changes.get({name!r}, self.{name})" for name in names),
    )
    own = {each.name for each in found.body if isinstance(each, ast.FunctionDef)}
    lines[found.end_lineno : found.end_lineno] = _constructor(found) + _without(compared, own).split("\n")
    for item in found.body:  # a default belongs to the constructor, it is not an attribute of the class
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.end_lineno is not None:
            kept = [f"    {item.target.id}: {_annotation(item)}"]
            lines[item.lineno - 1 : item.end_lineno] = kept + [""] * (item.end_lineno - item.lineno)
    header = found.lineno - 1
    lines[header : header + 1] = ["@typing.final", lines[header].replace("(NamedTuple)", "")]


def _annotation(item: ast.AnnAssign) -> str:
    """Return the type of a field; for ``float``, also integers, as compiled code would convert them and lose digits."""
    text = ast.unparse(item.annotation)
    return "int | float" if text == "float" else text


def _without(methods: str, own: set[str]) -> str:
    """Return ``methods`` without those that a class defines itself."""
    kept = [each for each in methods.split("\n    def ") if each.partition("(")[0] not in own]
    return "\n    def ".join(kept)
