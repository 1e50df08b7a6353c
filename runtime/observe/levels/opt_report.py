"""Compare the optimization levels of a model."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.tables import format_bytes, format_seconds, html_table, table
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.observe.example_inputs import example_inputs
from tilewright.runtime.observe.levels.variant import (
    Variant,
    as_ordered,
    build_variant,
    call_times,
    pipeline_passes,
    ratio,
)
from tilewright.tensorir.errors import TilewrightError
from tilewright.tensorir.target import Target

LEVELS = (0, 1, 2, 3)


@dataclasses.dataclass(frozen=True)
class PassUse:
    """The use of one pass of the pipelines at one level.

    Attributes:
        name: name of the pass.
        runs: number of its runs.
        changed: number of these runs that changed the module.
        reason: why it did not run; empty if it did.
    """

    name: str
    runs: int
    changed: int
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class LevelReport:
    """A model at one optimization level.

    Attributes:
        level: from 0 to 3.
        passes: every pass of a build, in order, each name once.
        build_seconds: the time of the build.
        pass_seconds: the part of it that is spent in passes.
        call_seconds: median time of a call; None without suitable inputs.
        speedup: time of a call at level 0 divided by that at this level.
        kernels: number of functions in the code.
        arena_bytes: memory for intermediate values.
        weight_bytes: memory for constants as the kernels read them.
        same_as: the lower level with the same code; None if there is none.
    """

    level: int
    passes: tuple[PassUse, ...]
    build_seconds: float
    pass_seconds: float
    call_seconds: float | None
    speedup: float | None
    kernels: int
    arena_bytes: int
    weight_bytes: int
    same_as: int | None


class OptReport:
    """The effect of each optimization level on a model, made by :func:`opt_report`.

    Attributes:
        levels: the reports, from level 0.
        target: the machine that the code is for.
        problem: why calls were not measured; empty if they were.
    """

    header = ("opt_level", "build", "in passes", "call", "speedup", "kernels", "arena", "weights", "code")

    def __init__(self, levels: Sequence[LevelReport], target: Target, problem: str = "") -> None:
        self.levels = list(levels)
        self.target = target
        self.problem = problem

    def rows(self) -> list[list[str]]:
        """Return the lines of the table of levels."""
        return [
            [
                str(level.level),
                format_seconds(level.build_seconds),
                format_seconds(level.pass_seconds),
                "-" if level.call_seconds is None else format_seconds(level.call_seconds),
                "-" if level.speedup is None else f"{level.speedup:.2f}",
                str(level.kernels),
                format_bytes(level.arena_bytes, signed=False),
                format_bytes(level.weight_bytes, signed=False),
                "" if level.same_as is None else f"as at {level.same_as}",
            ]
            for level in self.levels
        ]

    def pass_rows(self) -> list[list[str]]:
        """Return the lines of the table of passes: how often each ran at each level, and how many runs changed
        something (``1 of 2``); ``-`` where it did not run."""
        names = list(dict.fromkeys(use.name for level in self.levels for use in level.passes))
        rows = []
        for name in names:
            uses = [next((use for use in level.passes if use.name == name), None) for level in self.levels]
            reasons = list(dict.fromkeys(use.reason for use in uses if use is not None and use.reason))
            cells = ["-" if use is None or not use.runs else f"{use.changed} of {use.runs}" for use in uses]
            rows.append([name, *cells, "; ".join(reasons)])
        return rows

    def render(self) -> str:
        """Write two tables as text: the levels, and for each pass in how many of its runs it changed something."""
        same = [
            f"opt_level {level.level} gives the same code as {level.same_as}: none of its added passes applies here"
            for level in self.levels
            if level.same_as is not None
        ]
        passes = table(self._pass_header(), self.pass_rows())
        return "\n\n".join(filter(None, [table(self.header, self.rows()), "\n".join(same), self.problem, passes]))

    def as_dict(self) -> dict[str, Any]:
        """Return ``{target, problem, levels}``, plain data: seconds and bytes."""
        levels = [dataclasses.asdict(level) for level in self.levels]
        return {"target": str(self.target), "problem": self.problem, "levels": levels}

    def to_json(self, indent: int | None = 2) -> str:
        """Return ``as_dict`` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def __str__(self) -> str:
        return self.render()

    def _repr_html_(self) -> str:
        return html_table(self.header, self.rows()) + html_table(self._pass_header(), self.pass_rows())

    def _pass_header(self) -> list[str]:
        return ["changed, of runs", *(f"-O{level.level}" for level in self.levels), "why not"]


def opt_report(
    mod: IRModule | Function,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    target: Target | str | None = None,
    repeat: int = 20,
) -> OptReport:
    """Build a model at each optimization level, and compare build, code and calls.

    For each level, report which passes ran, which changed something, which were skipped and why, the times of the build
    and of a call, the memory, and whether the code is that of a lower level. Required and disabled passes and the
    configuration are those of the current context. Nothing is taken from caches in memory or on disk, so that build
    times are those of a first build; calls of the levels take turns.

    Args:
        mod: the model.
        inputs: inputs of the calls, by position or by name; default: random numbers, and 1 for symbolic dimensions.
        target: the target of the builds; by default :meth:`Target.current`.
        repeat: the number of measured calls.

    Raises:
        InputError, ExecutionError: the model cannot be called with ``inputs``.
        TilewrightError: as :func:`tilewright.build`.
    """
    goal = Target(Target.current() if target is None else target)
    settings = BuildSettings.of(PassContext.current())
    variants = [build_variant(mod, goal, dataclasses.replace(settings, opt_level=level)) for level in LEVELS]
    models = [variant.model for variant in variants]
    times: list[list[float]] | None = None
    problem = ""
    try:
        given = example_inputs(models[0]._built) if inputs is None else inputs
        times = call_times(models, as_ordered(given, models[0]), repeat)
    except TilewrightError as error:
        if inputs is not None:
            raise
        problem = f"Calls were not measured: random inputs do not suit the model ({error})."
    reports = []
    for place, (level, variant) in enumerate(zip(LEVELS, variants, strict=True)):
        same = next((LEVELS[lower] for lower in range(place) if variant.same_code(variants[lower])), None)
        ours = None if times is None else times[place]
        reports.append(
            LevelReport(
                level=level,
                passes=_uses(variant, goal, dataclasses.replace(settings, opt_level=level)),
                build_seconds=variant.seconds,
                pass_seconds=variant.timing.total(),
                call_seconds=None if ours is None else statistics.median(ours),
                speedup=None if ours is None or times is None else ratio(times[0], ours),
                kernels=sum(len(module) - 1 for module in variant.modules()),
                arena_bytes=_arena(variant, given),
                weight_bytes=_weights(variant),
                same_as=same,
            )
        )
    return OptReport(reports, goal, problem)


def _uses(variant: Variant, target: Target, settings: BuildSettings) -> tuple[PassUse, ...]:
    context = settings.context()
    found: dict[str, PassUse] = {}
    for info in pipeline_passes(target):
        runs = variant.changes.runs.get(info.name, [])
        reason = ""
        if not runs:
            disabled = info.name in settings.disabled_pass
            reason = "disabled" if disabled else f"from opt_level {info.opt_level} on"
            if context.pass_enabled(info):
                reason = "its pipeline did not run"
        found[info.name] = PassUse(info.name, len(runs), sum(runs), reason)
    for name, runs in variant.changes.runs.items():  # passes that others require, or run themselves
        found.setdefault(name, PassUse(name, len(runs), sum(runs)))
    return tuple(found.values())


def _arena(variant: Variant, inputs: Sequence[Any] | Mapping[str, Any]) -> int:
    """Return the bytes of the arena for the sizes of ``inputs``; sizes that the model computes itself count as 1."""
    model = variant.model
    signature = model.signature
    named, ordered = (inputs, ()) if isinstance(inputs, Mapping) else ({}, inputs)
    _, sizes = signature.check(signature.arrange(tuple(ordered), dict(named)), False)
    step = model._step
    return int(step.arena_bytes(*sizes, *[1] * (len(step.symbols) - len(sizes)))[0])


def _weights(variant: Variant) -> int:
    constants = {
        id(constant): constant.nbytes
        for segment in variant.model._built.segments
        for constant in segment.lowered().constants
    }
    return sum(constants.values())
