"""``tilewright profile``: measure the cost of each kernel of a model."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli.console import note, say, width, working
from tilewright.cli.inputs import built_with_inputs
from tilewright.cli.models import load_model
from tilewright.cli.options import BuildOptions, InputOptions, with_build, with_inputs, with_model, with_settings
from tilewright.runtime.observe.profile.profile import ORDERS

#: Lines of the table, unless --limit or --all says otherwise.
LINES = 15

_FILE = click.Path(dir_okay=False, path_type=Path, allow_dash=True)


@click.command()
@with_model
@with_inputs
@click.option("-r", "--repeat", type=click.IntRange(1), default=20, show_default=True, help="Calls to measure.")
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default=ORDERS[0],
    show_default=True,
    help="Order lines by time or by execution, or show all calls of a kernel in one line.",
)
@click.option("--limit", type=click.IntRange(1), default=LINES, show_default=True, help="Largest number of lines.")
@click.option("--all", "every", is_flag=True, help="Show all lines, and all columns in full.")
@click.option(
    "--json", "json_file", type=_FILE, help="Write the whole profile as JSON; '-' prints it instead of the table."
)
@click.option("--trace", type=_FILE, help="Write a Chrome trace, for Perfetto.")
@with_build
@with_settings
def profile(
    model: tuple[Path, str],
    random_weights: bool,
    inputs: InputOptions,
    repeat: int,
    order: str,
    limit: int,
    every: bool,
    json_file: Path | None,
    trace: Path | None,
    build: BuildOptions,
) -> None:
    """Measure the cost of each kernel of MODEL.

    The table also shows how close each kernel is to the machine's limits; below it are the totals by type of operator.
    On a terminal it is as wide as that. An artifact must be compiled with --with-graph.
    """
    found = load_model(model, inputs.shapes, random_weights, inputs.seed, inputs.values)
    built, seconds, arrays = built_with_inputs(found, build, inputs)
    note(f"{found.name}: {seconds.in_words()}")
    with working("profiling"):
        measured = built.profile(*arrays.values(), repeat=repeat)
    if not any(file is not None and str(file) == "-" for file in (json_file, trace)):
        say(measured.render(order, None if every else limit, None if every else width()))
        say()
        say(measured.render_totals())
    for file, text in ((json_file, measured.to_json), (trace, measured.to_chrome_trace)):
        if file is None:
            continue
        if str(file) == "-":
            click.echo(text())
        else:
            file.write_text(text(), encoding="utf-8")
            note(f"wrote {file}")
