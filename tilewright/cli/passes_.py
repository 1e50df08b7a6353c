"""``tilewright passes``: list the passes and their options."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import click

from tilewright.cli.console import say, say_json, say_table
from tilewright.cli.options import with_settings, wrong_use
from tilewright.passes.base import Pass
from tilewright.passes.config import default_config
from tilewright.passes.context import PassContext
from tilewright.passes.registry import get_pass, list_passes
from tilewright.tensorir.errors import UnknownPassError

#: The docstring of a class whose module describes the pass begins so.
_ELSEWHERE = "See the module."


@click.command()
@click.argument("name", required=False)
@click.option("--configs", is_flag=True, help="List the options that --config sets.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_settings
def passes(name: str | None, configs: bool, as_json: bool) -> None:
    """List the passes, or describe the pass NAME.

    A pass runs from its optimization level (-O) on. "always" marks passes that code generation depends on.
    """
    if name is not None and configs:
        raise click.UsageError("NAME and --configs exclude each other: the description of a pass lists its options")
    if name is not None:
        with wrong_use("NAME", UnknownPassError):
            _describe(get_pass(name), as_json)
    elif configs:
        _list_configs(as_json)
    else:
        found = [facts(get_pass(each)) for each in list_passes()]
        if as_json:
            say_json(found)
        else:
            rows = [[each["name"], _level(each), each["description"]] for each in found]
            say_table("", ("pass", "level", "what it does"), rows)


def facts(found: Pass) -> dict[str, Any]:
    """Return the facts about a pass that fit a line."""
    return {
        "name": found.info.name,
        "opt_level": found.info.opt_level,
        "required": list(found.info.required),
        "always": found.info.essential,
        "description": _description(found),
    }


def options_of(found: Pass) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the options that the module of a pass registers."""
    return {
        key: fields
        for key, fields in PassContext.list_configs().items()
        if type(default_config(key)).__module__ == type(found).__module__
    }


def _describe(found: Pass, as_json: bool) -> None:
    known, configs = facts(found), options_of(found)
    if as_json:
        say_json({**known, "module": type(found).__module__, "text": _text(found), "config": configs})
        return
    say(f"{known['name']} (level {_level(known)}, {type(found).__module__})")
    if known["required"]:
        say(f"Runs after {', '.join(known['required'])}.")
    say()
    say(_text(found))
    if configs:
        _say_configs(configs)


def _list_configs(as_json: bool) -> None:
    configs = PassContext.list_configs()
    if as_json:
        say_json(configs)
    else:
        _say_configs(configs)


def _say_configs(configs: dict[str, dict[str, dict[str, Any]]]) -> None:
    rows = [
        [f"{key}.{name}", field["type"], str(field["default"]), field["doc"]]
        for key, fields in configs.items()
        for name, field in fields.items()
    ]
    say_table("", ("option", "type", "default", "meaning"), rows)


def _level(known: dict[str, Any]) -> str:
    return "always" if known["always"] else str(known["opt_level"])


def _text(found: Pass) -> str:
    """Return the description of a pass: its own docstring and that of its module."""
    own = (inspect.getdoc(type(found)) or "").removeprefix(_ELSEWHERE).strip()
    module = inspect.getdoc(sys.modules[type(found).__module__]) or ""
    parts = (own, module) if own and not own.startswith("``") else (module, own)
    return "\n\n".join(part for part in parts if part)


def _description(found: Pass) -> str:
    """Return the first paragraph of the description as one line."""
    title = f"``{found.info.name}``: "
    first = " ".join(_text(found).split("\n\n")[0].split()).removeprefix(title).rstrip(":.").replace("``", "`")
    return first[:1].upper() + first[1:]
