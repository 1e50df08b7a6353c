"""Write the reference of all commands as Markdown: ``python -m tilewright.cli.reference docs/cli.md``."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import click

from tilewright.cli.group import cli

#: The text below this line of the page is generated here.
MARK = "<!-- The rest is written by `python -m tilewright.cli.reference docs/cli.md`. -->\n"


def reference() -> str:
    """Return one section for each command."""
    return "".join(_section(name, command) for name, command in sorted(cli.commands.items()))


def main(path: Path) -> None:
    """Write the sections into the page, below its mark."""
    head, mark, _ = path.read_text(encoding="utf-8").partition(MARK)
    path.write_text(head + mark + reference(), encoding="utf-8")


def _section(name: str, command: click.Command) -> str:
    arguments = [str(param.name).upper() for param in command.params if isinstance(param, click.Argument)]
    options = [param for param in command.params if isinstance(param, click.Option)]
    usage = " ".join([f"tilewright {name}", *arguments])
    rows = "".join(_row(option) for option in options)
    return f"\n## {name}\n\n`{usage}`\n\n{inspect.cleandoc(command.help or '')}\n\n| option | |\n|---|---|\n{rows}"


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    metavar = "" if option.is_flag else f" `{_metavar(option)}`"
    said = [option.help or "", "Required." if option.required else ""]
    if option.show_default and not option.is_flag:
        said.append(f"Default: {option.default}.")
    if option.multiple:
        said.append("May be given several times.")
    return f"| {names}{metavar} | {' '.join(filter(None, said))} |\n"


def _metavar(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return " or ".join(map(str, option.type.choices))
    return "FILE" if isinstance(option.type, click.Path) else "N" if option.type.name.startswith("integer") else "X"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
