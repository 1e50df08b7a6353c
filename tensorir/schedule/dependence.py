"""Dependence analysis: the role of a loop for the blocks below it, and whether its iterations are independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.tensorir.expr import BinaryOp, Buffer, Expr, as_expr, binary, compare
from tilewright.tensorir.functor import leaves
from tilewright.tensorir.node import Node, notes_on
from tilewright.tensorir.schedule.blocks import accesses
from tilewright.tensorir.schedule.nests import blocks_in, loops_in, loops_to
from tilewright.tensorir.schedule.regions import box_of, is_injective
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.stmt import Block, BufferStore, For, Stmt


def _roles(block: Block) -> Mapping[Node, str]:
    """The kinds of iteration variables of ``block`` that each variable around it drives, found once for each block."""
    roles: dict[Node, str]
    try:  # most blocks are asked about several loops
        roles = block._notes[_roles]
    except (AttributeError, KeyError):
        roles = notes_on(block)[_roles] = {}
        for item in block.iters:
            for leaf in leaves(item.value):
                roles[leaf] = item.kind if roles.get(leaf, item.kind) == item.kind else "both"
    return roles


def loop_role(loop: For, block: Block) -> str:
    """Return the kind of iteration variables of ``block`` that ``loop`` drives: ``spatial``, ``reduction``, ``both`` or
    ``none``."""
    return _roles(block).get(loop.var, "none")


def is_reduction(block: Block) -> bool:
    """Return whether the block has reduction variables."""
    return any(item.kind == "reduction" for item in block.iters)


def spatial_values(block: Block) -> list[Expr]:
    """The bindings of the spatial iteration variables."""
    return [item.value for item in block.iters if item.kind == "spatial"]


def combiner(block: Block) -> tuple[str, BufferStore, Expr] | None:
    """For a reduction ``C[i] = C[i] op value`` the operation, the store and the value; None for another form."""
    store = block.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, BinaryOp):
        return None
    update = store.value
    for accumulator, value in ((update.a, update.b), (update.b, update.a)):
        loads = accesses(block).reads.get(store.buffer, ())
        if any(accumulator is load for load in loads) and len(loads) == 1:
            same = all(a is b for a, b in zip(loads[0].indices, store.indices, strict=True))
            if same and update.op in ("add", "mul", "min", "max", "and", "or"):
                return update.op, store, value
    return None


def is_exact_reduction(block: Block) -> bool:
    """Return whether the order of the reduction's steps cannot change its result, not even in the last bit."""
    found = combiner(block)
    if found is None:
        return False
    op, store, _ = found
    return op in ("min", "max", "and", "or") or not store.buffer.dtype.is_float


def is_private(state: State, loop: For, buffer: Buffer) -> bool:
    """Return whether every access to ``buffer`` is in the body of ``loop``, so that each iteration may have its own."""
    if state.is_parameter(buffer):
        return False
    below = blocks_in(loop.body)
    for block in state.all_blocks():
        found = accesses(block)
        if (buffer in found.reads or buffer in found.writes) and block not in below:
            return False
    return True


def check_independent(state: State, path: tuple[Stmt, ...], what: str, allow_reduction: bool = False) -> None:
    """Check that the iterations of the loop at the end of ``path`` may run in any order or at once.

    Each block below writes its own elements in each iteration, or a buffer that only the loop's body uses (which is
    then allocated inside the loop), and reads nothing that another iteration writes.

    Raises:
        ScheduleError: otherwise.
    """
    loop = path[-1]
    assert isinstance(loop, For)
    for block in blocks_in(loop.body):
        role = loop_role(loop, block)
        if role in ("reduction", "both") and not (allow_reduction and role == "reduction"):
            state.fail(
                f"cannot {what} loop {loop.var.name}: its iterations accumulate into the same elements of block "
                f"{block.name}",
                loop,
                "drives a reduction",
            )
        if role == "reduction":
            continue
        check_reads_own(state, [loop], block, what)
        for buffer in accesses(block).writes:
            if not is_private(state, loop, buffer) and not _writes_apart(state, path, block):
                state.fail(
                    f"cannot {what} loop {loop.var.name}: two iterations may write the same elements of {buffer.name} "
                    f"in block {block.name}",
                    loop,
                )
            check_produced_here(state, path, block, buffer, what)


def check_reads_own(state: State, loops: Sequence[For], block: Block, what: str) -> None:
    """Check that an iteration of ``loops`` reads no element of a buffer that ``block`` writes in another iteration.

    Loads and stores have to agree in the indices that are the spatial variables driven by these loops, as those of
    ``c[i, j] = c[i, j] + 1`` do, and ``c[i] = c[i - 1] + 1`` does not.

    Raises:
        ScheduleError: they differ.
    """
    found = accesses(block)
    for buffer in found.writes:
        loads = found.reads.get(buffer, ())
        if not loads:
            continue
        places = [store.indices for store in found.writes[buffer]] + [load.indices for load in loads]
        agreed = {column[0] for column in zip(*places, strict=True) if all(index is column[0] for index in column)}
        for loop in loops:
            for item in block.iters:
                if item.kind == "spatial" and item.var not in agreed and loop.var in leaves(item.value):
                    state.fail(
                        f"cannot {what} loop {loop.var.name}: block {block.name} may read elements of {buffer.name} "
                        "that it writes in another iteration",
                        loop,
                    )


def _writes_apart(state: State, path: tuple[Stmt, ...], block: Block) -> bool:
    loop = path[-1]
    assert isinstance(loop, For)
    spatial = {item.var for item in block.iters if item.kind == "spatial"}
    for stores in accesses(block).writes.values():
        for store in stores:
            if not spatial.issubset(set().union(*map(leaves, store.indices))):
                return False  # an iteration variable that is not among the indices writes the same element again
    roles = _roles(block)
    is_apart = roles.get(loop.var) == "spatial" and state.is_apart(block)
    if is_apart and "both" not in roles.values():
        return True
    inner = loops_to(loop.body, block)
    if any(loop_role(other, block) == "both" for other in inner):
        return False
    involved = [loop, *(other for other in inner if loop_role(other, block) == "spatial")]
    return is_apart or is_injective(spatial_values(block), involved, state.questions(loops_in(path) + inner))


def check_produced_here(state: State, path: tuple[Stmt, ...], writer: Block, buffer: Buffer, what: str) -> None:
    """Check that blocks below the loop read only elements of ``buffer`` that were written in the same iteration.

    This is an invariant of schedules that started from separate loop nests: compute_at and reverse_compute_at keep it
    when they bring blocks together. For other functions the boxes written and read are compared.

    Raises:
        ScheduleError: they read others, or it is not known that they do not.
    """
    loop = path[-1]
    assert isinstance(loop, For)
    if state.from_separate_nests:
        return
    for reader in blocks_in(loop.body):
        if reader is writer or buffer not in accesses(reader).reads:
            continue
        if not _covers(state, path, writer, reader, buffer):
            state.fail(
                f"cannot {what} loop {loop.var.name}: block {reader.name} may read elements of {buffer.name} that "
                f"block {writer.name} writes in another iteration",
                loop,
            )


def _covers(state: State, path: tuple[Stmt, ...], writer: Block, reader: Block, buffer: Buffer) -> bool:
    loop = path[-1]
    assert isinstance(loop, For)
    if writer.predicate is not None or state.position(writer) > state.position(reader):
        return False
    if any(loop_role(outer, writer) in ("reduction", "both") for outer in loops_in(path)):
        return False
    to_writer, to_reader = loops_to(loop.body, writer), loops_to(loop.body, reader)
    analyzer = state.analyzer(loops_in(path))
    with analyzer.scope():
        for other in to_writer:
            analyzer.bind(other.var, other.min, other.extent)
        varying = [other for other in to_writer if loop_role(other, writer) == "spatial"]
        if not is_injective(spatial_values(writer), varying, analyzer):
            return False
    written = box_of(writer, accesses(writer).writes[buffer][-1].indices, to_writer, analyzer)
    steps, size = as_expr(1), as_expr(1)
    for other in varying:
        steps = binary("mul", steps, other.extent)
    for span in written:
        size = size if span is None else binary("mul", size, span[1])
    if not analyzer.prove(compare("eq", steps, size)):
        return False  # the box has holes
    for load in accesses(reader).reads[buffer]:
        read = box_of(reader, load.indices, to_reader, analyzer)
        for outer, inside in zip(written, read, strict=True):
            if outer is None or inside is None:
                return False
            if not analyzer.prove(outer[0] <= inside[0]):
                return False
            if not analyzer.prove(inside[0] + inside[1] <= outer[0] + outer[1]):
                return False
    return True
