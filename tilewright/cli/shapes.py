"""Parse sizes on the command line: of inputs, and of symbolic dimensions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import click
import numpy as np

from tilewright.cli.options import pair, plain_value
from tilewright.graphir.dims import symbol
from tilewright.runtime.signature import Argument, Signature
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.expr import Expr

#: One dimension of an input: a size, a name, or None for the model's own.
Entry = int | str | None


@dataclasses.dataclass(frozen=True)
class Narrowed:
    """The values of ``--shape``.

    Attributes:
        shapes: the shapes of inputs, by name.
        sizes: the sizes of symbolic dimensions, by name.
    """

    shapes: Mapping[str, tuple[Entry, ...]]
    sizes: Mapping[str, int]

    def sizes_in(self, signature: Signature) -> dict[Expr, int]:
        """Return the sizes of symbolic dimensions that they set in a model.

        Raises:
            InputError: the shape of an input does not fit the model.
        """
        named = symbol_names(self.sizes, [symbol.name for symbol in signature.symbols])
        known: dict[Expr, int] = {symbol(name): size for name, size in named.items()}
        for argument in signature.inputs:
            if argument.name in self.shapes:
                known |= _narrowed(argument, self.shapes[argument.name])
        return known


def _narrowed(argument: Argument, entries: Sequence[Entry]) -> dict[Expr, int]:
    """Return the sizes of symbolic dimensions that ``--shape`` sets through the shape of an input."""
    dims = argument.type.shape
    wanted = ",".join("?" if entry is None else str(entry) for entry in entries)
    fits = len(dims) == len(entries) and all(
        not isinstance(entry, int) or not isinstance(dim, int) or dim == entry
        for dim, entry in zip(dims, entries, strict=True)
    )
    if not fits:
        raise InputError(f"--shape {argument.name}={wanted} does not fit {argument}")
    return {
        dim: entry
        for dim, entry in zip(dims, entries, strict=True)
        if isinstance(entry, int) and not isinstance(dim, int)
    }


def split_shapes(texts: Iterable[str], inputs: Sequence[str]) -> Narrowed:
    """Parse the values of ``--shape``; a name that an input has means the input, not a dimension.

    Raises:
        click.BadParameter: a value has another form, or is more than a size though no input has its name.
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
    """Parse the values of ``--dim``."""
    return {name: size(value, f"--dim {name}") for name, value in (pair(text, "--dim") for text in texts)}


def values_of(texts: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Parse the values of ``--value``: numbers, or lists of them.

    Raises:
        click.BadParameter: a value is neither.
    """
    found = {}
    for text in texts:
        name, value = pair(text, "--value")
        try:
            array = np.asarray(plain_value(value))
        except ValueError:  # lists of different lengths
            array = np.asarray(value)
        if array.dtype.kind not in "iufb":
            raise click.BadParameter(f"expected a number, or a list of them, found {value!r}", param_hint="--value")
        found[name] = array
    return found


def size(text: str, where: str) -> int:
    """Parse a size.

    Raises:
        click.BadParameter: the text is not a size.
    """
    if not text.isdecimal():
        raise click.BadParameter(f"expected a size, found {text!r}", param_hint=where)
    return int(text)


def symbol_names(sizes: Mapping[str, int], known: Collection[str]) -> dict[str, int]:
    """Return sizes by the names of symbolic dimensions. Names of ONNX files that are no identifiers, such as
    ``image.height``, are those of ``image_height``."""

    def own(name: str) -> str:
        identifier = re.sub(r"\W", "_", name, flags=re.ASCII)
        return identifier if name not in known and identifier in known else name

    return {own(name): size for name, size in sizes.items()}


def check_names(given: Iterable[str], known: Sequence[str], what: str, option: str) -> None:
    """Check that the model has all of the given names.

    Raises:
        click.BadParameter: the model lacks one.
    """
    for name in given:
        if name not in known:
            found = ", ".join(known) or "none"
            raise click.BadParameter(f"the model has no {what} {name!r} (it has: {found})", param_hint=option)


def _entry(text: str) -> Entry:
    text = text.strip()
    return None if text == "?" else int(text) if text.isdecimal() else text
