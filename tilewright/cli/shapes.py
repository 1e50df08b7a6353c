"""Sizes on the command line: of inputs, and of symbolic dimensions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import click

from tilewright.cli.options import pair

#: One dimension of an input: a size, a name, or None for what the model says.
Entry = int | str | None


@dataclasses.dataclass(frozen=True)
class Narrowed:
    """What ``--shape`` says.

    Attributes:
        shapes: by the names of inputs.
        sizes: by the names of symbolic dimensions.
    """

    shapes: Mapping[str, tuple[Entry, ...]]
    sizes: Mapping[str, int]


def split_shapes(texts: Iterable[str], inputs: Sequence[str]) -> Narrowed:
    """The values of ``--shape``, which are of an input where it has that name.

    Raises:
        click.BadParameter: a value has no such form, or its name is no input's and it is no single size.
    """
    shapes: dict[str, tuple[Entry, ...]] = {}
    sizes: dict[str, int] = {}
    for text in texts:
        name, value = pair(text, "--shape", "NAME=SIZES")
        if name in inputs or "," in value:
            shapes[name] = tuple(map(_entry, value.split(",")))
        else:
            sizes[name] = size(value, f"--shape {name}")
    check_names(shapes, inputs, "input", "--shape")
    return Narrowed(shapes, sizes)


def sizes_of(texts: Iterable[str]) -> dict[str, int]:
    """The values of ``--dim``."""
    return {name: size(value, f"--dim {name}") for name, value in (pair(text, "--dim") for text in texts)}


def size(text: str, where: str) -> int:
    """A size.

    Raises:
        click.BadParameter: it is none.
    """
    if not text.isdecimal():
        raise click.BadParameter(f"expected a size, found {text!r}", param_hint=where)
    return int(text)


def check_names(given: Iterable[str], known: Sequence[str], what: str, option: str) -> None:
    """Refuse a name that the model does not have.

    Raises:
        click.BadParameter: there is one.
    """
    for name in given:
        if name not in known:
            found = ", ".join(known) or "none"
            raise click.BadParameter(f"the model has no {what} {name!r} (it has: {found})", param_hint=option)


def _entry(text: str) -> Entry:
    text = text.strip()
    return None if text == "?" else int(text) if text.isdecimal() else text
