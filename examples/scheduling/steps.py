"""The steps of docs/scheduling.md: a matrix product from loops as written to loops that fill registers and caches.

Each step returns the schedule of the product of two ``n`` x ``n`` matrices of float32. Vectors and tiles are those of
the target that is current when this is imported: the machine's, or that of ``with tw.Target(...)``.
"""

from __future__ import annotations

from collections.abc import Callable

import tilewright as tw
from tilewright import tensorir as ti
from tilewright.tensorir import tensor as te

TARGET = tw.Target.current()
LANES = TARGET.vector_bits // 32  # numbers of 32 bits in a vector: 16 with AVX-512
ROWS, VECTORS = (6, 4) if TARGET.vector_registers >= 32 else (4, 3)  # of a tile: 24 accumulators of the 32 registers
WIDTH = VECTORS * LANES  # columns of a tile, and of a panel


def product(n: int) -> ti.PrimFunc:
    """Write ``c = a @ b``."""
    a, b = te.placeholder((n, n), "float32", "a"), te.placeholder((n, n), "float32", "b")
    k = te.reduce_axis(n, "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return ti.create_prim_func("matmul", [a, b], [c])


def naive(n: int) -> ti.Schedule:
    """Leave the loops as they are."""
    return ti.Schedule(product(n))


def loop_order(n: int) -> ti.Schedule:
    """Walk along the rows of ``b`` and ``c``."""
    schedule = naive(n)
    block = schedule.get_block("c")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.decompose_reduction(block, k)
    return schedule


def vectorize_columns(schedule: ti.Schedule, name: str) -> None:
    """Compute neighbouring columns of a block as lanes of a vector."""
    *_, column = schedule.get_loops(schedule.get_block(name))
    _, lane = schedule.split(column, [None, LANES])
    schedule.vectorize(lane)


def vectorized(n: int) -> ti.Schedule:
    """Compute the result in vectors."""
    schedule = loop_order(n)
    vectorize_columns(schedule, "c_init")
    vectorize_columns(schedule, "c")
    return schedule


def tiled(schedule: ti.Schedule) -> ti.Schedule:
    """Keep a tile of the result in registers while it is summed."""
    block = schedule.get_block("c")
    store = schedule.cache_write(block, 0, "register")
    i, j = schedule.get_loops(store)
    tile, row = schedule.split(i, [None, ROWS])
    panel, column = schedule.split(j, [None, WIDTH])
    schedule.reorder(panel, tile, row, column)
    schedule.compute_at(block, tile)
    *_, row, column, k = schedule.get_loops(block)
    schedule.reorder(k, row, column)
    start = schedule.decompose_reduction(block, k)
    for stage in start, block, store:
        *_, row, column = schedule.get_loops(stage)
        vector, lane = schedule.split(column, [None, LANES])
        schedule.unroll(row)
        schedule.unroll(vector)
        schedule.vectorize(lane)
    schedule.annotate(tile, "specialize_tail", True)  # the last tile may have fewer rows, in loops of its own
    return schedule


def register_tile(n: int) -> ti.Schedule:
    """Tile the product."""
    return tiled(naive(n))


def with_panels(n: int) -> ti.Schedule:
    """Let the product read ``b`` from panels as wide as a tile."""
    schedule = naive(n)
    panels = schedule.cache_read(schedule.get_block("c"), "b", "arena")
    schedule.transform_layout(panels, 0, lambda k, j: (j // WIDTH, k, j % WIDTH), pad_value=0)
    return schedule


def packed(n: int) -> ti.Schedule:
    """Tile the product that reads panels."""
    schedule = tiled(with_panels(n))
    vectorize_columns(schedule, "b_arena")
    return schedule


def in_caches(n: int) -> ti.Schedule:
    """Pack each panel right before it is used."""
    schedule = tiled(with_panels(n))
    panel, *_ = schedule.get_loops(schedule.get_block("c"))
    schedule.compute_at(schedule.get_block("b_arena"), panel)
    vectorize_columns(schedule, "b_arena")
    return schedule


def parallel(n: int) -> ti.Schedule:
    """Divide the panels among the threads."""
    schedule = in_caches(n)
    panel, *_ = schedule.get_loops(schedule.get_block("c"))
    schedule.parallel(panel)
    return schedule


STEPS: list[Callable[[int], ti.Schedule]] = [
    naive,
    loop_order,
    vectorized,
    register_tile,
    packed,
    in_caches,
    parallel,
]


def loops(schedule: ti.Schedule) -> str:
    """Return the loops of a schedule, and what their blocks store."""
    lines = str(schedule.func).splitlines()[1:]
    shown = [line for line in lines if line.split()[0] in ("allocate", "for") or "] = " in line]
    return "\n".join(line.removesuffix(" {")[2:] for line in shown)
