"""The group of commands, and the entry point of the process."""

from __future__ import annotations

import click

import tilewright as tw
from tilewright.cli import bench, bisect, compile_, inspect_, passes_, profile, report, run
from tilewright.cli.console import Commands, Settings


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tw.__version__, prog_name="tilewright")
@click.option("--debug", is_flag=True, help="Show where an error comes from.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress and no notes.")
@click.pass_context
def cli(context: click.Context, debug: bool, quiet: bool) -> None:
    """Compile models for the CPU, run them, and read what the compiler made.

    MODEL is an .onnx file, FILE.py:FUNCTION (a function without arguments that gives an IRModule), IR text (.ir,
    .txt), or an artifact (.tw) that the command `compile` has made.

    Exit codes: 0; 1 the model or an input is refused, or fails; 2 wrong use; 3 results differ; 130 interrupted.
    """
    context.obj = Settings(debug, quiet)


for _command in (
    run.run,
    compile_.compile_model,
    bench.bench,
    profile.profile,
    report.report,
    inspect_.inspect,
    passes_.passes,
    bisect.bisect,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; ends the process."""
    cli(prog_name="tilewright")
