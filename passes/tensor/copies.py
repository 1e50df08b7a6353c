"""Copies of statements in which numbers replace variables, folded during copying::

    if i < 2: b[x * 64 + i * 16 + j] = select(i == 0, a[j], a[j] * 2.0)      with i = 1

    ->  b[x * 64 + j + 16] = a[j] * 2.0

Constants are computed; branches and selections that they decide are resolved before anything is copied. The constant
part of an index comes last, so that the copies of an index share the rest as one node.

Of an expression that depends on numbers alone, all copies are made at once, node by node, and each copy of a statement
picks its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tilewright.passes.tensor.copied_parts import Parts, Steps, find_steps, operation, selected, shifted, value_of
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.folds import fold, is_false, is_true
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Compare,
    Expr,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
    const,
)
from tilewright.tensorir.folding import wrap_integer
from tilewright.tensorir.functor import leaves
from tilewright.tensorir.sources import TRACING, inherit
from tilewright.tensorir.stmt import Allocate, BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt, sequence

#: The variables that numbers replace in an expression, outermost first, and its copies for all combinations of their
#: numbers, those of the innermost variable next to each other.
_Table = tuple[tuple[Var, ...], list[Expr]]


class FoldingCopier(ScopedMutator):
    """Replace variables by others or by numbers, and rename the definitions in a copy.

    Outside of :meth:`copies` nothing changes except the statements that are copied.
    """

    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        #: The replacements of variables and buffers at the present place.
        self.values: dict[Any, Any] = {}
        self._copying = False
        #: The numbers of each variable that is replaced by a number, outermost first, and the place of the present one.
        self._numbers: dict[Var, Sequence[int]] = {}
        self._place: dict[Var, int] = {}
        #: The places of the present numbers of several variables in tables.
        self._places: dict[tuple[Var, ...], int] = {}
        self._begin()

    def _begin(self) -> None:
        """Clear the caches of another statement's copies, in which other variables were replaced."""
        #: The table of an expression whose copy depends only on the numbers that replace variables. Such an expression
        #: uses no definitions of the copy, and has no comparisons that facts at a place may decide, but numbers alone
        #: do not. None: its copy has to be made anew in each copy of the statement.
        self._tables: dict[Expr, _Table | None] = {}
        #: The numbers for which the tables were made.
        self._tabled = dict(self._numbers)
        #: For the variables of an expression and of one that it is a part of: the place in the table of the part, for
        #: each place in that of the whole.
        self._spreads: dict[tuple[tuple[Var, ...], tuple[Var, ...]], list[int]] = {}
        #: Copies of expressions without a table, in this copy and scope.
        self._here: dict[Expr, Expr] = {}

    def copies(self, stmt: Stmt, var: Var, values: Sequence[Expr] | range) -> list[Stmt]:
        """Return a copy of ``stmt`` for each of ``values``, which replaces ``var``; constants may come as a range."""
        numbers: Sequence[int] = (
            values if isinstance(values, range) else [value.value for value in values if isinstance(value, IntImm)]
        )
        if not self._copying or self._tabled.get(var, numbers) != numbers:
            self._begin()
        if len(numbers) == len(values):
            self._numbers[var] = self._tabled[var] = numbers
        made: list[Stmt] = []
        for place in range(len(values)):
            self._place[var] = place
            self._places = {}
            made.append(self._copy(stmt, {var: value_of(var, values[place])}))
        self._numbers.pop(var, None)
        self._places = {}
        return made

    def store_copies(self, store: BufferStore, nest: Mapping[Var, range]) -> list[Stmt] | None:
        """Return the copies of a store for all combinations of the numbers of nested loops, outermost first, if all
        parts of it have tables, as those of most stores; None for others.

        Args:
            nest: the numbers that replace each loop's variable; at least one.
        """
        if store.predicate is not None or len(store.indices) != 1:
            return None
        for var, numbers in nest.items():
            if not self._copying or self._tabled.get(var, numbers) != numbers:
                self._begin()
                break
        self._numbers.update(nest)
        self._tabled.update(nest)
        outer = self.values, self._copying
        first = {var: const(numbers[0], var.dtype) for var, numbers in nest.items()}
        self.values, self._copying = {**self.values, **first}, True
        names = tuple(nest)
        stored = self._column(store.value, names)
        indices = None if stored is None else self._column(store.indices[0], names)
        buffer = self.mutate_buffer(store.buffer)
        self.values, self._copying = outer
        for var in names:
            del self._numbers[var]
        if stored is None or indices is None:
            return None
        if stored[0] is store.value and indices[0] is store.indices[0] and buffer is store.buffer:
            return [store] * len(stored)  # they do not depend on numbers
        copy: Callable[..., Stmt] = store.with_operands if buffer is store.buffer else partial(BufferStore, buffer)
        made = [copy(value, (index,)) for value, index in zip(stored, indices, strict=True)]
        if TRACING.callers:
            for each in made:
                inherit(each, store)
        return made

    def _copy(self, stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
        outer = self.values, self._copying, self._here
        self.values, self._copying, self._here = {**self.values, **values}, True, {}
        result: Stmt = self.mutate(stmt)
        self.values, self._copying, self._here = outer
        return result

    def _column(self, expr: Expr, names: tuple[Var, ...]) -> list[Expr] | None:
        """Return the copies of an expression for all combinations of the numbers of ``names``, the innermost
        variables; None if it has no table."""
        table = self._table_of(expr)
        if table is None:
            return None
        own, copies = table
        if own == names:
            return copies
        around = tuple([name for name in own if name not in names])
        if around:
            count = len(copies)
            for name in around:
                count //= len(self._numbers[name])
            start = self._place_of(around) * count
            own, copies = own[len(around) :], copies[start : start + count]
        return copies if own == names else self._repeated(copies, own, names)

    def mutate_where(
        self, learn: Callable[[Analyzer], None], body: Stmt, define: Callable[[Analyzer], None] | None = None
    ) -> Stmt:
        """Mutate as every scoped mutator does; copies made in the scope are not reused outside, where its facts need
        not hold. (A range states nothing about expressions that do not use its variable.)"""
        if learn is define:
            return super().mutate_where(learn, body, define)
        outer, self._here = self._here, {}
        result = super().mutate_where(learn, body, define)
        self._here = outer
        return result

    def mutate(self, node: Any) -> Any:
        if not isinstance(node, Expr):
            return super().mutate(node)
        values = self.values
        if not values or type(node) is IntImm:
            return node
        if type(node) is Var:
            return values.get(node, node)
        table = self._table_of(node)
        if table is None:
            found = self._here.get(node)
            if found is None:
                found = self._here[node] = super().mutate(node)
            return found
        names, copies = table
        if not names:
            return node
        return copies[self._place_of(names)]

    def _place_of(self, names: tuple[Var, ...]) -> int:
        """Return the place of the present numbers of ``names`` in a table of these."""
        if len(names) == 1:
            return self._place[names[0]]
        place = self._places.get(names)
        if place is None:
            place = 0
            for name in names:
                place = place * len(self._numbers[name]) + self._place[name]
            self._places[names] = place
        return place

    # Expressions in which numbers replace variables.

    def _table_of(self, expr: Expr) -> _Table | None:
        try:
            return self._tables[expr]
        except KeyError:
            table = self._tables[expr] = self._table(expr)
            return table

    def _table(self, expr: Expr) -> _Table | None:
        """Make all copies of an expression that depends only on the numbers that replace variables."""
        if type(expr) is IntImm:
            return (), [expr]
        below, replaced, numbers = leaves(expr), self.values.keys(), self._numbers
        if replaced.isdisjoint(below):
            return (), [expr]
        names = tuple([name for name in numbers if name in below])
        if len(names) < len(replaced & below):
            return None
        if type(expr) is Var:
            return names, [const(number, expr.dtype) for number in numbers[expr]]
        if type(expr) is Compare and len(names) < len(below):
            return None
        steps = find_steps(expr, self.values) if expr.dtype is INT64 else None
        copies = self._copies_at(expr, names) if steps is None else self._indices(steps, names)
        return None if copies is None else (names, copies)

    def _indices(self, steps: Steps, names: tuple[Var, ...]) -> list[Expr]:
        """Return all copies of a sum of a fixed part and multiples of the variables ``names``."""
        whole, fixed, multiples = steps
        factors = dict.fromkeys(names, 0)
        for var, factor in multiples:
            factors[var] += factor
        sums = [fixed]
        for var, factor in factors.items():
            offsets = [factor * number for number in self._numbers[var]]
            sums = [outer + offset for outer in sums for offset in offsets]
        least, most = min(sums), max(sums)
        if wrap_integer(least, INT64) != least or wrap_integer(most, INT64) != most:
            sums = [wrap_integer(number, INT64) for number in sums]
        return [const(number, INT64) for number in sums] if whole is None else shifted(whole, sums)

    def _copies_at(self, expr: Expr, names: tuple[Var, ...]) -> list[Expr] | None:
        """Return all copies of an expression, from those of its parts; None if one has no table, or if numbers alone do
        not decide a comparison."""
        if type(expr) is Ramp and type(expr.stride) is IntImm:
            bases = self._spread(expr.base, names)
            return None if bases is None else [expr.with_operands(base, expr.stride) for base in bases]
        parts = expr.parts()
        columns: list[list[Expr]] = []
        for part in parts:
            column = self._spread(part, names)
            if column is None:
                return None
            columns.append(column)
        if type(expr) is BinaryOp:
            return self._operations(expr, *columns)
        if type(expr) is BufferLoad and expr.predicate is None:
            return [expr.with_operands(indices) for indices in zip(*columns, strict=True)]
        if type(expr) is Broadcast:
            return [expr.with_operands(value) for value in columns[0]]
        if type(expr) is Select:
            return [selected(*choice) for choice in zip(*columns, strict=True)]
        made: list[Expr] = []
        for column_of_parts in zip(*columns, strict=True):
            made.append(fold(expr.rebuild(Parts(dict(zip(parts, column_of_parts, strict=True))))))
        return None if type(expr) is Compare and Compare in map(type, made) else made

    def _spread(self, expr: Expr, names: tuple[Var, ...]) -> list[Expr] | None:
        """Return the copies of an expression for all combinations of the numbers of ``names``, which are at least the
        variables of its own; None if it has no table."""
        table = self._table_of(expr)
        if table is None:
            return None
        own, copies = table
        return copies if own == names else self._repeated(copies, own, names)

    def _repeated(self, copies: list[Expr], own: tuple[Var, ...], names: tuple[Var, ...]) -> list[Expr]:
        """Return the copies for all combinations of the numbers of ``names``, given those for ``own``, a part of
        them."""
        if own == names[len(names) - len(own) :]:
            count = 1
            for name in names[: len(names) - len(own)]:
                count *= len(self._numbers[name])
            return copies * count
        places = self._spreads.get((own, names))
        if places is None:
            steps, step = dict.fromkeys(names, 0), 1
            for name in reversed(own):
                steps[name], step = step, step * len(self._numbers[name])
            places = [0]
            for name, step in steps.items():
                count = len(self._numbers[name])
                places = [outer + step * number for outer in places for number in range(count)]
            self._spreads[own, names] = places
        return [copies[place] for place in places]

    # Definitions.

    def _define(self, old: Any, new: Any) -> Any:
        self.values[old] = new  # no use of it has been visited before
        return new

    def mutate_definition(self, var: Any) -> Any:
        return self._define(var, Var(var.name, var.dtype)) if self._copying else var

    def mutate_new_buffer(self, buffer: Buffer) -> Buffer:
        if not self._copying:
            return buffer
        shape, strides = self.mutate_all(buffer.shape), self.mutate_all(buffer.strides)
        made = Buffer(buffer.name, shape, buffer.dtype, buffer.scope, strides, buffer.alignment)
        return self._define(buffer, made)  # type: ignore[no-any-return]

    def mutate_buffer(self, buffer: Buffer) -> Buffer:
        return self.values.get(buffer, buffer)  # type: ignore[no-any-return]

    # Statements.

    def mutate_loop(self, loop: For, kind: str) -> Stmt:
        """Copy a loop that is not unrolled."""
        low, extent = self.mutate(loop.min), self.mutate(loop.extent)
        var = self.mutate_definition(loop.var)
        body = self.mutate_in_loop(var, low, extent, loop.body)
        if var is loop.var and low is loop.min and extent is loop.extent and body is loop.body and kind == loop.kind:
            return loop
        annotations = {
            key: self.mutate(value) if isinstance(value, Expr) else value for key, value in loop.annotations.items()
        }
        return For(var, low, extent, kind, body, annotations)

    def mutate_For(self, loop: For) -> Stmt:
        return self.mutate_loop(loop, loop.kind)

    def mutate_LetStmt(self, op: LetStmt) -> Stmt:
        value = self.mutate(op.value)
        if self._copying and (isinstance(value, (IntImm, Var)) or is_true(value) or is_false(value)):
            self._define(op.var, value)
            return self.mutate(op.body)  # type: ignore[no-any-return]
        var = self.mutate_definition(op.var)
        body = self.mutate_let_body(var, value, op.body)
        return op if var is op.var and value is op.value and body is op.body else LetStmt(var, value, body)

    def mutate_Allocate(self, op: Allocate) -> Stmt:
        buffer = self.mutate_new_buffer(op.buffer)
        body = self.mutate(op.body)
        return op if buffer is op.buffer and body is op.body else Allocate(buffer, body)

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        condition = self.mutate(op.condition)
        if isinstance(condition, IntImm):
            chosen = op.then_body if condition.value else op.else_body
            return sequence() if chosen is None else self.mutate(chosen)
        return self.mutate_branches(op, condition)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        if not self.values and op.predicate is None:
            return op
        predicate = None if op.predicate is None else self.mutate(op.predicate)
        if predicate is not None:
            if is_false(predicate):
                return sequence()
            predicate = None if is_true(predicate) else predicate
        value, indices, buffer = self.mutate(op.value), self.mutate_all(op.indices), self.mutate_buffer(op.buffer)
        if value is op.value and indices is op.indices and predicate is op.predicate and buffer is op.buffer:
            return op
        return BufferStore(buffer, value, indices, predicate)

    # Expressions.

    def generic_mutate(self, node: Any) -> Any:
        new = node.rebuild(self)
        return fold(new) if isinstance(new, Expr) and new is not node else new

    def mutate_Var(self, var: Var) -> Expr:
        return self.values.get(var, var)  # type: ignore[no-any-return]

    def mutate_BinaryOp(self, op: BinaryOp) -> Expr:
        return self._operations(op, [self.mutate(op.a)], [self.mutate(op.b)])[0]

    def _operations(self, op: BinaryOp, left: list[Expr], right: list[Expr]) -> list[Expr]:
        """Build the copies of an operation from those of its operands."""
        pairs = zip(left, right, strict=True)
        if op.dtype.lanes == 1 or op.dtype.is_bool:
            return [operation(op.op, a, b) for a, b in pairs]
        if Broadcast not in map(type, left) or Broadcast not in map(type, right):
            return [op.with_operands(a, b) for a, b in pairs]
        return [  # of other vectors, broadcasts alone may be folded
            operation(op.op, a, b) if type(a) is Broadcast and type(b) is Broadcast else op.with_operands(a, b)
            for a, b in pairs
        ]

    def mutate_Compare(self, op: Compare) -> Expr:
        made = fold(Compare(op.op, self.mutate(op.a), self.mutate(op.b)))
        if isinstance(made, Compare) and made.a.dtype.is_integer:  # facts at this place may decide it now
            return self.simplify(made)
        return made

    def mutate_Select(self, op: Select) -> Expr:
        condition = self.mutate(op.condition)
        if is_true(condition):
            return self.mutate(op.true_value)  # type: ignore[no-any-return]
        if is_false(condition):
            return self.mutate(op.false_value)  # type: ignore[no-any-return]
        return fold(Select(condition, self.mutate(op.true_value), self.mutate(op.false_value)))

    def mutate_UnaryOp(self, op: UnaryOp) -> Expr:
        return fold(UnaryOp(op.op, self.mutate(op.a)))
