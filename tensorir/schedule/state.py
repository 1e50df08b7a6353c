"""What schedule primitives share: the function being scheduled, where its blocks and loops are, and how to edit it.

A function that can be scheduled is made of allocations, sequences, loops and blocks; everything that computes stands
in a block. Edits never change a node: they copy the path from the root to the changed place.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NoReturn, cast

from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Expr, IntImm, Var, as_expr
from tilewright.tensorir.functor import substitute, walk
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer import underline
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    LetStmt,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    sequence,
)


@dataclasses.dataclass(frozen=True)
class BlockRef:
    """A handle of a block: its name, so that it survives every edit that keeps the block."""

    name: str


@dataclasses.dataclass(frozen=True)
class LoopRef:
    """A handle of a loop: its variable, so that it survives every edit that keeps the loop."""

    var: Var

    @property
    def name(self) -> str:
        """The name of the loop's variable."""
        return self.var.name


@dataclasses.dataclass(frozen=True)
class Accesses:
    """The indices at which a block reads and writes each buffer (in init and body)."""

    reads: Mapping[Buffer, tuple[BufferLoad, ...]]
    writes: Mapping[Buffer, tuple[BufferStore, ...]]


_accesses: weakref.WeakKeyDictionary[Block, Accesses] = weakref.WeakKeyDictionary()


def accesses(block: Block) -> Accesses:
    """What ``block`` reads and writes, collected once for each block."""
    found = _accesses.get(block)
    if found is None:
        reads: dict[Buffer, list[BufferLoad]] = {}
        writes: dict[Buffer, list[BufferStore]] = {}
        for part in (block.init, block.body):
            for node in walk(part) if part is not None else ():
                if isinstance(node, BufferLoad):
                    reads.setdefault(node.buffer, []).append(node)
                elif isinstance(node, BufferStore):
                    writes.setdefault(node.buffer, []).append(node)
        found = _accesses[block] = Accesses(
            {buffer: tuple(loads) for buffer, loads in reads.items()},
            {buffer: tuple(stores) for buffer, stores in writes.items()},
        )
    return found


class State:
    """One version of the function, and an index of it: for each block and loop the path of statements from the body
    of the function down to it (both included)."""

    def __init__(
        self, func: PrimFunc, from_separate_nests: bool | None = None, apart: Collection[str] = frozenset()
    ) -> None:
        self.func = func
        self.blocks: dict[str, tuple[Stmt, ...]] = {}
        self.loops: dict[Var, tuple[Stmt, ...]] = {}
        self._scan(func.body, ())
        #: Whether the schedule began with a function in which no loop holds two blocks and none has a predicate: then
        #: blocks have come together only by primitives that keep what a block reads produced in the same iteration,
        #: and predicates only say that iteration variables stay in their ranges.
        self.from_separate_nests = _are_separate(func.body) if from_separate_nests is None else from_separate_nests
        #: The names of blocks whose spatial variables have other values in each iteration of the loops that drive
        #: them: those bound to one loop each, and what split and fuse made of them. From the quotients and remainders
        #: that come of several of these, once simplified, it is hard to find out again.
        self.apart = frozenset(
            name for name, path in self.blocks.items() if name in apart or _is_bound_to_loops(cast(Block, path[-1]))
        )

    def _scan(self, stmt: Stmt, above: tuple[Stmt, ...]) -> None:
        path = (*above, stmt)
        if isinstance(stmt, Block):
            if stmt.name in self.blocks:
                self.fail(f"two blocks are named {stmt.name}; names tell blocks apart", stmt)
            self.blocks[stmt.name] = path
        elif isinstance(stmt, For):
            if stmt.var in self.loops:
                self.fail(f"two loops have the same variable {stmt.var.name}", stmt)
            self.loops[stmt.var] = path
            self._scan(stmt.body, path)
        elif isinstance(stmt, SeqStmt):
            for part in stmt.stmts:
                self._scan(part, path)
        elif isinstance(stmt, Allocate):
            self._scan(stmt.body, path)
        else:
            self.fail(f"a schedule needs every computation in a block; found {type(stmt).__name__} outside", stmt)

    # -- errors --------------------------------------------------------------------------------------------------

    def fail(self, message: str, node: Node | None = None, note: str = "") -> NoReturn:
        """Raise a ScheduleError that says ``message`` and shows ``node`` underlined in the function."""
        where = "" if node is None else "\n" + underline(self.func, node, note)
        raise ScheduleError(message + where)

    # -- finding -------------------------------------------------------------------------------------------------

    def block_path(self, ref: BlockRef) -> tuple[Stmt, ...]:
        """The path to a block.

        Raises:
            ScheduleError: there is no such block (any more).
        """
        if not isinstance(ref, BlockRef):
            raise ScheduleError(f"expected a block, as get_block() gives it; found {ref!r}")
        path = self.blocks.get(ref.name)
        if path is None:
            names = ", ".join(self.blocks)
            raise ScheduleError(f"there is no block {ref.name} in {self.func.name}; its blocks are {names}")
        return path

    def block(self, ref: BlockRef) -> Block:
        """The block that a handle stands for."""
        found = self.block_path(ref)[-1]
        assert isinstance(found, Block)
        return found

    def loop_path(self, ref: LoopRef) -> tuple[Stmt, ...]:
        """The path to a loop.

        Raises:
            ScheduleError: there is no such loop (any more).
        """
        if not isinstance(ref, LoopRef):
            raise ScheduleError(f"expected a loop, as get_loops() gives it; found {ref!r}")
        path = self.loops.get(ref.var)
        if path is None:
            names = ", ".join(var.name for var in self.loops)
            raise ScheduleError(
                f"there is no loop {ref.name} in {self.func.name} (any more: split and fuse replace loops); "
                f"its loops are {names}"
            )
        return path

    def loop(self, ref: LoopRef) -> For:
        """The loop that a handle stands for."""
        found = self.loop_path(ref)[-1]
        assert isinstance(found, For)
        return found

    def all_blocks(self) -> list[Block]:
        """All blocks, in program order."""
        return [path[-1] for path in self.blocks.values() if isinstance(path[-1], Block)]

    def writers(self, buffer: Buffer) -> list[Block]:
        """The blocks that write ``buffer``, in program order."""
        return [block for block in self.all_blocks() if buffer in accesses(block).writes]

    def readers(self, buffer: Buffer) -> list[Block]:
        """The blocks that read ``buffer`` and do not write it, in program order."""
        return [
            block
            for block in self.all_blocks()
            if buffer in accesses(block).reads and buffer not in accesses(block).writes
        ]

    def position(self, block: Block) -> int:
        """The place of a block in program order."""
        return list(self.blocks).index(block.name)

    def is_parameter(self, buffer: Buffer) -> bool:
        """Whether ``buffer`` is a parameter of the function (and not allocated in it)."""
        return any(param is buffer for param in self.func.params)

    def buffers(self) -> dict[str, Buffer]:
        """All buffers by name; the parameters first."""
        found: dict[str, Buffer] = {}
        for buffer in self.func.buffers:
            found.setdefault(buffer.name, buffer)
        for buffer in allocated_buffers(self.func.body):
            found.setdefault(buffer.name, buffer)
        return found

    def unique_block_name(self, name: str) -> str:
        """``name``, numbered if a block has it already."""
        return _unique(name, self.blocks)

    def unique_buffer_name(self, name: str) -> str:
        """``name``, numbered if a buffer has it already."""
        return _unique(name, self.buffers())

    # -- editing -------------------------------------------------------------------------------------------------

    def with_body(self, body: Stmt | None, one_to_one: bool = False) -> State:
        """The state after the function's body was replaced.

        Args:
            one_to_one: the iterations of the loops around each block map one to one to those before.
        """
        assert body is not None
        apart = self.apart
        if not one_to_one:
            kept = {block.name for block in blocks_in(body) if block is self.blocks.get(block.name, (None,))[-1]}
            apart = apart & kept
        return State(self.func.with_body(body), self.from_separate_nests, apart)

    def replace(self, table: Mapping[Stmt, Stmt | None], one_to_one: bool = False) -> State:
        """The state with statements replaced (None: removed, with the loops that become empty)."""
        return self.with_body(rewrite(self.func.body, table), one_to_one)

    def allocate(self, buffer: Buffer) -> State:
        """The state with one more buffer, allocated at the top."""
        return self.with_body(Allocate(buffer, self.func.body))

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def analyzer(self, loops: Iterable[For] = ()) -> Analyzer:
        """An analyzer that knows the symbolic dimensions (none is negative) and the ranges of ``loops``."""
        analyzer = Analyzer()
        for var in self.func.variables:
            analyzer.bind_nonnegative(var)
        for loop in loops:
            analyzer.bind(loop.var, loop.min, loop.extent)
            analyzer.assume(loop.extent > 0)  # what is asked is asked inside
        return analyzer


def _are_separate(stmt: Stmt) -> bool:
    if isinstance(stmt, Allocate):
        return _are_separate(stmt.body)
    if isinstance(stmt, SeqStmt):
        return all(_are_separate(part) for part in stmt.stmts)
    inside = blocks_in(stmt)
    return len(inside) == 1 and inside[0].predicate is None


def _is_bound_to_loops(block: Block) -> bool:
    values = [item.value for item in block.iters if item.kind == "spatial"]
    return all(isinstance(value, Var) for value in values) and len(set(values)) == len(values)


def _unique(name: str, used: Mapping[str, object]) -> str:
    candidate, number = name, 0
    while candidate in used:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def allocated_buffers(stmt: Stmt) -> list[Buffer]:
    """The buffers that are allocated in the statements above the blocks, in order."""
    found: list[Buffer] = []
    stack = [stmt]
    while stack:
        current = stack.pop()
        if isinstance(current, Allocate):
            found.append(current.buffer)
            stack.append(current.body)
        elif isinstance(current, For):
            stack.append(current.body)
        elif isinstance(current, SeqStmt):
            stack.extend(reversed(current.stmts))
    return found


def rewrite(stmt: Stmt, table: Mapping[Stmt, Stmt | None]) -> Stmt | None:
    """``stmt`` with the statements in ``table`` replaced; None for what is removed or becomes empty."""
    if stmt in table:
        return table[stmt]
    if isinstance(stmt, (For, Allocate)):
        body = rewrite(stmt.body, table)
        if body is stmt.body:
            return stmt
        if body is None:
            return None
        return with_loop_body(stmt, body) if isinstance(stmt, For) else Allocate(stmt.buffer, body)
    if isinstance(stmt, SeqStmt):
        parts = [rewrite(part, table) for part in stmt.stmts]
        if all(new is old for new, old in zip(parts, stmt.stmts, strict=True)):
            return stmt
        kept = [part for part in parts if part is not None]
        return sequence(*kept) if kept else None
    return stmt


def with_loop_body(loop: For, body: Stmt) -> For:
    """The loop with another body."""
    return loop if body is loop.body else For(loop.var, loop.min, loop.extent, loop.kind, body, loop.annotations)


def loops_in(path: Sequence[Stmt]) -> list[For]:
    """The loops on a path, outermost first."""
    return [stmt for stmt in path if isinstance(stmt, For)]


def blocks_in(stmt: Stmt) -> list[Block]:
    """The blocks in ``stmt``, in program order."""
    if isinstance(stmt, Block):
        return [stmt]
    if isinstance(stmt, SeqStmt):
        return [block for part in stmt.stmts for block in blocks_in(part)]
    if isinstance(stmt, (For, Allocate)):
        return blocks_in(stmt.body)
    return []


def loops_to(stmt: Stmt, block: Block) -> list[For]:
    """The loops from ``stmt`` (included) down to ``block``, which it holds."""
    if isinstance(stmt, For):
        return [stmt, *loops_to(stmt.body, block)]
    if isinstance(stmt, SeqStmt):
        for part in stmt.stmts:
            if any(found is block for found in blocks_in(part)):
                return loops_to(part, block)
    if isinstance(stmt, Allocate):
        return loops_to(stmt.body, block)
    return []


def substitute_loops(stmt: Stmt, values: Mapping[Var, Expr], analyzer: Analyzer | None = None) -> Stmt:
    """``stmt`` with loop variables replaced. They only occur in bounds of loops and in the bindings and predicates of
    blocks, so nothing else is looked at. What changes is simplified if an analyzer is given."""

    def change(expr: Expr) -> Expr:
        if isinstance(expr, IntImm):
            return expr
        new = substitute(expr, values)
        if isinstance(expr, Var) or new is expr or analyzer is None:
            return new
        return shorter(new, analyzer)

    if isinstance(stmt, For):
        begin, extent, body = change(stmt.min), change(stmt.extent), substitute_loops(stmt.body, values, analyzer)
        if begin is stmt.min and extent is stmt.extent and body is stmt.body:
            return stmt
        return For(stmt.var, begin, extent, stmt.kind, body, stmt.annotations)
    if isinstance(stmt, SeqStmt):
        return SeqStmt(tuple(substitute_loops(part, values, analyzer) for part in stmt.stmts))
    if isinstance(stmt, Allocate):
        return Allocate(stmt.buffer, substitute_loops(stmt.body, values, analyzer))
    if isinstance(stmt, Block):
        iters = tuple(
            item if (new := change(item.value)) is item.value else with_value(item, new) for item in stmt.iters
        )
        predicate = None if stmt.predicate is None else substitute(stmt.predicate, values)
        return change_block(stmt, iters=iters, predicate=predicate)
    return stmt


def shorter(expr: Expr, analyzer: Analyzer) -> Expr:
    """``expr`` simplified, if that makes it shorter. The canonical form of quotients and remainders may be longer, and
    hides how loops were split and fused: ``(i * 32 + j) // 21`` becomes ``i + (i * 11 + j) // 21``."""
    simple = analyzer.simplify(expr)
    return simple if sum(1 for _ in walk(simple)) < sum(1 for _ in walk(expr)) else expr


def with_value(item: IterVar, value: Expr) -> IterVar:
    """The iteration variable with another binding."""
    return IterVar(item.var, item.min, item.extent, item.kind, value)


class _Keep:
    """Says that a part of a block stays."""


_KEEP = _Keep()


def change_block(
    block: Block,
    *,
    name: str | None = None,
    iters: tuple[IterVar, ...] | None = None,
    predicate: Expr | _Keep | None = _KEEP,
    init: Stmt | _Keep | None = _KEEP,
    body: Stmt | None = None,
    annotations: Mapping[str, object] | None = None,
) -> Block:
    """The block with parts changed; its reads and writes are found again if what it computes changed."""
    new_iters = block.iters if iters is None else iters
    new_init = block.init if isinstance(init, _Keep) else init
    new_body = block.body if body is None else body
    changed = new_init is not block.init or new_body is not block.body
    changed = changed or any(a.var is not b.var for a, b in zip(new_iters, block.iters, strict=False))
    reads, writes = block.reads, block.writes
    made = Block(
        block.name if name is None else name,
        new_iters,
        block.predicate if isinstance(predicate, _Keep) else predicate,
        reads,
        writes,
        new_init,
        new_body,
        block.annotations if annotations is None else annotations,
    )
    if not changed:
        if block in _accesses:
            _accesses[made] = _accesses[block]
        return made
    reads, writes = regions_of(made)
    return Block(made.name, made.iters, made.predicate, reads, writes, made.init, made.body, made.annotations)


def regions_of(block: Block) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """The declared reads and writes of a block: its accesses in terms of its iteration variables.

    A buffer that a reduction with init reads and writes only counts as written. An index that uses variables which
    are defined inside the body stands for the whole dimension.
    """
    found = accesses(block)
    known = {item.var for item in block.iters}
    inner = {
        node.var
        for part in (block.init, block.body)
        if part is not None
        for node in walk(part)
        if isinstance(node, (For, LetStmt))
    }

    def region(buffer: Buffer, indices: Sequence[Expr]) -> BufferRegion:
        ranges = []
        for index, extent in zip(indices, buffer.shape, strict=True):
            varies = any(
                isinstance(node, BufferLoad) or (isinstance(node, Var) and node in inner and node not in known)
                for node in walk(index)
            )
            ranges.append(Range(as_expr(0), extent) if varies else Range(index, as_expr(1)))
        return BufferRegion(buffer, tuple(ranges))

    def regions(buffer: Buffer, places: Iterable[Sequence[Expr]]) -> list[BufferRegion]:
        distinct: dict[tuple[object, ...], BufferRegion] = {}
        for indices in places:
            distinct.setdefault(tuple(structure(index) for index in indices), region(buffer, indices))
        return list(distinct.values())

    reads: list[BufferRegion] = []
    for buffer, loads in found.reads.items():
        if buffer not in found.writes or block.init is None:
            reads.extend(regions(buffer, (load.indices for load in loads)))
    writes: list[BufferRegion] = []
    for buffer, stores in found.writes.items():
        writes.extend(regions(buffer, (store.indices for store in stores)))
    return tuple(reads), tuple(writes)


def variables_of(expr: Expr) -> set[Var]:
    """The variables in an expression."""
    if isinstance(expr, Var):
        return {expr}
    return {node for node in walk(expr) if isinstance(node, Var)}


def structure(expr: Expr) -> object:
    """A hashable value that is equal for integer expressions of one structure."""
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, BinaryOp):
        return (expr.op, structure(expr.a), structure(expr.b))
    return expr


def constant_value(expr: Expr) -> int | None:
    """The value of an integer constant; None for any other expression."""
    return expr.value if isinstance(expr, IntImm) else None
