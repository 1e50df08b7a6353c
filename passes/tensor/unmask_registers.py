"""``UnmaskRegisters``: store and load accumulators with inactive lanes as whole vectors::

    allocate t: Buffer[(16,), float32, register]
    t[ramp(0, 1, 16) where m] = broadcast(0.0, 16)                    t[ramp(0, 1, 16)] = broadcast(0.0, 16)
    for k in range(n) {                                         ->    ...
      t[.. where m] = t[.. where m] + a[.. where m]                   t[..] = t[..] + a[..]
    }
    b[ramp(0, 1, 16) where m] = t[ramp(0, 1, 16) where m]             b[ramp(0, 1, 16) where m] = t[ramp(0, 1, 16)]

LLVM keeps a buffer in vector registers only if whole vectors are stored and loaded; each masked access goes through
memory, and a scalar that is loaded if any lane is active needs a branch. The values of inactive lanes cannot be
observed if

- all accesses to the buffer are aligned whole vectors inside of it, at constant places, under one predicate, which
  does not change during the lifetime of the buffer;
- each load is in a store with that same predicate, in which every lane depends on the same lane of its operands alone.

Operands of such a buffer are loaded whole, too, if the whole vector is known to be inside of their buffer (as in the
panels of a packed operand, which are as wide as tiles).

Places are constant in each copy made by unrolled loops: they move by constant steps with the loops' variables, and a
predicate that differs between copies has to be the same function of them everywhere. Buffers of integers are not
changed: a division by the value of an inactive lane could trap.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import DIMENSIONS, TILES, VECTORS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.findings import findings
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Broadcast, Buffer, BufferLoad, Call, Expr, IntImm, Ramp, Var, compare
from tilewright.tensorir.functor import (
    LOADS,
    MASKED_LOADS,
    Visitor,
    accesses_buffers,
    kinds,
    leaves,
    substitute,
    uses_var,
    walk_statements,
    walk_to,
)
from tilewright.tensorir.intrinsics import INTRINSICS
from tilewright.tensorir.stmt import Allocate, BufferStore, Evaluate, For, IfThenElse, LetStmt, PrimFunc, Stmt


class _Places(NamedTuple):
    """The places of an access to a buffer in all copies made by unrolled loops.

    Attributes:
        starts: for each dimension, the index of the first lane in the first copy.
        steps: for each loop that moves the access, the step in each dimension and the extent; the largest first.
        loops: the variables of these loops, in the same order.
    """

    starts: tuple[int, ...]
    steps: tuple[tuple[tuple[int, ...], int], ...]
    loops: tuple[Var, ...]


class _Masks(Visitor):
    """Find those of the ``candidates`` that need no predicates."""

    def __init__(self, func: PrimFunc, candidates: set[Buffer]) -> None:
        self.analyzer = Analyzer(findings(func))
        self.lets: dict[Var, Expr] = {}
        #: Unrolled loops of known ranges around the present place, and the variables of all other loops inside of each
        #: buffer's allocation, which change during its lifetime.
        self.unrolled: dict[Var, tuple[int, int]] = {}
        self.changing: dict[Buffer, set[Var]] = {}
        self.found: set[Buffer] = set()
        self.candidates = candidates
        #: The first access to each buffer, with which all others have to agree.
        self.first: dict[Buffer, tuple[_Places, Expr, int]] = {}
        self.visit(func.body)

    def visit_Allocate(self, op: Allocate) -> None:
        buffer = op.buffer
        if buffer in self.candidates:
            self.found.add(buffer)
            self.changing[buffer] = set()
        self.visit(op.body)
        if buffer not in self.first:
            self.found.discard(buffer)  # it is unused

    def visit_For(self, loop: For) -> None:
        self._outside(loop.min, loop.extent)
        known = isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm)
        if loop.kind == "unrolled" and known and loop.var.dtype is INT64:
            self.unrolled[loop.var] = loop.min.value, loop.extent.value  # type: ignore[attr-defined]
            self.visit(loop.body)
            del self.unrolled[loop.var]
            return
        for variables in self.changing.values():
            variables.add(loop.var)
        self.visit(loop.body)

    def visit_LetStmt(self, op: LetStmt) -> None:
        self._outside(op.value)
        self.lets[op.var] = substitute(op.value, self.lets)
        self.visit(op.body)

    def visit_IfThenElse(self, op: IfThenElse) -> None:
        self._outside(op.condition)
        self.visit(op.then_body)
        if op.else_body is not None:
            self.visit(op.else_body)

    def visit_Evaluate(self, op: Evaluate) -> None:
        self._outside(op.value)

    def visit_BufferStore(self, op: BufferStore) -> None:
        self._outside(*op.indices, *([] if op.predicate is None else [op.predicate]))
        if op.buffer in self.found:
            self._access(op)
        if self.found.isdisjoint(leaves(op.value)):
            return
        for load in [part for part in walk_to(op.value, LOADS) if isinstance(part, BufferLoad)]:
            self._outside(*load.indices, *([] if load.predicate is None else [load.predicate]))
            if load.buffer not in self.found:
                continue
            self._access(load)
            same = load.buffer in self.found and self._same(load.predicate, op.predicate)
            if not same or not _is_lanewise(op.value, load.dtype.lanes):
                self.found.discard(load.buffer)

    def _outside(self, *exprs: Expr) -> None:
        """Reject the buffers with loads outside of stored values: in lets, indices, conditions and addresses."""
        for expr in exprs:
            self.found -= leaves(expr)

    def _access(self, access: BufferLoad | BufferStore) -> None:
        """Reject the buffer of an access that has no predicate, is no whole vector, or whose predicate may differ from
        that of other accesses to the same place."""
        buffer = access.buffer
        places = None if access.predicate is None else self._places(access)
        if places is None or access.predicate is None:
            self.found.discard(buffer)
            return
        lanes = access.indices[-1].dtype.lanes
        predicate = self._resolve(access.predicate)
        first, expected, width = self.first.setdefault(buffer, (places, predicate, lanes))
        agrees = lanes == width and self._stays(predicate, buffer)
        if agrees:
            if not uses_var(predicate, set(self.unrolled)) and not uses_var(expected, set(first.loops)):
                agrees = predicate is expected
            else:  # it differs between copies: they have to be the same copies, each at its own place
                names: dict[Var, Expr] = dict(zip(places.loops, first.loops, strict=False))
                agrees = (
                    (places.starts, places.steps) == (first.starts, first.steps)
                    and _are_apart(places, buffer)
                    and not uses_var(predicate, self.unrolled.keys() - set(places.loops))
                    and substitute(predicate, names) is expected
                )
        if not agrees:
            self.found.discard(buffer)

    def _places(self, access: BufferLoad | BufferStore) -> _Places | None:
        """Return the places of a whole, aligned vector of a buffer; None for any other access."""
        *outer, last = access.indices
        shape = [extent.value for extent in access.buffer.shape if isinstance(extent, IntImm)]
        if not isinstance(last, Ramp) or access.buffer.strides or len(shape) != len(access.indices):
            return None
        lanes = last.dtype.lanes
        numbers = [*outer, last.base]
        if not (isinstance(last.stride, IntImm) and last.stride.value == 1):
            return None
        if any(number.dtype is not INT64 for number in numbers):
            return None
        forms = [self.analyzer.linear(number) for number in numbers]
        moving = {var for form in forms for var in form.terms}
        if not moving <= self.unrolled.keys():
            return None
        steps: dict[Var, tuple[tuple[int, ...], int]] = {
            var: (tuple(form.terms.get(var, 0) for form in forms), self.unrolled[var][1])
            for var in self.unrolled
            if var in moving
        }
        starts = tuple(
            form.const + sum(steps[var][0][axis] * self.unrolled[var][0] for var in steps)
            for axis, form in enumerate(forms)
        )
        ends = [
            start + sum(step[axis] * (extent - 1) for step, extent in steps.values())
            for axis, start in enumerate(starts)
        ]
        if any(part % lanes for part in (starts[-1], *(step[-1] for step, _ in steps.values()))):
            return None
        rises = all(part >= 0 for step, _ in steps.values() for part in step)
        if not rises or starts[-1] < 0 or ends[-1] + lanes > shape[-1]:
            return None
        ordered = sorted(steps, key=steps.__getitem__, reverse=True)
        return _Places(starts, tuple(steps[var] for var in ordered), tuple(ordered))

    def _stays(self, predicate: Expr, buffer: Buffer) -> bool:
        """Return whether a predicate does not change during the lifetime of the buffer."""
        return not accesses_buffers(predicate) and not uses_var(predicate, self.changing[buffer])

    def _same(self, a: Expr | None, b: Expr | None) -> bool:
        if a is None or b is None:
            return a is b
        return a is b or self._resolve(a) is self._resolve(b)

    def _resolve(self, predicate: Expr) -> Expr:
        return substitute(predicate, self.lets)


def _candidates(func: PrimFunc) -> set[Buffer]:
    """Return the register buffers of floats whose stores are all masked."""
    registers: set[Buffer] = set()
    whole: set[Buffer] = set()
    for stmt in walk_statements(func.body):
        if isinstance(stmt, BufferStore):
            if stmt.predicate is None:
                whole.add(stmt.buffer)
        elif isinstance(stmt, Allocate) and stmt.buffer.scope == "register" and stmt.buffer.dtype.is_float:
            registers.add(stmt.buffer)
    return registers - whole


def _are_apart(places: _Places, buffer: Buffer) -> bool:
    """Return whether all copies have different places."""
    sizes = [extent.value for extent in buffer.shape if isinstance(extent, IntImm)]
    reached = 0
    for step, extent in sorted((_distance(step, sizes), extent) for step, extent in places.steps):
        if step <= reached:
            return False
        reached += step * (extent - 1)
    return True


def _distance(step: Sequence[int], sizes: Sequence[int]) -> int:
    """Return the distance of a step in elements of a row-major buffer."""
    return functools.reduce(lambda total, axis: total * axis[1] + axis[0], zip(step, sizes, strict=True), 0)


def _is_lanewise(value: Expr, lanes: int) -> bool:
    """Return whether each lane of ``value`` depends only on the same lane of its operands."""
    left: list[Expr] = [value]
    while left:
        node = left.pop()
        own = node.dtype.lanes
        if own != 1 and own != lanes:
            return False
        if type(node) is Call:
            intrinsic = INTRINSICS.get(node.name)
            if intrinsic is None or not intrinsic.lanewise or own != lanes:
                return False
        left.extend(node.parts())
    return True


class _Unmasker(ScopedMutator):
    """Remove predicates from the accesses to some buffers, and from loads of their operands inside of buffer bounds:
    such loads are safe, and only inactive lanes receive the additional values."""

    def __init__(self, func: PrimFunc, buffers: set[Buffer]) -> None:
        super().__init__(func)
        self.buffers = buffers
        self._for_unmasked = False

    def mutate(self, node: Any) -> Any:
        if isinstance(node, Expr) and not kinds(node) & MASKED_LOADS:
            return node
        return super().mutate(node)

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        new: BufferLoad = self.generic_mutate(op)
        if op.predicate is None:
            return new
        whole = op.buffer in self.buffers or (self._for_unmasked and self._is_within(new))
        return BufferLoad(new.buffer, new.indices) if whole else new

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        self._for_unmasked = op.buffer in self.buffers
        new: BufferStore = self.generic_mutate(op)
        unmasked, self._for_unmasked = self._for_unmasked, False
        return BufferStore(new.buffer, new.value, new.indices) if unmasked else new

    def _is_within(self, load: BufferLoad) -> bool:
        return all(map(self._is_index, load.indices, load.buffer.shape))

    def _is_index(self, index: Expr, extent: Expr) -> bool:
        if isinstance(index, Broadcast):
            index = index.value
        ends = [index]
        if isinstance(index, Ramp):
            ends = [index.base, index.base + (index.lanes - 1) * index.stride]
        if any(end.dtype is not INT64 for end in ends):
            return False
        return all(self.analyzer.prove(compare("ge", end, 0)) for end in ends) and all(
            self.analyzer.prove(compare("lt", end, extent)) for end in ends
        )


def unmask_registers(func: PrimFunc) -> PrimFunc:
    """Return ``func`` whose accumulators are stored and loaded as whole vectors."""
    candidates = _candidates(func)
    buffers = _Masks(func, candidates).found if candidates else None
    return func.with_body(_Unmasker(func, buffers).mutate(func.body)) if buffers else func


@register_pass
@primfunc_pass(opt_level=1, name="UnmaskRegisters", requires={VECTORS, DIMENSIONS, TILES})
class UnmaskRegisters(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` whose accumulators are stored and loaded as whole vectors."""
        return unmask_registers(func)
