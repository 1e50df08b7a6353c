"""Prepare the arrays that a model is run on: read them from files, generate the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np

import tilewright as tw
from tilewright.cli.console import note, say_table
from tilewright.cli.models import BuildSeconds, Model
from tilewright.cli.options import BuildOptions, InputOptions
from tilewright.cli.pictures import is_picture, read_picture
from tilewright.cli.shapes import check_names, sizes_of, symbol_names, values_of
from tilewright.graphir.dims import symbol
from tilewright.runtime.conditions import Condition
from tilewright.runtime.observe.example_inputs import example_array
from tilewright.runtime.observe.example_sizes import find_sizes
from tilewright.runtime.signature import Argument, Signature
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.expr import Expr

Array = np.ndarray[Any, Any]


def built_with_inputs(
    model: Model, build: BuildOptions, options: InputOptions
) -> tuple[tw.Executable, BuildSeconds, dict[str, Array]]:
    """Return the compiled model, the seconds that compiling took, and its inputs, which are there before anything is
    compiled: wrong files and sizes are found first.

    Raises:
        click.UsageError, TilewrightError, OSError, ValueError: as :func:`read_inputs` and ``Model.build``.
    """
    found = model.interface()
    if found is not None:
        arrays = read_inputs(model, *found, options)
    built, seconds = model.build(build)
    if found is None:
        arrays = read_inputs(model, built.signature, [], options)
    return built, seconds, arrays


def read_inputs(
    model: Model, signature: Signature, conditions: Sequence[Condition], options: InputOptions
) -> dict[str, Array]:
    """Return an array for each input. Sizes of symbolic dimensions in the files also hold for generated inputs, which
    are standard normal numbers, or integers from 0 to 9. Sizes that nothing gives are searched among those that fulfil
    the conditions, and a note says them.

    Raises:
        click.BadParameter: the model has no such input or dimension.
        InputError, OSError, ValueError: a file contains no arrays, ``--shape`` does not fit the model, or it does not
            accept the sizes.
    """
    read, pictures = _files(options.files, [argument.name for argument in signature.inputs])
    for argument in signature.inputs:
        if argument.name in read:
            read[argument.name] = _converted(argument, read[argument.name], options.convert)
    symbols = [symbol.name for symbol in signature.symbols]
    named = symbol_names(sizes_of(options.dims), symbols)
    check_names(named, symbols, "dim", "--dim")
    check_names(model.narrowed.sizes, symbols, "input or dim", "--shape")
    known: dict[Expr, int] = {symbol(name): size for name, size in named.items()}
    known |= model.narrowed.sizes_in(signature)
    for argument in signature.inputs:
        array = read.get(argument.name)
        if array is not None and array.ndim == argument.type.ndim:
            pairs = zip(argument.type.shape, array.shape, strict=True)
            known |= {dim: size for dim, size in pairs if not isinstance(dim, int)}
    values = {name: value for name, value in values_of(options.values).items() if name not in model.fixed}
    check_names(values, [argument.name for argument in signature.inputs], "input", "--value")
    for argument in signature.inputs:
        value = values.get(argument.name)
        if value is not None and value.ndim:
            if value.ndim != argument.type.ndim:
                raise InputError(f"--value {argument.name}: expected {argument}, found {value.ndim} dimensions")
            pairs = zip(argument.type.shape, value.shape, strict=True)
            known |= {dim: size for dim, size in pairs if not isinstance(dim, int)}
    for argument in signature.inputs:
        if argument.name in pictures:
            array = read_picture(argument, pictures[argument.name], known, options.scaling)
            read[argument.name] = array
            pairs = zip(argument.type.shape, array.shape, strict=True)
            known |= {dim: size for dim, size in pairs if not isinstance(dim, int)}
    given = {symbol: known[symbol] for symbol in signature.symbols if symbol in known}
    sizes = find_sizes(signature, conditions, given)
    if len(sizes) > len(given):
        chosen = ", ".join(f"{symbol.name}={size}" for symbol, size in sizes.items() if symbol not in given)
        note(f"sizes that nothing gives are chosen: {chosen} (others: -d NAME=SIZE)")
    asked = [name for name in model.sized_by() if name not in read and name not in values]
    if asked:
        note(
            f"sizes depend on the values of {', '.join(map(repr, asked))}, which are made up: "
            + " ".join(f"--value {name}=..." for name in asked)
        )
    generator = np.random.default_rng(options.seed)
    made = {argument.name: example_array(argument.type, sizes, generator) for argument in signature.inputs}
    for name, value in values.items():
        made[name] = np.broadcast_to(value, made[name].shape).astype(made[name].dtype)
    return {argument.name: read.get(argument.name, made[argument.name]) for argument in signature.inputs}


def note_nonnumbers(named: Mapping[str, Array]) -> None:
    """Say which results have elements that are not numbers, or infinite."""
    for name, array in named.items():
        if array.dtype.kind in "fV" or array.dtype.name.startswith(("bfloat", "float")):
            values = array.astype(np.float64)
            for what, count in (("NaN", int(np.isnan(values).sum())), ("infinite", int(np.isinf(values).sum()))):
                if count:
                    note(f"result {name!r}: {count} of {values.size} elements are {what}")


def sizes_in(signature: Signature, arrays: Mapping[str, Array]) -> dict[str, int]:
    """Return the sizes of the symbolic dimensions in these arrays."""
    _, sizes = signature.check([arrays[argument.name] for argument in signature.inputs], convert=False)
    return {symbol.name: size for symbol, size in zip(signature.symbols, sizes, strict=True)}


def _files(texts: Sequence[str], names: Sequence[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """Load the arrays of the files that ``--input`` names; return them, and the paths of images, which are read when
    sizes are known."""
    found: dict[str, Array] = {}
    pictures: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if equals and name and path:
            check_names([name], names, "input", "--input")
        elif not equals and text.endswith(".npz"):
            with np.load(text, allow_pickle=False) as several:
                check_names(several.files, names, "input", f"--input {text}")
                found |= {each: several[each] for each in several.files}
            continue
        elif not equals and len(names) == 1:
            name, path = names[0], text
        elif not equals:
            takes = f"the model takes {', '.join(names)}" if names else "the model takes no inputs"
            raise click.BadParameter(f"expected NAME=FILE, found {text!r}; {takes}", param_hint="--input")
        else:
            raise click.BadParameter(f"expected NAME=VALUE, found {text!r}", param_hint="--input")
        if is_picture(path):
            pictures[name] = path
        else:
            found[name] = _array(path)
    return found, pictures


def _array(path: str) -> Array:
    """Load the one array of a file."""
    loaded = np.load(path, allow_pickle=False)
    if not isinstance(loaded, np.ndarray):
        raise InputError(f"{path}: expected one array (.npy), found several; give the file without a name")
    return loaded


def _converted(argument: Argument, array: Array, convert: bool) -> Array:
    """Return an array of a file in the element type of its input.

    Raises:
        InputError: it has another one, and ``convert`` is not set or both are not floating-point types.
    """
    wanted = argument.type.dtype
    if array.dtype == wanted.numpy:
        return array
    is_float = np.issubdtype(array.dtype, np.floating) or array.dtype.name.startswith(("bfloat", "float"))
    if not (is_float and wanted.is_float):
        raise InputError(f"input {argument.name!r}: expected {wanted!s}, found {array.dtype}")
    if not convert:
        raise InputError(f"input {argument.name!r}: expected {wanted!s}, found {array.dtype}; --convert rounds floats")
    return array.astype(wanted.numpy)


def say_arrays(title: str, arrays: Mapping[str, Array]) -> None:
    """Print one line for each array: its type, its shape, and the range of its values."""
    header = ("name", "type", "shape", "least", "mean", "greatest")
    say_table(title, header, [[name, *_described(array)] for name, array in arrays.items()], header[3:])


def _described(array: Array) -> list[str]:
    values = array.astype(np.float64)
    numbers = [f"{f(values):.6g}" for f in (np.min, np.mean, np.max)] if array.size else ["-"] * 3
    return [str(array.dtype), str(array.shape), *numbers]


def flat_results(signature: Signature, results: Any) -> dict[str, Array]:
    """Return the arrays that a call returned, by the names of the results."""

    def flat(value: Any) -> list[Array]:
        return [array for part in value for array in flat(part)] if isinstance(value, tuple) else [value]

    return dict(zip(signature.result_names, flat(results), strict=True))
