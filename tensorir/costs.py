"""Count the operations of a PrimFunc for given sizes, the bytes that it must move, and the width of its vectors.

Operations are arithmetic on values, one for each element: a product and a sum are two, and so is ``fma``; ``exp`` is
one. Indices, comparisons and conversions count for nothing. Bytes are those of the parameters, each element once, as if
a cache held everything between its first and last use: a lower bound of the traffic. Elements that the function writes
before it reads them, such as the sums of a product, do not count as read. The roofline model counts so (Williams,
Waterman, Patterson: "Roofline: an insightful visual performance model", 2009).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Call, Expr, FloatImm, IntImm, UnaryOp, Var
from tilewright.tensorir.intrinsics import ADDRESSING, find_intrinsic
from tilewright.tensorir.known_numbers import integer_value
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """The operations and bytes of one call of a PrimFunc.

    Attributes:
        operations: arithmetic on values, by their type.
        read: bytes of parameters that it reads.
        written: bytes of parameters that it writes.
        vector_bits: the width of the vectors that do most of the operations (of a function without any: that store
            most); 0 if most are done one by one.
    """

    operations: Mapping[DataType, int]
    read: int
    written: int
    vector_bits: int

    @property
    def total_operations(self) -> int:
        """Operations of all types."""
        return sum(self.operations.values())

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


def function_cost(func: PrimFunc, sizes: Mapping[Var, int]) -> Cost:
    """Count the operations and bytes of a call of ``func``, whose integer parameters have these ``sizes``.

    A loop whose number of iterations depends on an outer loop counts as in the middle of that loop; a loop whose number
    depends on data counts as one iteration. Both branches of a condition count. Calls of PrimFuncs count for nothing.
    """
    counter = _Counter(sizes)
    counter.statement(func.body, 1)
    reads = writes = 0
    for param in func.params:
        if isinstance(param, Buffer):
            whole = 1
            for extent in param.shape:
                whole *= counter.number(extent)
            reads += min(whole, counter.loads.get(param, 0)) * param.dtype.bytes
            writes += min(whole, counter.stores.get(param, 0)) * param.dtype.bytes
    widths = counter.by_width or counter.stored_by_width
    width = max(widths, key=lambda bits: (widths[bits], bits)) if widths else 0
    return Cost(counter.operations, reads, writes, width)


def stores(stmt: Stmt, unknown: int) -> int:
    """Return the number of stores, of scalars or vectors, that ``stmt`` executes.

    Args:
        unknown: the iterations of a loop whose extent is not constant.
    """
    if isinstance(stmt, For):
        extent = stmt.extent.value if isinstance(stmt.extent, IntImm) else unknown
        return stores(stmt.body, unknown) * (1 if stmt.kind == "vectorized" else extent)
    return isinstance(stmt, BufferStore) + sum(stores(part, unknown) for part in stmt.parts() if isinstance(part, Stmt))


class _Counter:
    """Walks the statements and multiplies counts by the number of times that each runs."""

    def __init__(self, known: Mapping[Var, int]) -> None:
        self.known = dict(known)
        self.operations: dict[DataType, int] = {}
        self.by_width: dict[int, int] = {}
        self.stored_by_width: dict[int, int] = {}
        #: Elements that are read before the function itself has written the buffer.
        self.loads: dict[Buffer, int] = {}
        self.stores: dict[Buffer, int] = {}

    def number(self, expr: Expr) -> int:
        """The value of an integer expression; 1 if it depends on data."""
        value = integer_value(expr, self.known)
        return 1 if value is None else value

    def statement(self, stmt: Stmt, times: int) -> None:
        # Recursion follows the nesting of loops, which is shallow; sequences are loops here.
        if isinstance(stmt, SeqStmt):
            for part in stmt.stmts:
                self.statement(part, times)
        elif isinstance(stmt, For):
            self.values([], times, indices=[stmt.min, stmt.extent])
            first, extent = self.number(stmt.min), max(0, self.number(stmt.extent))
            self.known[stmt.var] = first + extent // 2
            self.statement(stmt.body, times * extent)
        elif isinstance(stmt, Block):
            self._block(stmt, times)
        elif isinstance(stmt, LetStmt):
            self._bind(stmt.var, stmt.value)
            self.values([stmt.value], times)
            self.statement(stmt.body, times)
        elif isinstance(stmt, Allocate):
            self.statement(stmt.body, times)
        elif isinstance(stmt, IfThenElse):
            self.values([stmt.condition], times)
            self.statement(stmt.then_body, times)
            if stmt.else_body is not None:
                self.statement(stmt.else_body, times)
        elif isinstance(stmt, BufferStore):
            self._store(stmt, times)
        elif isinstance(stmt, Evaluate):
            self.values([stmt.value], times)

    def _store(self, stmt: BufferStore, times: int) -> None:
        condition = [stmt.predicate] if stmt.predicate is not None else []
        self.values([stmt.value, *condition], times, indices=stmt.indices)
        lanes = max([stmt.value.dtype.lanes, *(index.dtype.lanes for index in stmt.indices)])
        if times:
            self.stores[stmt.buffer] = self.stores.get(stmt.buffer, 0) + times * lanes
            _add(self.stored_by_width, _width(stmt.value.dtype), times * lanes)

    def _bind(self, var: Var, value: Expr) -> None:
        found = integer_value(value, self.known)
        if found is not None:
            self.known[var] = found

    def _block(self, block: Block, times: int) -> None:
        reduced = 1
        for item in block.iters:
            self._bind(item.var, item.value)
            if item.kind == "reduction":
                reduced *= max(1, self.number(item.extent))
        if block.predicate is not None:
            self.values([block.predicate], times)
        if block.init is not None:
            self.statement(block.init, times // reduced)
        self.statement(block.body, times)

    def values(self, roots: Sequence[Expr], times: int, indices: Sequence[Expr] = ()) -> None:
        """Count what computes ``roots``: each expression once, however many use it; of ``indices`` only what they
        load."""
        seen: set[tuple[Node, bool]] = set()
        waiting = [(expr, False) for expr in roots] + [(expr, True) for expr in indices]
        while waiting:
            expr, is_index = waiting.pop()
            if (expr, is_index) in seen or isinstance(expr, (Var, IntImm, FloatImm)):
                continue
            seen.add((expr, is_index))
            if isinstance(expr, BufferLoad):
                if expr.buffer not in self.stores:
                    self.loads[expr.buffer] = self.loads.get(expr.buffer, 0) + times * expr.dtype.lanes
                waiting += [(index, True) for index in expr.indices]
                if expr.predicate is not None:
                    waiting.append((expr.predicate, False))
                continue
            if isinstance(expr, Call) and expr.name in ADDRESSING:
                continue
            if not is_index:
                if expr.dtype.lanes == 1 and integer_value(expr, self.known) is not None:
                    continue  # computed from loop variables and sizes alone: part of an address, not of a value
                self._count(expr, times)
            waiting += [(part, is_index) for part in expr.parts() if isinstance(part, Expr)]

    def _count(self, expr: Expr, times: int) -> None:
        dtype = expr.dtype
        if isinstance(expr, (BinaryOp, UnaryOp)):
            operations = times * dtype.lanes
        elif isinstance(expr, Call) and not expr.name.startswith("@"):
            dtype, each = find_intrinsic(expr.name).count_operations([arg.dtype for arg in expr.args], dtype)
            operations = times * each
        else:
            return
        if operations:
            _add(self.operations, dtype.element, operations)
            _add(self.by_width, _width(dtype), operations)


def _width(dtype: DataType) -> int:
    """Bits of a vector; 0 for a scalar."""
    return dtype.bits * dtype.lanes if dtype.lanes > 1 else 0


_K = TypeVar("_K")


def _add(sums: dict[_K, int], key: _K, number: int) -> None:
    sums[key] = sums.get(key, 0) + number
