"""Primitives on reductions: decompose_reduction and rfactor."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.tensorir.arith.iter_map import constant_value
from tilewright.tensorir.conditions import conjunction, conjuncts
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, Var, binary, const
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.reduction import identity_of
from tilewright.tensorir.schedule.blocks import change_block, fresh_iters, new_block
from tilewright.tensorir.schedule.dependence import (
    combiner,
    is_exact_reduction,
    is_reduction,
    loop_role,
    spatial_values,
)
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.indices import variables_of
from tilewright.tensorir.schedule.loops import check_kinds
from tilewright.tensorir.schedule.nests import loops_in, rewrite, with_end
from tilewright.tensorir.schedule.regions import is_injective
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.stmt import Block, BufferStore, For, IfThenElse, IterVar, Stmt, sequence


class _SpatialCopy:
    """Copies of the loops from ``first`` on that drive spatial variables of a block, for a block that visits the same
    elements without the steps of the reduction."""

    def __init__(self, state: State, block: Block, inside: Sequence[For], what: str) -> None:
        self.roles = {loop.var: loop_role(loop, block) for loop in inside}
        self.loops = [loop for loop in inside if self.roles[loop.var] == "spatial"]
        self.values: dict[Var, Expr] = {loop.var: Var(loop.var.name, loop.var.dtype) for loop in self.loops}
        dropped = self.roles.keys() - self.values.keys()
        for loop in inside:
            if self.roles[loop.var] == "both":
                state.fail(
                    f"cannot {what}: loop {loop.var.name} drives spatial and reduction variables of block {block.name}",
                    loop,
                )
            if loop.var in self.values and (variables_of(loop.min) | variables_of(loop.extent)) & dropped:
                state.fail(f"cannot {what}: the bounds of loop {loop.var.name} depend on a reduction loop", loop)
        repeated = [loop for loop in inside if self.roles[loop.var] in ("spatial", "none")]
        around = loops_in(state.block_path(BlockRef(block.name)))
        idle = [loop for loop in repeated if self.roles[loop.var] == "none" and constant_value(loop.extent) != 1]
        if idle or not is_injective(spatial_values(block), repeated, state.questions(around)):
            state.fail(
                f"cannot {what}: the inner loops may compute elements of block {block.name} several times or never; "
                "a separate init would run once for each",
                block,
            )
        self.conditions: list[Expr] = []
        self.step_conditions: list[Expr] = []
        for condition in conjuncts(block.predicate):
            used = {self.roles[var] for var in variables_of(condition) if var in self.roles}
            if used <= {"spatial"}:
                self.conditions.append(condition)
            elif used == {"reduction"}:
                self.step_conditions.append(condition)
            else:
                state.fail(
                    f"cannot {what}: the condition {condition!s} of block {block.name} uses both spatial and reduction "
                    "loops",
                    block,
                )

    def predicate(self) -> Expr | None:
        """The conditions about elements, for the new loops."""
        return conjunction(substitute(condition, self.values) for condition in self.conditions)

    def iters(self, block: Block) -> tuple[list[IterVar], dict[Var, Expr]]:
        """New spatial iteration variables, bound to the new loops, and the map from the old ones."""
        return fresh_iters([item for item in block.iters if item.kind == "spatial"], self.values)

    def around(self, stmt: Stmt) -> Stmt:
        """The new loops around ``stmt``."""
        for loop in reversed(self.loops):
            var = self.values[loop.var]
            assert isinstance(var, Var)
            begin, extent = substitute(loop.min, self.values), substitute(loop.extent, self.values)
            stmt = For(var, begin, extent, loop.kind, stmt, loop.annotations)
        return stmt


def decompose_reduction(state: State, ref: BlockRef, loop_ref: LoopRef) -> tuple[State, BlockRef]:
    """Implement :meth:`.Schedule.decompose_reduction`."""
    what = f"decompose the reduction at loop {loop_ref.name}"
    block, path = state.block(ref), state.block_path(ref)
    loop = state.loop(loop_ref)
    if block.init is None:
        state.fail(f"cannot {what}: block {block.name} has no init", block)
    if loop not in path:
        state.fail(f"cannot {what}: block {block.name} is not in that loop", loop)
    at = path.index(loop)
    for outer in loops_in(path[:at]):
        if loop_role(outer, block) in ("reduction", "both"):
            state.fail(f"cannot {what}: the outer loop {outer.var.name} is a loop of the reduction", outer)
    copy = _SpatialCopy(state, block, loops_in(path[at:]), what)
    iters, renamed = copy.iters(block)
    name = state.unique_block_name(f"{block.name}_init")
    init = new_block(name, iters, copy.predicate(), None, substitute(block.init, renamed), block.annotations)
    update = with_end(path[at:], change_block(block, init=None))[0]
    made = state.replace({loop: sequence(copy.around(init), update)})
    return made, BlockRef(name)


def _identity(op: str, buffer: Buffer) -> Expr:
    found = identity_of(op, buffer.dtype)
    assert found is not None
    return const(found, buffer.dtype)


def rfactor(
    state: State, ref: BlockRef, loop_ref: LoopRef, factor_axis: int = 0, reassociate: bool = False
) -> tuple[State, BlockRef]:
    """Implement :meth:`.Schedule.rfactor`."""
    what = f"factor loop {loop_ref.name} out of the reduction"
    block, path, loop = state.block(ref), loops_in(state.block_path(ref)), state.loop(loop_ref)
    found = combiner(block)
    if block.init is None or not is_reduction(block) or found is None:
        state.fail(f"cannot {what}: block {block.name} is not a reduction C[i] = C[i] op value with an init", block)
    op, store, value = found
    if not (reassociate or is_exact_reduction(block)):
        state.fail(
            f"cannot {what}: block {block.name} would sum its floating-point values in another order, which rounds "
            "differently; reassociate=True allows that",
            block,
        )
    if not any(other is loop for other in path) or loop_role(loop, block) != "reduction":
        state.fail(f"cannot {what}: no reduction variable of block {block.name} is driven by that loop alone", loop)
    buffer = store.buffer
    axis = factor_axis + buffer.ndim + 1 if factor_axis < 0 else factor_axis
    if not 0 <= axis <= buffer.ndim:
        state.fail(f"cannot {what}: factor_axis {factor_axis} is out of range for {buffer.ndim} dimensions")
    if any(map(state.has_loop, variables_of(loop.extent))):
        state.fail(f"cannot {what}: its extent depends on other loops", loop)
    first = next(number for number, other in enumerate(path) if loop_role(other, block) in ("reduction", "both"))
    copy = _SpatialCopy(state, block, path[first:], what)
    name = state.unique_block_name(f"{block.name}_rf")
    shape = (*buffer.shape[:axis], loop.extent, *buffer.shape[axis:])
    scope = "arena" if buffer.scope == "global" else buffer.scope
    partial = Buffer(state.unique_buffer_name(f"{buffer.name}_rf"), shape, buffer.dtype, scope)
    factored = _factored_block(state, block, path, loop, copy, (op, store, value), partial, axis, name)
    iters, renamed = copy.iters(block)
    step_loop = Var(loop.var.name, loop.var.dtype)
    step = IterVar(Var(f"v{loop.var.name}", loop.var.dtype), loop.min, loop.extent, "reduction", step_loop)
    place = tuple(substitute(index, renamed) for index in store.indices)
    read = BufferLoad(partial, (*place[:axis], binary("sub", step.var, loop.min), *place[axis:]))
    body = BufferStore(buffer, binary(op, BufferLoad(buffer, place), read), place)
    init = substitute(block.init, renamed)
    combine = new_block(block.name, [*iters, step], copy.predicate(), init, body, block.annotations)
    combining = copy.around(For(step_loop, loop.min, loop.extent, "serial", combine))
    outermost = path[first]
    made = state.replace({outermost: sequence(rewrite(outermost, {block: factored}), combining)}).allocate(partial)
    for outer in path[:first]:
        check_kinds(made, made.loop_path(LoopRef(outer.var)))
    return made, BlockRef(name)


def _factored_block(
    state: State,
    block: Block,
    path: Sequence[For],
    factor: For,
    copy: _SpatialCopy,
    update: tuple[str, BufferStore, Expr],
    partial: Buffer,
    axis: int,
    name: str,
) -> Block:
    """Return the block that accumulates separately for each iteration of ``factor``."""
    op, store, value = update
    spatial, renamed = fresh_iters([item for item in block.iters if item.kind == "spatial"])
    lane = IterVar(Var(f"v{factor.var.name}"), factor.min, factor.extent, "spatial", factor.var)
    steps = [
        IterVar(Var(f"v{loop.var.name}"), loop.min, loop.extent, "reduction", loop.var)
        for loop in path
        if loop is not factor and loop_role(loop, block) == "reduction"
    ]
    of_loops: dict[Var, Expr] = {factor.var: lane.var}
    for step in steps:
        assert isinstance(step.value, Var)
        of_loops[step.value] = step.var
    for item in block.iters:
        if item.kind == "reduction":
            renamed[item.var] = substitute(item.value, of_loops)
    place = tuple(substitute(index, renamed) for index in store.indices)
    place = (*place[:axis], binary("sub", lane.var, factor.min), *place[axis:])
    accumulated = binary(op, BufferLoad(partial, place), substitute(value, renamed))
    body: Stmt = BufferStore(partial, accumulated, place)
    condition = conjunction(substitute(part, of_loops) for part in copy.step_conditions)
    if condition is not None:  # in the body, because the init of every partial result must run
        body = IfThenElse(condition, body)
    init = BufferStore(partial, _identity(op, partial), place)
    return new_block(name, [*spatial, lane, *steps], conjunction(copy.conditions), init, body, block.annotations)
