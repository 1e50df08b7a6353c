"""State that schedule primitives share: the function being scheduled, with lookup and editing of its blocks and loops.

A function that can be scheduled is made of allocations, sequences, loops and blocks; all computation is inside blocks.
Edits never change a node: they copy the path from the root to the changed place.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NoReturn

from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.arith.facts import Findings
from tilewright.tensorir.arith.places import order_of
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Buffer, IntImm, Var
from tilewright.tensorir.nesting import bounded
from tilewright.tensorir.node import Node, notes_on
from tilewright.tensorir.printer import underline
from tilewright.tensorir.schedule.blocks import accesses
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.nests import (
    Keys,
    allocated_buffers,
    blocks_in,
    find,
    keys_on,
    rewrite,
    walk_nests,
    with_end,
)
from tilewright.tensorir.schedule.questions import Questions
from tilewright.tensorir.stmt import Allocate, Block, For, PrimFunc, SeqStmt, Stmt
from tilewright.tensorir.unique_names import unique_name


class _Shared:
    """The results of analyzers about the versions of a function, which share them; made when the first is needed."""

    def __init__(self, func: PrimFunc) -> None:
        self._func = func
        self._findings: Findings | None = None

    @property
    def findings(self) -> Findings:
        if self._findings is None:
            self._findings = Findings(order_of(self._func), shared=True)
        return self._findings


class State:
    """One version of the function. Blocks and loops are looked up from the body down: every sequence keeps an index of
    the blocks and loops in its statements, and most edits leave most sequences as they are."""

    def __init__(self, func: PrimFunc) -> None:
        self._func = func
        self.body = func.body
        self._shared = _Shared(func)
        #: Whether the schedule began with a function in which no loop holds two blocks and none has a predicate: then
        #: blocks have come together only by primitives that keep what a block reads produced in the same iteration,
        #: and predicates only say that iteration variables stay in their ranges.
        self.from_separate_nests = self._checked(func)
        self._apart: Collection[str] = frozenset()
        self._paths: dict[Var | str, tuple[Stmt, ...] | None] = {}
        #: The path that was found or edited last, and the keys on it: schedules work at one nest for a while.
        self._line: tuple[Stmt, ...] = ()
        self._keys: Keys = []
        self._blocks: tuple[Block, ...] | None = None
        self._named: dict[str, Block] | None = None

    @property
    def func(self) -> PrimFunc:
        """The function, made when it is first asked for: most versions are only steps to the next."""
        if self._func.body is not self.body:
            self._func = self._func.with_body(self.body)
        return self._func

    def _checked(self, func: PrimFunc) -> bool:
        """Check that ``func`` can be scheduled; return whether its blocks are in nests of their own."""
        notes = notes_on(func.body)  # several passes begin a schedule of a function that none of them changes
        found: bool | None = notes.get(State)
        if found is None:
            with bounded("scheduling", func):
                self._check(func.body, set(), set())
            found = notes[State] = _are_separate(func.body)
        return found

    def _check(self, stmt: Stmt, names: set[str], variables: set[Var]) -> None:
        """Check that a function can be scheduled."""
        while True:
            if type(stmt) is For:
                if stmt.var in variables:
                    self.fail(f"two loops have the same variable {stmt.var.name}", stmt)
                variables.add(stmt.var)
            elif type(stmt) is not Allocate:
                break
            stmt = stmt.body
        if isinstance(stmt, Block):
            if stmt.name in names:
                self.fail(f"two blocks are named {stmt.name}; expected unique names", stmt)
            names.add(stmt.name)
        elif isinstance(stmt, SeqStmt):
            for part in stmt.stmts:
                self._check(part, names, variables)
        else:
            self.fail(
                f"a schedule needs every computation in a block; found {type(stmt).__name__} outside of blocks", stmt
            )

    # -- errors --------------------------------------------------------------------------------------------------

    def fail(self, message: str, node: Node | None = None, note: str = "") -> NoReturn:
        """Raise a ScheduleError that says ``message`` and shows ``node`` underlined in the function."""
        raise ScheduleError(message, None if node is None else lambda: underline(self.func, node, note))

    # -- finding -------------------------------------------------------------------------------------------------

    def _path_to(self, key: Var | str) -> tuple[Stmt, ...] | None:
        paths = self._paths
        if key not in paths:
            paths[key] = self._search(key)
        return paths[key]

    def _search(self, key: Var | str) -> tuple[Stmt, ...] | None:
        line = self._line
        if key in self._keys:
            return line[: self._keys.index(key) + 1]
        path = list(line[:-1])
        keys = self._keys[:-1]
        if not line or type(line[-1]) is Block or not find(line[-1], key, path, keys):
            path = []
            keys = []
            if not find(self.body, key, path, keys):
                return None
        self._line, self._keys = tuple(path), keys
        return self._line

    def block_path(self, ref: BlockRef) -> tuple[Stmt, ...]:
        """The path to a block.

        Raises:
            ScheduleError: there is no such block (any more).
        """
        if not isinstance(ref, BlockRef):
            raise ScheduleError(f"expected a block, as get_block() gives it; found {ref!r}")
        path = self._path_to(ref.name)
        if path is None:
            names = ", ".join([block.name for block in self.all_blocks()])
            raise ScheduleError(f"there is no block {ref.name} in {self.func.name}; its blocks are {names}")
        return path

    def block(self, ref: BlockRef) -> Block:
        """The block that a handle stands for."""
        named = self._named
        if named is None:
            named = self._named = {block.name: block for block in self.all_blocks()}
        found = named.get(ref.name) if isinstance(ref, BlockRef) else None
        if found is None:
            self.block_path(ref)  # it raises, and says what is wrong
        assert found is not None
        return found

    def loop_path(self, ref: LoopRef) -> tuple[Stmt, ...]:
        """The path to a loop.

        Raises:
            ScheduleError: there is no such loop (any more).
        """
        if not isinstance(ref, LoopRef):
            raise ScheduleError(f"expected a loop, as get_loops() gives it; found {ref!r}")
        path = self._path_to(ref.var)
        if path is None:
            names = ", ".join([stmt.var.name for stmt in walk_nests(self.body) if isinstance(stmt, For)])
            raise ScheduleError(
                f"there is no loop {ref.name} in {self.func.name} (split and fuse replace loops); its loops are {names}"
            )
        return path

    def has_loop(self, var: Var) -> bool:
        """Return whether ``var`` is the variable of one of the loops."""
        return self._path_to(var) is not None

    def loop(self, ref: LoopRef) -> For:
        """The loop that a handle stands for."""
        found = self.loop_path(ref)[-1]
        assert isinstance(found, For)
        return found

    def all_blocks(self) -> tuple[Block, ...]:
        """All blocks, in program order."""
        if self._blocks is None:
            self._blocks = blocks_in(self.body)
        return self._blocks

    def writers(self, buffer: Buffer) -> list[Block]:
        """The blocks that write ``buffer``, in program order."""
        return [block for block in self.all_blocks() if buffer in accesses(block).writes]

    def readers(self, buffer: Buffer) -> list[Block]:
        """The blocks that read ``buffer`` and do not write it, in program order."""
        found = []
        for block in self.all_blocks():
            own = accesses(block)
            if buffer in own.reads and buffer not in own.writes:
                found.append(block)
        return found

    def position(self, block: Block) -> int:
        """The place of a block in program order."""
        return [other.name for other in self.all_blocks()].index(block.name)

    def is_apart(self, block: Block) -> bool:
        """Return whether the spatial variables of a block have different values in each iteration of the loops that
        drive them: each is bound to a loop, or to the loops that split and fuse made of it. That is recorded because it
        is hard to prove again from simplified quotients and remainders."""
        return block.name in self._apart or _is_bound_to_loops(block)

    def is_parameter(self, buffer: Buffer) -> bool:
        """Return whether ``buffer`` is a parameter of the function (and not allocated in it)."""
        return buffer in self._func.params

    def buffers(self) -> dict[str, Buffer]:
        """All buffers by name; the parameters first."""
        found: dict[str, Buffer] = {}
        for buffer in self._func.buffers:
            found.setdefault(buffer.name, buffer)
        for buffer in allocated_buffers(self.body):
            found.setdefault(buffer.name, buffer)
        return found

    def unique_block_name(self, name: str) -> str:
        """``name``, numbered if a block has it already."""
        return unique_name(name, {block.name for block in self.all_blocks()})

    def unique_buffer_name(self, name: str) -> str:
        """``name``, numbered if a buffer has it already."""
        return unique_name(name, self.buffers())

    @property
    def variables(self) -> tuple[Var, ...]:
        """The symbolic dimensions."""
        return self._func.variables

    # -- editing -------------------------------------------------------------------------------------------------

    def with_body(self, body: Stmt | None, one_to_one: bool = False) -> State:
        """The state after the function's body was replaced.

        Args:
            one_to_one: the iterations of the loops around each block map one to one to those before.
        """
        return self._edited(body, {self.body: body}, one_to_one)

    def replace(
        self, table: Mapping[Stmt, Stmt | None], one_to_one: bool = False, unused: Buffer | None = None
    ) -> State:
        """The state with statements replaced (None: removed, with the loops that become empty).

        Args:
            unused: a buffer that nothing accesses any more, but statements in ``table`` did: its allocation is removed.
        """
        paths = []
        for stmt in table:
            key = stmt.name if isinstance(stmt, Block) else stmt.var if isinstance(stmt, For) else None
            path = None if key is None else self._path_to(key)
            if path is None or path[-1] is not stmt:
                break  # another statement may be anywhere
            paths.append(path)
        if len(paths) == len(table) == 1 and unused is None:
            line = with_end(paths[0], table[paths[0][-1]])
            made = self._edited(line[0] if line else None, table, one_to_one)
            made._line, made._keys = line, self._keys_around(paths[0])[: len(line) - 1] + keys_on(line[-1:])
            return made
        known = {stmt for path in paths for stmt in path} if len(paths) == len(table) else None
        return self._edited(rewrite(self.body, table, known, unused), table, one_to_one)

    def with_loops(self, path: Sequence[Stmt], new: For) -> State:
        """The state with the loop at the end of ``path`` replaced by ``new``, which holds the same blocks, and loops
        over the same variables."""
        line = with_end(path, new, same_contents=True)
        made = self._version(line[0])
        made._apart, made._blocks, made._named = self._apart, self._blocks, self._named
        end, known = len(path), self._line
        if end < len(known) and known[end] is new.body:
            made._line, made._keys = line + known[end:], self._keys
        else:
            made._line, made._keys = line, [*self._keys_around(path), new.var]
        return made

    def _keys_around(self, path: Sequence[Stmt]) -> Keys:
        """The keys on ``path`` but for that of its last statement."""
        end = len(path) - 1
        is_known = end < len(self._line) and self._line[end] is path[-1]
        return self._keys[:end] if is_known else keys_on(path[:-1])

    def _edited(self, body: Stmt | None, table: Mapping[Stmt, Stmt | None], one_to_one: bool) -> State:
        """The state with another body, in which the statements in ``table`` were replaced."""
        assert body is not None
        apart: set[str] | None = None
        if one_to_one or self._apart:
            for old, new in table.items():
                kept = () if new is None else blocks_in(new)
                for block in blocks_in(old):
                    if block in kept or (block.name in self._apart) is one_to_one:
                        continue
                    apart = set(self._apart) if apart is None else apart
                    if not one_to_one:
                        apart.remove(block.name)
                    elif _is_bound_to_loops(block):
                        apart.add(block.name)
        made = self._version(body)
        made._apart = self._apart if apart is None else apart
        return made

    def _version(self, body: Stmt) -> State:
        """Another version of the function, with ``body``."""
        made = State.__new__(State)
        made._func = self._func
        made.body = body
        made._shared = self._shared
        made.from_separate_nests = self.from_separate_nests
        made._paths = {}
        made._line = ()
        made._keys = []
        made._blocks = None
        made._named = None
        return made

    def allocate(self, buffer: Buffer) -> State:
        """The state with one more buffer, allocated at the top."""
        return self.with_body(Allocate(buffer, self.body))

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def questions(self, loops: Sequence[For]) -> Questions:
        """Return the object that answers questions about expressions inside ``loops`` (outer ones first)."""
        return Questions(loops, functools.partial(self.analyzer, loops))

    def analyzer(self, loops: Iterable[For] = ()) -> Analyzer:
        """An analyzer that knows the symbolic dimensions (none is negative) and the ranges of ``loops``."""
        analyzer = Analyzer(self._shared.findings)
        for var in self._func.variables:
            analyzer.bind_nonnegative(var)
        for loop in loops:
            analyzer.bind(loop.var, loop.min, loop.extent)
            if not isinstance(loop.extent, IntImm):
                analyzer.assume(loop.extent > 0)  # all questions are about places inside of the loop
        return analyzer


def _are_separate(stmt: Stmt) -> bool:
    while type(stmt) is Allocate:
        stmt = stmt.body
    if type(stmt) is SeqStmt:
        return all(map(_are_separate, stmt.stmts))
    inside = blocks_in(stmt)
    return len(inside) == 1 and inside[0].predicate is None


def _is_bound_to_loops(block: Block) -> bool:
    values = [item.value for item in block.iters if item.kind == "spatial"]
    return all(isinstance(value, Var) for value in values) and len(set(values)) == len(values)
