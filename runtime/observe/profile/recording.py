"""Run a model whose ``main`` reads the clock around every kernel call, and keep its records.

After kernels, which fill the caches with other data, a line of Python takes a microsecond, many times as long as
reading the clock. So a call stores its raw records; objects are made from them on request.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilewright.passes.tensor.profile_calls import ProfileCalls
from tilewright.runtime.built_model import BuiltModel
from tilewright.runtime.generated_code import ProfiledRunner
from tilewright.runtime.lower_model import LoweredFunction
from tilewright.runtime.steps import Array
from tilewright.tensorir import forking
from tilewright.tensorir.keys import PROFILED_CALLS
from tilewright.tensorir.profiling import records_shape
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

Records = npt.NDArray[np.int64]

#: Limits of the calls that are kept: the last calls for inputs of equal sizes, and the number of different sizes.
KEPT_CALLS = 500
KEPT_SIZES = 100

#: The raw record of a run of a function (the fields of a ``Run``), and that of a call: its runs, and its seconds.
_Run = tuple[tuple[int, ...], Records]
_Call = tuple[list[_Run], float]


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a function.

    Attributes:
        sizes: sizes of its symbolic dimensions.
        records: records of its calls, a column each (:mod:`tilewright.tensorir.profiling`).
    """

    sizes: tuple[int, ...]
    records: Records


@dataclasses.dataclass(frozen=True)
class RecordedCall:
    """One call of a model.

    Attributes:
        runs: runs of its functions, in order.
        seconds: duration of the call.
    """

    runs: tuple[Run, ...]
    seconds: float

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of all symbolic dimensions of the model."""
        return self.runs[-1].sizes


class _Current(threading.local):
    """The runs so far in the current call of this thread."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []


class _Kept:
    """Calls with equal sizes: the last ``number`` of them, and the total count."""

    def __init__(self, number: int) -> None:
        self.calls: collections.deque[_Call] = collections.deque(maxlen=number)
        self.count = 0


class RecordedFunction:
    """A function of a model, compiled with clock reads: a ``Runner`` that adds each run to the current call.

    Attributes:
        lowered: the function without clock reads.
    """

    def __init__(self, lowered: LoweredFunction, target: Target, current: _Current) -> None:
        self.lowered = lowered
        self._current = current
        with target:
            main = ProfileCalls()(lowered.modules["lowered"])["main"]
        assert isinstance(main, PrimFunc)
        self._shape = records_shape(len(main.attrs[PROFILED_CALLS]), target.num_threads)
        constants = lowered.values()
        self._run: ProfiledRunner = lowered.code.profiled_runner(main, len(lowered.main.params), constants)

    def __call__(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        arena: tuple[int, Array],
        arena_bytes: int,
        sizes: Sequence[int],
    ) -> None:
        records = np.zeros(self._shape, np.int64)
        self._run(inputs, outputs, arena, arena_bytes, sizes, records)
        self._current.runs.append((tuple(sizes), records))


class Recording:
    """A model with clock reads, called like the model's own steps. Several threads may call it at the same time.

    Attributes:
        built: the model.
        functions: the functions of the model.
    """

    def __init__(self, built: BuiltModel) -> None:
        self.built = built
        self._current = _Current()
        self.functions = [
            RecordedFunction(segment.lowered(), built.target, self._current) for segment in built.segments
        ]
        self._step = built.step(self.functions)
        self.symbols = self._step.symbols
        self.arena_bytes = self._step.arena_bytes
        self._kept: dict[tuple[int, ...], _Kept] = {}
        self._lock = forking.Lock()

    def __call__(self, inputs: Sequence[Array], sizes: tuple[int, ...]) -> list[Array]:
        """Run the model on these inputs; return the results.

        Raises:
            InputError, ExecutionError: as the model's own steps.
        """
        runs: list[_Run] = []
        self._current.runs = runs
        begin = time.perf_counter()
        results = self._step(inputs, sizes)
        seconds = time.perf_counter() - begin
        known = runs[-1][0]
        with self._lock:
            kept = self._kept.get(known)
            if kept is None:
                kept = self._kept[known] = _Kept(KEPT_CALLS if len(self._kept) < KEPT_SIZES else 0)
            kept.count += 1
            kept.calls.append((runs, seconds))
        return results

    def recorded(self) -> dict[tuple[int, ...], tuple[list[RecordedCall], int]]:
        """Return, by the sizes of the symbolic dimensions (of the inputs, and those that the model itself computes),
        the kept calls, in order, and the total count. Failed calls are not included."""
        with self._lock:
            kept = {sizes: (kept.calls.copy(), kept.count) for sizes, kept in self._kept.items()}
        return {
            sizes: ([RecordedCall(tuple(Run(*run) for run in runs), seconds) for runs, seconds in calls], count)
            for sizes, (calls, count) in kept.items()
        }

    def calls(self) -> dict[tuple[int, ...], list[RecordedCall]]:
        """Return the calls of :meth:`recorded`, for the sizes with kept calls."""
        return {sizes: calls for sizes, (calls, _) in self.recorded().items() if calls}

    def counts(self) -> dict[tuple[int, ...], int]:
        """Return the counts of :meth:`recorded`."""
        return {sizes: count for sizes, (_, count) in self.recorded().items()}

    def forget(self) -> None:
        """Drop all records."""
        with self._lock:
            self._kept.clear()
