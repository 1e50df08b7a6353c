"""``tilewright explain``: say why each kernel of a model is as fast as it is."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli.console import note, say, say_json, say_table, working
from tilewright.cli.inputs import built_with_inputs
from tilewright.cli.models import load_model
from tilewright.cli.options import BuildOptions, InputOptions, with_build, with_inputs, with_model, with_settings
from tilewright.cli.profile import LINES


@click.command()
@with_model
@with_inputs
@click.option("-r", "--repeat", type=click.IntRange(1), default=20, show_default=True, help="Calls to measure.")
@click.option("--measure/--no-measure", default=True, help="Measure calls; --no-measure says only what the code shows.")
@click.option("--limit", type=click.IntRange(1), default=LINES, show_default=True, help="Largest number of kernels.")
@click.option("--all", "every", is_flag=True, help="Show all kernels, and the rules that declined each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all kernels.")
@with_build
@with_settings
def explain(
    model: tuple[Path, str],
    random_weights: bool,
    inputs: InputOptions,
    repeat: int,
    measure: bool,
    limit: int,
    every: bool,
    as_json: bool,
    build: BuildOptions,
) -> None:
    """Say why each kernel of MODEL is as fast as it is, and what would change it.

    The reasons are facts: vectors, threads, masked tails, copies between layouts, rules of the scheduler, and how close
    the kernel comes to the machine's limits. An artifact must be compiled with --with-graph.
    """
    found = load_model(model, inputs.shapes, random_weights, inputs.seed, inputs.values)
    built, seconds, arrays = built_with_inputs(found, build, inputs)
    note(f"{found.name}: {seconds.in_words()}")
    with working("explaining"):
        explained = built.explain(*arrays.values(), repeat=repeat, measure=measure)
    if as_json:
        say_json(explained.as_dict())
        return
    if every:
        say(explained.render(declined=True))
        return
    say_table("", explained.header, explained.rows(limit), numbers=("time", "share"))
    left = len(explained.kernels) - limit
    if left > 0:
        note(f"({left} more kernels: --all)")
