"""Statements of the loop-level IR, and the functions that hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError
from tilewright.tensorir.expr import Buffer, Expr, Var, as_expr, as_indices, check_access
from tilewright.tensorir.keys import SIZES_FROM
from tilewright.tensorir.node import Node, buffer, child, children, definition, new_buffer, node, notes_on
from tilewright.tensorir.notebook import html_text

FOR_KINDS = ("serial", "parallel", "vectorized", "unrolled")
ITER_KINDS = ("spatial", "reduction")

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_MAPPINGS = (dict, MappingProxyType)

#: The types of a function's parameters, and of the names of its attributes.
_PARAMETERS = frozenset([Var, Buffer])
_NAMES = frozenset([str])

_set = object.__setattr__


class Stmt(Node):
    """Base of all statements."""

    __slots__ = ()


@node
class For(Stmt):
    """``for var in [min, min + extent)``; a negative extent runs no iteration.

    ``kind`` is one of :data:`FOR_KINDS`; the iterations of a parallel or vectorized loop do not depend on each other.
    """

    var: Var = definition()
    min: Expr = child()
    extent: Expr = child()
    kind: str
    body: Stmt = child()
    annotations: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _EMPTY)

    def __post_init__(self) -> None:
        low, extent, dtype = self.min, self.extent, self.var.dtype
        if not (isinstance(low, Expr) and isinstance(extent, Expr)):
            low, extent = as_expr(low, dtype), as_expr(extent, dtype)
            _set(self, "min", low)
            _set(self, "extent", extent)
        if self.kind not in FOR_KINDS:
            raise ArgumentValueError(
                f"for {self.var.name}: unknown kind {self.kind!r}; expected one of {', '.join(FOR_KINDS)}"
            )
        if low.dtype is not dtype or extent.dtype is not dtype:
            raise ArgumentTypeError(
                f"for {self.var.name}: variable is {self.var.dtype!s}, bounds are "
                f"{self.min.dtype!s} and {self.extent.dtype!s}"
            )

    def with_body(self, body: Stmt) -> For:
        """The same loop with another body."""
        return self if body is self.body else For(self.var, self.min, self.extent, self.kind, body, self.annotations)


@node
class BufferStore(Stmt):
    """``buffer[indices] = value``; lanes whose ``predicate`` is false are not written."""

    buffer: Buffer = buffer()
    value: Expr = child()
    indices: tuple[Expr, ...] = children()
    predicate: Expr | None = child(default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.value, Expr):
            _set(self, "indices", as_indices(self.indices))
            _set(self, "value", as_expr(self.value, self.buffer.dtype))
        lanes = check_access(self.buffer, self.indices, self.predicate)
        if not lanes:
            _set(self, "indices", as_indices(self.indices))
            lanes = check_access(self.buffer, self.indices, self.predicate)
        expected = self.buffer.dtype
        if lanes != expected.lanes:
            expected = expected.with_lanes(lanes)
        if self.value.dtype is not expected:
            raise ArgumentTypeError(
                f"store to {self.buffer.name}: expected {expected!s}, found {self.value.dtype!s}: {self.value!s}"
            )

    def with_operands(self, value: Expr, indices: tuple[Expr, ...]) -> BufferStore:
        """The same store of another value at other indices, which have the same types as those before."""
        return BufferStore(self.buffer, value, indices, self.predicate)


@node
class SeqStmt(Stmt):
    """Statements one after the other."""

    stmts: tuple[Stmt, ...] = children()


@node
class IfThenElse(Stmt):
    """``then_body`` if the scalar condition holds, else ``else_body`` (None: nothing)."""

    condition: Expr = child()
    then_body: Stmt = child()
    else_body: Stmt | None = child(default=None)

    def __post_init__(self) -> None:
        if not self.condition.dtype.is_bool:
            raise ArgumentTypeError(f"if: expected a bool condition, found {self.condition.dtype!s}")


@node
class Allocate(Stmt):
    """Makes ``buffer`` available in ``body``; its contents are undefined at first."""

    buffer: Buffer = new_buffer()
    body: Stmt = child()


@node
class LetStmt(Stmt):
    """Binds ``var`` to ``value`` in ``body``."""

    var: Var = definition()
    value: Expr = child()
    body: Stmt = child()

    def __post_init__(self) -> None:
        if self.var.dtype is not self.value.dtype:
            raise ArgumentTypeError(
                f"let {self.var.name}: variable is {self.var.dtype!s}, value is {self.value.dtype!s}"
            )


@node
class Evaluate(Stmt):
    """Evaluates a call for its effect."""

    value: Expr = child()


@node
class Range(Node):
    """The integers ``min .. min + extent - 1``."""

    min: Expr = child()
    extent: Expr = child()

    def __post_init__(self) -> None:
        if not (isinstance(self.min, Expr) and isinstance(self.extent, Expr)):
            _set(self, "min", as_expr(self.min, INT64))
            _set(self, "extent", as_expr(self.extent, INT64))


@node
class BufferRegion(Node):
    """A box of a buffer's elements: one range for each dimension."""

    buffer: Buffer = buffer()
    ranges: tuple[Range, ...] = children()


@node
class IterVar(Node):
    """An iteration variable of a block: it takes the values of ``[min, min + extent)``, and ``value`` says which one
    for the surrounding loops' variables."""

    var: Var = definition()
    min: Expr = child()
    extent: Expr = child()
    kind: str
    value: Expr = child()

    def __post_init__(self) -> None:
        if not (isinstance(self.min, Expr) and isinstance(self.extent, Expr) and isinstance(self.value, Expr)):
            _set(self, "min", as_expr(self.min, self.var.dtype))
            _set(self, "extent", as_expr(self.extent, self.var.dtype))
            _set(self, "value", as_expr(self.value, self.var.dtype))
        if self.kind not in ITER_KINDS:
            raise ArgumentValueError(
                f"{self.var.name}: unknown kind {self.kind!r}; expected one of {', '.join(ITER_KINDS)}"
            )


@node
class Block(Stmt):
    """A named computation, as the unit that schedules find, move and check.

    The body uses only the iteration variables of ``iters`` (and the function's symbolic dimensions), never the loops
    around it, so that a schedule can change the loops and only has to change the ``value`` of each iteration variable.
    Instances with a false ``predicate`` do not run. For a reduction, ``init`` runs before the first step: where all
    reduction variables have their least value.

    Instances for which ``needed`` is false may run or not: no result of the function depends on the values that they
    store or add to a reduction. A formula declares it where a schedule can make use of it, as in causal attention,
    whose rows depend on the columns up to some place. It mentions iteration variables and symbolic dimensions only. A
    step of a schedule that makes other instances drops it.
    """

    name: str
    iters: tuple[IterVar, ...] = children()
    predicate: Expr | None = child()
    reads: tuple[BufferRegion, ...] = children()
    writes: tuple[BufferRegion, ...] = children()
    init: Stmt | None = child()
    body: Stmt = child()
    annotations: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _EMPTY)
    needed: Expr | None = child(default=None)


@node
class PrimFunc(Node):
    """A loop-level function. It returns nothing: results are written to buffers among the parameters.

    Attributes:
        params: buffers (inputs, then outputs, then workspaces) and after them integer variables (the symbolic
            dimensions), in the order of the call.
        attrs: plain data about the function. ``num_outputs``: number of buffers that are results; ``num_workspaces``:
            number of buffers at the end that are scratch memory provided by the caller; :data:`OPERATORS`,
            :data:`CALLS` and :data:`VALUES`: its origin in the graph.
    """

    name: str
    params: tuple[Any, ...] = definition()
    body: Stmt = child()
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _EMPTY)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ArgumentTypeError(f"a function's name is a string, found {self.name!r:.80}")
        if not isinstance(self.params, (tuple, list)) or not _all_are(self.params, _PARAMETERS):
            raise ArgumentTypeError(
                f"@{self.name}: expected variables and buffers as parameters, found {self.params!r:.80}"
            )
        if type(self.params) is not tuple:
            _set(self, "params", tuple(self.params))
        if not isinstance(self.body, Stmt):
            raise ArgumentTypeError(f"@{self.name}: expected a statement as body, found {type(self.body).__name__}")
        is_mapping = type(self.attrs) in _MAPPINGS or isinstance(self.attrs, Mapping)
        if not is_mapping or not _all_are(self.attrs, _NAMES):
            raise ArgumentTypeError(f"@{self.name}: expected attributes by name, found {self.attrs!r:.80}")

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers among the parameters."""
        return tuple([param for param in self.params if isinstance(param, Buffer)])

    @property
    def variables(self) -> tuple[Var, ...]:
        """The variables among the parameters: the symbolic dimensions."""
        notes = notes_on(self)
        found: tuple[Var, ...] | None = notes.get(Var)
        if found is None:
            found = notes[Var] = tuple([param for param in self.params if isinstance(param, Var)])
        return found

    def with_body(self, body: Stmt) -> PrimFunc:
        """The same function with another body."""
        return self if body is self.body else PrimFunc(self.name, self.params, body, self.attrs)

    def with_attr(self, name: str, value: Any) -> PrimFunc:
        """The same function with attribute ``name`` set."""
        return PrimFunc(self.name, self.params, self.body, {**self.attrs, name: value})

    def _repr_html_(self) -> str:
        return html_text(str(self))


def _all_are(values: Iterable[Any], kinds: frozenset[type[Any]]) -> bool:
    """Return whether all of ``values`` are of ``kinds``. Functions are made often: most are found so by their types."""
    return kinds.issuperset(map(type, values)) or all(isinstance(value, tuple(kinds)) for value in values)


def sequence(*stmts: Stmt | None) -> Stmt:
    """The statements as one; nested sequences are flattened and None is dropped."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, SeqStmt):
            flat.extend(stmt.stmts)
        elif stmt is not None:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def positive_sizes(func: PrimFunc) -> frozenset[Var]:
    """The variables of a kernel that are positive: those that stand for divided dimensions or for constants that calls
    pass (:data:`SIZES_FROM`). Dimensions of a model may be zero."""
    sources = func.attrs.get(SIZES_FROM, ())
    return frozenset(
        [var for var, source in zip(func.variables, sources, strict=False) if source is not None and len(source) != 2]
    )
