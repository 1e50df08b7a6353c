"""Find the arguments that a kernel may overwrite with its result: those that it reads at the same element only.

``relu(x + y)`` reads ``x[i, j]`` only for its own element ``[i, j]``. If this is the last use of ``x``, the result may
take its memory: the stores then hit cache lines that were just read, and no others are fetched. Scheduling keeps this
property, as it computes each element of a result once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, IntImm, Var
from tilewright.tensorir.functor import accesses_buffers
from tilewright.tensorir.keys import NUM_INPUTS, NUM_OUTPUTS
from tilewright.tensorir.schedule.blocks import accesses
from tilewright.tensorir.schedule.indices import structure
from tilewright.tensorir.stmt import Allocate, Block, BufferStore, For, PrimFunc, SeqStmt, Stmt


def find_overwrites(func: PrimFunc) -> tuple[int, ...]:
    """Return the positions of the arguments of an unscheduled kernel that its result may overwrite.

    There are none if the kernel has several results, or computes anything outside of blocks.
    """
    count = int(func.attrs.get(NUM_INPUTS, 0))
    buffers = func.buffers
    if int(func.attrs.get(NUM_OUTPUTS, 0)) != 1 or len(buffers) <= count:
        return ()
    result = buffers[count]
    fitting = [(number, buffer) for number, buffer in enumerate(buffers[:count]) if _fits(buffer, result)]
    blocks = _blocks(func.body) if fitting else None
    if blocks is None:
        return ()
    writers: dict[Buffer, list[Block]] = {}
    readers: dict[Buffer, list[tuple[Block, BufferLoad]]] = {}
    for block in blocks:
        found_in = accesses(block)
        for buffer, stores in found_in.writes.items():
            writers.setdefault(buffer, []).extend([block] * len(stores))
        for buffer, loads in found_in.reads.items():
            readers.setdefault(buffer, []).extend([(block, load) for load in loads])
    #: Buffers each of whose elements is needed only for the same element of the result.
    found: set[Buffer] = set()
    pending = [result]
    while pending:
        buffer = pending.pop()
        made = writers.get(buffer, [])
        if len(made) != 1 or not _is_pointwise(made[0], buffer):
            continue
        found.add(buffer)
        for source in accesses(made[0]).reads:
            if source not in found and _needs(readers[source], found):
                pending.append(source)
    return tuple(
        [
            number
            for number, buffer in fitting
            if buffer in readers and buffer not in writers and _needs(readers[buffer], found)
        ]
    )


def _blocks(stmt: Stmt) -> list[Block] | None:
    """Return the blocks of a function; None if it computes outside of blocks, or loads loop bounds or indices."""
    found: list[Block] = []
    stack = [stmt]
    while stack:
        current = stack.pop()
        if type(current) is For:
            low, extent = current.min, current.extent
            if (type(low) is not IntImm and accesses_buffers(low)) or (
                type(extent) is not IntImm and accesses_buffers(extent)
            ):
                return None
            stack.append(current.body)
        elif type(current) is Block:
            found.append(current)
            for item in current.iters:
                if type(item.value) is not Var and accesses_buffers(item.value):
                    return None
            if current.predicate is not None and accesses_buffers(current.predicate):
                return None
        elif type(current) is SeqStmt:
            stack.extend(reversed(current.stmts))
        elif type(current) is Allocate:
            stack.append(current.body)
        else:
            return None
    return found


def _fits(buffer: Buffer, result: Buffer) -> bool:
    if len(buffer.shape) != len(result.shape) or buffer.strides or result.strides:
        return False
    return buffer.dtype.bytes == result.dtype.bytes and all(map(_equal, buffer.shape, result.shape))


def _equal(a: Expr, b: Expr) -> bool:
    return a is b or structure(a) == structure(b)


def _is_pointwise(block: Block, buffer: Buffer) -> bool:
    """Return whether a block computes each element of a buffer once, at the indices that are its iteration
    variables."""
    if block.init is not None or block.predicate is not None or not isinstance(block.body, BufferStore):
        return False
    if not _is_place(block.body.indices, block, buffer):
        return False
    for item, extent in zip(block.iters, buffer.shape, strict=True):
        if item.kind != "spatial" or not _equal(item.extent, extent):
            return False
    return True


def _is_place(indices: Sequence[Expr], block: Block, buffer: Buffer) -> bool:
    """Return whether indices are the variables of a block, in order; 0 also counts along a dimension of one element."""
    if not len(indices) == len(buffer.shape) == len(block.iters):
        return False
    for index, item, extent in zip(indices, block.iters, buffer.shape, strict=True):
        if index is not item.var and not (_is_zero(index) and isinstance(extent, IntImm) and extent.value == 1):
            return False
    return True


def _is_zero(index: Expr | Var) -> bool:
    return isinstance(index, IntImm) and index.value == 0


def _needs(reads: list[tuple[Block, BufferLoad]], found: set[Buffer]) -> bool:
    """Return whether each of ``reads`` is for the same element of a buffer in ``found``."""
    return all(
        isinstance(block.body, BufferStore)
        and block.body.buffer in found
        and _is_place(load.indices, block, load.buffer)
        for block, load in reads
    )
