"""Define the group of commands, and the entry point of the process."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping

import click

import tilewright as tw
from tilewright.cli.console import Commands, Settings


class _LoadedOnUse(MutableMapping[str, click.Command]):
    """Maps names to commands; imports the module of a command when the command is looked up.

    Args:
        places: the module in this package and the name there, for each command.
    """

    def __init__(self, places: Mapping[str, tuple[str, str]]) -> None:
        self._places = dict(places)
        self._commands: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._commands:
            module, attribute = self._places[name]
            self._commands[name] = getattr(importlib.import_module(f"tilewright.cli.{module}"), attribute)
        return self._commands[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._places[name] = ("", "")
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._commands.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


_COMMANDS = _LoadedOnUse(
    {
        "bench": ("bench", "bench"),
        "bisect": ("bisect", "bisect"),
        "compile": ("compile_", "compile_model"),
        "explain": ("explain", "explain"),
        "inspect": ("inspect_", "inspect"),
        "ir": ("ir_", "ir"),
        "passes": ("passes_", "passes"),
        "profile": ("profile", "profile"),
        "report": ("report", "report"),
        "run": ("run", "run"),
    }
)


@click.group(cls=Commands, commands=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tw.__version__, prog_name="tilewright")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress and no notes.")
@click.pass_context
def cli(context: click.Context, debug: bool, quiet: bool) -> None:
    """Compile models for the CPU, run them, and inspect the generated code.

    MODEL is an .onnx file, FILE.py:FUNCTION (a function without arguments that returns an IRModule), IR text (.ir,
    .txt), or an artifact (.tw) written by the command `compile`.

    Exit codes: 0 success; 1 the model or an input is rejected, or fails; 2 usage error; 3 results differ; 130
    interrupted.
    """
    context.obj = Settings(debug, quiet)


def main() -> None:
    """Run the command line and end the process."""
    cli(prog_name="tilewright")
