"""Measure the two roofs of this machine: its peak arithmetic rate and its peak memory bandwidth.

The probes of :mod:`tilewright.runtime.observe.machine` measure both, each for some tens of milliseconds. The result is
the best of several short runs, as other programs may use the machine, and the best of all measurements of a process.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable

from tilewright.runtime.observe.machine import machine
from tilewright.tensorir.dtype import FLOAT32, DataType

#: The levels of the memory hierarchy, nearest first.
LEVELS = ("L1", "L2", "L3", "memory")

_RUNS = 15
#: The seconds of one run of an arithmetic probe, and the minimum bytes that a memory probe reads.
_SECONDS = 1e-3
_LEAST_BYTES = 128 << 20


@dataclasses.dataclass(frozen=True)
class Roof:
    """The shortest time that a kernel can take.

    Attributes:
        seconds: lower bound of the time.
        bound: the limiting rate: ``"compute"`` or ``"memory"``.
    """

    seconds: float
    bound: str


class Roofs:
    """The peak rates of the machine with a given number of threads.

    Args:
        threads: number of threads of parallel loops.
        dtypes: the types to measure arithmetic on, besides float32.
        again: whether to repeat measurements of this process, which other programs may have disturbed.
    """

    def __init__(self, threads: int, dtypes: Iterable[DataType] = (), again: bool = True) -> None:
        self.threads = threads
        for dtype in {FLOAT32: None, **dict.fromkeys(dtypes)}:
            if again or (threads, dtype) not in _best_rates:
                _remember((threads, dtype), _measure_operations(threads, dtype))
        for level in LEVELS:
            if again or (threads, level) not in _best_rates:
                _remember((threads, level), _measure_bandwidth(threads, level))

    def operations(self, dtype: DataType) -> float:
        """Return the operations per second on values of ``dtype``: products and sums (each counts as one). For types
        without vector instructions on the machine, return those of float32 in vectors of its width."""
        return _best_rates[self.threads, dtype]

    def bandwidth(self, size: int) -> float:
        """Return the bytes per second read from a working set of ``size`` bytes, in the smallest cache that holds
        it."""
        return _best_rates[self.threads, self.level(size)]

    def level(self, size: int) -> str:
        """Return the smallest level that holds ``size`` bytes: ``"L1"``, ``"L2"``, ``"L3"`` or ``"memory"``."""
        return next((name for name, limit in self._levels() if size <= limit), LEVELS[-1])

    def roof(self, operations: int, dtype: DataType, size: int) -> Roof:
        """Return the roof of a kernel that does ``operations`` operations on ``dtype`` and moves ``size`` bytes."""
        compute = operations / self.operations(dtype) if operations else 0.0
        memory = size / self.bandwidth(size) if size else 0.0
        return Roof(compute, "compute") if compute >= memory else Roof(memory, "memory")

    def _levels(self) -> list[tuple[str, int]]:
        target = machine(self.threads).target
        own = self.threads  # each core has its own first two levels
        sizes = [target.cache_bytes(level) for level in (1, 2, 3)]
        return list(zip(LEVELS, (own * sizes[0], own * sizes[1], sizes[2]), strict=False))

    def as_dict(self) -> dict[str, object]:
        """Return threads, operations on float32 per second, and bytes per second from each level."""
        return {
            "threads": self.threads,
            "float32_operations_per_second": self.operations(FLOAT32),
            "bytes_per_second": {level: _best_rates[self.threads, level] for level in LEVELS},
        }


#: Operations or bytes per second, by the number of threads and the type or the level.
_best_rates: dict[tuple[int, str], float] = {}


def _remember(key: tuple[int, str], rate: float) -> None:
    _best_rates[key] = max(rate, _best_rates.get(key, 0.0))


def _measure_operations(threads: int, dtype: DataType) -> float:
    found = machine(threads)
    amount = 1e6
    while True:  # until a run is so long that its start-up is negligible
        probe = found.arithmetic(dtype, amount)
        if probe is None:
            return _best_rates[threads, FLOAT32]
        run, amount = probe
        took = min(_timed(run) for _ in range(2))
        if took > _SECONDS / 2:
            return amount / min(took, *(_timed(run) for _ in range(_RUNS)))
        amount *= min(100.0, max(2.0, _SECONDS / took))


def _measure_bandwidth(threads: int, level: str) -> float:
    found = machine(threads)
    l1, l2, l3 = (found.target.cache_bytes(number) for number in (1, 2, 3))
    # Use half of each cache, to leave room for other data, and for memory twice the last cache, up to a limit.
    sizes = {"L1": threads * l1 // 2, "L2": threads * l2 // 2, "L3": l3 // 2, "memory": min(2 * l3, 256 << 20)}
    run, amount = found.read(sizes[level], max(1, round(_LEAST_BYTES / sizes[level])))
    return amount / min(_timed(run) for _ in range(_RUNS))


def _timed(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
