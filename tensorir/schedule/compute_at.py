"""Primitives that move a block into another block's loops: compute_at and reverse_compute_at."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NoReturn

from tilewright.tensorir.arith import Analyzer, region_of
from tilewright.tensorir.arith.iter_solver import Prover, Span
from tilewright.tensorir.conditions import conjuncts
from tilewright.tensorir.expr import Buffer, BufferLoad, Compare, Expr, Var, as_expr, binary, compare, maximum, minimum
from tilewright.tensorir.functor import leaves, substitute
from tilewright.tensorir.schedule.blocks import accesses
from tilewright.tensorir.schedule.dependence import is_reduction, loop_role, spatial_values
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.indices import structure, variables_of
from tilewright.tensorir.schedule.inline import check_places
from tilewright.tensorir.schedule.loops import check_kinds
from tilewright.tensorir.schedule.nests import blocks_in, loops_in, loops_to
from tilewright.tensorir.schedule.placement import (
    Part,
    body_parts,
    holds,
    insert,
    partial_nest,
    scope_parts,
    solve_parts,
)
from tilewright.tensorir.schedule.questions import Questions
from tilewright.tensorir.schedule.regions import box_of, is_injective, ranges_of
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.stmt import Block, For


def compute_at(state: State, ref: BlockRef, loop_ref: LoopRef) -> State:
    """Implement :meth:`.Schedule.compute_at`."""
    what = f"compute at loop {loop_ref.name}"
    block, old_path = state.block(ref), state.block_path(ref)
    loop = state.loop(loop_ref)
    _check_movable(state, block, what)
    consumers = _consumers_inside(state, block, loop, what)
    for read in accesses(block).reads:
        late = [w for w in state.writers(read) if w is not block and state.position(w) > state.position(block)]
        if late:
            state.fail(
                f"cannot {what}: block {late[0].name} later overwrites {read.name}, which block {block.name} reads",
                late[0],
            )
    if any(stmt is loop for stmt in old_path[:-1]) and not any(part is block for part in body_parts(loop.body)):
        _check_no_producers_below(state, block, loop, what)
    removed = state.replace({block: None})
    made = place_for_consumers(removed, block, loop_ref, consumers, what)
    _recheck(made, [*loops_in(old_path), *loops_in(made.block_path(ref))])
    return made


def _recheck(state: State, loops: Sequence[For]) -> None:
    for var in {loop.var for loop in loops if loop.kind in ("parallel", "vectorized")}:
        if state.has_loop(var):
            check_kinds(state, state.loop_path(LoopRef(var)))


def _check_movable(state: State, block: Block, what: str) -> None:
    if block.predicate is not None and not state.from_separate_nests:
        state.fail(
            f"cannot {what}: it is not known whether the predicate of block {block.name} belongs to its loops or to "
            "its computation",
            block,
        )
    for buffer in accesses(block).writes:
        if state.is_parameter(buffer):
            state.fail(f"cannot {what}: block {block.name} writes {buffer.name}, a result of the function", block)
        others = [writer for writer in state.writers(buffer) if writer is not block]
        if others:
            state.fail(f"cannot {what}: block {others[0].name} also writes {buffer.name}", others[0])


def _consumers_inside(state: State, block: Block, loop: For, what: str) -> list[Block]:
    consumers = list(dict.fromkeys(reader for buffer in accesses(block).writes for reader in state.readers(buffer)))
    if not consumers:
        state.fail(f"cannot {what}: no block reads the result of block {block.name}", block)
    for consumer in consumers:
        if not holds(loop.body, consumer):
            state.fail(f"cannot {what}: block {consumer.name} reads the result outside of that loop", consumer)
    return consumers


def _check_no_producers_below(state: State, block: Block, loop: For, what: str) -> None:
    for read in accesses(block).reads:
        for writer in state.writers(read):
            if writer is not block and holds(loop.body, writer):
                state.fail(
                    f"cannot {what}: block {writer.name} in that loop computes only the elements that block "
                    f"{block.name} needs at its present place",
                    writer,
                )


def place_for_consumers(state: State, block: Block, loop_ref: LoopRef, consumers: Sequence[Block], what: str) -> State:
    """Insert ``block``, which is not in the function now, before the first of its consumers in the body of a loop."""
    path, loop = state.loop_path(loop_ref), state.loop(loop_ref)
    outer = loops_in(path)
    questions = state.questions(outer)
    parts = scope_parts(state, loop)
    before = next(n for n, part in enumerate(parts) if any(holds(part, consumer) for consumer in consumers))
    for later in parts[before:]:
        for other in blocks_in(later):
            if any(buffer in accesses(block).reads for buffer in accesses(other).writes):
                state.fail(
                    f"cannot {what}: block {other.name} writes a buffer that block {block.name} reads, but runs later",
                    other,
                )
    boxes = {buffer: needed_box(buffer, consumers, loop, questions) for buffer in accesses(block).writes}
    nest = partial_nest(block, solve_parts(block, boxes), outer, questions)
    return insert(state, loop, nest, before)


def needed_box(
    buffer: Buffer, consumers: Sequence[Block], loop: For, questions: Questions
) -> list[tuple[Span, bool] | None]:
    """Return the box of ``buffer`` that the consumers read in one iteration of ``loop``: for each dimension the least
    index and the extent (None: no bound is known), and whether the index varies inside the iteration."""
    found: list[list[tuple[Span, bool] | None]] = [[] for _ in range(buffer.ndim)]
    for consumer in consumers:
        inner = loops_to(loop.body, consumer)
        variables = {other.var for other in inner}
        values = {item.var: item.value for item in consumer.iters}
        # Loads share indices: the loads of a window are pairs of few rows and few columns. Each index is bounded once.
        places: list[dict[object, Expr]] = [{} for _ in range(buffer.ndim)]
        for load in accesses(consumer).reads.get(buffer, ()):
            for axis, index in zip(places, load.indices, strict=True):
                axis.setdefault(structure(index), index)
        indices = [substitute(index, values) for axis in places for index in axis.values()]
        spans = iter(zip(indices, _spans(indices, inner, questions), strict=True))
        for axis, boxes in zip(places, found, strict=True):
            for index, span in itertools.islice(spans, len(axis)):
                boxes.append(None if span is None else (span, not leaves(index).isdisjoint(variables)))
    return [functools.reduce(lambda a, b: _join(a, b, questions), boxes) if boxes else None for boxes in found]


def _spans(indices: Sequence[Expr], loops: Sequence[For], questions: Questions) -> list[Span | None]:
    """Return the box of ``indices`` over the iterations of ``loops``, as :func:`.region_of` does."""
    ranges = ranges_of(loops)
    found = [questions.span(index, ranges) for index in indices]
    others = [index for index, span in zip(indices, found, strict=True) if span is None]
    if not others:
        return found
    boxes = iter(region_of(others, ranges, questions.analyzer))
    return [next(boxes) if span is None else span for span in found]


def _join(a: tuple[Span, bool] | None, b: tuple[Span, bool] | None, questions: Questions) -> tuple[Span, bool] | None:
    if a is None or b is None:
        return None
    (a_low, a_extent), (b_low, b_extent) = a[0], b[0]
    if _same(a_low, b_low, questions) and _same(a_extent, b_extent, questions):
        return a[0], a[1] or b[1]
    low = questions.simplify(minimum(a_low, b_low))
    end = maximum(binary("add", a_low, a_extent), binary("add", b_low, b_extent))
    return (low, questions.simplify(binary("sub", end, low))), True


def _same(a: Expr, b: Expr, prover: Prover) -> bool:
    return structure(a) == structure(b) or prover.prove(compare("eq", a, b))


# -- consumers into producers ------------------------------------------------------------------------------------------


def reverse_compute_at(state: State, ref: BlockRef, loop_ref: LoopRef) -> State:
    """Implement :meth:`.Schedule.reverse_compute_at`."""
    what = f"compute at the end of loop {loop_ref.name}"
    block, old_path = state.block(ref), state.block_path(ref)
    path, loop = state.loop_path(loop_ref), state.loop(loop_ref)
    if holds(loop.body, block):
        state.fail(f"cannot {what}: block {block.name} is already in that loop", block)
    if block.predicate is not None and not state.from_separate_nests:
        state.fail(
            f"cannot {what}: it is not known whether the predicate of block {block.name} belongs to its loops or to "
            "its computation",
            block,
        )
    for buffer in accesses(block).writes:
        if state.writers(buffer) != [block]:
            state.fail(f"cannot {what}: another block also writes {buffer.name}", block)
    if is_reduction(block) and block.init is None:
        state.fail(f"cannot {what}: the reduction {block.name} is decomposed: its init is another block", block)
    end = state.position(blocks_in(loop.body)[-1])
    if state.position(block) < end:
        state.fail(f"cannot {what}: block {block.name} runs before that loop", block)
    for buffer in accesses(block).reads:
        for writer in state.writers(buffer):
            if writer is not block and state.position(writer) > end:
                state.fail(f"cannot {what}: block {writer.name} writes {buffer.name} after that loop", writer)
    removed = state.replace({block: None})
    made = place_for_producers(removed, block, loop_ref, len(body_parts(loop.body)), what)
    _recheck(made, [*loops_in(old_path), *loops_in(path)])
    return made


def place_for_producers(state: State, block: Block, loop_ref: LoopRef, before: int, what: str) -> State:
    """Insert ``block``, which is not in the function now, into the body of a loop, before its statement number
    ``before``, to run on the elements that its producers there have completed.

    Raises:
        ScheduleError: an element that the block reads is not complete there.
    """
    path, loop = state.loop_path(loop_ref), state.loop(loop_ref)
    around = loops_in(path)
    analyzer = state.analyzer(around)
    limits = _Limits(state, block, around, analyzer, what)
    conditions: dict[Expr, None] = {}
    inside = 0
    for buffer, loads in accesses(block).reads.items():
        first: list[Span] | None = None  # the box of the first writer; init and update of a reduction share theirs
        writers = state.writers(buffer)
        for writer in writers:
            common = [outer for outer in around if holds(outer.body, writer)]
            if not common:
                if any(holds(around[0].body, other) for other in writers):
                    state.fail(f"cannot {what}: several blocks write different parts of {buffer.name}", writer)
                continue
            inside += common[-1] is loop
            box, guards = _completed_box(state, writer, buffer, common, analyzer, what)
            conditions.update(dict.fromkeys(guards))
            first = box if first is None else first
            if not all(_same_span(a, b, analyzer) for a, b in zip(first, box, strict=True)):
                state.fail(f"cannot {what}: several blocks write different parts of {buffer.name}", writer)
            for load in loads:
                limits.add(load, box)
    if not inside:
        state.fail(f"cannot {what}: no block in that loop writes a buffer that block {block.name} reads", loop)
    parts = {var: Part(low, extent, not _is_one(extent)) for var, (low, extent) in limits.spans.items()}
    for part in parts.values():
        if variables_of(part.extent) & {outer.var for outer in around}:
            state.fail(f"cannot {what}: the number of elements completed by an iteration varies", loop)
    return insert(state, loop, partial_nest(block, parts, around, analyzer, conditions, exact=True), before)


def _same_span(a: Span, b: Span, analyzer: Analyzer) -> bool:
    return a is b or all(_same(x, y, analyzer) for x, y in zip(a, b, strict=True))


def _is_one(extent: Expr) -> bool:
    return getattr(extent, "value", None) == 1


def _completed_box(
    state: State, writer: Block, buffer: Buffer, common: Sequence[For], analyzer: Analyzer, what: str
) -> tuple[list[Span], list[Expr]]:
    """Return the box of ``buffer`` all elements of which ``writer`` completes in one iteration of the last of the
    ``common`` loops, and the conditions on the common loops under which it does.

    Raises:
        ScheduleError: the elements are not complete, or are not known to fill a box.
    """
    for outer in common:
        if loop_role(outer, writer) in ("reduction", "both"):
            state.fail(
                f"cannot {what}: the reduction {writer.name} is not complete there: loop {outer.var.name} is "
                "one of its loops",
                outer,
            )
    inner = loops_to(common[-1].body, writer)
    store = accesses(writer).writes[buffer][-1]
    check_places(state, writer, buffer, store.indices, what)
    with analyzer.scope():
        for other in inner:
            analyzer.bind(other.var, other.min, other.extent)
        varying = [other for other in inner if loop_role(other, writer) == "spatial"]
        exact = all(loop_role(other, writer) != "both" for other in inner) and is_injective(
            spatial_values(writer), varying, analyzer
        )
    box = box_of(writer, store.indices, inner, analyzer)
    spans = [span for span in box if span is not None]
    steps: Expr = as_expr(1)
    for other in varying:
        steps = binary("mul", steps, other.extent)
    size: Expr = as_expr(1)
    for _, extent in spans:
        size = binary("mul", size, extent)
    if not exact or len(spans) != len(box) or not analyzer.prove(compare("eq", steps, size)):
        state.fail(
            f"cannot {what}: the elements that block {writer.name} computes in one iteration are not known to fill a "
            "box",
            writer,
        )
    return spans, _guards(state, writer, {outer.var for outer in common}, inner, analyzer, what)


def _guards(
    state: State, writer: Block, fixed: set[Var], inner: Sequence[For], analyzer: Analyzer, what: str
) -> list[Expr]:
    """Return the conditions of the writer's predicate that a block after it has to take over."""
    guards: list[Expr] = []
    reduction = {other.var for other in inner if loop_role(other, writer) == "reduction"}
    with analyzer.scope():
        for other in inner:
            analyzer.bind(other.var, other.min, other.extent)
        for condition in conjuncts(writer.predicate):
            used = variables_of(condition) & (fixed | {other.var for other in inner})
            if used <= fixed:
                guards.append(condition)
            elif not (used <= reduction or _keeps_range(condition, writer, analyzer)):
                state.fail(
                    f"cannot {what}: block {writer.name} runs only where {condition!s}, a condition that "
                    "cannot be expressed outside of its loops",
                    writer,
                )
    return guards


def _keeps_range(condition: Expr, block: Block, analyzer: Analyzer) -> bool:
    """Return whether ``condition`` only says that an iteration variable stays in its range."""
    if not isinstance(condition, Compare) or condition.op not in ("lt", "ge"):
        return False
    distance = binary("sub", condition.a, condition.b)
    for item in block.iters:
        end = item.min + item.extent if condition.op == "lt" else item.min
        if analyzer.prove(compare("eq", distance, binary("sub", item.value, end))):
            return True
    return False


class _Limits:
    """The values to which the iteration variables of a block are limited, so that its producers have completed the
    elements that it reads."""

    def __init__(self, state: State, block: Block, around: Sequence[For], analyzer: Analyzer, what: str) -> None:
        self.state = state
        self.block = block
        self.items = {item.var: item for item in block.iters}
        self.loops = {loop.var for loop in around}
        self.analyzer = analyzer
        self.what = what
        self.spans: dict[Var, Span] = {}
        self._of_dimension: dict[tuple[Buffer, int], Var] = {}

    def fail(self, reason: str, load: BufferLoad) -> NoReturn:
        """Raise a ScheduleError about a load of the block."""
        self.state.fail(f"cannot {self.what}: {reason}", load)

    def add(self, load: BufferLoad, box: Sequence[Span]) -> None:
        """Limit the iteration variables so that ``load`` stays in the box.

        All elements of the block must still be computed. So the limits of two variables have to vary independently:
        they come from different dimensions of one box, or from different loops.
        """
        buffer, prove = load.buffer, self.analyzer.prove
        before = dict(self.spans)
        for dim, (index, (low, extent), whole) in enumerate(zip(load.indices, box, buffer.shape, strict=True)):
            if prove(compare("le", low, 0)) and prove(compare("ge", low + extent, whole)):
                continue
            if not isinstance(index, Var) or self.items[index].kind == "reduction":
                self.fail(f"it reads {buffer.name} at {index!s}, which is not complete after an iteration", load)
            if self._of_dimension.setdefault((buffer, dim), index) is not index:
                self.fail(f"it also reads elements of {buffer.name} that another iteration completes", load)
            known = self.spans.setdefault(index, (low, extent))
            if known[0] is low:
                for other, (other_low, _) in before.items():
                    if variables_of(other_low) & variables_of(low) & self.loops:
                        self.fail(f"the ranges of {other.name} and {index.name} would depend on the same loop", load)
            elif not (prove(compare("eq", known[0], low)) and prove(compare("eq", known[1], extent))):
                self.fail(f"the producers of block {self.block.name} complete different ranges of elements", load)
