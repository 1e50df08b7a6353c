"""``VectorizeLoop``: execute the iterations of vectorized loops in the lanes of vectors.

An extent that is a small power of two becomes one vector; any other extent becomes a loop over vectors and a tail,
which is one more vector with a mask, or a scalar loop::

    for i in vectorized(n):               for io in range(n // 16):
        b[i] = a[i] * 2.0        ->           b[ramp(io * 16, 1, 16)] = a[ramp(io * 16, 1, 16)] * broadcast(2.0, 16)
                                          if n % 16 > 0:
                                              ... the same at n // 16 * 16, where lane < n % 16

The number of lanes is the number of elements of the widest type in the body's computations that fit into one register
of the target (float16 and bfloat16 count as float32, in which they are computed). Buffers allocated in the loop get one
element for each lane; conditions that vary across lanes become predicates; a sum over the loop becomes a sum of
vectors, whose lanes are added at the end, if rounding may change. A loop without a vector form becomes serial, with a
remark.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import COMPACT, PARALLEL_WISHES, PARTITIONED, VECTOR_LOOPS, VECTORS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.findings import findings
from tilewright.passes.tensor.vector_arith import lane_numbers, widen
from tilewright.passes.tensor.vector_body import CannotVectorizeError, VectorBody
from tilewright.passes.tensor.vector_reduction import LaneReduction, match_reduction
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.dtype import BOOL, FLOAT32, DataType
from tilewright.tensorir.expr import (
    Buffer,
    BufferLoad,
    Cast,
    Compare,
    Expr,
    IntImm,
    Var,
    cast,
    compare,
    const,
)
from tilewright.tensorir.functor import (
    LOADS,
    Mutator,
    copy_with_fresh_definitions,
    kinds,
    loads_and_stores,
    substitute,
    uses_var,
)
from tilewright.tensorir.keys import REASSOCIATE
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Allocate, BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt, sequence
from tilewright.tensorir.target import Target

#: The most registers that one statement may span; loops over more elements are strip-mined.
_MAX_REGISTERS = 4

#: Main loops of at most this many vectors are unrolled, so that register buffers stay in registers.
_UNROLLED_VECTORS = 8


@register_config_option("tensorir.VectorizeLoop")
@dataclass(frozen=True)
class VectorizeLoopConfig:
    """Options of ``VectorizeLoop``."""

    tail: Literal["auto", "mask", "peel"] = dataclasses.field(
        default="auto",
        metadata={"doc": "the form of a tail that does not fill a vector: masked, a scalar loop, or chosen by target"},
    )
    enable: bool = dataclasses.field(default=True, metadata={"doc": "false makes every vectorized loop serial"})


class _BodyFacts:
    """The accesses and reductions of a loop body, and the types that it computes with.

    Attributes:
        defined: the variable of the loop, and those that the body defines.
        allocated: the buffers that the body allocates.
        found: the stores that have the form of a reduction, in order.
        uses: the number of accesses of each buffer.
        reducing: the operations of the reductions into each buffer.
        types: the element types of the body, apart from those of addresses.

    Raises:
        CannotVectorizeError: the body computes with vectors.
    """

    def __init__(self, loop: For) -> None:
        self.defined: set[Var] = {loop.var}
        self.allocated: set[Buffer] = set()
        self.found: list[LaneReduction] = []
        self.uses: dict[Buffer, int] = {}
        self.reducing: dict[Buffer, list[str]] = {}
        self.types: set[DataType] = set()
        seen: set[Expr] = set()
        stack: list[Node] = [loop.body]
        while stack:
            node = stack.pop()
            kind = type(node)
            if kind is IntImm:
                continue
            if isinstance(node, Expr):
                if node.dtype.lanes > 1:
                    raise CannotVectorizeError("its body contains vector expressions already")
                if kind is Var:
                    continue
                if isinstance(node, BufferLoad):
                    self._access(node.buffer)
                elif not kinds(node) & LOADS:  # accesses are counted, whatever else is looked at once
                    if node in seen:
                        continue
                    seen.add(node)
                if kind is Cast and node.dtype.is_float:
                    self.types.add(node.dtype)
            elif isinstance(node, BufferStore):
                self._access(node.buffer)
                reduction = match_reduction(node)
                if reduction is not None:
                    self.found.append(reduction)
                    self.reducing.setdefault(node.buffer, []).append(reduction.op)
            elif isinstance(node, (For, LetStmt)):
                self.defined.add(node.var)
            elif isinstance(node, Allocate):
                self.allocated.add(node.buffer)
            stack.extend(node.parts()[::-1])

    def _access(self, buffer: Buffer) -> None:
        self.uses[buffer] = self.uses.get(buffer, 0) + 1
        self.types.add(buffer.dtype)

    def widest_type(self) -> DataType:
        """Return the widest element type that the body computes with."""
        widest: DataType | None = None
        has_halves = False
        for dtype in self.types:
            has_halves = has_halves or (dtype.is_float and dtype.bits == 16)
            if widest is None or dtype.bits > widest.bits:
                widest = dtype
        if widest is None or (has_halves and widest.bits < 32):
            return FLOAT32
        return widest

    def only_reduced(self) -> dict[Buffer, bool]:
        """Return the buffers whose accesses are all reductions (a load and a store each) with the same operation."""
        return {
            buffer: self.uses[buffer] == 2 * len(ops) and len(set(ops)) == 1 for buffer, ops in self.reducing.items()
        }

    def accumulators(self) -> dict[int, LaneReduction]:
        """Return the reductions by number whose target is a single element for the whole loop."""
        return {
            number: item
            for number, item in enumerate(self.found)
            if self.uses[item.target.buffer] == 2
            and item.target.buffer not in self.allocated
            and not any(uses_var(index, self.defined) for index in item.target.indices)
            and not any(kinds(index) & LOADS for index in item.target.indices)
        }


class _LoopVectorizer(Mutator):
    def __init__(self, func: PrimFunc, ctx: PassContext, target: Target) -> None:
        self.ctx, self.target = ctx, target
        self.config: VectorizeLoopConfig = ctx.get_config("tensorir.VectorizeLoop")
        self.analyzer = Analyzer(findings(func))

    def mutate_For(self, loop: For) -> Stmt:
        loop = loop.with_body(self.mutate(loop.body))
        if loop.kind != "vectorized":
            return loop
        if not self.config.enable:
            return _serial(loop)
        try:
            return _OneLoop(loop, self).run()
        except CannotVectorizeError as reason:
            self.ctx.remark(f"loop {loop.var.name} not vectorized: {reason}", "missed")
            return _serial(loop)


def _serial(loop: For) -> For:
    return For(loop.var, loop.min, loop.extent, "serial", loop.body, loop.annotations)


class _OneLoop:
    """Vectorize one loop."""

    def __init__(self, loop: For, parent: _LoopVectorizer) -> None:
        self.loop = loop
        self.target, self.analyzer, self.config = parent.target, parent.analyzer, parent.config
        self.may_reassociate = bool(loop.annotations.get(REASSOCIATE)) or parent.ctx.is_fast
        facts = _BodyFacts(loop)
        self.only_reduced = facts.only_reduced()
        self.accumulators = facts.accumulators()
        self.register_lanes = self.target.lanes(facts.widest_type())

    def run(self) -> Stmt:
        extent = self.loop.extent
        if isinstance(extent, IntImm):
            if extent.value <= 0:
                return sequence()
            if extent.value == 1:
                return substitute(self.loop.body, {self.loop.var: self.loop.min})
            if _is_power_of_two(extent.value) and extent.value <= _MAX_REGISTERS * self.register_lanes:
                self.accumulators = {}
                return self._vector(self.loop.body, self.loop.min, extent.value, None)
        lanes = self._strip_lanes()
        if lanes < 2:
            raise CannotVectorizeError("a register of the target holds only one element of its type")
        self._allocate_accumulators(lanes)
        return self._finish(self._strips(lanes))

    def _strip_lanes(self) -> int:
        """Return the lanes of the main loop: several registers if a reduction would wait for its previous result."""
        lanes = self.register_lanes * (_MAX_REGISTERS if self.accumulators else 1)
        if isinstance(self.loop.extent, IntImm):
            while lanes > self.register_lanes and lanes > self.loop.extent.value:
                lanes //= 2
        return lanes

    def _vector(self, body: Stmt, base: Expr, lanes: int, tail: Expr | None) -> Stmt:
        vector = VectorBody(
            self.loop.var,
            base,
            lanes,
            tail,
            self.accumulators,
            self.only_reduced,
            self.may_reassociate,
            self._stays_in_block,
        )
        result: Stmt = vector.mutate(body)
        return result

    def _stays_in_block(self, base: Expr, lanes: int, divisor: int) -> bool:
        remainder = base % divisor
        return self.analyzer.prove(remainder <= divisor - lanes)

    def _strips(self, lanes: int) -> Stmt:
        """Build the main loop over whole vectors, and the tail."""
        loop = self.loop
        dtype = loop.var.dtype
        simplify = self.analyzer.simplify
        count: Expr
        rest: Expr
        if isinstance(loop.extent, IntImm):
            whole, left = divmod(loop.extent.value, lanes)
            count, rest = const(whole, dtype), const(left, dtype)
            start = simplify(loop.min + whole * lanes)
        else:
            count, rest = simplify(loop.extent // lanes), simplify(loop.extent % lanes)
            start = simplify(loop.min + count * lanes)
        main: Stmt | None = None
        if not (isinstance(count, IntImm) and count.value == 0):
            strip = Var(f"{loop.var.name}_vector", dtype)
            self.analyzer.bind(strip, const(0, dtype), count)
            body = self._vector(copy_with_fresh_definitions(loop.body), loop.min + strip * lanes, lanes, None)
            unrolled = isinstance(count, IntImm) and count.value <= _UNROLLED_VECTORS and not self.accumulators
            main = For(strip, const(0, dtype), count, "unrolled" if unrolled else "serial", body)
        if isinstance(rest, IntImm) and rest.value == 0:
            return main if main is not None else sequence()
        return sequence(main, self._tail(start, rest, lanes))

    def _tail(self, start: Expr, rest: Expr, lanes: int) -> Stmt:
        loop = self.loop
        body = copy_with_fresh_definitions(loop.body)
        if self._peels():
            if self.accumulators:
                body = _NamedAccumulators(self.accumulators).mutate(body)
            return For(loop.var, start, rest, "serial", body)
        if isinstance(rest, IntImm):
            width = 1
            while width < rest.value:
                width *= 2
            lanes = lanes if self.accumulators else min(lanes, max(2, width))
            if lanes == rest.value:
                return self._vector(body, start, lanes, None)
        mask = Var(f"{loop.var.name}_tail", BOOL.with_lanes(lanes))
        exists = Compare("lt", lane_numbers(lanes), widen(cast("int32", rest), lanes))
        vector = LetStmt(mask, exists, self._vector(body, start, lanes, mask))
        return vector if isinstance(rest, IntImm) else IfThenElse(compare("gt", rest, const(0, rest.dtype)), vector)

    def _peels(self) -> bool:
        """Return whether the tail is a scalar loop: on request or if the target cannot mask accesses to small
        elements."""
        if self.config.tail != "auto":
            return self.config.tail == "peel"
        least = self.target.masked_bits
        if least is None:
            return True
        return least > 8 and any(access.buffer.dtype.bits < least for access in loads_and_stores(self.loop.body))

    def _allocate_accumulators(self, lanes: int) -> None:
        if not self.may_reassociate:
            self.accumulators = {number: item for number, item in self.accumulators.items() if item.is_exact}
        made: dict[int, LaneReduction] = {}
        for number, item in self.accumulators.items():
            target = item.target.buffer
            vector = Buffer(f"{target.name}_lanes", (const(lanes, "int64"),), target.dtype, "register", (), 64)
            made[number] = dataclasses.replace(item, buffer=vector)
        self.accumulators = made

    def _finish(self, loops: Stmt) -> Stmt:
        """Put ``loops`` between the initialization of the accumulators and their reduction to single elements."""
        before: list[Stmt] = []
        after: list[Stmt] = []
        for item in self.accumulators.values():
            assert item.buffer is not None
            shape = item.buffer.shape[0]
            assert isinstance(shape, IntImm)
            lane = (lane_numbers(shape.value),)
            before.append(
                BufferStore(item.buffer, const(item.identity, item.buffer.dtype.with_lanes(shape.value)), lane)
            )
            total = item.combine(item.target, (item.across_lanes(BufferLoad(item.buffer, lane)),))
            after.append(BufferStore(item.target.buffer, total, item.target.indices))
        whole = sequence(*before, loops, *after)
        for item in self.accumulators.values():
            assert item.buffer is not None
            whole = Allocate(item.buffer, whole)
        return whole


class _NamedAccumulators(Mutator):
    """Redirect reductions of a scalar tail to lane 0 of the accumulators: the elements are combined only at the end."""

    def __init__(self, accumulators: dict[int, LaneReduction]) -> None:
        self.buffers = {item.target.buffer: item.buffer for item in accumulators.values()}

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        vector = self.buffers.get(op.buffer)
        return self.generic_mutate(op) if vector is None else BufferLoad(vector, (const(0, "int64"),))

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        vector = self.buffers.get(op.buffer)
        if vector is None:
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        return BufferStore(vector, self.mutate(op.value), (const(0, "int64"),))


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def vectorize_loops(func: PrimFunc, ctx: PassContext | None = None, target: Target | None = None) -> PrimFunc:
    """Return ``func`` without vectorized loops."""
    ctx = ctx if ctx is not None else PassContext.current()
    vectorizer = _LoopVectorizer(func, ctx, target if target is not None else Target.current())
    return func.with_body(vectorizer.mutate(func.body))


@register_pass
@primfunc_pass(
    opt_level=0,
    name="VectorizeLoop",
    requires={COMPACT, PARTITIONED, PARALLEL_WISHES},
    provides={VECTORS},
    invalidates={VECTOR_LOOPS},
)
class VectorizeLoop(PrimFuncPass):
    """See the module. ``target``: default :meth:`Target.current`."""

    family = "schedule"
    essential = True

    def __init__(self, target: Target | None = None) -> None:
        self.target = target

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` without vectorized loops."""
        return vectorize_loops(func, ctx, self.target)
