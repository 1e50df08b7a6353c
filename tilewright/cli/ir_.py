"""``tilewright ir``: print a model, or one of its kernels, after a stage of its compilation."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from pathlib import Path

import click

import tilewright as tw
from tilewright.cli.console import note, say_table
from tilewright.cli.models import load_model
from tilewright.cli.options import BuildOptions, with_build, with_model, with_settings, with_shapes
from tilewright.cli.shapes import values_of
from tilewright.graphir.origins import Origin
from tilewright.passes.lower.kernel_calls import kernel_calls
from tilewright.tensorir.errors import ArgumentValueError

#: What is printed where no stage is named: of a model, and of a kernel.
_STAGE, _STAGE_OF_KERNEL = "optimized", "scheduled"


@click.command("ir")
@with_model
@with_shapes
@click.option(
    "--stage",
    metavar="NAME",
    help="graph, optimized, tensor, scheduled, lowered, llvm, assembly; numba for that target "
    f"[default: {_STAGE}, and {_STAGE_OF_KERNEL} with --kernel].",
)
@click.option("--kernel", metavar="NAME", help="Print this kernel alone, from the stage tensor on.")
@click.option("--list", "kernels", is_flag=True, help="List the kernels instead.")
@click.option("--inline", is_flag=True, help="Write large constants in full, so that the text of a graph is a MODEL.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random weights.")
@with_build
@with_settings
def ir(
    model: tuple[Path, str],
    random_weights: bool,
    shapes: Sequence[str],
    values: Sequence[str],
    stage: str | None,
    kernel: str | None,
    kernels: bool,
    inline: bool,
    seed: int,
    build: BuildOptions,
) -> None:
    """Print MODEL after a stage of its compilation.

    Print graphs, loops, LLVM IR or assembly, of the whole model or of one kernel. An artifact must be compiled with
    --with-graph.
    """
    found = load_model(model, shapes, random_weights, seed, values)
    for option, left in (
        ("--shape", [*found.narrowed.shapes, *found.narrowed.sizes]),
        ("--value", [name for name in values_of(values) if name not in found.fixed]),
    ):
        if left:
            raise click.BadParameter(f"{', '.join(left)}: only .onnx models are narrowed", param_hint=option)
    built, seconds = found.build(build)
    note(f"{found.name}: {seconds.in_words()}")
    if kernels:
        _list(built)
        return
    wanted = stage or (_STAGE_OF_KERNEL if kernel else _STAGE)
    if wanted not in built.stages:
        raise click.BadParameter(
            f"unknown stage {wanted!r}; expected one of {', '.join(built.stages)}", param_hint="--stage"
        )
    try:
        text = built.ir(wanted, "inline" if inline else "digest", kernel=kernel)
    except ArgumentValueError as error:  # not that of an artifact without its graph
        raise click.BadParameter(str(error), param_hint="--kernel") from error
    click.echo(text.rstrip("\n"))


def _list(built: tw.Executable) -> None:
    counts: collections.Counter[str] = collections.Counter()
    operators: dict[str, dict[Origin, None]] = {}
    for segment in built._built.segments:
        for call in kernel_calls(segment.lowered().modules["lowered"]):
            counts[call.kernel] += 1
            operators.setdefault(call.kernel, {}).update(dict.fromkeys(call.origins))
    rows = [[name, str(count), ", ".join(map(str, operators[name]))] for name, count in counts.items()]
    say_table("", ("kernel", "calls", "operators"), rows, ("calls",))
