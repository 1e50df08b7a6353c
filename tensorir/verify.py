"""Check that a function keeps the rules of the loop-level IR.

The rules: every variable and buffer is defined once and used only where it is visible; types agree; loop bounds are
integers; accesses have as many indices as the buffer has dimensions, and none is out of bounds where that can be
proved; a block's body uses its iteration variables and never the loops around it; block names are unique; inputs are
not written.

An index is judged by the interval of its values. Under a condition or a predicate nothing is reported, for the access
may never happen; elsewhere an access is wrong if all its values are outside of the buffer, or if one of the interval's
ends is and that end is known to be reached (independent loops with constant bounds). The values of a select count,
since both are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.tensorir.call_rules import broken_call_rules
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, IntImm, Var
from tilewright.tensorir.functor import accesses_buffers, walk
from tilewright.tensorir.intrinsics import ADDRESSING
from tilewright.tensorir.invariants import Known, broken_invariant
from tilewright.tensorir.keys import NUM_OUTPUTS, NUM_WORKSPACES
from tilewright.tensorir.nesting import bounded
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer import underline
from tilewright.tensorir.reached_ends import ReachedEnds
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)

#: Number of problems that an error shows with their places; the others are counted.
_SHOWN = 20


def verify(func: PrimFunc, known: Known | None = None) -> None:
    """Check that ``func`` keeps the rules of the IR.

    Args:
        known: what is known of the parts of other functions; what is found of those of this one is added.

    Raises:
        VerifyError: it does not; the message lists all problems, each with its place in the function's text.
        NestingError, BudgetError: it is nested too deeply, or too large.
    """
    refuse(
        func, find_problems(func, known), lambda text, node, within: f"{text}\n{underline(func, node, within=within)}"
    )


#: What is wrong, the node, and the statement that it stands in.
Problem = tuple[str, Node, Node | None]


def find_problems(func: PrimFunc, known: Known | None = None) -> list[Problem]:
    """Return all that is wrong with ``func``, in its order; see :func:`verify`."""
    known = known or Known()
    verifier = _Verifier(func, known.sound)
    with bounded("verifying", func, always=True, known=known.extents):
        verifier.function()
    return verifier.problems


def refuse(func: PrimFunc, problems: Sequence[Problem], show: Callable[..., str]) -> None:
    """Raise a VerifyError that lists problems, if there are any, by what ``show`` makes of each."""
    count = len(problems)
    if not count:
        return
    parts = [f"@{func.name} breaks {count} rule{'s' if count > 1 else ''} of the loop-level IR"]
    parts.extend([_shown(show, problem) for problem in problems[:_SHOWN]])
    if count > _SHOWN:
        parts.append(f"and {count - _SHOWN} more")
    raise VerifyError("\n\n".join(parts))


def _shown(show: Callable[..., str], problem: Problem) -> str:
    """Return a problem with its place in the text, or without it where a broken rule leaves the function no text."""
    try:
        return show(*problem)
    except Exception:
        return f"{problem[0]} (the function cannot be printed)"


class _Addressed:
    """The element whose address an intrinsic takes."""

    __slots__ = ("intrinsic", "part")

    def __init__(self, part: Node, intrinsic: str) -> None:
        self.part, self.intrinsic = part, intrinsic


class _Verifier:
    """Walks a function once, with what is visible at each place."""

    def __init__(self, func: PrimFunc, sound: set[Node]) -> None:
        self.func = func
        self.problems: list[Problem] = []
        self.visible: set[Node] = set()
        self.defined: set[Node] = set()
        self.sound = sound  # as their constructors would make them; equal expressions are one node
        #: Variables that hold another value in each iteration of a loop around the innermost block.
        self.outer: frozenset[Var] = frozenset()
        self.iterating: set[Var] = set()
        self.values = ReachedEnds()
        self.intervals = self.values.intervals
        self.block_names: set[str] = set()
        self.inputs: frozenset[Buffer] = frozenset()
        #: Conditions around the current place that may keep it from running.
        self.guards = 0
        #: Loops around the current place that run as often as sizes say, perhaps not at all.
        self.perhaps = 0
        self.place: Node | None = None

    def problem(self, message: str, node: Node) -> None:
        self.problems.append((message, node, self.place))

    # Definitions.

    def define(self, node: Var | Buffer) -> bool:
        """Make ``node`` visible, and return whether that was legal."""
        what = "buffer" if isinstance(node, Buffer) else "variable"
        if node in self.defined:
            self.problem(f"{what} {node.name} is defined a second time", node)
        if isinstance(node, Buffer):
            self.buffer_type(node)
        self.defined.add(node)
        was_visible = node in self.visible
        self.visible.add(node)
        return not was_visible

    def buffer_type(self, buffer: Buffer) -> None:
        self.invariants(buffer)
        for extent in (*buffer.shape, *buffer.strides):
            if not self.expr(extent):
                continue
            if not extent.dtype.is_integer or extent.dtype.lanes != 1:
                self.problem(f"buffer {buffer.name}: expected an integer extent, found {extent.dtype!s}", buffer)
        for extent in buffer.shape:
            if isinstance(extent, IntImm) and extent.value < 0:
                self.problem(f"buffer {buffer.name}: the extent {extent.value} is negative", buffer)
        if buffer.alignment < 0 or buffer.alignment & (buffer.alignment - 1):
            self.problem(f"buffer {buffer.name}: alignment {buffer.alignment} is no power of two", buffer)

    def function(self) -> None:
        func = self.func
        after_variable = False
        for param in func.params:
            if not isinstance(param, (Var, Buffer)):
                self.problem(f"expected a buffer or variable as parameter, found {param!r}", func)
            elif isinstance(param, Var):
                after_variable = True
                if not param.dtype.is_integer or param.dtype.lanes != 1:
                    self.problem(f"parameter {param.name}: expected an integer, found {param.dtype!s}", param)
            elif after_variable:
                self.problem(f"buffer {param.name} stands after a variable among the parameters", param)
        for variable in func.variables:
            self.define(variable)
            if variable.dtype.is_integer:
                self.intervals.bind_size(variable)
        for buffer in func.buffers:
            self.define(buffer)
        self.results()
        self.stmt(func.body)

    def results(self) -> None:
        """Check the numbers of outputs and workspaces, which determine the inputs."""
        func = self.func
        counts = {name: func.attrs.get(name, 0) for name in (NUM_OUTPUTS, NUM_WORKSPACES)}
        for name, count in counts.items():
            if not isinstance(count, int) or count < 0:
                self.problem(f"attribute {name}: expected a number, found {count!r}", func)
                return
        results = sum(counts.values())
        if results > len(func.buffers):
            self.problem(f"{results} outputs and workspaces, but {len(func.buffers)} buffers", func)
        elif NUM_OUTPUTS in func.attrs:
            self.inputs = frozenset(func.buffers[: len(func.buffers) - results])

    # Statements.

    def stmt(self, stmt: Stmt) -> None:
        """Check a statement; the bodies of lets and allocations without recursion over the length of their chain."""
        opened: list[Node] = []
        current: Stmt | None = stmt
        while current is not None:
            self.place = current
            if isinstance(current, LetStmt):
                self.let(current, opened)
                current = current.body
            elif isinstance(current, Allocate):
                if self.define(current.buffer):
                    opened.append(current.buffer)
                current = current.body
            elif isinstance(current, SeqStmt) and current.stmts:
                for item in current.stmts[:-1]:
                    self.stmt(item)
                current = current.stmts[-1]
            else:
                handler = _STMTS.get(type(current))
                if handler is not None:
                    handler(self, current)
                elif not isinstance(current, SeqStmt):
                    self.problem(f"{type(current).__name__} is no statement", current)
                current = None
        self.visible.difference_update(opened)

    def let(self, let: LetStmt, opened: list[Node]) -> None:
        fine = self.invariants(let) and self.expr(let.value)
        if self.define(let.var):
            opened.append(let.var)
        if not fine:
            return
        self.values.bind(let.var, let.value)
        if self.varies(let.value):
            self.iterating.add(let.var)

    def varies(self, expr: Expr) -> bool:
        """Return whether the value of ``expr`` depends on a loop around it."""
        return any(isinstance(found, Var) and found in self.iterating for found in walk(expr))

    def for_loop(self, loop: For) -> None:
        if not self.invariants(loop):
            return
        if not loop.var.dtype.is_integer or loop.var.dtype.lanes != 1:
            self.problem(f"loop {loop.var.name}: expected an integer variable, found {loop.var.dtype!s}", loop.var)
            return
        if not (self.expr(loop.min) and self.expr(loop.extent)):
            return
        # An extent that varies with the loops around may be zero exactly where an index would be out of bounds.
        may_not_run = self.intervals.of(loop.extent).upper <= 0 or self.varies(loop.extent)
        self.values.bind_loop(loop)
        fresh = self.define(loop.var)
        self.iterating.add(loop.var)
        perhaps_empty = self.intervals.of(loop.extent).lower <= 0
        self.guards += may_not_run
        self.perhaps += perhaps_empty
        self.stmt(loop.body)
        self.perhaps -= perhaps_empty
        self.guards -= may_not_run
        if fresh:
            self.visible.discard(loop.var)

    def store(self, store: BufferStore) -> None:
        fine = self.invariants(store)
        for part in (*store.indices, store.value, store.predicate):
            if part is not None:
                fine = self.expr(part) and fine
        if not fine:
            return
        self.access(store.buffer, store, store.indices, store.predicate)
        if store.buffer in self.inputs:
            self.problem(f"buffer {store.buffer.name} is an input and must not be written", store)

    def if_then_else(self, stmt: IfThenElse) -> None:
        if self.expr(stmt.condition) and not _is_condition(stmt.condition):
            self.problem(f"if: expected a scalar bool condition, found {stmt.condition.dtype!s}", stmt.condition)
        self.guards += 1
        self.stmt(stmt.then_body)
        if stmt.else_body is not None:
            self.stmt(stmt.else_body)
        self.guards -= 1

    def evaluate(self, stmt: Evaluate) -> None:
        self.expr(stmt.value)

    def block(self, block: Block) -> None:
        if block.name in self.block_names:
            self.problem(f"a second block has the name {block.name}", block)
        self.block_names.add(block.name)
        guarded = block.predicate is not None
        fine = {item.var for item in block.iters if self.iter_var(item)}
        fresh = [item.var for item in block.iters if self.define(item.var)]
        for item in block.iters:
            if item.var in fine:
                self.values.bind(item.var, item.value)
        if block.predicate is not None and self.expr(block.predicate) and not _is_condition(block.predicate):
            self.problem(f"block {block.name}: the predicate is {block.predicate.dtype!s}, not bool", block)
        outer, iterating, place = self.outer, set(self.iterating), self.place
        self.outer = frozenset(self.iterating)
        self.iterating.update(item.var for item in block.iters)
        if block.needed is not None and self.expr(block.needed):
            if not _is_condition(block.needed):
                self.problem(f"block {block.name}: the condition needed is {block.needed.dtype!s}, not bool", block)
            if accesses_buffers(block.needed):
                self.problem(f"block {block.name}: the condition needed depends on data", block)
        self.guards += guarded
        for region in (*block.reads, *block.writes):
            self.region(region)
        # The initial value is stored in some instances only, but it is stored in each place of the spatial variables.
        for part in (block.init, block.body):
            if part is not None:
                self.stmt(part)
            self.place = place
        self.guards -= guarded
        self.outer, self.iterating = outer, iterating
        self.visible.difference_update(fresh)

    def iter_var(self, item: IterVar) -> bool:
        """Check an iteration variable; return whether its value is an expression of its type."""
        dtype = item.var.dtype
        if not dtype.is_integer or dtype.lanes != 1:
            self.problem(f"iteration variable {item.var.name}: expected an integer, found {dtype!s}", item)
            return False
        fine = self.invariants(item)
        for what, part in (("first value", item.min), ("extent", item.extent), ("value", item.value)):
            if not self.expr(part):
                fine = False
            elif part.dtype is not dtype:
                self.problem(f"{item.var.name}: the {what} is {part.dtype!s}, the variable {dtype!s}", item)
                fine = False
        return fine

    def region(self, region: BufferRegion) -> None:
        self.buffer_use(region.buffer, region)
        if len(region.ranges) != region.buffer.ndim:
            self.problem(
                f"buffer {region.buffer.name} has {region.buffer.ndim} dimensions, found {len(region.ranges)} ranges",
                region,
            )
        for item in region.ranges:
            for part in (item.min, item.extent):
                if self.expr(part) and (not part.dtype.is_integer or part.dtype.lanes != 1):
                    self.problem(f"region: expected integer bounds, found {part.dtype!s}", part)

    # Expressions.

    def expr(self, expr: Expr) -> bool:
        """Check ``expr`` and what is below it; return whether all are expressions of the types that follow."""
        stack: list[Any] = [expr]  # nodes, or whatever a corrupted one holds; and addressed ones
        loads: list[tuple[BufferLoad, str]] = []
        fine = True
        while stack:
            node: Any = stack.pop()
            kind: Any = type(node)
            use = ""
            if kind is _Addressed:
                node, use = node.part, node.intrinsic
                kind = type(node)
            if kind is Var:
                self.var_use(node)
                continue
            if kind is IntImm and node.dtype is INT64 and _fits(node.value):
                continue
            if not isinstance(node, Expr):
                self.problem(f"{kind.__name__} is no expression", self.place or self.func)
                fine = False
                continue
            parts = node.parts()
            if isinstance(node, Call) and node.name in ADDRESSING:
                stack.extend([_Addressed(part, node.name) if part is parts[0] else part for part in reversed(parts)])
            else:
                stack.extend(parts[::-1])
            if node not in self.sound and not self.invariants(node):
                fine = False
            elif isinstance(node, BufferLoad):
                loads.append((node, use))
            elif isinstance(node, Call):
                for message, culprit in broken_call_rules(node):
                    self.problem(message, culprit)
        for load, use in loads:  # whose indices are known to be expressions by now
            if fine:
                self.access(load.buffer, load, load.indices, load.predicate, use)
            else:
                self.buffer_use(load.buffer, load)
        return fine

    def invariants(self, node: Node) -> bool:
        """Check a node by itself; return whether it is as its constructor would make it."""
        if node not in self.sound:
            if wrong := broken_invariant(node):
                self.problem(wrong, node)
                return False
            self.sound.add(node)
        return True

    def var_use(self, var: Var) -> None:
        if var in self.outer:
            self.problem(f"the block uses the variable {var.name} of a loop or block around it", var)
        self.visibility(var, "variable", var)

    def buffer_use(self, buffer: Buffer, node: Node) -> None:
        self.visibility(buffer, "buffer", node)

    def visibility(self, definition: Var | Buffer, what: str, node: Node) -> None:
        if definition in self.visible:
            return
        if definition in self.defined:
            self.problem(f"{what} {definition.name} is used outside of the scope of its definition", node)
        else:
            self.problem(f"undefined {what} {definition.name}", node)

    def access(self, buffer: Buffer, node: Node, indices: Iterable[Expr], mask: Expr | None, use: str = "") -> None:
        """Check an access, or only the address that an intrinsic ``use`` takes: even empty buffers have a first one."""
        self.buffer_use(buffer, node)
        if self.guards or mask is not None or use == "prefetch":
            return
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape, strict=False)):
            lower, upper = self.intervals.of(index)
            size = self.intervals.of(extent).upper
            if size <= 0 and self.perhaps:
                continue  # a call checks sizes first: where the buffer is empty, so may the loops be
            outside = upper < 0 or lower >= max(size, use == "address_of")
            misses = lower < 0 or upper >= max(size, use == "address_of")
            if outside or (misses and self.values.drivers(index) is not None):
                at = f"{lower}" if lower == upper else f"{lower} to {upper}"
                self.problem(
                    f"index {at} is out of bounds for dimension {axis} of {buffer.name}, whose extent is {size}", node
                )


def _fits(value: object) -> bool:
    """Return whether ``value`` is an int64, as most constants are."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _is_condition(expr: Expr) -> bool:
    return expr.dtype.is_bool and expr.dtype.lanes == 1


_STMTS: dict[type, Any] = {
    For: _Verifier.for_loop,
    BufferStore: _Verifier.store,
    IfThenElse: _Verifier.if_then_else,
    Evaluate: _Verifier.evaluate,
    Block: _Verifier.block,
}
