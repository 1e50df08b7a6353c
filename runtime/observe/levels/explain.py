"""Measure the build time that each pass costs and the run time that it gains, by building without it."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.diagnostics import suggestion
from tilewright.passes.tables import format_seconds, html_table, table
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
from tilewright.tensorir.errors import TilewrightError, UnknownPassError
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class PassEffect:
    """The effect of one pass on a model.

    Attributes:
        name: name of the pass.
        runs: number of its runs.
        seconds: time of the build that is spent in the pass itself.
        build_seconds: build time with the pass minus that without it (negative if it reduces the work of others).
        slowdown: time of a call without it divided by that with it; 1 if the code is the same, None if it was not
            measured.
        same_code: whether the code is the same without it.
        problem: error of the build without it; empty if there is none.
    """

    name: str
    runs: int
    seconds: float
    build_seconds: float
    slowdown: float | None
    same_code: bool
    problem: str = ""


class PassEffects:
    """The effect of each pass on a model, made by :func:`explain_passes`.

    Attributes:
        effects: the effects of the passes, in order of decreasing gain of a call.
        build_seconds: time of the build with all of them.
        call_seconds: median time of a call with all of them.
        opt_level: the optimization level of the build.
    """

    header = ("pass", "runs", "own time", "build with it", "call without it", "")

    def __init__(
        self, effects: Sequence[PassEffect], build_seconds: float, call_seconds: float, opt_level: int
    ) -> None:
        self.effects = sorted(effects, key=lambda effect: -(effect.slowdown or 0.0))
        self.build_seconds = build_seconds
        self.call_seconds = call_seconds
        self.opt_level = opt_level

    def rows(self) -> list[list[str]]:
        """Return the lines of the table."""
        return [
            [
                effect.name,
                str(effect.runs),
                format_seconds(effect.seconds),
                f"{effect.build_seconds * 1e3:+.1f} ms",
                "-" if effect.slowdown is None else f"{effect.slowdown:.2f} times",
                effect.problem or ("the same code" if effect.same_code else ""),
            ]
            for effect in self.effects
        ]

    def render(self) -> str:
        """Write a table as text."""
        whole = (
            f"opt_level {self.opt_level}, with all passes: built in {format_seconds(self.build_seconds)}, "
            f"a call takes {format_seconds(self.call_seconds)}"
        )
        return f"{table(self.header, self.rows())}\n\n{whole}"

    def as_dict(self) -> dict[str, Any]:
        """Return ``{opt_level, build_seconds, call_seconds, effects}``, plain data."""
        return {
            "opt_level": self.opt_level,
            "build_seconds": self.build_seconds,
            "call_seconds": self.call_seconds,
            "effects": [dataclasses.asdict(effect) for effect in self.effects],
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return ``as_dict`` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def __str__(self) -> str:
        return self.render()

    def _repr_html_(self) -> str:
        return html_table(self.header, self.rows())


def explain_passes(
    mod: IRModule | Function,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    passes: Sequence[str] | None = None,
    target: Target | str | None = None,
    repeat: int = 20,
    progress: Callable[[str, int, int], None] | None = None,
) -> PassEffects:
    """Build a model once for each pass without that pass, and compare build, code and calls.

    This is an ablation: the gain of a pass is how much slower calls are without it, with all others in place. Passes
    that need each other are each credited with their joint gain. Passes without which no code can be generated, and
    those that the current context disables, are not measured. Calls take turns with those of the unchanged model.

    Args:
        mod: the model.
        inputs: inputs of the calls, by position or by name; default: random numbers, and 1 for symbolic dimensions.
        passes: the names of the passes to measure; by default all that changed something.
        target: the target of the builds; by default :meth:`Target.current`.
        repeat: the number of measured calls for each pass.
        progress: called before each build without a pass, with the pass's name, its number and the number of passes.

    Raises:
        UnknownPassError: ``passes`` names a pass that does not run in this build, or that is necessary.
        InputError, ExecutionError: the model cannot be called with the inputs.
        TilewrightError: as :func:`tilewright.build`.
    """
    goal = Target(Target.current() if target is None else target)
    settings = BuildSettings.of(PassContext.current())
    whole = build_variant(mod, goal, settings)
    ran = whole.changes.runs
    optional = [info.name for info in pipeline_passes(goal) if not info.essential and info.name in ran]
    names = list(dict.fromkeys(name for name in optional if any(ran[name])))
    if passes is not None:
        for name in passes:
            if name not in optional:
                raise UnknownPassError(
                    f"passes: {name!r} is no pass of this build that may be left out.{suggestion(name, optional)}"
                )
        names = list(passes)
    given = as_ordered(example_inputs(whole.model._built) if inputs is None else inputs, whole.model)
    own = {total.name: total.self_time for total in whole.timing.flat()}
    effects = []
    for number, name in enumerate(names):
        if progress is not None:
            progress(name, number, len(names))
        without = dataclasses.replace(settings, disabled_pass=(*settings.disabled_pass, name))
        effects.append(_effect(mod, goal, without, name, whole, given, own.get(name, 0.0), repeat))
    (times,) = call_times([whole.model], given, repeat)
    return PassEffects(effects, whole.seconds, statistics.median(times), settings.opt_level)


def _effect(
    mod: IRModule | Function,
    target: Target,
    settings: BuildSettings,
    name: str,
    whole: Variant,
    inputs: Sequence[Any],
    own: float,
    repeat: int,
) -> PassEffect:
    runs = len(whole.changes.runs.get(name, []))
    try:
        variant = build_variant(mod, target, settings)
        same = variant.same_code(whole)
        slowdown = 1.0
        if not same:
            without, usual = call_times([variant.model, whole.model], inputs, repeat)
            slowdown = ratio(without, usual)
    except TilewrightError as error:  # report it and go on with the others
        return PassEffect(name, runs, own, 0.0, None, False, f"without it: {type(error).__name__}: {error}")
    return PassEffect(name, runs, own, whole.seconds - variant.seconds, slowdown, same)
