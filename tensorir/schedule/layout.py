"""The primitive that changes the layout of a buffer: transform_layout."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.tensorir.arith import Analyzer, region_of
from tilewright.tensorir.conditions import conjunction
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, Var, as_expr, binary, compare, const
from tilewright.tensorir.functor import Mutator, substitute
from tilewright.tensorir.schedule.blocks import accesses, change_block, new_block
from tilewright.tensorir.schedule.compute_at import place_for_consumers
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.index_map import IndexMap
from tilewright.tensorir.schedule.indices import variables_of
from tilewright.tensorir.schedule.loops import check_kinds
from tilewright.tensorir.schedule.nests import blocks_in, loops_in, rewrite, with_loop_body
from tilewright.tensorir.schedule.placement import full_nest, holds, loop_name
from tilewright.tensorir.schedule.regions import is_injective
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.sources import inherit
from tilewright.tensorir.stmt import Allocate, Block, BufferStore, For, IfThenElse, IterVar, SeqStmt, Stmt


def transform_layout(
    state: State, ref: BlockRef, buffer: Buffer, index_map: IndexMap, pad_value: float | int | None = None
) -> State:
    """Implement :meth:`.Schedule.transform_layout`."""
    what = f"change the layout of {buffer.name}"
    block = state.block(ref)
    if state.is_parameter(buffer):
        state.fail(f"cannot {what}: it is a parameter of the function", block)
    shape = _new_shape(state, buffer, index_map, block, what)
    new = Buffer(buffer.name, shape, buffer.dtype, buffer.scope, (), buffer.alignment)
    analyzer = state.analyzer()
    old_size, new_size = _product(buffer.shape), _product(shape)
    padded = not analyzer.prove(compare("eq", old_size, new_size))
    writers = state.writers(buffer)
    rewritten = _over_new_layout(state, writers, buffer, new, index_map, padded, pad_value)
    if rewritten is None and padded and pad_value is not None:
        state.fail(
            f"cannot {what}: its padding cannot be written: the buffer must be computed by a single block without "
            "reduction, at indices for which the map can be inverted",
            block,
        )
    body = _replaced(state.body, buffer, new, index_map, state, keep=writers[0] if rewritten is not None else None)
    changed = state.with_body(body)
    if rewritten is None:
        return changed
    return _with_new_nest(state, changed, writers[0], rewritten, new, what)


def _product(extents: tuple[Expr, ...]) -> Expr:
    size: Expr = as_expr(1)
    for extent in extents:
        size = binary("mul", size, extent)
    return size


def _new_shape(state: State, buffer: Buffer, index_map: IndexMap, block: Block, what: str) -> tuple[Expr, ...]:
    ranges = {var: (as_expr(0), extent) for var, extent in zip(index_map.variables, buffer.shape, strict=True)}
    analyzer = state.analyzer()
    shape = []
    for expr, span in zip(index_map.exprs, region_of(index_map.exprs, ranges, analyzer), strict=True):
        if span is None or not analyzer.prove(compare("ge", span[0], 0)):
            state.fail(f"cannot {what}: the index {expr!s} has no known bounds, or may be negative", block)
        shape.append(analyzer.simplify(binary("add", span[0], span[1])))
    loops = [For(var, low, extent, "serial", block) for var, (low, extent) in ranges.items()]
    if not is_injective(index_map.exprs, loops, state.questions(loops)):
        state.fail(f"cannot {what}: {index_map} may map two elements to one place", block)
    return tuple(shape)


class _AccessRewriter(Mutator):
    """Maps the indices of all accesses to a buffer."""

    def __init__(self, old: Buffer, new: Buffer, index_map: IndexMap, analyzer: Analyzer) -> None:
        self.old = old
        self.new = new
        self.index_map = index_map
        self.analyzer = analyzer

    def _indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(self.analyzer.simplify(index) for index in self.index_map(indices))

    def mutate_BufferLoad(self, load: BufferLoad) -> BufferLoad:
        load = self.generic_mutate(load)
        if load.buffer is not self.old:
            return load
        return BufferLoad(self.new, self._indices(load.indices), load.predicate)

    def mutate_BufferStore(self, store: BufferStore) -> BufferStore:
        store = self.generic_mutate(store)
        if store.buffer is not self.old:
            return store
        return BufferStore(self.new, store.value, self._indices(store.indices), store.predicate)


def _replaced(stmt: Stmt, old: Buffer, new: Buffer, index_map: IndexMap, state: State, keep: Block | None) -> Stmt:
    """``stmt`` with the layout changed in every block but ``keep``, and where the buffer is allocated."""
    table: dict[Stmt, Stmt | None] = {}
    for block in blocks_in(stmt):
        found = accesses(block)
        if block is keep or not (old in found.reads or old in found.writes):
            continue
        analyzer = state.analyzer()
        for item in block.iters:
            analyzer.bind(item.var, item.min, item.extent)
        rewriter = _AccessRewriter(old, new, index_map, analyzer)
        init = None if block.init is None else rewriter.mutate(block.init)
        table[block] = change_block(block, init=init, body=rewriter.mutate(block.body))
    result = _reallocated(stmt, old, new)
    changed = rewrite(result, table)
    assert changed is not None
    return changed


def _reallocated(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    if isinstance(stmt, Allocate):
        if stmt.buffer is old:
            return Allocate(new, stmt.body)
        return Allocate(stmt.buffer, _reallocated(stmt.body, old, new))
    if isinstance(stmt, For):
        return with_loop_body(stmt, _reallocated(stmt.body, old, new))
    if isinstance(stmt, SeqStmt):
        return SeqStmt(tuple(_reallocated(part, old, new) for part in stmt.stmts))
    return stmt


def _over_new_layout(
    state: State,
    writers: list[Block],
    old: Buffer,
    new: Buffer,
    index_map: IndexMap,
    padded: bool,
    pad_value: float | int | None,
) -> Block | None:
    """Return the only writer as a block that iterates over the new layout; None if that is not possible."""
    if len(writers) != 1:
        return None
    (block,) = writers
    store = block.body
    plain = block.init is None and all(item.kind == "spatial" for item in block.iters)
    if not plain or not isinstance(store, BufferStore) or store.predicate is not None or old in accesses(block).reads:
        return None
    if len(accesses(block).writes) != 1:
        return None
    items = {item.var: item for item in block.iters}
    written: list[IterVar] = []
    analyzer = state.analyzer()
    for index, extent in zip(store.indices, old.shape, strict=True):
        item = items.get(index) if isinstance(index, Var) else None
        if item is None or item in written or not analyzer.prove(compare("eq", item.extent, extent)):
            return None
        written.append(item)
    if len(written) != len(block.iters) or any(not analyzer.prove(compare("eq", item.min, 0)) for item in written):
        return None
    return _packing_block(state, block, store, written, new, index_map, padded, pad_value)


def _packing_block(
    state: State,
    block: Block,
    store: BufferStore,
    written: list[IterVar],
    new: Buffer,
    index_map: IndexMap,
    padded: bool,
    pad_value: float | int | None,
) -> Block | None:
    names = _iter_names(index_map, [loop_name(item.var) for item in written])
    places = [Var(name) for name in names]
    analyzer = state.analyzer()
    for place, extent in zip(places, new.shape, strict=True):
        analyzer.bind(place, 0, extent)
    old_shape = tuple(item.extent for item in written)
    inverse = index_map.inverse(old_shape, places, analyzer)
    if inverse is None:
        return None
    values: dict[Var, Expr] = {item.var: value for item, value in zip(written, inverse, strict=True)}
    body: Stmt = BufferStore(new, substitute(store.value, values), tuple(places))
    if padded:
        ends = [compare("lt", value, extent) for value, extent in zip(inverse, old_shape, strict=True)]
        starts = [compare("ge", value, 0) for value in inverse]
        conditions = [condition for condition in (*starts, *ends) if not analyzer.prove(condition)]
        inside = conjunction(conditions)
        if inside is not None:
            padding = None if pad_value is None else BufferStore(new, const(pad_value, new.dtype), tuple(places))
            body = IfThenElse(inside, body, padding)
    zero = as_expr(0)
    iters = [IterVar(place, zero, extent, "spatial", zero) for place, extent in zip(places, new.shape, strict=True)]
    made = new_block(block.name, iters, None, None, body, block.annotations)
    inherit(made, block)
    return made


def _iter_names(index_map: IndexMap, names: list[str]) -> list[str]:
    """Name each new dimension after the only old index in it, with a number if that index is in several."""
    renamed: Mapping[Var, str] = dict(zip(index_map.variables, names, strict=True))
    found = []
    for number, expr in enumerate(index_map.exprs):
        used = [name for var, name in renamed.items() if var in variables_of(expr)]
        found.append(used[0] if len(used) == 1 else f"ax{number}")
    result = []
    for number, name in enumerate(found):
        result.append(f"v{name}" if found.count(name) == 1 else f"v{name}_{found[:number].count(name)}")
    return result


def _with_new_nest(before: State, changed: State, old_block: Block, block: Block, new: Buffer, what: str) -> State:
    """Return the state with the writer's loops made anew for its new domain, at their old place."""
    ref = BlockRef(old_block.name)
    path = changed.block_path(ref)
    shared = [loop for loop in loops_in(path) if len(blocks_in(loop)) > 1]
    if not shared:
        nest = next((stmt for stmt in path if isinstance(stmt, For)), path[-1])
        return changed.replace({nest: full_nest(block)})
    scope = shared[-1]
    consumers = changed.readers(new)
    for consumer in consumers:
        if not holds(scope.body, consumer):
            before.fail(
                f"cannot {what}: block {old_block.name} is in a loop that does not contain its reader", old_block
            )
    removed = changed.replace({path[-1]: None})
    made = place_for_consumers(removed, block, LoopRef(scope.var), consumers, what)
    check_kinds(made, made.block_path(ref))
    return made
