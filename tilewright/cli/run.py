"""``tilewright run``: compile a model, call it, and show its inputs and results."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import click
import numpy as np

from tilewright.cli.console import counting, note, say, working
from tilewright.cli.inputs import built_with_inputs, flat_results, note_nonnumbers, say_arrays
from tilewright.cli.models import load_model, timed
from tilewright.cli.options import BuildOptions, InputOptions, with_build, with_inputs, with_model, with_settings
from tilewright.passes.tables import format_seconds


@click.command()
@with_model
@with_inputs
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here (.npz).")
@click.option("-r", "--repeat", type=click.IntRange(1), default=10, show_default=True, help="Calls to time.")
@with_build
@with_settings
def run(
    model: tuple[Path, str],
    random_weights: bool,
    inputs: InputOptions,
    output: Path | None,
    repeat: int,
    build: BuildOptions,
) -> None:
    """Compile MODEL and run it.

    Inputs without a file are random numbers: standard normal, or integers from 0 to 9.
    """
    found, loading = timed(lambda: load_model(model, inputs.shapes, random_weights, inputs.seed, inputs.values))
    built, building, arrays = built_with_inputs(found, build, inputs)
    with working("first call"):
        results, first = timed(lambda: built(*arrays.values()))
    times: list[float] = []
    with counting("calling", repeat) as shown:
        for number in range(repeat):
            times.append(timed(lambda: built(*arrays.values()))[1])
            shown(number + 1)
    named = flat_results(built.signature, results)
    say_arrays("inputs", arrays)
    say()
    say_arrays("results", named)
    say()
    say(
        f"loaded in {format_seconds(loading)}, {building.in_words()}; first call "
        f"{format_seconds(first)}, then {format_seconds(statistics.median(times))} (median of {repeat}, least "
        f"{format_seconds(min(times))})"
    )
    note_nonnumbers(named)
    if output is not None:
        save: Any = np.savez
        save(output, **named)
        note(f"wrote {output}")
