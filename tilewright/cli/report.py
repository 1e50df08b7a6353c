"""``tilewright report``: write one page about a model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

import tilewright as tw
from tilewright.cli.console import note, working
from tilewright.cli.inputs import built_with_inputs
from tilewright.cli.models import load_model
from tilewright.cli.options import BuildOptions, InputOptions, with_build, with_inputs, with_model, with_settings


@click.command()
@with_model
@with_inputs
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The HTML file.")
@click.option("-r", "--repeat", type=click.IntRange(1), default=20, show_default=True, help="Calls to profile.")
@click.option("--against-level", metavar="N", type=click.IntRange(0), help="Compare with a build at another level.")
@click.option("--title", help="Title of the page [default: the name of MODEL].")
@with_build
@with_settings
def report(
    model: tuple[Path, str],
    random_weights: bool,
    inputs: InputOptions,
    output: Path,
    repeat: int,
    against_level: int | None,
    title: str | None,
    build: BuildOptions,
) -> None:
    """Write a page about MODEL, its passes and kernels.

    It shows the changes of each pass, the cost of the kernels and their code, linked line by line from the operators to
    the assembly, and the memory. With --against-level it compares two builds. The file is self-contained and needs no
    network.
    """
    found = load_model(model, inputs.shapes, random_weights, inputs.seed, inputs.values)
    built, seconds, arrays = built_with_inputs(found, build, inputs)
    note(f"{found.name}: {seconds.in_words()}")
    builds = [built]
    if against_level is not None:
        other, seconds = found.build(dataclasses.replace(build, opt_level=against_level))
        note(f"{found.name} at level {against_level}: {seconds.in_words()}")
        builds.insert(0, other)
    with working("writing the report"):
        tw.report(builds, output, arrays, repeat=repeat, title=title or found.name)
    note(f"wrote {output}")
