"""Give each piece of a concatenation loops of its own, where the places at which pieces begin are unknown.

Before::

    for i in range(n + m):
      block concatenate(vi = i): y[vi] = select(vi < n, a[vi where vi < n], b[vi - n where vi >= n])

After::

    for i in range(n):
      block concatenate(vi = i): y[vi] = a[vi]
    for i in range(m):
      block concatenate_1(vi = i): y[vi + n] = b[vi]

Vectors and tasks of the loops before would hold elements of several pieces, and ``LoopPartition`` would have to prove
for each symbolic border which do. Loops for each piece are plain copies, with half the code. Places that are known stay
conditions: their loops are partitioned at no cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tilewright.passes.schedule.cost import MOST_PIECES
from tilewright.passes.schedule.facts import blocks_of, constant, reductions, spatial
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.conditions import conjuncts
from tilewright.tensorir.expr import BufferLoad, Compare, Expr, IntImm, Select, Var, as_expr
from tilewright.tensorir.functor import Mutator, leaves, substitute
from tilewright.tensorir.guards import Decided, negation
from tilewright.tensorir.node import Node
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.schedule.blocks import fresh_iters, new_block
from tilewright.tensorir.schedule.nests import loops_in
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.sources import inherit
from tilewright.tensorir.stmt import Block, BufferStore, For, IterVar, Stmt, sequence
from tilewright.tensorir.unique_names import unique_name


@dataclasses.dataclass(frozen=True)
class _Piece:
    """A part of the elements that a block computes.

    Attributes:
        ranges: the first value of each variable, and the one behind the last, for variables with fewer values.
        holding: the conditions that hold there.
        value: the formula.
    """

    ranges: Mapping[Var, tuple[Expr, Expr]]
    holding: frozenset[Expr]
    value: Expr


def separate_pieces(schedule: Schedule) -> tuple[Schedule, list[str]]:
    """Divide the blocks that choose a formula by a symbolic place, and have loops of their own.

    Returns:
        a schedule of the function with the divided blocks, and remarks about them.
    """
    if not any(map(_chooses_by_size, blocks_of(schedule.func))):
        return schedule, []
    state = State(schedule.func)
    table: dict[Stmt, Stmt | None] = {}
    names = {ref.name for ref in schedule.get_blocks()}
    remarks: list[str] = []
    for ref in schedule.get_blocks():
        block, loops = state.block(ref), loops_in(state.block_path(ref))
        pieces = _pieces_of(block, loops, state)
        if len(pieces) < 2:
            continue
        made = []
        for number, piece in enumerate(pieces):
            name = unique_name(block.name, names) if number else block.name
            names.add(name)
            made.append(_nest(block, loops, piece, name, state.analyzer()))
        table[loops[0]] = sequence(*made)
        remarks.append(f"block {block.name}: each of its {len(pieces)} pieces has its own loops")
    return (Schedule(state.replace(table).func), remarks) if table else (schedule, remarks)


def _chooses_by_size(block: Block) -> bool:
    """Return whether the formula of a block is chosen by comparing a variable with a place that may depend on sizes."""
    value = block.body.value if isinstance(block.body, BufferStore) else None
    condition = value.condition if isinstance(value, Select) else None
    if not isinstance(condition, Compare) or condition.op != "lt":
        return False
    return isinstance(condition.a, Var) and not isinstance(condition.b, IntImm)


def _pieces_of(block: Block, loops: Sequence[For], state: State) -> list[_Piece]:
    """Return the pieces of a block's elements; a single one or none if they are not to be divided."""
    body, items = block.body, block.iters
    if not isinstance(body, BufferStore) or not isinstance(body.value, Select) or body.predicate is not None:
        return []
    if reductions(block) or block.predicate is not None or block.needed is not None or len(loops) != len(items):
        return []
    if any(item.value is not loop.var or constant(item.min) != 0 for item, loop in zip(items, loops, strict=True)):
        return []
    analyzer = state.analyzer()
    whole = {item.var: (item.min, item.extent) for item in items}
    pieces = _cut(_Piece({}, frozenset(), body.value), whole, analyzer, frozenset(state.func.variables))
    return pieces if len(pieces) <= MOST_PIECES else []


def _cut(
    piece: _Piece, whole: Mapping[Var, tuple[Expr, Expr]], analyzer: Analyzer, sizes: frozenset[Node]
) -> list[_Piece]:
    """Divide a piece at the place, in terms of ``sizes``, by which its formula is chosen, and each part in the same
    way."""
    choice = piece.value
    if not isinstance(choice, Select):
        return [piece]
    condition = choice.condition
    if not isinstance(condition, Compare) or condition.op != "lt":
        return [piece]
    var, place = condition.a, condition.b
    if not isinstance(var, Var) or var not in whole or isinstance(place, IntImm) or not leaves(place) <= sizes:
        return [piece]
    low, high = piece.ranges.get(var, whole[var])
    if not (analyzer.prove(low <= place) and analyzer.prove(place <= high)):
        return [piece]
    parts = (
        ((low, place), condition, choice.true_value),
        ((place, high), negation(condition), choice.false_value),
    )
    return [
        found
        for bounds, holds, value in parts
        for found in _cut(
            _Piece({**piece.ranges, var: bounds}, piece.holding.union(conjuncts(holds)), value), whole, analyzer, sizes
        )
    ]


def _nest(block: Block, loops: Sequence[For], piece: _Piece, name: str, analyzer: Analyzer) -> Stmt:
    """Return the loops and the block that compute a piece."""
    store = block.body
    assert isinstance(store, BufferStore)
    iters, renamed = fresh_iters(spatial(block))
    values: dict[Var, Expr] = dict(renamed)
    made: list[IterVar] = []
    variables: list[Var] = []
    for item, old, loop in zip(iters, block.iters, loops, strict=True):
        low, high = piece.ranges.get(old.var, (item.min, item.extent))
        extent = analyzer.simplify(high - low)
        values[old.var] = renamed[old.var] + low
        variables.append(Var(loop.var.name, loop.var.dtype))
        made.append(IterVar(item.var, as_expr(0, item.var.dtype), extent, item.kind, variables[-1]))
        analyzer.bind(item.var, 0, extent)
    value: Expr = Decided(piece.holding).mutate(piece.value)
    value = _SimplifiedIndices(analyzer).mutate(substitute(value, values))
    indices = tuple(analyzer.simplify(substitute(index, values)) for index in store.indices)
    body = BufferStore(store.buffer, value, indices)
    inherit(body, store)
    inner = new_block(name, made, None, None, body, block.annotations)
    inherit(inner, block)
    nest: Stmt = inner
    for var, item, loop in reversed(list(zip(variables, made, loops, strict=True))):
        nest = For(var, item.min, item.extent, loop.kind, nest, loop.annotations)
    return nest


class _SimplifiedIndices(Mutator):
    """Simplify the indices of loads, from which rules see what is contiguous."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer

    def mutate_BufferLoad(self, load: BufferLoad) -> Expr:
        load = self.generic_mutate(load)
        return BufferLoad(load.buffer, tuple(map(self.analyzer.simplify, load.indices)), load.predicate)
