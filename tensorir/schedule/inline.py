"""Primitives that remove an intermediate buffer: compute_inline and reverse_compute_inline."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tilewright.tensorir.arith.iter_map import constant_value
from tilewright.tensorir.conditions import conjuncts
from tilewright.tensorir.expr import (
    BinaryOp,
    Buffer,
    BufferLoad,
    Expr,
    IntImm,
    Select,
    Var,
    as_expr,
    compare,
    zero_bits,
)
from tilewright.tensorir.functor import INTEGER_DIVISIONS, LOADS, Mutator, kinds, leaves, substitute, walk
from tilewright.tensorir.guards import Decided, negation
from tilewright.tensorir.schedule.blocks import accesses, change_block
from tilewright.tensorir.schedule.handles import BlockRef
from tilewright.tensorir.schedule.indices import structure
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.sources import add_sources, sources_of
from tilewright.tensorir.stmt import Block, BufferStore, IterVar, Stmt


class _LoadReplacer(Mutator):
    """Replaces loads of a buffer by ``value`` at the load's indices; under the load's predicate, which guards the loads
    of ``value`` as well, and zero where it does not hold. What conditions around a load say already is not repeated."""

    def __init__(self, buffer: Buffer, variables: Sequence[Expr], value: Expr) -> None:
        self.buffer = buffer
        self.variables = variables
        self.value = value
        #: What holds where the expression is wanted.
        self._holding: frozenset[Expr] = frozenset()

    def mutate(self, node: Any) -> Any:
        if isinstance(node, Expr) and self.buffer not in leaves(node):
            return node
        return super().mutate(node)

    def mutate_BufferLoad(self, load: BufferLoad) -> Expr:
        load = self.generic_mutate(load)
        if load.buffer is not self.buffer:
            return load
        values = {var: index for var, index in zip(self.variables, load.indices, strict=True) if isinstance(var, Var)}
        value = substitute(self.value, values)
        if load.predicate is None:
            return value
        guarded: Expr = Decided(conjuncts(load.predicate), load.predicate).mutate(value)
        if self._holding.issuperset(conjuncts(load.predicate)):
            return guarded
        return Select(load.predicate, guarded, zero_bits(value.dtype))

    def mutate_Select(self, op: Select) -> Expr:
        condition: Expr = self.mutate(op.condition)
        chosen = self._mutate_where(condition, op.true_value)
        return Select(condition, chosen, self._mutate_where(negation(condition), op.false_value))

    def _mutate_where(self, condition: Expr, value: Expr) -> Expr:
        outer, self._holding = self._holding, self._holding.union(conjuncts(condition))
        made: Expr = self.mutate(value)
        self._holding = outer
        return made


def _divides(value: Expr) -> bool:
    """Return whether ``value`` divides integers by what may be zero where it is not wanted."""
    return any(
        isinstance(node, BinaryOp)
        and node.op in INTEGER_DIVISIONS
        and not (isinstance(node.b, IntImm) and node.b.value)
        and bool(kinds(node.b) & LOADS)
        for node in walk(value)
    )


def _elementwise_store(state: State, block: Block, what: str) -> BufferStore:
    """Return the single store of a block without init and reduction.

    Raises:
        ScheduleError: the block is of another form.
    """
    if block.init is not None or any(item.kind == "reduction" for item in block.iters):
        state.fail(f"cannot {what}: block {block.name} is a reduction", block)
    if not isinstance(block.body, BufferStore) or block.body.predicate is not None:
        state.fail(f"cannot {what}: the body of block {block.name} is not a single unpredicated store", block)
    return block.body


def check_places(state: State, block: Block, buffer: Buffer, indices: Sequence[Expr], what: str) -> None:
    """Check that a block accesses ``buffer`` at its iteration variables: each index is one of them, none occurs twice
    (the index of a dimension of extent one may be a constant).

    Raises:
        ScheduleError: otherwise.
    """
    variables = {item.var for item in block.iters if item.kind == "spatial" and constant_value(item.extent) != 1}
    used: set[Var] = set()
    for index in indices:
        if isinstance(index, Var) and index not in used:
            used.add(index)
        elif constant_value(index) is None:
            state.fail(
                f"cannot {what}: block {block.name} accesses {buffer.name} at {index!s}, not an iteration variable",
                block,
            )
    if not variables <= used:
        missing = ", ".join(sorted(var.name for var in variables - used))
        state.fail(f"cannot {what}: {missing} of block {block.name} do not index {buffer.name}", block)


def _single_writer(state: State, block: Block, buffer: Buffer, what: str) -> None:
    others = [other for other in state.writers(buffer) if other is not block]
    if others:
        state.fail(f"cannot {what}: block {others[0].name} also writes {buffer.name}", others[0])
    if state.is_parameter(buffer):
        state.fail(f"cannot {what}: {buffer.name} is a result of the function", block)


def compute_inline(state: State, ref: BlockRef) -> State:
    """Implement :meth:`.Schedule.compute_inline`."""
    block = state.block(ref)
    store = _elementwise_store(state, block, "inline")
    buffer = store.buffer
    _single_writer(state, block, buffer, "inline")
    check_places(state, block, buffer, store.indices, "inline")
    own = accesses(block).reads
    if buffer in own:
        state.fail(f"cannot inline: block {block.name} reads its own buffer {buffer.name}", block)
    consumers = state.readers(buffer)
    if not consumers:
        state.fail(f"cannot inline: no block reads {buffer.name}", block)
    for consumer in consumers:
        for load in accesses(consumer).reads[buffer]:
            if load.dtype.lanes != 1:
                state.fail(f"cannot inline: block {consumer.name} reads vectors of {buffer.name}", load)
            if load.predicate is not None and _divides(store.value):
                state.fail(
                    f"cannot inline: block {consumer.name} reads {buffer.name} with a predicate; without it, block "
                    f"{block.name} would divide by zero",
                    load,
                )
    blocks = state.all_blocks()
    for between in blocks[blocks.index(block) + 1 : blocks.index(consumers[-1]) + 1]:
        written = accesses(between).writes
        for read in own:
            if read in written:
                state.fail(f"cannot inline: block {between.name} writes {read.name}, which {block.name} reads", between)
    constants = {item.var: item.min for item in block.iters if constant_value(item.extent) == 1}
    indexed = set(store.indices)
    value = substitute(store.value, {var: low for var, low in constants.items() if var not in indexed})
    replacer = _LoadReplacer(buffer, store.indices, value)
    table: dict[Stmt, Stmt | None] = {block: None}
    for consumer in consumers:
        init = None if consumer.init is None else replacer.mutate(consumer.init)
        body = replacer.mutate(consumer.body)
        table[consumer] = made = change_block(consumer, init=init, body=body)
        for stmt in (made, body):
            add_sources(stmt, sources_of(store))
    return state.replace(table, unused=buffer)


def reverse_compute_inline(state: State, ref: BlockRef) -> State:
    """Implement :meth:`.Schedule.reverse_compute_inline`."""
    what = "inline into its producer"
    block = state.block(ref)
    store = _elementwise_store(state, block, what)
    producer, load = _only_producer(state, block, what)
    inner = _elementwise_store(state, producer, what)
    buffer = load.buffer
    check_places(state, block, buffer, load.indices, what)
    check_places(state, producer, buffer, inner.indices, what)
    _single_writer(state, producer, buffer, what)
    analyzer = state.analyzer()
    of_block = {item.var: item for item in block.iters}
    of_producer = {item.var: item for item in producer.iters}
    values: dict[Var, Expr] = {
        item.var: item.min for item in block.iters if constant_value(item.extent) == 1 and item.var not in load.indices
    }
    for outer, index in zip(load.indices, inner.indices, strict=True):
        if not isinstance(outer, Var):
            continue
        written: IterVar | None = of_producer.get(index) if isinstance(index, Var) else None
        low, extent = (index, as_expr(1)) if written is None else (written.min, written.extent)
        read = of_block[outer]
        if not (analyzer.prove(compare("eq", low, read.min)) and analyzer.prove(compare("eq", extent, read.extent))):
            state.fail(f"cannot {what}: block {block.name} has another range of {outer.name} than its producer", block)
        values[outer] = index
    place = state.position(producer)
    for buffer_read in accesses(block).reads:
        late = [b for b in state.writers(buffer_read) if b is not producer and state.position(b) > place]
        if late:
            state.fail(f"cannot {what}: block {late[0].name} writes {buffer_read.name} after the producer", block)
    combined = _LoadReplacer(buffer, inner.indices, inner.value)
    replaced = combined.mutate(substitute(store.value, values))
    body = BufferStore(store.buffer, replaced, tuple(substitute(index, values) for index in store.indices))
    made = change_block(producer, body=body)
    for stmt, source in itertools.product((made, body), (store, inner)):
        add_sources(stmt, sources_of(source))
    return state.replace({block: None, producer: made}, unused=buffer)


def _only_producer(state: State, block: Block, what: str) -> tuple[Block, BufferLoad]:
    """Return the producer into which ``block`` can be inlined, and the load of the buffer between them."""
    own = accesses(block)
    if any(state.writers(written) != [block] for written in own.writes):
        state.fail(f"cannot {what}: another block also writes the buffer of {block.name}", block)
    candidates = [
        (writers[0], loads)
        for buffer, loads in own.reads.items()
        if buffer not in own.writes
        and len(writers := state.writers(buffer)) == 1
        and not state.is_parameter(buffer)
        and state.readers(buffer) == [block]
        and writers[0].init is None
    ]
    for producer, loads in candidates:
        same = {tuple(structure(index) for index in load.indices) for load in loads}
        if len(same) == 1 and all(load.predicate is None for load in loads):
            return producer, loads[0]
    state.fail(
        f"cannot {what}: block {block.name} reads no intermediate buffer that a single elementwise block computes "
        "only for it",
        block,
    )
