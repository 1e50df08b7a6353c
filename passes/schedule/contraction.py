"""Schedule sums of products: matrix products, dense layers, convolutions.

The result is tiled so that a tile of accumulators stays in vector registers (``tiling`` plans it); tiles that share
their columns form a task. The task also prepares operands (panels, the strip of an image with its border) and computes
the epilogue.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator

from tilewright.passes.operands import known_bytes
from tilewright.passes.schedule.cost import is_expensive, leaves_rest, tiles_per_task, tiles_with_all_columns
from tilewright.passes.schedule.facts import (
    block_of,
    constant,
    contraction,
    loads,
    loop_of,
    panel_width,
    product_of_extents,
    reductions,
    spatial,
    stores,
    uses,
)
from tilewright.passes.schedule.loops import uses_loop
from tilewright.passes.schedule.packing import most_panels, pack, pack_inside, panels_of_a_task
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.passes.schedule.stages import epilogue_of
from tilewright.passes.schedule.strip import Strip, copy_strip, find_strip
from tilewright.passes.schedule.tiling import Tile, Tiling, tile_of, tiling_of, tilings
from tilewright.tensorir.expr import BufferLoad
from tilewright.tensorir.functor import uses_var
from tilewright.tensorir.keys import DOT_PRODUCT, OUTLINE, SPECIALIZE_TAIL
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block, IterVar
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class ContractionPlan:
    """Tile a sum of products into registers."""

    block: str = dataclasses.field(metadata={"doc": "the block that sums; the other settings apply only to it"})
    tile: Tile = dataclasses.field(metadata={"flat": True})
    tiles: int = dataclasses.field(
        metadata={"doc": "tiles along the rows, sharing their columns, that a task takes", "least": 1}
    )
    outlined: bool = dataclasses.field(
        default=False, metadata={"doc": "whether the epilogue is a separate function that reads a tile on the stack"}
    )
    strip_height: int = dataclasses.field(
        default=0, metadata={"doc": "lines of an image with its border that a task copies first; 0: none", "least": 0}
    )
    columns_inside: bool = dataclasses.field(
        default=False,
        metadata={
            "doc": "whether a task's tiles are computed with all channels of the result before the next ones are"
        },
    )
    panels: int = dataclasses.field(
        default=0,
        metadata={
            "doc": "panels of the vector operand that a task packs, each before its tiles; 0: all are packed first",
            "least": 0,
        },
    )


#: Steps of a sum that one iteration of its innermost loop takes, at most; the number of multiply-adds of vectors in a
#: step up to which it takes several (for a long loop of a tile of several vectors, fewer than this), and in such an
#: iteration at most. A tile for AVX2, which has 16 registers, has 12; one for 32 registers, 24 to 28, and less where an
#: image is small: more than 48 took no less time there.
_STEPS = 4
_FEW_MULTIPLY_ADDS = 16
_MOST_MULTIPLY_ADDS = 48


@register_schedule_rule(before="cases")
class ScheduleContraction(ScheduleRule[ContractionPlan]):
    """Tile sums of products into registers: matrix products, dense layers, convolutions."""

    name = "contraction"
    plan = ContractionPlan

    def match(self, nest: Nest) -> Iterator[ContractionPlan] | Declined:
        """Plan a sum of products of two loads."""
        return plan_contraction(nest)

    def apply(self, schedule: Schedule, plan: ContractionPlan) -> None:
        """Tile the block and its epilogue."""
        schedule_contraction(schedule, plan, Target.current())


def plan_contraction(nest: Nest) -> Iterator[ContractionPlan] | Declined:
    """Return the plans to tile a contraction, best first, or the reason why there are none."""
    schedule, ref, block, given = nest.schedule, nest.ref, nest.block, nest.given
    assert ref is not None
    found = tilings(block, nest.target, nest.reassociate, given)
    if isinstance(found, Declined):
        return found
    if len(schedule.get_loops(ref)) != len(block.iters):
        return Declined(f"block {block.name} shares loops with other blocks")
    if len(spatial(block)) < 2:
        return Declined(f"the result of block {block.name} has fewer than two dimensions")
    best = next(found)
    epilogue = epilogue_of(schedule, ref)
    can_outline = epilogue is not None and best.row is not None
    if given.get("outlined") and not can_outline:
        return Declined(f"block {block.name} has no epilogue, or no row dimension for its tiles")
    if best.row is None and given.get("tiles", 1) != 1:
        return Declined(f"block {block.name} has no row dimension along which a task takes several tiles")
    if given.get("columns_inside") and (best.block is None or best.packed):
        return Declined(f"the channels of block {block.name} are not in blocks that are read in place")
    if given.get("strip_height") and find_strip(schedule, ref, best.row, best.rows, best.lanes, given) is None:
        return Declined(f"block {block.name} does not slide windows over an image of its own")
    if given.get("panels"):
        most = most_panels(block, best, int(given.get("tiles", 0)) or _tiles_per_task(block, best, nest.target))
        if most % given["panels"] or not most:
            return Declined(f"block {block.name} has {most} panels that tasks can pack for themselves")
    outlined = given.get(
        "outlined", epilogue is not None and can_outline and is_expensive(block_of(schedule, epilogue))
    )
    return _plans(nest, itertools.chain((best,), found), outlined)


def _plans(nest: Nest, found: Iterable[Tiling], outlined: bool) -> Iterator[ContractionPlan]:
    """Yield the plans with the tilings ``found``."""
    ref, block, given = nest.ref, nest.block, nest.given
    assert ref is not None
    for tiling in found:
        strip = None
        if given.get("strip_height") != 0:
            strip = find_strip(nest.schedule, ref, tiling.row, tiling.rows, tiling.lanes, given)
        if tiling.row is None:
            tiles = 1
        elif strip is not None:
            tiles = strip.tiles
        else:
            tiles = int(given.get("tiles", 0)) or _tiles_per_task(block, tiling, nest.target)
        shared = 0 if strip is not None else _tiles_with_all_channels(block, tiling, nest.target)
        if shared and given.get("columns_inside") is None:
            tiles = int(given.get("tiles", 0)) or min(tiles, shared)
        inside = bool(given.get("columns_inside", shared > 0))
        panels = 0 if strip is not None else panels_of_a_task(block, tiling, tiles, nest.target)
        height = 0 if strip is None else strip.height
        yield ContractionPlan(block.name, tile_of(block, tiling), tiles, outlined, height, inside, panels)


def schedule_contraction(schedule: Schedule, plan: ContractionPlan, target: Target) -> None:
    """Tile a contraction and its epilogue into registers.

    An expensive epilogue (an exponential takes some 30 instructions) becomes a loop over the rows of the tile, which is
    then stored on the stack: storing and loading it costs little in comparison, and the code of the formula is emitted
    once instead of once for each row and vector. These loops become a function of their own
    (``codegen.llvm.outlined``).
    """
    ref = schedule.get_block(plan.block)
    block = block_of(schedule, ref)
    tiling = tiling_of(block, plan.tile)
    strip = None
    if plan.strip_height:
        given = {"strip_height": plan.strip_height, "tiles": plan.tiles}
        strip = find_strip(schedule, ref, tiling.row, tiling.rows, tiling.lanes, given)
    panel = pack(schedule, ref, tiling) if tiling.packed else None
    last = epilogue_of(schedule, ref)
    kept: BlockRef | None = None
    if last is None:
        last = schedule.cache_write(ref, 0, "register")
    elif plan.outlined:
        kept = schedule.cache_read(last, stores(block)[0].buffer, "stack")
    schedule.set_scope(ref, 0, "register")
    tasks, rows, tile = _tile_result(schedule, last, block, tiling, plan, strip)
    at = rows if rows is not None else tasks[-1]
    if kept is not None:
        schedule.compute_at(kept, at)
        own = schedule.get_loops(kept)
        mark_tile(schedule, own[own.index(at) + 1 :], tiling)
    schedule.compute_at(ref, at)
    if strip is not None:
        copy_strip(schedule, strip, tasks[-1], target)
    accumulate(schedule, ref, block, at, tiling)
    if kept is None:
        mark_tile(schedule, [tile[name] for name in ("block", "row", "column") if name in tile], tiling)
    else:
        _vectorize(schedule, tile["column"], tiling)
        schedule.annotate(next(tile[name] for name in ("block", "row") if name in tile), OUTLINE, True)
    if rows is not None and tiling.row is not None and leaves_rest(constant(tiling.row.extent), tiling.rows):
        schedule.annotate(rows, SPECIALIZE_TAIL, True)
    task = schedule.fuse(*tasks) if len(tasks) > 1 else tasks[0]
    if plan.panels and panel is not None:
        task, each = schedule.split(task, [None, plan.panels])
        pack_inside(schedule, panel, each, tiling)
    schedule.parallel(task)


def _tile_result(
    schedule: Schedule, ref: BlockRef, block: Block, tiling: Tiling, plan: ContractionPlan, strip: Strip | None
) -> tuple[list[LoopRef], LoopRef | None, dict[str, LoopRef]]:
    """Split the loops of the block that writes the result.

    Returns:
        The loops over tasks, outermost first; the loop over a task's tiles along the rows (None without rows); and the
        loops inside a tile, by name.
    """
    loops = dict(zip(spatial(block), schedule.get_loops(ref), strict=True))
    tile: dict[str, LoopRef] = {}
    tasks: list[LoopRef] = []
    chunk: LoopRef | None = None
    rows: LoopRef | None = None
    lines: LoopRef | None = None
    # Independent products are computed one after the other, so that the operands of one stay in the caches.
    places: dict[LoopRef, int] = {}
    found = contraction(block)
    for item, loop in loops.items():
        extent = constant(item.extent)
        if item is tiling.row:
            chunk, rows, tile["row"] = schedule.split(loop, [None, plan.tiles, tiling.rows])
        elif strip is not None and item is strip.lines:
            over, lines = schedule.split(loop, [None, strip.height])
            tasks.append(over)
        elif item is tiling.block:
            over, tile["block"] = schedule.split(loop, [None, tiling.vectors])
            tasks.append(over)
            places[over] = 3 if plan.columns_inside else 0
        elif item is not tiling.column:
            tasks.append(loop)
            if found is not None and uses(found.left, item.var) and uses(found.right, item.var):
                places[loop] = -1
            elif plan.columns_inside and _slides(block, item):  # neighbouring windows overlap
                places[loop] = 2
        elif extent is not None and extent <= tiling.width:
            tile["column"] = loop
        else:
            over, tile["column"] = schedule.split(loop, [None, tiling.width])
            tasks.append(over)
    if chunk is not None:
        tasks.append(chunk)
        places[chunk] = 1 if plan.columns_inside else 0
    inside = [tile[name] for name in ("block", "row", "column") if name in tile]
    tasks.sort(key=lambda loop: places.get(loop, 0))
    schedule.reorder(*tasks, *[loop for loop in (lines, rows) if loop is not None], *inside)
    return tasks, rows, tile


def accumulate(schedule: Schedule, ref: BlockRef, original: Block, at: LoopRef, tiling: Tiling) -> None:
    """Order the loops of the sum inside a tile: the reduction outermost, then row, block and lanes, which are unrolled.
    A row's element is broadcast once for all blocks and need not stay in a register while other rows are computed. The
    steps that one instruction takes are innermost."""
    inside = schedule.get_loops(ref)
    inside = inside[inside.index(at) + 1 :]
    by_item = loops_by_item(schedule, ref, inside)
    names = [item.var.name for item in original.iters]
    reduced = [by_item[names.index(item.var.name)] for item in reductions(original)]
    wanted = [item for item in (tiling.row, tiling.block, tiling.column) if item is not None]
    tile = [by_item[names.index(item.var.name)] for item in wanted]
    steps = [
        part
        for loop, item in zip(reduced, reductions(original), strict=True)
        if loop is not None
        for part in _along_blocks(schedule, loop, item, original, tiling)
    ]
    together = [steps.pop()] if tiling.step is not None else []
    steps, written = _written_out(schedule, steps, tiling, _steps_together(original, tiling))
    elements = [loop for loop in tile if loop is not None]
    rest = [loop for loop in inside if loop not in reduced and loop not in elements]
    schedule.reorder(*rest, *steps, *written, *elements, *together)
    stages = [schedule.decompose_reduction(ref, steps[0])] if steps else []
    for stage, behind in (*((start, 0) for start in stages), (ref, len(together))):
        own = schedule.get_loops(stage)
        last = len(own) - behind
        mark_tile(schedule, own[last - len(elements) : last], tiling)
    for loop in written:
        schedule.unroll(loop)
    for loop in together:
        schedule.annotate(loop, DOT_PRODUCT, tiling.neighbours)


def _written_out(
    schedule: Schedule, steps: list[LoopRef], tiling: Tiling, most: int
) -> tuple[list[LoopRef], list[LoopRef]]:
    """Write out the innermost loop of a sum if it has at most ``most`` steps, or split it so that an iteration takes
    several, if their number divides its extent. Return the loops that stay, and those inside of them to unroll."""
    extent = constant(loop_of(schedule, steps[-1]).extent) if steps and most > 1 else None
    if extent is None:
        return steps, []
    *outer, last = steps
    if extent <= most and outer:
        return outer, [last]
    if tiling.vectors > 1 and tiling.rows * tiling.vectors >= _FEW_MULTIPLY_ADDS:
        # They hide the counters of a long loop; but not where each needs a load of its own (a twentieth of the time).
        return steps, []
    count = next((count for count in range(most, 1, -1) if extent % count == 0 and extent > count), None)
    if count is None:
        return steps, []
    last, inner = schedule.split(last, [None, count])
    return [*outer, last], [inner]


def _steps_together(block: Block, tiling: Tiling) -> int:
    """Return the number of steps of the sum that an iteration may take: several if a step has few multiply-adds, and
    leaves registers for the operands of the next one. The counters and prefetches of a loop need slots of the core's
    front end as well, which is what limits a tile for AVX2, on a core that another thread shares above all. Products
    that are rounded before they are added need another register, and so do rows of vectors on both sides."""
    found = contraction(block)
    both_vectors = found is not None and all(uses(load, tiling.column.var) for load in (found.left, found.right))
    count = tiling.rows * tiling.vectors
    if count > _FEW_MULTIPLY_ADDS or both_vectors or not Target.current().has_fma:
        return 1
    return min(_STEPS, _MOST_MULTIPLY_ADDS // count)


def _along_blocks(schedule: Schedule, loop: LoopRef, item: IterVar, block: Block, tiling: Tiling) -> list[LoopRef]:
    """Split the loop over a reduction variable into loops over blocks and over the elements of a block, where some
    operand is blocked, and over the steps that one instruction takes (innermost); return these loops."""
    count = tiling.neighbours if item is tiling.step else 1
    widths = [panel_width(load, item.var) for load in loads(block)]
    width = next((width for width in widths if width not in (None, count)), None)
    extent = constant(item.extent)
    parts = [loop]
    if width is not None and extent is not None and extent > width:
        parts = schedule.split(loop, [None, width])
    return [*parts[:-1], *schedule.split(parts[-1], [None, count])] if count > 1 else parts


def loops_by_item(schedule: Schedule, ref: BlockRef, loops: list[LoopRef]) -> list[LoopRef | None]:
    """Return, for each iteration variable of a block, the one of ``loops`` that drives it; None if it does not vary."""
    found: list[LoopRef | None] = []
    for item in block_of(schedule, ref).iters:
        driving = [loop for loop in loops if uses_loop(item.value, loop)]
        found.append(driving[0] if driving else None)
    return found


def mark_tile(schedule: Schedule, loops: list[LoopRef], tiling: Tiling) -> None:
    """Unroll the loops inside a tile and vectorize its lanes; the last loop is the one over columns."""
    if not loops:
        return
    *others, column = loops
    vectors = _vectorize(schedule, column, tiling)
    for other in others if vectors is None else (*others, vectors):
        schedule.unroll(other)


def _vectorize(schedule: Schedule, column: LoopRef, tiling: Tiling) -> LoopRef | None:
    """Vectorize a loop over columns; return the loop over the vectors if there are several."""
    extent = constant(loop_of(schedule, column).extent)
    vectors = None
    if extent is None or extent > tiling.lanes:
        vectors, column = schedule.split(column, [None, tiling.lanes])
    schedule.vectorize(column)
    return vectors


def _tiles_per_task(block: Block, tiling: Tiling, target: Target) -> int:
    """Return the number of tiles along the rows, sharing their columns, that one task computes."""
    assert tiling.row is not None
    extent, columns = constant(tiling.row.extent), constant(tiling.column.extent)
    others = [constant(item.extent) for item in spatial(block) if item is not tiling.row and item is not tiling.column]
    known = math.prod(extent for extent in others if extent is not None)  # an unknown batch may be one
    parts = known * (1 if columns is None else -(-columns // tiling.width))
    return tiles_per_task(None if extent is None else -(-extent // tiling.rows), parts, target)


def _slides(block: Block, item: IterVar) -> bool:
    """Return whether windows of the sum slide along the dimension ``item``: steps of the sum are added to its place."""
    steps = {step.var for step in reductions(block)}
    return any(
        uses_var(index, {item.var}) and uses_var(index, steps) for load in loads(block) for index in load.indices
    )


def _tiles_with_all_channels(block: Block, tiling: Tiling, target: Target) -> int:
    """Return the number of tiles along a line of an image in blocks of channels that are computed with all channels of
    the result before the next tiles are; 0: the channels are outermost. (The rows of a plain matrix are contiguous, and
    are prefetched; the pixels of an image come in as many pieces as it has blocks.)"""
    found = contraction(block)
    if found is None or tiling.block is None or tiling.row is None or tiling.packed:
        return 0
    weight = tiling.vector_operand
    image = found.left if weight is found.right else found.right
    if uses(image, tiling.block.var):
        return 0
    # Of a window along the row, tiles read the same pixels.
    across = [step for step in reductions(block) if not _meet(image, step, tiling.row)]
    others = [item for item in spatial(block) if item not in (tiling.row, tiling.block, tiling.column)]
    extents = [product_of_extents(items) for items in (across, others, [tiling.row], [tiling.block])]
    if not all(extents):
        return 0
    steps, lines, pixels, blocks = (extent or 0 for extent in extents)
    return tiles_with_all_columns(
        known_bytes(image.buffer),
        known_bytes(weight.buffer),
        steps * tiling.rows * image.buffer.dtype.bytes,
        -(-pixels // tiling.rows),
        lines,
        -(-blocks // tiling.vectors),
        target,
    )


def _meet(load: BufferLoad, a: IterVar, b: IterVar) -> bool:
    return any(uses_var(index, {a.var}) and uses_var(index, {b.var}) for index in load.indices)
