"""Measure the peak rates of this machine: multiply-adds, copying and reading memory, on one thread and on several.

The probes are programs of the loop-level IR, compiled by the same code generator as kernels, and limited by nothing but
the rate that they measure. The size of a probe can be chosen, so that a benchmark can run one that does as many
multiply-adds, or moves as many bytes, as a kernel: measured in turns, both are exposed to the same noise, caches and
clock rate.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

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
from tilewright.tensorir.dtype import FLOAT32, DataType
from tilewright.tensorir.expr import Call, as_expr
from tilewright.tensorir.processors import DOT_PRODUCTS
from tilewright.tensorir.target import Target

FloatArray = npt.NDArray[np.float32]

#: Work items per thread: while a thread is descheduled, the others take its items.
ITEMS_PER_THREAD = 8
#: Vectors that one iteration of the memory probes touches.
UNROLL = 8
PAGE = 4096


def aligned(elements: int, fill: float = 0.0) -> FloatArray:
    """Return a page-aligned float32 vector whose memory is already mapped."""
    raw = np.empty(elements * 4 + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE
    array: FloatArray = raw[start : start + elements * 4].view(np.float32)
    array[:] = fill
    return array


def _vector(base: Expr | int, lanes: int) -> Ramp:
    return Ramp(as_expr(base), as_expr(1), lanes)


def accumulators(target: Target) -> int:
    """Return the number of independent accumulators: twice as many as two units of latency four need, with registers
    left for the factors."""
    return target.vector_registers * 3 // 4


def _in_registers(
    name: str, target: Target, factors: Buffer, total: DataType, step_of: Callable[[Expr], Expr]
) -> PrimFunc:
    """Write the probe that computes ``sums = step_of(sums)`` for ``accumulators`` vectors in registers, ``steps``
    times, in each of ``items`` iterations of a parallel loop, and then stores the sums to ``result``."""
    lanes, count = target.lanes(total), accumulators(target)
    items, steps, item, step = Var("items"), Var("steps"), Var("item"), Var("step")
    result = Buffer("result", (items * (count * lanes),), total)
    sums = Buffer("sums", (as_expr(count * lanes),), total, "register")
    places = [_vector(number * lanes, lanes) for number in range(count)]
    start: list[Stmt] = [BufferStore(sums, const(0, total.with_lanes(lanes)), (place,)) for place in places]
    add: list[Stmt] = [BufferStore(sums, step_of(BufferLoad(sums, (place,))), (place,)) for place in places]
    loop = For(step, as_expr(0), steps, "serial", sequence(*add))
    store: list[Stmt] = [
        BufferStore(result, BufferLoad(sums, (place,)), (_vector(item * (count * lanes) + number * lanes, lanes),))
        for number, place in enumerate(places)
    ]
    body = Allocate(sums, sequence(*start, loop, *store))
    return PrimFunc(name, (factors, result, items, steps), For(item, as_expr(0), items, "parallel", body))


def fma_primfunc(target: Target, dtype: DataType = FLOAT32) -> PrimFunc:
    """Write the probe ``sums = sums * factors[0] + factors[1]``: ``2 * items * steps * accumulators * lanes``
    operations. The code generator fuses product and sum where the target has such an instruction, as it does for
    kernels."""
    factors = Buffer("factors", (as_expr(2),), dtype)
    scale, shift = (Broadcast(BufferLoad(factors, (as_expr(index),)), target.lanes(dtype)) for index in range(2))
    return _in_registers("fma_probe", target, factors, dtype, lambda sums: sums * scale + shift)


def dot_primfunc(target: Target, left: DataType, right: DataType, total: DataType) -> PrimFunc:
    """Write the probe ``sums = dot(sums, ...)``, the instruction that adds neighbouring products of narrow numbers:
    with ``n`` products for each sum, ``2 * n * items * steps * accumulators * lanes`` operations."""
    products = target.dot_products(left, right, total)
    width = products * target.lanes(total)
    factors = Buffer("factors", (as_expr(width),), left)
    a = BufferLoad(factors, (_vector(0, width),))
    b = a if left == right else Call("reinterpret", (a,), right.with_lanes(width))
    return _in_registers("dot_probe", target, factors, total, lambda sums: Call("dot", (sums, a, b), sums.dtype))


def copy_primfunc(target: Target) -> PrimFunc:
    """Write the probe ``y = x`` for ``items * steps * UNROLL`` vectors, the items in parallel."""
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
    """Write the probe that sums ``items * steps * UNROLL`` vectors: each item leaves ``UNROLL`` vectors of sums in
    ``result``, and reads what it sums ``passes`` times."""
    lanes = target.lanes(FLOAT32)
    width = UNROLL * lanes
    items, steps, item, step = Var("items"), Var("steps"), Var("item"), Var("step")
    passes, again = Var("passes"), Var("again")
    x, result = Buffer("x", (items * steps * width,), FLOAT32), Buffer("result", (items * width,), FLOAT32)
    sums = Buffer("sums", (as_expr(width),), FLOAT32, "register")
    places = [_vector(number * lanes, lanes) for number in range(UNROLL)]
    start: list[Stmt] = [BufferStore(sums, const(0.0, FLOAT32.with_lanes(lanes)), (place,)) for place in places]
    add: list[Stmt] = []
    store: list[Stmt] = []
    for number, place in enumerate(places):
        read = BufferLoad(x, (_vector((item * steps + step) * width + number * lanes, lanes),))
        add.append(BufferStore(sums, BufferLoad(sums, (place,)) + read, (place,)))
        store.append(BufferStore(result, BufferLoad(sums, (place,)), (_vector(item * width + number * lanes, lanes),)))
    loop = For(step, as_expr(0), steps, "serial", sequence(*add))
    loops = For(again, as_expr(0), passes, "serial", loop)
    body = Allocate(sums, sequence(*start, loops, *store))
    return PrimFunc("read_probe", (x, result, items, steps, passes), For(item, as_expr(0), items, "parallel", body))


#: Each probe forks once, which needs no team of threads.
NO_TEAM = None


#: The iteration ``s * 0.5 + 1`` converges to 2: it neither overflows nor produces denormal numbers.
_HALF_AND_ONE = np.array([0.5, 1.0])


def _entry(compiled: CompiledModule, func: PrimFunc) -> Callable[..., None]:
    compiled.start_threads()
    kinds = [ctypes.c_void_p if isinstance(param, Buffer) else ctypes.c_int64 for param in func.params]
    return ctypes.CFUNCTYPE(None, *kinds, ctypes.c_void_p)(compiled.address(func.name))


def _compiled(func: PrimFunc, target: Target) -> Callable[..., None]:
    compiled = compile_module([func], target)
    entry = _entry(compiled, func)
    return lambda *args: (entry(*args), compiled)[0]  # which keeps the code alive


class Machine:
    """The probes, compiled for one number of threads.

    Attributes:
        target: this machine with that number of threads, or the named processor that it is used as.
        compiled: the machine code of the probes.
    """

    def __init__(self, threads: int, mcpu: str | None = None, mattr: str | None = None) -> None:
        self.target = Target("llvm", mcpu=mcpu, mattr=mattr, num_threads=threads)
        self.lanes = self.target.lanes(FLOAT32)
        functions = [make(self.target) for make in (fma_primfunc, copy_primfunc, read_primfunc)]
        self.compiled: CompiledModule = compile_module(functions, self.target)
        self._items = ITEMS_PER_THREAD * threads
        self._entries = {func.name: _entry(self.compiled, func) for func in functions}
        self._probes: dict[tuple[DataType, ...], Callable[..., None]] = {(FLOAT32,): self._entries["fma_probe"]}

    def fma(self, flops: float) -> tuple[Callable[[], None], float]:
        """Return a call that does about ``flops`` operations on float32 (a multiply-add is two), and the exact
        number."""
        return self._arithmetic(self._entries["fma_probe"], FLOAT32, _HALF_AND_ONE.astype(np.float32), 1, flops)

    def arithmetic(self, dtype: DataType, flops: float) -> tuple[Callable[[], None], float] | None:
        """Return the same as :meth:`fma` for products of numbers of ``dtype``; None if the machine has no instruction
        for them, or none that adds up their products."""
        if dtype in ("float32", "float64"):
            entry = self._probe((dtype,), lambda: fma_primfunc(self.target, dtype))
            return self._arithmetic(entry, dtype, _HALF_AND_ONE.astype(dtype.numpy), 1, flops)
        for instruction in DOT_PRODUCTS:
            left, right, total = map(DataType, (instruction.left, instruction.right, instruction.total))
            count = self.target.dot_products(left, right, total)
            if dtype in (left, right) and count > 1:
                make = functools.partial(dot_primfunc, self.target, left, right, total)
                entry = self._probe((left, right, total), make)
                factors = np.zeros(count * self.target.lanes(total), left.numpy)
                return self._arithmetic(entry, total, factors, count, flops)
        return None

    def _probe(self, dtypes: tuple[DataType, ...], make: Callable[[], PrimFunc]) -> Callable[..., None]:
        """Compile a probe on first use."""
        if dtypes not in self._probes:
            self._probes[dtypes] = _compiled(make(), self.target)
        return self._probes[dtypes]

    def _arithmetic(
        self, entry: Callable[..., None], total: DataType, factors: npt.NDArray[Any], products: int, flops: float
    ) -> tuple[Callable[[], None], float]:
        sums = self._items * accumulators(self.target) * self.target.lanes(total)
        per_step = 2 * products * sums
        steps = max(1, round(flops / per_step))
        result = aligned(sums * total.bytes // 4)

        def run() -> None:
            entry(factors.ctypes.data, result.ctypes.data, self._items, steps, NO_TEAM)

        return run, float(per_step * steps)

    def _steps(self, count: float) -> int:
        return max(1, round(count / (4 * self._items * UNROLL * self.lanes)))

    def copy(self, count: float) -> tuple[Callable[[], None], float]:
        """Return a call that moves about ``count`` bytes, half of them read and half written, and the exact number."""
        steps = self._steps(count / 2)
        size = self._items * steps * UNROLL * self.lanes
        x, y = aligned(size, 1.0), aligned(size)
        entry = self._entries["copy_probe"]

        def run() -> None:
            entry(x.ctypes.data, y.ctypes.data, self._items, steps, NO_TEAM)

        return run, float(x.nbytes + y.nbytes)

    def read(self, count: float, passes: int = 1) -> tuple[Callable[[], None], float]:
        """Return a call that reads about ``count`` bytes, each ``passes`` times, and the exact number of bytes that it
        reads. (Passes after the first read from the cache that the bytes fit into, as each thread rereads its own.)"""
        steps = self._steps(count)
        x = aligned(self._items * steps * UNROLL * self.lanes, 1.0)
        result = aligned(self._items * UNROLL * self.lanes)
        entry = self._entries["read_probe"]

        def run() -> None:
            entry(x.ctypes.data, result.ctypes.data, self._items, steps, passes, NO_TEAM)

        return run, float(x.nbytes * passes)


@functools.cache
def machine(threads: int, mcpu: str | None = None, mattr: str | None = None) -> Machine:
    """Return the probes for ``threads`` threads and the processor ``mcpu`` with changes ``mattr`` of its features,
    compiled once in a process."""
    return Machine(threads, mcpu, mattr)
