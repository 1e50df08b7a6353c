"""What a PrimFunc costs for given sizes: operations, the bytes that it must move, and how wide its vectors are.

Operations are arithmetic on values, one for each element: a product and a sum are two, and so is ``fma``; ``exp`` is
one. Indices, comparisons and conversions count for nothing. Bytes are those of the parameters, each element once, as if
a cache held everything between its first and last use: what a kernel takes at least. This is the counting of the
roofline model (Williams, Waterman, Patterson: "Roofline: an insightful visual performance model", 2009).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Call, Compare, Expr, Select, UnaryOp, Var
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

#: Operations of one element of what an intrinsic gives; of others it is one.
_OPERATIONS = {"fma": 2, "reinterpret": 0, "interleave_low": 0, "interleave_high": 0}


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one call of a PrimFunc costs.

    Attributes:
        operations: arithmetic on values, by their type.
        read: bytes of parameters that it reads.
        written: bytes of parameters that it writes.
        vector_bits: the width of the vectors that do most of the operations.
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
    """What a call of ``func`` costs, whose integer parameters have these ``sizes``.

    A loop whose number of iterations depends on an outer one counts as in the middle of that; one whose number depends
    on data counts as one iteration. Of a condition both branches count.
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
    widths = counter.by_width
    width = max(widths, key=lambda bits: (widths[bits], bits)) if widths else 0
    return Cost(counter.operations, reads, writes, width)


class _Counter:
    """Walks the statements with the number of times that each runs."""

    def __init__(self, known: Mapping[Var, int]) -> None:
        self.known = dict(known)
        self.operations: dict[DataType, int] = {}
        self.by_width: dict[int, int] = {}
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
            first, extent = self.number(stmt.min), max(0, self.number(stmt.extent))
            self.known[stmt.var] = first + extent // 2
            self.statement(stmt.body, times * extent)
        elif isinstance(stmt, Block):
            self._block(stmt, times)
        elif isinstance(stmt, LetStmt):
            if stmt.var.dtype.is_float:
                self.values([stmt.value], times)
            else:
                self._bind(stmt.var, stmt.value)
            self.statement(stmt.body, times)
        elif isinstance(stmt, Allocate):
            self.statement(stmt.body, times)
        elif isinstance(stmt, IfThenElse):
            self.statement(stmt.then_body, times)
            if stmt.else_body is not None:
                self.statement(stmt.else_body, times)
        elif isinstance(stmt, BufferStore):
            lanes = max([stmt.value.dtype.lanes, *(index.dtype.lanes for index in stmt.indices)])
            self.stores[stmt.buffer] = self.stores.get(stmt.buffer, 0) + times * lanes
            self.values([stmt.value], times)
        elif isinstance(stmt, Evaluate):
            self.values([stmt.value], times)

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
        if block.init is not None:
            self.statement(block.init, times // reduced)
        self.statement(block.body, times)

    def values(self, roots: list[Expr], times: int) -> None:
        """Count what computes ``roots``: each expression once, however many use it."""
        seen: set[Node] = set()
        waiting: list[Expr] = list(roots)
        while waiting:
            expr = waiting.pop()
            if expr in seen:
                continue
            seen.add(expr)
            if isinstance(expr, BufferLoad):
                self.loads[expr.buffer] = self.loads.get(expr.buffer, 0) + times * expr.dtype.lanes
            elif isinstance(expr, Select):
                waiting += [expr.true_value, expr.false_value]
            elif isinstance(expr, Call) and expr.name in ("address_of", "prefetch"):
                continue
            elif not isinstance(expr, Compare):
                self._count(expr, times)
                waiting += [part for part in expr.parts() if isinstance(part, Expr)]

    def _count(self, expr: Expr, times: int) -> None:
        dtype = expr.dtype
        if isinstance(expr, (BinaryOp, UnaryOp)):
            operations = times * dtype.lanes
        elif isinstance(expr, Call) and expr.name == "dot":
            operations = 2 * times * expr.args[1].dtype.lanes
            dtype = expr.args[1].dtype
        elif isinstance(expr, Call) and expr.name.startswith("reduce_"):
            dtype = expr.args[0].dtype
            operations = times * (dtype.lanes - 1)
        elif isinstance(expr, Call) and dtype.kind not in ("void", "handle"):
            operations = times * dtype.lanes * _OPERATIONS.get(expr.name, 1)
        else:
            return
        if operations:
            element = dtype.element
            self.operations[element] = self.operations.get(element, 0) + operations
            bits = dtype.bits * dtype.lanes
            self.by_width[bits] = self.by_width.get(bits, 0) + operations
