"""Tell what a call gives a loop-level function and what it gets back: the roles of its parameters.

A function returns nothing: it writes to buffers among its parameters. Which these are its attribute ``num_outputs``
says, and where it has none, its body:

* a buffer that is only read is an *input*,
* one that is written, and of which no element is read before the function has written it, is a *result*,
* one that is written, and may be read before that, is *updated*: a call gives its old elements and gets the new ones.

That an element was written before is known where a read has the indices of a store in front of it, where a loop nest in
front of it has stored every element, and of the blocks in front of it. In all other cases a buffer counts as updated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, IntImm, Var
from tilewright.tensorir.functor import LOADS, kinds, loads_and_stores
from tilewright.tensorir.intrinsics import ADDRESSING
from tilewright.tensorir.keys import NUM_OUTPUTS, NUM_WORKSPACES
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
from tilewright.tensorir.structural import structural_equal

#: The first value and the number of values of each variable.
_Ranges = dict[Var, tuple[Expr, Expr]]


@dataclasses.dataclass(frozen=True)
class Interface:
    """The parameters of a function, each list in their order.

    Attributes:
        arguments: the buffers whose elements a call gives.
        results: those whose elements it gets.
        updated: those that are among both.
        workspaces: scratch memory.
        sizes: the variables.
    """

    arguments: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    updated: tuple[Buffer, ...]
    workspaces: tuple[Buffer, ...]
    sizes: tuple[Var, ...]

    def told_sizes(self) -> dict[Var, tuple[int, int]]:
        """Return the sizes that are a dimension of a buffer, each with the first place (tensor, axis): tensors are
        numbered from the first argument to the last result."""
        found: dict[Var, tuple[int, int]] = {}
        for number, buffer in enumerate((*self.arguments, *self.results)):
            for axis, extent in enumerate(buffer.shape):
                if isinstance(extent, Var):
                    found.setdefault(extent, (number, axis))
        return found


def interface_of(func: PrimFunc) -> Interface:
    """Return the roles of a function's parameters."""
    buffers = func.buffers
    scratch = int(func.attrs.get(NUM_WORKSPACES, 0))
    tensors, workspaces = buffers[: len(buffers) - scratch], buffers[len(buffers) - scratch :]
    if NUM_OUTPUTS in func.attrs:
        first = len(tensors) - int(func.attrs[NUM_OUTPUTS])
        return Interface(tensors[:first], tensors[first:], (), workspaces, func.variables)
    written = {access.buffer for access in loads_and_stores(func.body) if isinstance(access, BufferStore)}
    read_first = _reads_first(func, written)
    results = tuple(buffer for buffer in tensors if buffer in written)
    updated = tuple(buffer for buffer in results if buffer in read_first)
    arguments = tuple(buffer for buffer in tensors if buffer not in written or buffer in read_first)
    return Interface(arguments, results, updated, workspaces, func.variables)


def _reads_first(func: PrimFunc, written: Iterable[Buffer]) -> set[Buffer]:
    """Return the buffers, of those that a function writes, that it may read before."""
    finder = _ReadsFirst(written)
    finder.visit(func.body)
    return finder.found


class _ReadsFirst:
    """Walks through statements in their order, with what has been written before.

    Attributes:
        found: the buffers of which an element may be read before it is written.
    """

    def __init__(self, written: Iterable[Buffer]) -> None:
        self.found: set[Buffer] = set()
        self.written = set(written)
        #: The buffers whose every element has been written: by blocks, which run for all values of their variables
        #: however loops around them were split; and by plain loops.
        self.by_blocks: set[Buffer] = set()
        self.by_loops: set[Buffer] = set()
        #: The stores that have run whenever the present statement runs.
        self.stores: set[tuple[Buffer, tuple[Expr, ...]]] = set()
        #: The same with the ranges of the loops that were left since, as far as they are indices.
        self.nests: list[tuple[Buffer, tuple[Expr, ...], _Ranges]] = []

    def visit(self, stmt: Stmt) -> None:
        while isinstance(stmt, (LetStmt, Allocate)):  # chains of which are longer than recursion may be deep
            if isinstance(stmt, LetStmt):
                self.read(stmt.value)
            stmt = stmt.body
        if isinstance(stmt, SeqStmt):
            for part in stmt.stmts:
                self.visit(part)
        elif isinstance(stmt, For):
            self.loop(stmt)
        elif isinstance(stmt, Block):
            self.block(stmt)
        elif isinstance(stmt, BufferStore):
            self.read(*stmt.indices, stmt.value, stmt.predicate)
            if stmt.predicate is None:
                self.stores.add((stmt.buffer, stmt.indices))
                self.nests.append((stmt.buffer, stmt.indices, {}))
        elif isinstance(stmt, IfThenElse):
            self.read(stmt.condition)
            for branch in (stmt.then_body, stmt.else_body):
                if branch is not None:
                    self.branch(branch)
        elif isinstance(stmt, Evaluate):
            self.read(stmt.value)

    def read(self, *exprs: Expr | None) -> None:
        below: list[Node] = [expr for expr in exprs if expr is not None and kinds(expr) & LOADS]
        while below:
            node = below.pop()
            parts: Sequence[Node] = node.parts()
            if isinstance(node, Call) and node.name in ADDRESSING:
                parts = [part for arg in node.args for part in arg.parts()]  # an address, not what is there
            elif isinstance(node, BufferLoad) and self.may_be_unwritten(node):
                self.found.add(node.buffer)
            below.extend([part for part in parts if kinds(part) & LOADS])

    def may_be_unwritten(self, load: BufferLoad) -> bool:
        buffer = load.buffer
        if buffer not in self.written or buffer in self.by_blocks or buffer in self.by_loops:
            return False
        return (buffer, load.indices) not in self.stores

    def branch(self, stmt: Stmt) -> None:
        """Visit a statement that may not run."""
        before = set(self.by_blocks), set(self.by_loops), set(self.stores), list(self.nests)
        self.visit(stmt)
        self.by_blocks, self.by_loops, self.stores, self.nests = before

    def loop(self, loop: For) -> None:
        self.read(loop.min, loop.extent)
        runs = isinstance(loop.extent, IntImm) and loop.extent.value > 0
        stores, by_loops, outside = set(self.stores), set(self.by_loops), self.nests
        self.nests = []
        self.visit(loop.body)
        self.stores = stores
        if not runs:
            self.by_loops = by_loops
        inside, self.nests = self.nests, outside
        for buffer, indices, ranges in inside:
            if loop.var in indices:
                ranges = {**ranges, loop.var: (loop.min, loop.extent)}
                if _is_whole(buffer, indices, ranges):
                    self.by_loops.add(buffer)
            if runs or loop.var in indices:
                self.nests.append((buffer, indices, ranges))

    def block(self, block: Block) -> None:
        self.read(*[item.value for item in block.iters], block.predicate)
        stores, outside = set(self.stores), self.nests
        self.nests = []
        for part in (block.init, block.body):
            if part is not None:
                self.visit(part)
        ranges: _Ranges = {item.var: (item.min, item.extent) for item in block.iters}
        self.by_blocks.update(
            buffer for buffer, indices, inner in self.nests if _is_whole(buffer, indices, {**ranges, **inner})
        )
        self.stores, self.nests = stores, outside


def _is_whole(buffer: Buffer, indices: Sequence[Expr], ranges: _Ranges) -> bool:
    """Return whether stores at ``indices`` go to each element: an index is a variable that walks the dimension."""
    seen: set[Var] = set()
    for index, size in zip(indices, buffer.shape, strict=True):
        if isinstance(index, IntImm) and index.value == 0 and isinstance(size, IntImm) and size.value == 1:
            continue
        if not isinstance(index, Var) or index in seen or index not in ranges:
            return False
        first, extent = ranges[index]
        if not (isinstance(first, IntImm) and first.value == 0 and structural_equal(extent, size)):
            return False
        seen.add(index)
    return True
