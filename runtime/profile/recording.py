"""Runs a model whose ``main`` reads the clock around every kernel call, and keeps what it wrote down."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilewright.passes.tensor.profile_calls import PROFILED_CALLS, ProfileCalls
from tilewright.runtime.compile import ProfiledRunner
from tilewright.runtime.compiled import Built, Lowered
from tilewright.runtime.steps import Array, Step, Steps
from tilewright.tensorir.profiling import record_length
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

Records = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a function.

    Attributes:
        sizes: of its symbolic dimensions.
        records: of its calls, a row each (:mod:`tilewright.tensorir.profiling`).
    """

    sizes: tuple[int, ...]
    records: Records


class RecordedFunction:
    """A function of a model, compiled with the clock in it; a ``Runner``, which keeps the records of each run.

    Attributes:
        lowered: what it was made of.
        runs: so far, in order.
    """

    def __init__(self, lowered: Lowered, target: Target) -> None:
        self.lowered = lowered
        self.runs: list[Run] = []
        with target:
            main = ProfileCalls()(lowered.modules["lowered"])["main"]
        assert isinstance(main, PrimFunc)
        self._shape = (len(main.attrs[PROFILED_CALLS]), record_length(target.num_threads))
        constants = [constant.data for constant in lowered.constants]
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
        self.runs.append(Run(tuple(sizes), records))


class Recording:
    """A model with the clock in it.

    Attributes:
        functions: of which it consists.
        step: runs it: called as the model's own.
    """

    def __init__(self, built: Built) -> None:
        self.functions = [RecordedFunction(segment.lowered(), built.target) for segment in built.segments]
        self.step: Step | Steps = built.step(self.functions)
