"""``tilewright compile``: write a model as an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tilewright.cli.console import note, working
from tilewright.cli.models import load_model
from tilewright.cli.options import BuildOptions, with_build, with_model, with_settings, with_shapes
from tilewright.cli.shapes import values_of
from tilewright.passes.tables import format_bytes


@click.command("compile")
@with_model
@with_shapes
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The artifact.")
@click.option(
    "--with-graph",
    is_flag=True,
    help="Include the graph with its unpacked weights, so that `profile` works for the artifact. Up to twice as large.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random weights.")
@with_build
@with_settings
def compile_model(
    model: tuple[Path, str],
    random_weights: bool,
    shapes: Sequence[str],
    values: Sequence[str],
    output: Path,
    with_graph: bool,
    seed: int,
    build: BuildOptions,
) -> None:
    """Compile MODEL to an artifact, a file.

    The artifact contains machine code and packed weights, and runs without compiling anything. The code is for this
    processor unless --mcpu names another, possibly one whose code cannot run here. Code for x86-64-v3 runs on any
    processor with AVX2.
    """
    found = load_model(model, shapes, random_weights, seed, values)
    found.graph("compile")
    others = [name for name in values_of(values) if name not in found.fixed]
    if others:
        raise click.BadParameter(
            f"{', '.join(others)}: only integers, single or in a vector, become part of an .onnx model",
            param_hint="--value",
        )
    left = ", ".join([*found.narrowed.shapes, *found.narrowed.sizes])
    if left:
        raise click.BadParameter(
            f"{left}: only inputs of .onnx models are narrowed; an artifact serves all sizes of a symbolic dimension",
            param_hint="--shape",
        )
    built, seconds = found.build(build)
    with working("writing"):
        built.export(output, graph=with_graph)
    size = format_bytes(output.stat().st_size, signed=False)
    note(f"{found.name}: {seconds.in_words()}; wrote {output}, {size}")
