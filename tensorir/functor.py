"""Visitors and mutators over the loop-level IR, derived from the nodes' declared fields.

A subclass defines ``visit_<NodeClass>`` for the nodes that it handles and calls ``generic_visit`` to continue below;
all other nodes are walked by their declarations. So a new node class or field needs no change here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from tilewright.tensorir.expr import Buffer, Expr, FloatImm, IntImm, PureExpr, Var
from tilewright.tensorir.folding import INTEGER_DIVISIONS
from tilewright.tensorir.node import Node
from tilewright.tensorir.occurrences import (
    CALLS,
    CHOICES,
    COMPARISONS,
    DIVISIONS,
    FLOAT_DIVISIONS,
    HALVES,
    LOADS,
    MASKED_LOADS,
    SELECTIONS,
    accesses_buffers,
    kinds,
    leaves,
    loads_and_stores,
    look_into,
    reads_memory,
    uses_var,
    variables_in_order,
    walk,
    walk_once,
    walk_statements,
    walk_to,
    walk_to_loads,
)
from tilewright.tensorir.sources import TRACING, inherit
from tilewright.tensorir.stmt import PrimFunc, Stmt

__all__ = [
    "CALLS",
    "CHOICES",
    "COMPARISONS",
    "DIVISIONS",
    "FLOAT_DIVISIONS",
    "HALVES",
    "INTEGER_DIVISIONS",
    "LOADS",
    "MASKED_LOADS",
    "SELECTIONS",
    "Mutator",
    "Visitor",
    "accesses_buffers",
    "copy_with_fresh_definitions",
    "free_vars",
    "kinds",
    "leaves",
    "loads_and_stores",
    "reads_memory",
    "substitute",
    "uses_var",
    "walk",
    "walk_once",
    "walk_statements",
    "walk_to",
    "walk_to_loads",
]

N = TypeVar("N", bound=Node)


class Visitor:
    """Walks a program without changing it, depth first, in the order of the fields."""

    #: Whether the class looks at buffers.
    _visits_buffers: ClassVar[bool] = False

    _methods: ClassVar[dict[type[Node], Callable[[Any, Any], None] | None]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._methods = {}
        cls._visits_buffers = getattr(cls, "visit_buffer") is not getattr(Visitor, "visit_buffer")  # noqa: B009

    def visit(self, node: Node) -> None:
        """Visit ``node``: by ``visit_<class>`` if defined, else field by field."""
        try:
            method = self._methods[type(node)]
        except KeyError:
            kind = type(node)
            method = self._methods[kind] = getattr(type(self), f"visit_{kind.__name__}", None)
        if method is None:
            self.generic_visit(node)
        else:
            method(self, node)

    def generic_visit(self, node: Node) -> None:
        """Visit all owned nodes of ``node``. Buffers are not entered; see :meth:`visit_buffer`."""
        if not self._visits_buffers:
            for part in node.parts():
                self.visit(part)
            return
        for name, role in node.node_fields:
            if role == "child":
                value = getattr(node, name)
                if value is not None:
                    self.visit(value)
            elif role == "children":
                for value in getattr(node, name):
                    self.visit(value)
            elif role in ("buffer", "new_buffer"):
                self.visit_buffer(getattr(node, name))

    def visit_buffer(self, buffer: Buffer) -> None:
        """Called for every buffer that a node uses or defines."""


def _itself(_: Any, node: Any) -> Any:
    return node


class Mutator:
    """Rebuilds a program bottom-up; nodes that do not change keep their identity.

    A subclass that overrides no method for expressions, buffers or definitions does not visit expressions: most nodes
    of a program are expressions, and most passes rewrite statements only.
    """

    #: Whether the class overrides a method that applies to expressions, buffers or definitions; ``rebuild`` asks.
    _rewrites_expressions: ClassVar[bool] = False

    _methods: ClassVar[dict[type[Node], Callable[[Any, Any], Any] | None]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._methods = {}
        cls._rewrites_expressions = any(
            getattr(cls, name) is not getattr(Mutator, name, None) for name in dir(cls) if name in _OF_EXPRESSIONS
        )

    def mutate(self, node: Any) -> Any:
        """The new form of ``node``: by ``mutate_<class>`` if defined, else field by field. New statements in it take
        over the sources of ``node`` (:mod:`.sources`)."""
        try:
            method = self._methods[type(node)]
        except KeyError:
            method = self._method_for(type(node))
        new = node.rebuild(self) if method is None else method(self, node)
        if new is not node and TRACING.callers and isinstance(new, Stmt):
            inherit(new, node)
        return new

    def _method_for(self, kind: type[Node]) -> Callable[[Any, Any], Any] | None:
        """Look up, and keep for the next node, the method that rewrites nodes of a class; None: ``rebuild``."""
        cls = type(self)
        method = getattr(cls, f"mutate_{kind.__name__}", None)
        if method is None:
            generic = getattr(cls, "generic_mutate")  # noqa: B009
            if issubclass(kind, Expr) and not self._rewrites_expressions:
                method = _itself
            elif generic is not getattr(Mutator, "generic_mutate"):  # noqa: B009
                method = generic
        cls._methods[kind] = method
        return method

    def generic_mutate(self, node: Any) -> Any:
        """``node`` with its owned nodes and buffers mutated; ``node`` itself if none changed."""
        owner: Node = node
        return owner.rebuild(self)

    def mutate_all(self, nodes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Each of ``nodes`` mutated; the same tuple if none changed."""
        count = len(nodes)
        if count == 1:  # most accesses have one index (compiled code would copy a tuple whose length the test tells)
            new = self.mutate(nodes[0])
            if new is nodes[0]:
                return nodes
            return (new,)
        made = tuple([self.mutate(node) for node in nodes])
        return nodes if made == nodes else made

    def mutate_buffer(self, buffer: Buffer) -> Buffer:
        """The new form of a used buffer."""
        return buffer

    def mutate_new_buffer(self, buffer: Buffer) -> Buffer:
        """The new form of a buffer at its definition."""
        return self.mutate_buffer(buffer)

    def mutate_definition(self, var: Any) -> Any:
        """The new form of a defined variable (or the parameters of a function)."""
        return var


#: The methods of mutators that apply to expressions and their parts.
_OF_EXPRESSIONS = frozenset(
    {"mutate_all", "mutate_buffer", "mutate_new_buffer", "mutate_definition"}
    | {"mutate", "generic_mutate"}
    | {f"mutate_{kind.__name__}" for kind in (*Expr.__subclasses__(), *PureExpr.__subclasses__())}
)


class _Substituter(Mutator):
    def __init__(self, values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer]) -> None:
        self.values = dict(values)
        self.buffers = dict(buffers)
        #: Results by expression, which hold for all its occurrences.
        self._done: dict[Expr, Expr] = {}

    def mutate(self, node: Any) -> Any:
        kind = type(node)
        if kind is Var:
            return self.values.get(node, node)
        if kind is IntImm or kind is FloatImm:
            return node
        if not isinstance(node, Expr):
            return super().mutate(node)
        found = self._done.get(node)
        if found is None:
            below = node._leaves
            if below is None:
                below = look_into(node)
            occurring = node._kinds
            keeps = self.values.keys().isdisjoint(below) and not (occurring & LOADS and self._replaces_any(below))
            found = node if keeps else node.rebuild(self)
            if not occurring & CALLS:  # calls with an effect are rebuilt at each occurrence
                self._done[node] = found
        return found

    def _replaces_any(self, found: frozenset[Node]) -> bool:
        """Return whether any of the buffers among leaves is replaced."""
        return any(isinstance(leaf, Buffer) and self.mutate_buffer(leaf) is not leaf for leaf in found)

    def mutate_buffer(self, buffer: Buffer) -> Buffer:
        found = self.buffers.get(buffer)
        if found is None:
            found = self.buffers[buffer] = self.generic_mutate(buffer) if self.values else buffer
        return found

    def mutate_definition(self, var: Any) -> Any:
        if isinstance(var, Var):
            replaced = self.values.get(var, var)
            return replaced if isinstance(replaced, Var) else var
        return var


def substitute(node: N, values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer] | None = None) -> N:
    """``node`` with variables (and buffers) replaced. Buffers whose shape mentions a variable are replaced too;
    a variable that maps to another variable is renamed where it is defined as well."""
    if type(node) is IntImm:
        return node
    result: Any = node
    if type(node) is Var:
        result = values.get(result, result)
    elif buffers or not isinstance(node, Expr) or kinds(node) & LOADS or not values.keys().isdisjoint(leaves(node)):
        result = _Substituter(values, buffers or {}).mutate(node)
    substituted: N = result
    return substituted


class _Renamer(_Substituter):
    """Gives every variable and buffer that is defined inside a new identity."""

    def __init__(self, suffix: str) -> None:
        super().__init__({}, {})
        self.suffix = suffix

    def mutate_definition(self, var: Any) -> Any:
        if not isinstance(var, Var):
            return var
        new = Var(var.name + self.suffix, var.dtype)
        self.values[var] = new
        self._done.clear()
        return new

    def mutate_new_buffer(self, buffer: Buffer) -> Buffer:
        made = Buffer(
            buffer.name + self.suffix,
            self.mutate_all(buffer.shape),
            buffer.dtype,
            buffer.scope,
            self.mutate_all(buffer.strides),
            buffer.alignment,
        )
        self.buffers[buffer] = made
        self._done.clear()
        return made

    def mutate_buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)


def copy_with_fresh_definitions(node: N, suffix: str = "") -> N:
    """Return a copy of ``node`` in which every variable and buffer that it defines is a new object, as needed where a
    statement occurs twice in one function."""
    result: N = _Renamer(suffix).mutate(node)
    return result


def free_vars(node: Node) -> list[Var]:
    """The variables that ``node`` uses but does not define, in order of first use."""
    if isinstance(node, Expr):
        return variables_in_order(node)
    collector = _FreeVars()
    collector.visit(node)
    return list(collector.free)


class _FreeVars(Visitor):
    def __init__(self) -> None:
        self.free: dict[Var, None] = {}
        self.bound: set[Var] = set()
        #: Expressions visited so far; another occurrence uses the same variables.
        self._seen: set[Expr] = set()

    def visit(self, node: Node) -> None:
        if not isinstance(node, Expr):
            super().visit(node)
        elif node not in self._seen:
            self._seen.add(node)
            for var in variables_in_order(node):
                if var not in self.bound:
                    self.free[var] = None

    def visit_For(self, loop: Any) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        self.bound.add(loop.var)
        self.visit(loop.body)

    def visit_LetStmt(self, let: Any) -> None:
        self.visit(let.value)
        self.bound.add(let.var)
        self.visit(let.body)

    def visit_Block(self, block: Any) -> None:
        for item in block.iters:
            self.visit(item.value)
            self.visit(item.min)
            self.visit(item.extent)
        self.bound.update(item.var for item in block.iters)
        for part in (block.predicate, block.needed, *block.reads, *block.writes, block.init, block.body):
            if part is not None:
                self.visit(part)

    def visit_PrimFunc(self, func: PrimFunc) -> None:
        self.bound.update(func.variables)
        self.visit(func.body)
