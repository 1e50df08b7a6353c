"""Primitives that change loops: split, fuse, reorder, and the kinds parallel, vectorized and unrolled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.tensorir.arith.iter_map import constant_value
from tilewright.tensorir.conditions import conjunction, conjuncts
from tilewright.tensorir.errors import ArgumentTypeError
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var, as_expr, binary, compare, const
from tilewright.tensorir.functor import DIVISIONS, walk_to
from tilewright.tensorir.keys import REASSOCIATE
from tilewright.tensorir.schedule.blocks import accesses, change_block
from tilewright.tensorir.schedule.dependence import (
    check_independent,
    check_produced_here,
    check_reads_own,
    is_exact_reduction,
    is_reduction,
    loop_role,
    spatial_values,
)
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.indices import variables_of
from tilewright.tensorir.schedule.nests import blocks_in, loops_in, substitute_loops, with_loop_body
from tilewright.tensorir.schedule.questions import may_be_divided
from tilewright.tensorir.schedule.regions import is_injective
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.stmt import Block, For, SeqStmt, Stmt


def _require_serial(state: State, loop: For, what: str) -> None:
    if loop.kind != "serial" or loop.annotations:
        found = loop.kind if loop.kind != "serial" else "annotated"
        state.fail(f"cannot {what} loop {loop.var.name}: it is {found}; {what} it first and mark the new loops", loop)


def guard(stmt: Stmt, condition: Expr) -> Stmt:
    """``stmt`` with ``condition`` added to the predicate of every block in it."""
    if isinstance(stmt, Block):
        return change_block(stmt, predicate=conjunction([*conjuncts(stmt.predicate), condition]))
    if isinstance(stmt, For):
        return with_loop_body(stmt, guard(stmt.body, condition))
    if isinstance(stmt, SeqStmt):
        return SeqStmt(tuple(guard(part, condition) for part in stmt.stmts))
    return stmt


def split(state: State, ref: LoopRef, factors: Sequence[Any]) -> tuple[State, list[LoopRef]]:
    """Implement :meth:`.Schedule.split`."""
    path = state.loop_path(ref)
    loop = state.loop(ref)
    _require_serial(state, loop, "split")
    if not factors or sum(factor is None for factor in factors) > 1:
        state.fail(f"split of {ref.name}: expected one or more factors, at most one of them None; found {factors}")
    outer = state.questions(loops_in(path[:-1]))
    known: Expr = as_expr(1)
    for factor in factors:
        if factor is not None:
            if not (type(factor) is int and factor > 0) and not outer.prove(compare("gt", as_expr(factor), 0)):
                state.fail(f"split of {ref.name}: factor {factor} is not known to be positive", loop)
            known = binary("mul", known, as_expr(factor))
    number = constant_value(known)
    simple: Expr
    if number is not None and number > 0 and isinstance(loop.extent, IntImm):
        divided = loop.extent.value % number == 0
        simple = const(-(-loop.extent.value // number), loop.extent.dtype)
    else:
        divided = number in (None, 0, 1) or may_be_divided(loop.extent, number, state.variables)
        inferred = binary("floordiv", binary("add", loop.extent, binary("sub", known, 1)), known)
        simple = outer.simplify(inferred) if divided else inferred
        if any(isinstance(node, BinaryOp) and node.op == "floordiv" for node in walk_to(simple, DIVISIONS)):
            simple = inferred  # (n * 70 + 15) // 16 reads better than its canonical form
    extents = [simple if factor is None else as_expr(factor) for factor in factors]
    numbers = [extent.value for extent in extents if isinstance(extent, IntImm)]
    iterations = math.prod(numbers)
    if iterations >= 1 << 63:
        state.fail(f"split of {ref.name}: expected fewer than 2**63 iterations, found {iterations} or more", loop)
    if all(factor is not None for factor in factors) and not outer.prove(compare("ge", known, loop.extent)):
        state.fail(f"split of {ref.name}: the factors' product {known!s} may be less than {loop.extent!s}", loop)
    total: Expr = as_expr(1)
    if len(numbers) == len(extents):
        total = const(iterations, extents[0].dtype)
    else:
        for extent in extents:
            total = binary("mul", total, extent)
    variables = [Var(f"{loop.var.name}_{number}", loop.var.dtype) for number in range(len(factors))]
    offset: Expr = variables[0]
    for var, extent in zip(variables[1:], extents[1:], strict=True):
        offset = binary("add", binary("mul", offset, extent), var)
    made = [For(var, as_expr(0), extent, "serial", loop.body) for var, extent in zip(variables, extents, strict=True)]
    inner = state.questions([*loops_in(path[:-1]), *made])
    if len(numbers) < len(extents) or min(numbers) < 2:  # else no other form is shorter
        offset = inner.shorter(offset)
    body = substitute_loops(loop.body, {loop.var: binary("add", loop.min, offset)}, inner)
    if not (divided and outer.prove(compare("eq", total, loop.extent))):
        body = guard(body, compare("lt", offset, loop.extent))
    for new in reversed(made):
        body = with_loop_body(new, body)
    return state.replace({loop: body}, one_to_one=True), [LoopRef(var) for var in variables]


def _chain(state: State, refs: Sequence[LoopRef], what: str) -> tuple[list[For], list[For]]:
    """The loops of ``refs``, and those from the outermost to the innermost of them, which must be perfectly nested."""
    paths = [state.loop_path(ref) for ref in refs]
    loops = loops_in([path[-1] for path in paths])
    if len(set(loops)) != len(loops):
        state.fail(f"cannot {what}: a loop is given twice")
    ordered = loops_in([path[-1] for path in sorted(paths, key=len)])
    chain = [ordered[0]]
    while chain[-1] is not ordered[-1]:
        below = chain[-1].body
        if not isinstance(below, For):
            state.fail(
                f"cannot {what}: other statements are between loops {ordered[0].var.name} and {ordered[-1].var.name}",
                chain[-1],
                "is not directly around the next loop",
            )
        chain.append(below)
    missing = [loop for loop in loops if loop not in chain]
    if missing:
        state.fail(f"cannot {what}: loop {missing[0].var.name} is not in the same nest as the others", missing[0])
    return loops, chain


def fuse(state: State, refs: Sequence[LoopRef]) -> tuple[State, LoopRef]:
    """Implement :meth:`.Schedule.fuse`."""
    if not refs:
        state.fail("fuse: expected at least one loop")
    loops, chain = _chain(state, refs, "fuse")
    if chain != loops:
        state.fail("cannot fuse: the loops must be directly nested, and given outermost first", chain[0])
    own = {loop.var for loop in chain}
    for loop in chain:
        _require_serial(state, loop, "fuse")
        if (variables_of(loop.min) | variables_of(loop.extent)) & own:
            state.fail(f"cannot fuse: the bounds of {loop.var.name} depend on a loop with which it is fused", loop)
    if len(chain) == 1:
        return state, refs[0]
    outer = loops_in(state.loop_path(refs[0])[:-1])
    fused = Var("_".join(loop.var.name for loop in chain) + "_fused", chain[0].var.dtype)
    size: Expr = as_expr(1)
    values = {loop.var: loop.min for loop in chain}
    moving = [loop for loop in chain if not (isinstance(loop.extent, IntImm) and loop.extent.value == 1)]
    for loop in reversed(moving):
        place = binary("floordiv", fused, size)
        value = place if loop is moving[0] else binary("floormod", place, loop.extent)
        values[loop.var] = binary("add", loop.min, value)
        size = binary("mul", loop.extent, size)
    size = state.questions(outer).simplify(size)
    made = For(fused, as_expr(0), size, "serial", chain[-1].body)
    body = substitute_loops(chain[-1].body, values, state.questions([*outer, made]))
    return state.replace({chain[0]: with_loop_body(made, body)}, one_to_one=True), LoopRef(fused)


def reorder(state: State, refs: Sequence[LoopRef], reassociate: bool = False) -> State:
    """Implement :meth:`.Schedule.reorder`."""
    if not refs:
        state.fail("reorder: expected at least one loop")
    loops, chain = _chain(state, refs, "reorder")
    wanted = iter(loops)
    named = {ref.var for ref in refs}
    order = [next(wanted) if loop.var in named else loop for loop in chain]
    placed: set[Var] = {loop.var for loop in chain}
    for loop in order:
        if not (isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm)):
            used = (variables_of(loop.min) | variables_of(loop.extent)) & placed
            if used:
                state.fail(f"cannot reorder: the bounds of {loop.var.name} depend on {used.pop().name}", loop)
        placed.discard(loop.var)
    innermost = chain[-1].body
    moved = [old for old, new in zip(chain, order, strict=True) if old is not new]
    for block in blocks_in(innermost):
        _check_steps(state, block, chain, order, reassociate)
        _check_repeats(state, block, chain, order)
        check_reads_own(state, moved, block, "reorder")
        if not state.from_separate_nests:
            inmost_path = state.loop_path(LoopRef(chain[-1].var))
            for buffer in accesses(block).writes:
                check_produced_here(state, inmost_path, block, buffer, "reorder")
    made = with_loop_body(order[-1], innermost)
    for loop in order[-2::-1]:
        made = with_loop_body(loop, made)
    return state.with_loops(state.loop_path(LoopRef(chain[0].var)), made)


def _check_steps(state: State, block: Block, chain: list[For], order: list[For], reassociate: bool) -> None:
    """Check that the steps of a reduction keep their order, or may run in any."""
    if not is_reduction(block):
        return
    before = [loop for loop in chain if loop_role(loop, block) in ("reduction", "both")]
    after = [loop for loop in order if loop in before]
    if before == after:
        return
    moved = next(
        loop for loop, old in zip(order, chain, strict=True) if loop is not old and loop_role(loop, block) != "spatial"
    )
    if any(loop_role(loop, block) == "both" for loop in before):
        state.fail(
            f"cannot reorder: {moved.var.name} drives both spatial and reduction variables of block {block.name}, "
            "so that its init would no longer come first",
            moved,
        )
    if not (reassociate or is_exact_reduction(block)):
        state.fail(
            f"cannot reorder: block {block.name} would sum its floating-point values in another order, which rounds "
            "differently; reassociate=True allows that",
            moved,
        )


def _check_repeats(state: State, block: Block, chain: list[For], order: list[For]) -> None:
    """Check that no element is accumulated twice in one step: loops that move inside a reduction loop must visit
    different elements. (Outside of it, computing an element again starts with its init.)"""
    if not is_reduction(block):
        return
    steps = [number for number, loop in enumerate(order) if loop_role(loop, block) in ("reduction", "both")]
    if not steps:
        return
    old_first = min(number for number, loop in enumerate(chain) if loop_role(loop, block) in ("reduction", "both"))
    outside = {loop.var for loop in chain[:old_first]}
    moved = [loop for loop in order[steps[0] :] if loop.var in outside]
    if not moved:
        return
    path = loops_in(state.block_path(BlockRef(block.name)))
    below = path[path.index(chain[-1]) + 1 :]
    inner = [loop for loop in (*order[steps[0] :], *below) if loop_role(loop, block) not in ("reduction", "both")]
    if not is_injective(spatial_values(block), inner, state.questions(path)):
        state.fail(
            f"cannot reorder: block {block.name} computes the same elements again in iterations of "
            f"{moved[0].var.name}; inside its reduction loop it would accumulate them twice",
            moved[0],
        )


def parallel(state: State, ref: LoopRef) -> State:
    """Implement :meth:`.Schedule.parallel`."""
    return _mark(state, ref, "parallel")


def vectorize(state: State, ref: LoopRef, reassociate: bool = False) -> State:
    """Implement :meth:`.Schedule.vectorize`."""
    loop = state.loop(ref)
    if reassociate:
        state = annotate(state, ref, REASSOCIATE, True)
        loop = state.loop(ref)
    if constant_value(loop.extent) is None:
        state.fail(f"cannot vectorize loop {ref.name}: its extent is not constant; split it first", loop)
    return _mark(state, ref, "vectorize")


def unroll(state: State, ref: LoopRef) -> State:
    """Implement :meth:`.Schedule.unroll`."""
    path = state.loop_path(ref)
    loop = path[-1]
    assert isinstance(loop, For)
    if constant_value(loop.extent) is None:
        state.fail(f"cannot unroll loop {ref.name}: its extent is not constant; split it first", loop)
    return state.with_loops(path, For(loop.var, loop.min, loop.extent, "unrolled", loop.body, loop.annotations))


_KINDS = {"parallel": "parallel", "vectorize": "vectorized"}


def _mark(state: State, ref: LoopRef, what: str) -> State:
    path = state.loop_path(ref)
    loop = path[-1]
    assert isinstance(loop, For)
    check_independent(state, path, what, allow_reduction=bool(loop.annotations.get(REASSOCIATE)))
    return state.with_loops(path, For(loop.var, loop.min, loop.extent, _KINDS[what], loop.body, loop.annotations))


def check_kinds(state: State, path: Sequence[Stmt]) -> None:
    """Check again the parallel and vectorized loops on a path below which a statement was added.

    Raises:
        ScheduleError: the iterations of one of them are no longer independent.
    """
    for number, stmt in enumerate(path):
        if isinstance(stmt, For) and stmt.kind in ("parallel", "vectorized"):
            what = "keep parallel" if stmt.kind == "parallel" else "keep vectorized"
            reassociate = bool(stmt.annotations.get(REASSOCIATE))
            check_independent(state, tuple(path[: number + 1]), what, allow_reduction=reassociate)


def annotate(state: State, ref: BlockRef | LoopRef, key: str, value: Any) -> State:
    """Implement :meth:`.Schedule.annotate`."""
    if not isinstance(key, str):
        raise ArgumentTypeError(f"annotate: expected the key of an annotation, found {key!r:.80}")
    if isinstance(ref, BlockRef):
        block = state.block(ref)
        return state.replace({block: change_block(block, annotations={**block.annotations, key: value})})
    loop = state.loop(ref)
    notes = {**loop.annotations, key: value}
    changed = For(loop.var, loop.min, loop.extent, loop.kind, loop.body, notes)
    return state.with_loops(state.loop_path(ref), changed)


def unannotate(state: State, ref: BlockRef | LoopRef, key: str) -> State:
    """Implement :meth:`.Schedule.unannotate`."""
    node: Block | For = state.block(ref) if isinstance(ref, BlockRef) else state.loop(ref)
    if key not in node.annotations:
        state.fail(f"no annotation {key!r}; found {', '.join(node.annotations) or 'none'}", node)
    notes: Mapping[str, Any] = {name: value for name, value in node.annotations.items() if name != key}
    if isinstance(node, Block):
        return state.replace({node: change_block(node, annotations=notes)})
    return state.replace({node: For(node.var, node.min, node.extent, node.kind, node.body, notes)})
