"""Rewrite the body of a loop for several values of its variable at once.

``VectorBody`` rewrites statements for the lanes ``base, base + 1, ...`` of a loop variable. Two conditions state which
lanes are active: ``tail`` (lanes inside the loop's range) and ``mask`` (lanes for which the conditions of the enclosing
``if`` statements hold). Both become predicates of loads and stores; arithmetic runs in all lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.passes.tensor.lower_blocks import refuse_block
from tilewright.passes.tensor.vector_arith import (
    any_lane,
    common_lanes,
    conjunction,
    is_lane_limit,
    lane_numbers,
    ramp,
    vector_binary,
    vector_call,
    vector_cast,
    vector_compare,
    vector_select,
    vector_unary,
    widen,
)
from tilewright.passes.tensor.vector_reduction import LaneReduction, match_reduction
from tilewright.tensorir.dtype import BOOL
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Expr,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
    const,
    zero_bits,
)
from tilewright.tensorir.functor import INTEGER_DIVISIONS, Mutator, substitute, uses_var
from tilewright.tensorir.intrinsics import INTRINSICS
from tilewright.tensorir.stmt import Allocate, Block, BufferStore, Evaluate, For, IfThenElse, LetStmt, Stmt, sequence
from tilewright.tensorir.target import CACHE_LINE


class CannotVectorizeError(Exception):
    """The loop has to stay serial; the message states the reason."""


class VectorBody(Mutator):
    """Rewrite the body of one loop for ``lanes`` consecutive values of ``var``, the first of which is ``base``.

    Args:
        tail: the lanes that exist, a bool vector; None if all do.
        accumulators: the vectors that collect reductions over the lanes, by the number of the store among those of the
            body that have the form of a reduction.
        only_reduced: the buffers that all accesses in the body reduce into, all with one operation.
        may_reassociate: whether float sums and products over the lanes may be reordered.
        in_block: proves ``base // divisor == (base + lanes - 1) // divisor`` for a ramp with stride 1.

    Raises:
        CannotVectorizeError: a statement or expression has no vector form.
    """

    def __init__(
        self,
        var: Var,
        base: Expr,
        lanes: int,
        tail: Expr | None,
        accumulators: Mapping[int, LaneReduction],
        only_reduced: Mapping[Buffer, bool],
        may_reassociate: bool,
        in_block: Callable[[Expr, int, int], bool],
    ) -> None:
        self.var, self.base, self.lanes = var, base, lanes
        self.values: dict[Var, Expr] = {var: ramp(base, const(1, var.dtype), lanes)}
        self.tail = tail
        self.mask: Expr | None = None
        self.widened: dict[Buffer, Buffer] = {}
        self.accumulators = accumulators
        self.only_reduced = only_reduced
        self.reductions_seen = 0
        self.may_reassociate = may_reassociate
        self.in_block = in_block

    # Expressions.

    def mutate_Var(self, var: Var) -> Expr:
        return self.values.get(var, var)

    def mutate_BinaryOp(self, op: BinaryOp) -> Expr:
        a, b = self.mutate(op.a), self.mutate(op.b)
        if a is op.a and b is op.b:
            return op
        if op.op in INTEGER_DIVISIONS and common_lanes(a, b) > 1:
            return self._integer_division(op.op, a, b)
        return vector_binary(op.op, a, b)

    def _integer_division(self, op: str, a: Expr, b: Expr) -> Expr:
        divisor = b.value if isinstance(b, Broadcast) else b
        if isinstance(divisor, IntImm) and divisor.value > 0:
            is_row = isinstance(a, Ramp) and isinstance(a.stride, IntImm) and a.stride.value == 1
            if isinstance(a, Ramp) and is_row and op.startswith("floor"):
                base = vector_binary(op, a.base, divisor)
                if self.in_block(a.base, a.lanes, divisor.value):
                    return Broadcast(base, a.lanes) if op == "floordiv" else ramp(base, a.stride, a.lanes)
            return vector_binary(op, a, b)
        # Inactive lanes may hold a zero here, and an integer division by it would trap.
        counted = conjunction(self.tail, self.mask)
        if counted is not None:
            b = vector_select(counted, b, const(1, b.dtype.element))
        return vector_binary(op, a, b)

    def mutate_UnaryOp(self, op: UnaryOp) -> Expr:
        a = self.mutate(op.a)
        return op if a is op.a else vector_unary(op.op, a)

    def mutate_Compare(self, op: Compare) -> Expr:
        a, b = self.mutate(op.a), self.mutate(op.b)
        return op if a is op.a and b is op.b else vector_compare(op.op, a, b)

    def mutate_Select(self, op: Select) -> Expr:
        parts = self.mutate(op.condition), self.mutate(op.true_value), self.mutate(op.false_value)
        return vector_select(*parts)

    def mutate_Cast(self, op: Cast) -> Expr:
        value = self.mutate(op.value)
        return op if value is op.value else vector_cast(op.dtype, value)

    def mutate_Call(self, op: Call) -> Expr:
        if op.name.startswith("@"):
            raise CannotVectorizeError(f"it calls the function {op.name}, which has no vector version")
        intrinsic = INTRINSICS[op.name]
        if not intrinsic.pure or not intrinsic.lanewise:
            raise CannotVectorizeError(f"the intrinsic {op.name} has no vector version")
        args = self.mutate_all(op.args)
        return op if args is op.args else vector_call(op.name, args, op.dtype)

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        indices = self.mutate_all(op.indices)
        predicate = self.mutate(op.predicate) if op.predicate is not None else None
        if op.buffer in self.widened:
            varying = any(not isinstance(index, IntImm) for index in indices)
            guard = conjunction(predicate, self.mask if varying else None)
            return BufferLoad(self.widened[op.buffer], (*indices, lane_numbers(self.lanes)), guard)
        if common_lanes(*indices) > 1:
            return BufferLoad(op.buffer, indices, conjunction(predicate, self.tail, self.mask))
        if predicate is not None and predicate.dtype.lanes > 1:
            if not indices:  # a buffer of one element has no index that could be widened
                read = conjunction(predicate, self.tail, self.mask)
                assert read is not None
                value = BufferLoad(op.buffer, (), any_lane(read))
                return vector_select(predicate, value, zero_bits(value.dtype))
            wide = tuple(widen(index, self.lanes) for index in indices)
            return BufferLoad(op.buffer, wide, conjunction(predicate, self.tail, self.mask))
        if self.mask is not None:
            # One address for all lanes, which may be invalid if no lane is active.
            return BufferLoad(op.buffer, indices, conjunction(predicate, any_lane(self.mask)))
        if indices is op.indices and predicate is op.predicate:
            return op
        return BufferLoad(op.buffer, indices, predicate)

    # Statements.

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        reduction = match_reduction(op)
        number = self.reductions_seen
        self.reductions_seen += reduction is not None
        indices = self.mutate_all(op.indices)
        predicate = self.mutate(op.predicate) if op.predicate is not None else None
        if op.buffer in self.widened:
            value = widen(self.mutate(op.value), self.lanes)
            guard = conjunction(predicate, self.mask)
            guard = widen(guard, self.lanes) if guard is not None else None
            return BufferStore(self.widened[op.buffer], value, (*indices, lane_numbers(self.lanes)), guard)
        if common_lanes(*indices) > 1:
            value = widen(self.mutate(op.value), self.lanes)
            guard = conjunction(predicate, self.tail, self.mask)
            return BufferStore(op.buffer, value, indices, guard)
        if reduction is not None:
            return self._reduce(number, reduction, indices, predicate)
        value = self.mutate(op.value)
        if value.dtype.lanes > 1 or (predicate is not None and predicate.dtype.lanes > 1):
            raise CannotVectorizeError(f"all iterations write the same element of {op.buffer.name}")
        # Every iteration stores the same value to the same place, so one store is enough.
        active = any_lane(self.mask) if self.mask is not None else None
        return _guarded(conjunction(predicate, active), BufferStore(op.buffer, value, indices))

    def _reduce(self, number: int, reduction: LaneReduction, indices: tuple[Expr, ...], predicate: Expr | None) -> Stmt:
        """Rewrite a store that combines its element with a value per lane."""
        buffer = reduction.target.buffer
        if not self.only_reduced.get(buffer, False):
            raise CannotVectorizeError(f"it reduces into {buffer.name} and accesses it elsewhere in its body")
        if not reduction.is_exact and not self.may_reassociate:
            raise CannotVectorizeError(
                f"summing floats over the lanes into {buffer.name} rounds differently; annotate the loop "
                'with "reassociate": True, or use opt_level 3'
            )
        counted = conjunction(predicate, self.tail, self.mask)
        terms = tuple(widen(self.mutate(term), self.lanes) for term in reduction.terms)
        accumulator = self.accumulators.get(number)
        if accumulator is not None and accumulator.buffer is not None:
            lane = (lane_numbers(self.lanes),)
            old = BufferLoad(accumulator.buffer, lane)
            new = accumulator.combine(old, terms)
            return BufferStore(accumulator.buffer, new if counted is None else vector_select(counted, new, old), lane)
        value = terms[0] if len(terms) == 1 else vector_binary("mul", *terms)
        if counted is not None:
            value = vector_select(counted, value, const(reduction.identity, value.dtype.element))
        combined = reduction.combine(BufferLoad(buffer, indices), (reduction.across_lanes(value),))
        return BufferStore(buffer, combined, indices)

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        condition = self.mutate(op.condition)
        if isinstance(condition, Broadcast):
            condition = condition.value
        if condition.dtype.lanes == 1:
            otherwise = self.mutate(op.else_body) if op.else_body is not None else None
            return IfThenElse(condition, self.mutate(op.then_body), otherwise)
        outer = self.mask
        name: Expr = condition if is_lane_limit(condition) else Var("lane_mask", BOOL.with_lanes(self.lanes))
        self.mask = name if outer is None else vector_binary("and", outer, name)
        branches = [self.mutate(op.then_body)]
        if op.else_body is not None:
            self.mask = conjunction(outer, UnaryOp("not", name))
            branches.append(self.mutate(op.else_body))
        self.mask = outer
        if not isinstance(name, Var):
            return sequence(*branches)
        return LetStmt(name, condition, sequence(*branches))

    def mutate_LetStmt(self, op: LetStmt) -> Stmt:
        value = self.mutate(op.value)
        if value.dtype.lanes == 1:
            return LetStmt(op.var, value, self.mutate(op.body))
        if isinstance(value, (Ramp, Broadcast)):
            # Only the scalar is bound, so that addresses computed from it are still recognised as contiguous.
            scalar = value.base if isinstance(value, Ramp) else value.value
            var = Var(op.var.name, scalar.dtype)
            lanes = ramp(var, value.stride, value.lanes) if isinstance(value, Ramp) else Broadcast(var, value.lanes)
            self.values[op.var] = lanes
            return LetStmt(var, scalar, self.mutate(op.body))
        var = Var(op.var.name, value.dtype)
        self.values[op.var] = var
        return LetStmt(var, value, self.mutate(op.body))

    def mutate_For(self, op: For) -> Stmt:
        if op.kind == "parallel":
            raise CannotVectorizeError(f"it contains the parallel loop {op.var.name}")
        low, extent = (_uniform(self.mutate(bound)) for bound in (op.min, op.extent))
        if low.dtype.lanes > 1 or extent.dtype.lanes > 1:
            raise CannotVectorizeError(f"the bounds of the inner loop {op.var.name} differ between lanes")
        return For(op.var, low, extent, op.kind, self.mutate(op.body), op.annotations)

    def mutate_Allocate(self, op: Allocate) -> Stmt:
        if any(uses_var(extent, frozenset(self.values)) for extent in (*op.buffer.shape, *op.buffer.strides)):
            raise CannotVectorizeError(f"the shape of {op.buffer.name} differs between lanes")
        old = op.buffer
        shape = (*old.shape, const(self.lanes, "int64"))
        strides = tuple(stride * self.lanes for stride in old.strides) + ((const(1, "int64"),) if old.strides else ())
        self.widened[old] = Buffer(old.name, shape, old.dtype, old.scope, strides, max(old.alignment, CACHE_LINE))
        return Allocate(self.widened[old], self.mutate(op.body))

    def mutate_Block(self, op: Block) -> Stmt:
        refuse_block(op)

    def mutate_Evaluate(self, op: Evaluate) -> Stmt:
        if isinstance(op.value, Call) and op.value.name == "prefetch":
            address = substitute(op.value, {self.var: self.base})
            if not uses_var(address, frozenset(self.values)) and not self._uses_widened(address):
                return Evaluate(address)  # one hint, for the line of the first lane
            return sequence()
        return Evaluate(self.mutate(op.value))

    def _uses_widened(self, op: Call) -> bool:
        load = op.args[0]
        return isinstance(load, BufferLoad) and load.buffer in self.widened


def _uniform(expr: Expr) -> Expr:
    return expr.value if isinstance(expr, Broadcast) else expr


def _guarded(condition: Expr | None, body: Stmt) -> Stmt:
    return body if condition is None else IfThenElse(_uniform(condition), body)
