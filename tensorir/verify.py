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

from tilewright.tensorir.arith.transfer import IntervalAnalysis
from tilewright.tensorir.consing import made_anew
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Expr,
    IntImm,
    Ramp,
    UnaryOp,
    Var,
)
from tilewright.tensorir.functor import accesses_buffers, walk
from tilewright.tensorir.intrinsics import ADDRESSING
from tilewright.tensorir.keys import NUM_OUTPUTS, NUM_WORKSPACES
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer import underline
from tilewright.tensorir.profiling import PROFILE_INTRINSICS
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


def verify(func: PrimFunc) -> None:
    """Check that ``func`` keeps the rules of the IR.

    Raises:
        VerifyError: it does not; the message lists all problems, each with its place in the function's text.
    """
    refuse(func, find_problems(func), lambda text, node, within: f"{text}\n{underline(func, node, within=within)}")


#: What is wrong, the node, and the statement that it stands in.
Problem = tuple[str, Node, Node | None]


def find_problems(func: PrimFunc) -> list[Problem]:
    """Return all that is wrong with ``func``, in its order."""
    verifier = _Verifier(func)
    verifier.function()
    return verifier.problems


def refuse(func: PrimFunc, problems: Sequence[Problem], show: Callable[..., str]) -> None:
    """Raise a VerifyError that lists problems, if there are any, by what ``show`` makes of each."""
    count = len(problems)
    if not count:
        return
    parts = [f"@{func.name} breaks {count} rule{'s' if count > 1 else ''} of the loop-level IR"]
    parts.extend([show(*problem) for problem in problems[:_SHOWN]])
    if count > _SHOWN:
        parts.append(f"and {count - _SHOWN} more")
    raise VerifyError("\n\n".join(parts))


class _Verifier:
    """Walks a function once, with what is visible at each place."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.problems: list[Problem] = []
        self.visible: set[Node] = set()
        self.defined: set[Node] = set()
        #: Variables that hold another value in each iteration of a loop around the innermost block.
        self.outer: frozenset[Var] = frozenset()
        self.iterating: set[Var] = set()
        self.intervals = IntervalAnalysis()
        #: The variables that reach both ends of their intervals, with the loop variables that they depend on.
        self.reached: dict[Var, frozenset[Var]] = {}
        self.block_names: set[str] = set()
        self.inputs: frozenset[Buffer] = frozenset()
        #: Conditions around the current place that may keep it from running.
        self.guards = 0
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
        for extent in (*buffer.shape, *buffer.strides):
            self.expr(extent)
            if not extent.dtype.is_integer or extent.dtype.lanes != 1:
                self.problem(f"buffer {buffer.name}: expected an integer extent, found {extent.dtype!s}", buffer)
        if buffer.alignment < 0 or buffer.alignment & (buffer.alignment - 1):
            self.problem(f"buffer {buffer.name}: alignment {buffer.alignment} is no power of two", buffer)

    def function(self) -> None:
        func = self.func
        after_variable = False
        for param in func.params:
            if isinstance(param, Var):
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
        self.invariants(let)
        self.expr(let.value)
        if self.define(let.var):
            opened.append(let.var)
        self.bind(let.var, let.value)
        if self.varies(let.value):
            self.iterating.add(let.var)

    def varies(self, expr: Expr) -> bool:
        """Return whether the value of ``expr`` depends on a loop around it."""
        return any(isinstance(found, Var) and found in self.iterating for found in walk(expr))

    def for_loop(self, loop: For) -> None:
        self.invariants(loop)
        if not loop.var.dtype.is_integer or loop.var.dtype.lanes != 1:
            self.problem(f"loop {loop.var.name}: expected an integer variable, found {loop.var.dtype!s}", loop.var)
            return
        self.expr(loop.min)
        self.expr(loop.extent)
        minimum, extent = self.intervals.of(loop.min), self.intervals.of(loop.extent)
        # An extent that varies with the loops around may be zero exactly where an index would be out of bounds.
        may_not_run = extent.upper <= 0 or self.varies(loop.extent)
        self.intervals.bind_loop(loop.var, loop.min, loop.extent)
        if minimum.is_point and extent.is_point:
            self.reached[loop.var] = frozenset((loop.var,))
        fresh = self.define(loop.var)
        self.iterating.add(loop.var)
        self.guards += may_not_run
        self.stmt(loop.body)
        self.guards -= may_not_run
        if fresh:
            self.visible.discard(loop.var)

    def store(self, store: BufferStore) -> None:
        self.invariants(store)
        for part in (*store.indices, store.value, store.predicate):
            if part is not None:
                self.expr(part)
        self.access(store.buffer, store, store.indices, store.predicate)
        if store.buffer in self.inputs:
            self.problem(f"buffer {store.buffer.name} is an input and must not be written", store)

    def if_then_else(self, stmt: IfThenElse) -> None:
        if not stmt.condition.dtype.is_bool or stmt.condition.dtype.lanes != 1:
            self.problem(f"if: expected a scalar bool condition, found {stmt.condition.dtype!s}", stmt.condition)
        self.expr(stmt.condition)
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
        for item in block.iters:
            self.iter_var(item)
        fresh = [item.var for item in block.iters if self.define(item.var)]
        for item in block.iters:
            if item.var.dtype.is_integer:
                self.bind(item.var, item.value)
        if block.predicate is not None:
            self.expr(block.predicate)
            if not block.predicate.dtype.is_bool or block.predicate.dtype.lanes != 1:
                self.problem(f"block {block.name}: the predicate is {block.predicate.dtype!s}, not bool", block)
        outer, iterating, place = self.outer, set(self.iterating), self.place
        self.outer = frozenset(self.iterating)
        self.iterating.update(item.var for item in block.iters)
        if block.needed is not None:
            self.expr(block.needed)
            if not block.needed.dtype.is_bool or block.needed.dtype.lanes != 1:
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

    def iter_var(self, item: IterVar) -> None:
        """Check an iteration variable."""
        dtype = item.var.dtype
        if not dtype.is_integer or dtype.lanes != 1:
            self.problem(f"iteration variable {item.var.name}: expected an integer, found {dtype!s}", item)
            return
        for what, part in (("first value", item.min), ("extent", item.extent), ("value", item.value)):
            self.expr(part)
            if part.dtype is not dtype:
                self.problem(f"{item.var.name}: the {what} is {part.dtype!s}, the variable {dtype!s}", item)

    def region(self, region: BufferRegion) -> None:
        self.buffer_use(region.buffer, region)
        if len(region.ranges) != region.buffer.ndim:
            self.problem(
                f"buffer {region.buffer.name} has {region.buffer.ndim} dimensions, found {len(region.ranges)} ranges",
                region,
            )
        for item in region.ranges:
            for part in (item.min, item.extent):
                self.expr(part)
                if not part.dtype.is_integer or part.dtype.lanes != 1:
                    self.problem(f"region: expected integer bounds, found {part.dtype!s}", part)

    # Expressions.

    def expr(self, expr: Expr) -> None:
        """Check ``expr`` and what is below it."""
        stack: list[tuple[Node, str]] = [(expr, "")]
        while stack:
            node, use = stack.pop()
            addresses = node.name if isinstance(node, Call) and node.name in ADDRESSING else ""
            stack.extend([(part, addresses if part is node.parts()[0] else "") for part in reversed(node.parts())])
            if isinstance(node, Var):
                self.var_use(node)
                continue
            if not isinstance(node, Expr):
                self.problem(f"{type(node).__name__} is no expression", expr)
                continue
            self.invariants(node)
            if isinstance(node, BufferLoad):
                self.access(node.buffer, node, node.indices, node.predicate, use)
            elif isinstance(node, Call):
                self.call(node)

    def call(self, call: Call) -> None:
        if call.name.startswith("@"):
            for arg in call.args:
                if arg.dtype.lanes != 1 or not (arg.dtype.is_integer or arg.dtype.kind == "handle"):
                    self.problem(f"{call.name}: expected addresses and integers, found {arg.dtype!s}", arg)
        elif call.name in ADDRESSING:
            if not isinstance(call.args[0], BufferLoad):
                self.problem(f"{call.name}: expected an element of a buffer", call)
        elif call.name in PROFILE_INTRINSICS:
            record, stride = (arg.dtype for arg in call.args)
            if record.kind != "handle":
                self.problem(f"{call.name}: expected an address, found {record!s}", call)
            if not stride.is_integer or stride.lanes != 1:
                self.problem(f"{call.name}: expected an integer as the stride, found {stride!s}", call)
        elif call.name == "reinterpret":
            source = call.args[0].dtype
            if source.bits * source.lanes != call.dtype.bits * call.dtype.lanes:
                self.problem(f"reinterpret: {source!s} and {call.dtype!s} have different widths", call)

    def invariants(self, node: Node) -> None:
        """Check again what a node's constructor checks, and that the derived type is that of the operands now."""
        try:
            again = made_anew(node)
        except (TypeError, ValueError) as error:
            self.problem(str(error), node)
            return
        if isinstance(node, Expr) and isinstance(again, Expr) and again.dtype is not node.dtype:
            self.problem(f"the type is {node.dtype!s}, the operands give {again.dtype!s}", node)

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

    def access(
        self, buffer: Buffer, node: Node, indices: Iterable[Expr], predicate: Expr | None, use: str = ""
    ) -> None:
        """Check an access, or only the address that an intrinsic ``use`` takes: even empty buffers have a first one."""
        self.buffer_use(buffer, node)
        if self.guards or predicate is not None or use == "prefetch":
            return
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape, strict=False)):
            lower, upper = self.intervals.of(index)
            size = self.intervals.of(extent).upper
            outside = upper < 0 or lower >= max(size, use == "address_of")
            misses = lower < 0 or upper >= max(size, use == "address_of")
            if outside or (misses and self.drivers(index) is not None):
                at = f"{lower}" if lower == upper else f"{lower} to {upper}"
                self.problem(
                    f"index {at} is out of bounds for dimension {axis} of {buffer.name}, whose extent is {size}", node
                )

    # Values.

    def bind(self, var: Var, value: Expr) -> None:
        """Say that ``var`` has the value of an integer expression."""
        self.intervals.bind_value(var, value)
        drivers = self.drivers(value)
        if drivers is not None:
            self.reached[var] = drivers

    def drivers(self, expr: Expr) -> frozenset[Var] | None:
        """The loop variables that an integer expression depends on, if it is known to reach both ends of its interval;
        else None."""
        if isinstance(expr, IntImm):
            return frozenset()
        if isinstance(expr, Var):
            return self.reached.get(expr)
        if isinstance(expr, Broadcast):
            return self.drivers(expr.value)
        if not expr.dtype.is_integer or self.intervals.may_wrap(expr):
            return None
        if isinstance(expr, BinaryOp):
            return self.drivers_of_operation(expr)
        if isinstance(expr, Ramp):
            return self.drivers(expr.base) if self.intervals.of(expr.stride).is_point else None
        if isinstance(expr, Cast) and expr.value.dtype.is_integer:
            return self.drivers(expr.value)
        if isinstance(expr, UnaryOp) and expr.op == "neg":
            return self.drivers(expr.a)
        return None

    def drivers_of_operation(self, expr: BinaryOp) -> frozenset[Var] | None:
        """:meth:`drivers` of an operation that does not wrap around: both operands reach their ends independently, and
        the operation takes those ends to its own."""
        a, b = self.drivers(expr.a), self.drivers(expr.b)
        if a is None or b is None or a & b:
            return None
        first, second = self.intervals.of(expr.a), self.intervals.of(expr.b)
        if expr.op in ("add", "sub", "min", "max"):
            reached = True
        elif expr.op in ("mul", "floordiv"):
            reached = second.is_point or (expr.op == "mul" and first.is_point)
        else:
            reached = expr.op == "floormod" and second.is_point and self.intervals.of(expr) == first
        return a | b if reached else None


_STMTS: dict[type, Any] = {
    For: _Verifier.for_loop,
    BufferStore: _Verifier.store,
    IfThenElse: _Verifier.if_then_else,
    Evaluate: _Verifier.evaluate,
    Block: _Verifier.block,
}
