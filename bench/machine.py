"""What this machine can do at best: float32 multiply-adds, copying and reading memory, on one thread and on several.

The probes are programs of the loop-level IR like every kernel, compiled by the same code generator, but written for
one purpose: nothing limits them except the limit that they measure. A probe has a size that is freely chosen, so that
a benchmark can run one that does as many multiply-adds, or moves as many bytes, as the kernel beside it: measured in
turns, both meet the same noise, the same caches and the same clock.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tilewright.codegen.llvm import CompiledModule, compile_module
from tilewright.tensorir import (
    Allocate,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferStore,
    Expr,
    For,
    PrimFunc,
    Ramp,
    Stmt,
    Var,
    const,
    sequence,
)
from tilewright.tensorir.dtype import FLOAT32
from tilewright.tensorir.expr import as_expr
from tilewright.tensorir.target import Target

FloatArray = npt.NDArray[np.float32]

#: Work items for each thread: one that is descheduled for a while leaves its items to the others.
ITEMS_PER_THREAD = 8
#: Vectors that one iteration of the memory probes touches.
UNROLL = 8
PAGE = 4096


def aligned(elements: int, fill: float = 0.0) -> FloatArray:
    """A float32 vector that starts at a page, its memory already mapped."""
    raw = np.empty(elements * 4 + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE
    array: FloatArray = raw[start : start + elements * 4].view(np.float32)
    array[:] = fill
    return array


def _vector(base: Expr | int, lanes: int) -> Ramp:
    return Ramp(as_expr(base), as_expr(1), lanes)


def accumulators(target: Target) -> int:
    """Sums in flight: twice as many as two units of latency four need, and registers left for the factors."""
    return target.vector_registers * 3 // 4


def fma_primfunc(target: Target) -> PrimFunc:
    """``sums = sums * factors[0] + factors[1]`` in registers, ``steps`` times, by each of ``items`` iterations of a
    parallel loop: ``2 * items * steps * accumulators * lanes`` operations. The sums go to ``result`` at the end. The
    code generator makes one instruction of product and sum where the target has one, as it does for kernels."""
    lanes, count = target.lanes(FLOAT32), accumulators(target)
    items, steps, item, step = Var("items"), Var("steps"), Var("item"), Var("step")
    factors, result = Buffer("factors", (2,), FLOAT32), Buffer("result", (items * (count * lanes),), FLOAT32)
    sums = Buffer("sums", (count * lanes,), FLOAT32, "register")
    scale, shift = (Broadcast(BufferLoad(factors, (as_expr(index),)), lanes) for index in range(2))
    places = [_vector(number * lanes, lanes) for number in range(count)]
    start: list[Stmt] = [BufferStore(sums, const(0.0, FLOAT32.with_lanes(lanes)), (place,)) for place in places]
    add: list[Stmt] = [BufferStore(sums, BufferLoad(sums, (place,)) * scale + shift, (place,)) for place in places]
    loop = For(step, as_expr(0), steps, "serial", sequence(*add))
    store: list[Stmt] = [
        BufferStore(result, BufferLoad(sums, (place,)), (_vector(item * (count * lanes) + number * lanes, lanes),))
        for number, place in enumerate(places)
    ]
    body = Allocate(sums, sequence(*start, loop, *store))
    return PrimFunc("fma_probe", (factors, result, items, steps), For(item, as_expr(0), items, "parallel", body))


def copy_primfunc(target: Target) -> PrimFunc:
    """``y = x`` for ``items * steps * UNROLL`` vectors, the items in parallel."""
    lanes = target.lanes(FLOAT32)
    items, steps, item, step = Var("items"), Var("steps"), Var("item"), Var("step")
    size = items * steps * (UNROLL * lanes)
    x, y = Buffer("x", (size,), FLOAT32), Buffer("y", (size,), FLOAT32)
    base = (item * steps + step) * (UNROLL * lanes)
    places = [_vector(base + number * lanes, lanes) for number in range(UNROLL)]
    moves: list[Stmt] = [BufferStore(y, BufferLoad(x, (place,)), (place,)) for place in places]
    loop = For(step, as_expr(0), steps, "serial", sequence(*moves))
    return PrimFunc("copy_probe", (x, y, items, steps), For(item, as_expr(0), items, "parallel", loop))


def read_primfunc(target: Target) -> PrimFunc:
    """Sums of ``items * steps * UNROLL`` vectors: each item leaves ``UNROLL`` vectors of sums in ``result``."""
    lanes = target.lanes(FLOAT32)
    width = UNROLL * lanes
    items, steps, item, step = Var("items"), Var("steps"), Var("item"), Var("step")
    x, result = Buffer("x", (items * steps * width,), FLOAT32), Buffer("result", (items * width,), FLOAT32)
    sums = Buffer("sums", (width,), FLOAT32, "register")
    places = [_vector(number * lanes, lanes) for number in range(UNROLL)]
    start: list[Stmt] = [BufferStore(sums, const(0.0, FLOAT32.with_lanes(lanes)), (place,)) for place in places]
    add: list[Stmt] = []
    store: list[Stmt] = []
    for number, place in enumerate(places):
        read = BufferLoad(x, (_vector((item * steps + step) * width + number * lanes, lanes),))
        add.append(BufferStore(sums, BufferLoad(sums, (place,)) + read, (place,)))
        store.append(BufferStore(result, BufferLoad(sums, (place,)), (_vector(item * width + number * lanes, lanes),)))
    loop = For(step, as_expr(0), steps, "serial", sequence(*add))
    body = Allocate(sums, sequence(*start, loop, *store))
    return PrimFunc("read_probe", (x, result, items, steps), For(item, as_expr(0), items, "parallel", body))


#: Each probe forks once, which takes no team of threads.
NO_TEAM = None


class Machine:
    """The probes, compiled for one number of threads.

    Attributes:
        target: this machine with that number of threads, or the processor of another name, as which it runs.
        compiled: the machine code of the probes.
    """

    def __init__(self, threads: int, mcpu: str | None = None) -> None:
        self.target = Target("llvm", mcpu=mcpu, num_threads=threads)
        self.lanes = self.target.lanes(FLOAT32)
        functions = [make(self.target) for make in (fma_primfunc, copy_primfunc, read_primfunc)]
        self.compiled: CompiledModule = compile_module(functions, self.target)
        self._items = ITEMS_PER_THREAD * threads

    @functools.cached_property
    def _entries(self) -> dict[str, Callable[..., None]]:
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        names = ("fma_probe", "copy_probe", "read_probe")
        return {name: kind(self.compiled.address(name)) for name in names}

    def fma(self, flops: float) -> tuple[Callable[[], None], float]:
        """A call that does about ``flops`` operations (a multiply-add is two), and how many it does exactly."""
        per_step = 2 * self._items * accumulators(self.target) * self.lanes
        steps = max(1, round(flops / per_step))
        factors = np.array([0.5, 1.0], np.float32)  # the sums tend to 2: neither overflow nor denormal numbers
        result = aligned(self._items * accumulators(self.target) * self.lanes)
        entry = self._entries["fma_probe"]

        def run() -> None:
            entry(factors.ctypes.data, result.ctypes.data, self._items, steps, NO_TEAM)

        return run, float(per_step * steps)

    def _steps(self, count: float) -> int:
        return max(1, round(count / (4 * self._items * UNROLL * self.lanes)))

    def copy(self, count: float) -> tuple[Callable[[], None], float]:
        """A call that moves about ``count`` bytes, half of them read and half of them written; and the exact number."""
        steps = self._steps(count / 2)
        size = self._items * steps * UNROLL * self.lanes
        x, y = aligned(size, 1.0), aligned(size)
        entry = self._entries["copy_probe"]

        def run() -> None:
            entry(x.ctypes.data, y.ctypes.data, self._items, steps, NO_TEAM)

        return run, float(x.nbytes + y.nbytes)

    def read(self, count: float) -> tuple[Callable[[], None], float]:
        """A call that reads about ``count`` bytes, and the exact number."""
        steps = self._steps(count)
        x = aligned(self._items * steps * UNROLL * self.lanes, 1.0)
        result = aligned(self._items * UNROLL * self.lanes)
        entry = self._entries["read_probe"]

        def run() -> None:
            entry(x.ctypes.data, result.ctypes.data, self._items, steps, NO_TEAM)

        return run, float(x.nbytes)


@functools.cache
def machine(threads: int, mcpu: str | None = None) -> Machine:
    """The probes for that number of threads and processor, compiled once in a process."""
    return Machine(threads, mcpu)
