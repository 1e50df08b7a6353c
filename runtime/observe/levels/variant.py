"""Build a model in several ways, and measure the calls of these variants in turns."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.passes.base import Pass
from tilewright.passes.info import PassInfo
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.instruments.timing import PassTimingInstrument
from tilewright.passes.pipelines import STAGES
from tilewright.passes.sequential import Sequential
from tilewright.runtime.build import build_executable
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.executable import Executable
from tilewright.runtime.process_caches import fresh_caches
from tilewright.runtime.steps import Array
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.structural import structural_equal
from tilewright.tensorir.target import Target

#: Warm-up calls before the measurement.
_WARM_UP = 2


class ChangeWatch(PassInstrument):
    """Record for each run of a pass whether it returned another module than it was given.

    Attributes:
        runs: for each run, whether it changed something, by the name of the pass. Pipelines are left out.
    """

    def __init__(self) -> None:
        self.runs: dict[str, list[bool]] = {}
        self._given: list[IRModule] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._given.append(mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        given = self._given.pop()
        if not info.pipeline:
            before, after = given.functions, mod.functions
            changed = len(before) != len(after) or any(before.get(key) is not func for key, func in after.items())
            self.runs.setdefault(info.name, []).append(changed)

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        self._given.pop()


@dataclasses.dataclass(frozen=True)
class Variant:
    """A model built under some settings.

    Attributes:
        model: the compiled model.
        seconds: time of the build, with empty caches.
        timing: the times of its passes.
        changes: which runs of passes changed something.
    """

    model: Executable
    seconds: float
    timing: PassTimingInstrument
    changes: ChangeWatch

    def modules(self) -> list[IRModule]:
        """Return the lowered modules of the model's functions, from which code was generated."""
        return [segment.lowered().modules["lowered"] for segment in self.model._built.segments]

    def same_code(self, other: Variant) -> bool:
        """Return whether the code of both was generated from equal programs, so that it is equal."""
        pairs = list(zip(self.modules(), other.modules(), strict=False))
        return len(self.modules()) == len(other.modules()) and all(_equal(a, b) for a, b in pairs)


def _equal(a: IRModule, b: IRModule) -> bool:
    ours, theirs = ({key.name: func for key, func in mod.functions.items()} for mod in (a, b))
    if list(ours) != list(theirs):
        return False
    pairs = [(func, theirs[name]) for name, func in ours.items()]
    return all(
        isinstance(one, PrimFunc) and isinstance(other, PrimFunc) and structural_equal(one, other)
        for one, other in pairs
    )


def build_variant(mod: IRModule | Function, target: Target | str | None, settings: BuildSettings) -> Variant:
    """Build ``mod`` under ``settings``, without reusing kernels from other builds of the process."""
    timing, changes = PassTimingInstrument(steps=False), ChangeWatch()
    with settings.context([timing, changes]), fresh_caches():
        start = time.perf_counter()
        model = build_executable(mod, target)
        seconds = time.perf_counter() - start
    return Variant(model, seconds, timing, changes)


def call_times(models: Sequence[Executable], inputs: Sequence[Array], repeat: int) -> list[list[float]]:
    """Measure the seconds of ``repeat`` calls of each model with equal inputs. The models take turns, so that all are
    exposed to the same noise."""
    times: list[list[float]] = [[] for _ in models]
    for turn in range(repeat + _WARM_UP):
        for model, found in zip(models, times, strict=True):
            start = time.perf_counter()
            model(*inputs)
            if turn >= _WARM_UP:
                found.append(time.perf_counter() - start)
    return times


def ratio(ours: Sequence[float], base: Sequence[float]) -> float:
    """Return the median over the turns of the ratio of both times."""
    return statistics.median(a / b for a, b in zip(ours, base, strict=True))


def pipeline_passes(target: Target) -> list[PassInfo]:
    """List every pass of a build for ``target``, in order, without the pipelines that contain them."""
    found: list[PassInfo] = []

    def add(each: Pass) -> None:
        if isinstance(each, Sequential):
            for child in each.passes:
                add(child)
        else:
            found.append(each.info)

    for pipeline in STAGES.values():
        add(pipeline(target))
    return found


def as_ordered(inputs: Sequence[Any] | Mapping[str, Any], model: Executable) -> list[Array]:
    """Check the inputs, and put them into the order of the model's signature."""
    named, ordered = (inputs, ()) if isinstance(inputs, Mapping) else ({}, inputs)
    signature = model.signature
    arrays, _ = signature.check(signature.arrange(tuple(ordered), dict(named)), False)
    return list(arrays)
