"""``VerifyMemory``: reject a lowered function with invalid memory accesses.

The function is not changed. It is an error (``VerifyError``, with the place underlined) if

* a block remains, or an allocation outside of the stack and registers,
* a buffer is used where it is not defined,
* an index is provably out of bounds, for at least one execution of the statement (in handwritten loops: if they run),
* the stack buffers of a function need more than ``max_stack_bytes``,
* iterations of a parallel loop provably write the same element.

Example: in ``for i in range(8) { b[i + 1] = 0.0 }`` with ``b: Buffer[(8,), float32]``, the store is underlined.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import STATEMENTS, WORKSPACES
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.name_strides import NamedSizes
from tilewright.passes.tensor.parallelize_loop import shared_element
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.passes.tensor.storage_rewrite import constant_bytes
from tilewright.tensorir.arith.iter_map import affine
from tilewright.tensorir.arith.lane_numbers import lane_number
from tilewright.tensorir.arith.lanes import per_lane
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, IntImm, Ramp, Var, as_expr
from tilewright.tensorir.functor import CHOICES, LOADS, kinds, uses_var
from tilewright.tensorir.keys import SCHEDULE_MODE
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer import underline
from tilewright.tensorir.stmt import Allocate, Block, BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt


@register_config_option("tensorir.VerifyMemory")
@dataclass(frozen=True)
class VerifyMemoryConfig:
    """Options of ``VerifyMemory``."""

    max_stack_bytes: int = dataclasses.field(
        default=256 << 10, metadata={"doc": "bytes of stack that the buffers of one function may take"}
    )


class _MemoryVerifier(ScopedMutator):
    """A verifier that is a mutator only for its scopes; it changes nothing."""

    def __init__(self, func: PrimFunc, max_stack_bytes: int | None) -> None:
        super().__init__(func)
        self.func, self.max_stack_bytes = func, max_stack_bytes
        self.defined: set[Buffer] = set(func.buffers)
        self.stack_bytes = 0
        self.ranges: dict[Var, tuple[Expr, Expr]] = {}
        self.named = NamedSizes(func.variables)
        #: Whether the present place is outside of conditions and of loops that may have no iterations.
        self.surely_runs = True
        #: Whether the loops are handwritten: indices outside of buffers are then an error if loops run at all. Those of
        #: the compiler may be right just because they do not.
        self.handwritten = SCHEDULE_MODE in func.attrs

    def fail(self, place: Node, message: str) -> None:
        raise VerifyError(f"@{self.func.name}: {message}\n{underline(self.func, place)}")

    def mutate_Block(self, op: Block) -> Stmt:
        self.fail(op, f"found block {op.name}; run LowerBlocks first")
        return op

    def mutate_Allocate(self, op: Allocate) -> Stmt:
        if self.max_stack_bytes is not None:
            self._check_allocation(op, self.max_stack_bytes)
        self.defined.add(op.buffer)
        result: Stmt = self.generic_mutate(op)
        self.defined.discard(op.buffer)
        return result

    def _check_allocation(self, op: Allocate, max_stack_bytes: int) -> None:
        if op.buffer.scope not in ("stack", "register"):
            self.fail(
                op,
                f"buffer {op.buffer.name} is allocated in scope {op.buffer.scope}; run StorageRewrite first",
            )
        size = constant_bytes(op.buffer)
        if size is None:
            self.fail(op, f"stack buffer {op.buffer.name}: its size is not constant")
        else:
            self.stack_bytes += size
            if self.stack_bytes > max_stack_bytes:
                self.fail(
                    op, f"stack buffers need {self.stack_bytes} bytes, more than max_stack_bytes = {max_stack_bytes}"
                )

    def mutate_For(self, loop: For) -> Stmt:
        if loop.kind == "parallel":
            shared = shared_element(loop)
            if shared is not None and self.analyzer.bounds(loop.extent).upper > 1:
                self.fail(
                    loop, f"all iterations of parallel loop {loop.var.name} write the same element of {shared.name}"
                )
        runs = self.surely_runs
        self.surely_runs = runs and loop.var.dtype is INT64 and self._runs(loop)
        self.ranges[loop.var] = (loop.min, loop.extent)
        result = super().mutate_For(loop)
        del self.ranges[loop.var]
        self.surely_runs = runs
        return result

    def _runs(self, loop: For) -> bool:
        if isinstance(loop.extent, IntImm):
            return loop.extent.value >= 1
        return (self.handwritten and isinstance(loop.extent, Var)) or self.analyzer.prove(loop.extent >= 1)

    def mutate_LetStmt(self, op: LetStmt) -> Stmt:
        if self.named.learn(op):
            self.mutate(op.body)  # its range is never queried
            return op
        if op.var.dtype.is_integer:
            return super().mutate_LetStmt(op)
        self.mutate(op.value)
        self.mutate(op.body)  # with few stack frames, as nests of lets of numbers are deep
        return op

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        runs, self.surely_runs = self.surely_runs, False
        result = super().mutate_IfThenElse(op)
        self.surely_runs = runs
        return result

    def mutate(self, node: Any) -> Any:
        if not isinstance(node, Expr):
            return super().mutate(node)
        self._check_expr(node)
        return node

    def _check_expr(self, expr: Expr) -> None:
        if type(expr) is IntImm:
            return
        occurring = kinds(expr)
        if occurring & CHOICES:
            self.fail(expr, "found a choose() expression; run LowerBlocks first")
        if occurring & LOADS:
            self._check_loads(expr)

    def _check_loads(self, expr: Expr) -> None:
        """Check all loads of an expression that has some, those on the outside first."""
        below: list[Node] = [expr]
        while below:
            node = below.pop()
            if isinstance(node, BufferLoad):
                self._check(node)
            elif isinstance(node, Call) and node.name == "prefetch":
                (place,) = node.args  # a hint, no access: it may be out of bounds
                assert isinstance(place, BufferLoad)
                if place.buffer not in self.defined:
                    self.fail(place, f"buffer {place.buffer.name} is not defined here")
                node = place
            for part in node.parts()[::-1]:
                if part._kinds & LOADS:  # known since the whole expression was asked
                    below.append(part)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        self._check(op)
        self._check_expr(op.value)
        for index in op.indices:
            self._check_expr(index)
        if op.predicate is not None:
            self._check_expr(op.predicate)
        return op

    def _check(self, op: BufferLoad | BufferStore) -> None:
        if op.buffer not in self.defined:
            self.fail(op, f"buffer {op.buffer.name} is not defined here")
        if op.predicate is not None or not self.surely_runs:
            return  # the access may be one that never happens
        for index, extent in zip(op.indices, op.buffer.shape, strict=True):
            if self._stays_inside(index, extent):
                continue
            lane = lane_number(index.dtype.lanes)
            place = index if index.dtype.lanes == 1 else per_lane(index, lane)
            if place is None or place.dtype is not INT64 or not self._is_over_a_box(index):
                continue
            place = self.named.expand(place)
            ranges = {**self.ranges, lane: (as_expr(0), as_expr(index.dtype.lanes))}
            highest, lowest = self._extremes(place, ranges)
            if highest is not None and self.analyzer.prove(highest >= extent):
                self.fail(
                    op, f"index {index!s} of {op.buffer.name} reaches {highest!s}, out of bounds for extent {extent!s}"
                )
            if lowest is not None and self.analyzer.prove(lowest < 0):
                self.fail(op, f"index {index!s} of {op.buffer.name} reaches {lowest!s}, which is negative")

    def _extremes(self, index: Expr, ranges: Mapping[Var, tuple[Expr, Expr]]) -> tuple[Expr | None, Expr | None]:
        """Return the greatest and the least value of an index, which are attained, as all enclosing loops run: it is a
        sum of multiples of variables, each in one term, so its extremes are at corners of the box of their ranges.
        None: it is no such sum, or it is not known whether a multiple grows."""
        found = affine(index, ranges)
        if found is None or len({split.source for split in found.splits}) != len(found.splits):
            return None, None
        highest = lowest = found.base
        for split in found.splits:
            begin, extent = ranges[split.source]  # type: ignore[index]  # affine: it is a variable
            first, last = split.scale * begin, split.scale * (begin + extent - 1)
            if self.analyzer.prove(split.scale >= 0):
                highest, lowest = highest + last, lowest + first
            elif self.analyzer.prove(split.scale <= 0):
                highest, lowest = highest + first, lowest + last
            else:
                return None, None
        return self.analyzer.simplify(highest), self.analyzer.simplify(lowest)

    def _stays_inside(self, index: Expr, extent: Expr) -> bool:
        """Return whether the ranges of variables give constant bounds that keep an index in range, as for most
        indices."""
        first, reach = index, 0
        if isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value > 0:
            first, reach = index.base, index.stride.value * (index.lanes - 1)
        if first.dtype is not INT64:
            return False
        bounds = self.range_analyzer.bounds(first)
        least = extent.value if isinstance(extent, IntImm) else self.range_analyzer.bounds(extent).lower
        return bounds.lower >= 0 and bounds.upper + reach < least

    def _is_over_a_box(self, index: Expr) -> bool:
        """Return whether the bounds of the loops of an index do not depend on other loops: only then can all these
        loops be at their ends together."""
        loops = set(self.ranges)
        driving = [bounds for var, bounds in self.ranges.items() if uses_var(index, {var})]
        return not any(uses_var(bound, loops) for bounds in driving for bound in bounds)


def verify_memory(func: PrimFunc, max_stack_bytes: int = 256 << 10) -> None:
    """Check the lowered function ``func``.

    Raises:
        VerifyError: it violates one of the rules of the module's docstring.
    """
    _MemoryVerifier(func, max_stack_bytes).mutate(func.body)


def verify_accesses(func: PrimFunc) -> None:
    """Check the accesses of ``func``, which has no blocks but may still allocate buffers of any kind.

    Raises:
        VerifyError: an index is provably out of bounds.
    """
    _MemoryVerifier(func, None).mutate(func.body)


@register_pass
@primfunc_pass(opt_level=0, name="VerifyMemory", requires={STATEMENTS, WORKSPACES})
class VerifyMemory(PrimFuncPass):
    """See the module."""

    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` itself, if it is valid."""
        config: VerifyMemoryConfig = ctx.get_config("tensorir.VerifyMemory")
        verify_memory(func, config.max_stack_bytes)
        return func
