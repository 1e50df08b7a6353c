"""Expand node declarations to plain classes, which mypyc compiles to native ones.

``@node`` (``tensorir/node.py``) derives ``__init__``, ``parts`` and ``rebuild`` of a class while it is loaded, by
``exec``; a compiler of Python never sees them. This module writes them into the source, from the declaration alone::

    @node                                       class Evaluate(Stmt):
    class Evaluate(Stmt):                           value: Expr
        value: Expr = child()            ->
                                                    def __init__(self, value: Expr) -> None:
                                                        self.value = value

                                                    def parts(self) -> tuple[Any, ...]: ...
                                                    def rebuild(self, mutator: Mutator) -> Any: ...

A class whose base, in this file or another one of the project, sets ``hash_consed = True`` looks in ``__new__`` for an
existing node; its ``__init__`` becomes ``_fill`` then.

``__post_init__`` becomes the end of ``__init__``: a field that it changes (by ``_set``) is a local name until all are
known. Only known forms are expanded; any other is an :class:`UnknownDeclarationError`.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

ROLES = ("child", "children", "definition", "buffer", "new_buffer", "derived")
_OWNED = ("child", "children")

#: The treatment of a field's value by a mutator, as in ``tensorir/node.py``.
_MUTATED = {
    "child": "mutator.mutate({0})",
    "children": "mutator.mutate_all({0})",
    "buffer": "mutator.mutate_buffer({0})",
    "new_buffer": "mutator.mutate_new_buffer({0})",
    "definition": "mutator.mutate_definition({0})",
}


_IMPORTS = (
    "from typing import TYPE_CHECKING, ClassVar",
    "from tilewright.tensorir.consing import NODES, unique",
    "from tilewright.tensorir.described import describe",
    "if TYPE_CHECKING:",
    "    from tilewright.tensorir.functor import Mutator",
)


class UnknownDeclarationError(ValueError):
    """A node class is declared in a way that cannot be expanded."""


@dataclass
class Field:
    """One field: its annotation, role and default as source text."""

    name: str
    annotation: str
    role: str
    value: str | None
    default: str | None

    @property
    def optional(self) -> bool:
        return "None" in self.annotation


@dataclass
class Declaration:
    """The declaration of a class."""

    name: str
    fields: list[Field] = field(default_factory=list)
    post_init: ast.FunctionDef | None = None
    others: list[ast.FunctionDef] = field(default_factory=list)

    @property
    def given(self) -> list[Field]:
        """The fields that ``__init__`` takes."""
        return [each for each in self.fields if each.role != "derived"]


def expand(source: str, place: str) -> str:
    """Expand the node classes in ``source``; the text between them stays as it is.

    Args:
        place: the name of the file, for errors.

    Raises:
        UnknownDeclarationError: a class is declared in an unknown way.
    """
    lines = source.split("\n")
    classes = [each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)]
    nodes = [each for each in classes if _is_node(each, place)]
    if not nodes:
        return source
    inherited, hash_consed = _bases(ast.parse(source))
    for found in reversed(nodes):
        first = found.decorator_list[0].lineno - 1
        lines[first : found.end_lineno] = _written_out(found, source, inherited, hash_consed, place).split("\n")
    imports = lines.index("from __future__ import annotations") + 1
    lines[imports:imports] = _IMPORTS
    return "\n".join(lines)


def _bases(tree: ast.Module) -> tuple[dict[str, set[str]], set[str]]:
    """The attributes of each class that a file defines or imports from a module of the project and that is no node
    itself, and the names of those whose nodes are hash-consed."""
    inherited: dict[str, set[str]] = {}
    hash_consed: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom):
            path = ROOT.joinpath(*(statement.module or "").split(".")[1:]).with_suffix(".py")
            if (statement.module or "").startswith("tilewright.") and path.is_file():
                others, consed = _bases(ast.parse(path.read_text(encoding="utf-8")))
                for alias in statement.names:
                    if alias.name in others:
                        inherited[alias.asname or alias.name] = others[alias.name]
                    if alias.name in consed:
                        hash_consed.add(alias.asname or alias.name)
        elif isinstance(statement, ast.ClassDef) and "node" not in map(ast.unparse, statement.decorator_list):
            bases = [ast.unparse(base) for base in statement.bases]
            inherited[statement.name] = _attributes(statement).union(*(inherited.get(base, set()) for base in bases))
            if any(ast.unparse(item) == "hash_consed = True" for item in statement.body):
                hash_consed.add(statement.name)
    return inherited, hash_consed


def _attributes(base: ast.ClassDef) -> set[str]:
    """Return the attributes that a base of nodes declares for all of them."""
    return {
        item.target.id
        for item in base.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value is None
    }


def _is_node(found: ast.ClassDef, place: str) -> bool:
    names = [ast.unparse(decorator) for decorator in found.decorator_list]
    if "node" not in names:
        return False
    if names != ["node"] or found.keywords:
        raise UnknownDeclarationError(
            f"{place}:{found.lineno}: {found.name}: expected @node alone, and no class arguments"
        )
    return True


def _declaration(found: ast.ClassDef, place: str) -> Declaration:
    declared = Declaration(found.name)
    for item in found.body:
        where = f"{place}:{item.lineno}: {found.name}"
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            declared.fields.append(_field(item, item.target.id, where))
        elif isinstance(item, ast.FunctionDef) and item.name == "__post_init__":
            declared.post_init = item
        elif isinstance(item, ast.FunctionDef):
            if item.name in ("__init__", "parts", "rebuild"):
                raise UnknownDeclarationError(f"{where}: defines {item.name}, which is derived from its fields")
            declared.others.append(item)
        elif not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)):
            raise UnknownDeclarationError(f"{where}: neither a field nor a method: {ast.unparse(item)}")
    seen_default = False
    for each in declared.given:
        if seen_default and each.default is None:
            raise UnknownDeclarationError(
                f"{place}: {found.name}.{each.name}: has no default, but a field before it has"
            )
        seen_default = each.default is not None
    return declared


def _field(item: ast.AnnAssign, name: str, where: str) -> Field:
    annotation, value = ast.unparse(item.annotation), item.value
    if "ClassVar" in annotation:
        raise UnknownDeclarationError(f"{where}: {name} is a class variable")
    if value is None:
        return Field(name, annotation, "data", None, None)
    text = ast.unparse(value)
    if not isinstance(value, ast.Call):
        return Field(name, annotation, "data", text, text)
    function = ast.unparse(value.func)
    role = "data" if function == "dataclasses.field" else function
    if role not in (*ROLES, "data") or value.args or any(keyword.arg is None for keyword in value.keywords):
        raise UnknownDeclarationError(f"{where}: {name}: expected a role, a plain default or a field: {text}")
    default = None
    for keyword in value.keywords:
        made = _default(keyword) if role != "derived" else None
        if made is None:
            raise UnknownDeclarationError(f"{where}: {name}: unknown argument {keyword.arg} of {function}")
        default = ast.unparse(made)
    return Field(name, annotation, role, text, default)


def _default(keyword: ast.keyword) -> ast.expr | None:
    """Return the default in an argument of a field's declaration, if it always is the same object."""
    if keyword.arg == "default":
        return keyword.value
    if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Lambda) and not keyword.value.args.args:
        made = keyword.value.body
        return made if isinstance(made, (ast.Name, ast.Constant)) else None
    return None


def _written_out(
    found: ast.ClassDef, source: str, inherited: dict[str, set[str]], hash_consed: set[str], place: str
) -> str:
    declared = _declaration(found, place)
    bases = ", ".join(ast.unparse(base) for base in found.bases)
    lines = [f"class {found.name}({bases}):"]
    docstring = ast.get_docstring(found, clean=False)
    if docstring is not None:
        lines += [f"    {docstring!r}", ""]
    # An expression's type is an attribute of Expr, so that it has the same offset in all of them.
    own = [each for each in declared.fields if each.name not in inherited.get(bases, ())]
    lines += [f"    {each.name}: {each.annotation}" for each in own]
    fields = tuple((each.name, each.role) for each in declared.given)
    lines += ["", f"    node_fields: ClassVar[tuple[tuple[str, str], ...]] = {fields!r}"]
    made = _constructor(declared, place) if bases in hash_consed else _initializer(declared, place)
    lines += ["", *made, "", *_parts(declared), "", *_rebuild(declared)]
    for item in declared.others:
        first = min([item.lineno, *(each.lineno for each in item.decorator_list)])
        lines += ["", *source.split("\n")[first - 1 : item.end_lineno]]
    described = ", ".join(
        f"({each.name!r}, {each.annotation!r}{', ' + each.value if each.value is not None else ''})"
        for each in declared.fields
    )
    lines += ["", "", f"describe({found.name}, [{described}])"]
    return "\n".join(lines)


def _initializer(declared: Declaration, place: str, name: str = "__init__") -> list[str]:
    body = _InitBody(declared, place)
    text = ast.unparse(ast.Module(body.statements(), []))
    header = [f"    def {name}(self{_parameters(declared, body)}) -> None:", "        self._leaves = None"]
    return [*header, *(f"        {line}" for line in text.split("\n"))]


def _parameters(declared: Declaration, body: _InitBody) -> str:
    return "".join(
        f", {each.name}: {'Any' if each.name in body.changed else each.annotation}"
        + (f" = {each.default}" if each.default is not None else "")
        for each in declared.given
    )


def _constructor(declared: Declaration, place: str) -> list[str]:
    """Write ``__new__`` of a hash-consed class, as in ``tensorir/node.py``."""
    parameters = _parameters(declared, _InitBody(declared, place))
    names = [each.name for each in declared.given]
    making = ["self = super().__new__(cls)", f"self._fill({', '.join(names)})"]
    if any(each.name == "key" for each in declared.others):
        body = [*making, "key = self.key()", "return self if key is None else unique(self, key)"]
    else:
        body = [
            "try:",
            f"    found = NODES.get(({declared.name}, {', '.join(names)}))",
            "except TypeError:",
            "    found = None",
            "if found is not None:",
            f"    known: {declared.name} = found",
            "    return known",
            *making,
            f"return unique(self, ({declared.name}, {', '.join(f'self.{name}' for name in names)}))",
        ]
    return [
        f"    def __new__(cls{parameters}) -> {declared.name}:",
        *(f"        {line}" for line in body),
        "",
        f"    def __init__(self{parameters}) -> None:",
        "        pass  # it is there, or __new__ has made it",
        "",
        *_initializer(declared, place, "_fill"),
    ]


class _InitBody(ast.NodeTransformer):
    """Builds the statements of ``__init__``: those of ``__post_init__`` on local names, then the assignments of
    fields."""

    def __init__(self, declared: Declaration, place: str) -> None:
        self.declared = declared
        self.names = {each.name for each in declared.fields}
        self.place = place
        #: Fields that ``__post_init__`` sets.
        self.changed: set[str] = set()
        self.is_set = False
        own = copy.deepcopy(declared.post_init.body) if declared.post_init is not None else []
        self.body = [each for each in own if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
        nodes = [node for statement in self.body for node in ast.walk(statement)]
        for node in nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("_set", "object.__setattr__"):
                self.changed.add(self._set_field(node))
        #: Names that are both local in ``__post_init__`` and fields.
        stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self.renamed = stored & self.names

    def statements(self) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in self.body:
            if not self.is_set and self._uses_whole_node(statement):
                made += self._set_all()
                self.is_set = True
            visited = statement if self.is_set else self.visit(statement)
            made += visited if isinstance(visited, list) else [visited]
            if self.is_set and self._sets(statement):
                self._fail(statement, "sets a field after the node itself is used")
        return made if self.is_set else made + self._set_all()

    def _set_all(self) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for each in self.declared.fields:
            if each.role == "derived" and each.name not in self.changed:
                raise UnknownDeclarationError(f"{self.place}: {self.declared.name}: {each.name} is never set")
            made.append(ast.parse(f"self.{each.name} = {each.name}").body[0])
        return made or [ast.Pass()]

    def visit_Expr(self, statement: ast.Expr) -> ast.stmt:
        value = statement.value
        if isinstance(value, ast.Call) and ast.unparse(value.func) in ("_set", "object.__setattr__"):
            name = self._set_field(value)
            return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], self.visit(value.args[2])), statement)
        visited = self.generic_visit(statement)
        assert isinstance(visited, ast.stmt)
        return visited

    def visit_Return(self, statement: ast.Return) -> list[ast.stmt]:
        return [*self._set_all(), statement]

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in self.names:
            return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        node.value = self.visit(node.value)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self.renamed:
            return ast.copy_location(ast.Name(f"{node.id}_", node.ctx), node)
        if node.id in self.names:
            self._fail(node, f"reads {node.id}, which is hidden by the field of that name")
        return node

    def _set_field(self, call: ast.Call) -> str:
        if len(call.args) == 3 and ast.unparse(call.args[0]) == "self" and isinstance(call.args[1], ast.Constant):
            name = call.args[1].value
            if name in self.names:
                return str(name)
        self._fail(call, "sets no field of its own")
        raise AssertionError

    def _sets(self, statement: ast.stmt) -> bool:
        return any(
            isinstance(node, ast.Call) and ast.unparse(node.func) in ("_set", "object.__setattr__")
            for node in ast.walk(statement)
        )

    def _uses_whole_node(self, statement: ast.stmt) -> bool:
        """Return whether ``self`` is used in any other way than to read or set a field."""
        reads = [
            node.value
            for node in ast.walk(statement)
            if isinstance(node, ast.Attribute) and node.attr in self.names and isinstance(node.value, ast.Name)
        ]
        sets = [
            node.args[0]
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("_set", "object.__setattr__")
        ]
        known = {id(node) for node in (*reads, *sets)}
        return any(
            isinstance(node, ast.Name) and node.id == "self" and id(node) not in known for node in ast.walk(statement)
        )

    def _fail(self, node: ast.expr | ast.stmt, problem: str) -> None:
        raise UnknownDeclarationError(f"{self.place}:{node.lineno}: {self.declared.name}.__post_init__ {problem}")


def _parts(declared: Declaration) -> list[str]:
    owned = [each for each in declared.given if each.role in _OWNED]
    items = {each.name: f"*self.{each.name}" if each.role == "children" else f"self.{each.name}" for each in owned}
    lines = ["    def parts(self) -> tuple[Any, ...]:"]
    missing = [each.name for each in owned if each.optional]
    if len(missing) == 1:
        there = [item for name, item in items.items() if name != missing[0]]
        lines += [f"        if self.{missing[0]} is None:", f"            return {_tuple_of(there)}"]
    elif missing:
        return [
            *lines,
            f"        return tuple([part for part in {_tuple_of(list(items.values()))} if part is not None])",
        ]
    return [*lines, f"        return {_tuple_of(list(items.values()))}"]


def _tuple_of(items: list[str]) -> str:
    if len(items) == 1 and items[0].startswith("*"):
        return items[0][1:]
    return f"({''.join(item + ', ' for item in items)})"


def _rebuild(declared: Declaration) -> list[str]:
    lines = ["    def rebuild(self, mutator: Mutator) -> Any:"]
    mutated = {each.name: each for each in declared.given if each.role in _MUTATED}
    if not mutated:
        return [*lines, "        return self"]
    for name, each in mutated.items():
        lines.append(f"        old_{name} = self.{name}")
        value = _MUTATED[each.role].format(f"old_{name}")
        if each.role == "child" and each.optional:
            value = f"None if old_{name} is None else {value}"
        lines.append(f"        new_{name}: {each.annotation} = {value}")
    unchanged = " and ".join(f"new_{name} is old_{name}" for name in mutated)
    values = ", ".join(f"new_{each.name}" if each.name in mutated else f"self.{each.name}" for each in declared.given)
    return [*lines, f"        if {unchanged}:", "            return self", f"        return {declared.name}({values})"]
