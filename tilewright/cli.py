"""The command line: ``tilewright run model.onnx``.

Exit status: 0, 1 for a model or input that is refused, 2 for a wrong use of the command.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import tilewright as tw
from tilewright.graphir.dims import bind_dims, symbol, symbols_of
from tilewright.graphir.types import TensorType
from tilewright.runtime.signature import Argument
from tilewright.tensorir.errors import TilewrightError
from tilewright.tensorir.expr import Expr

Array = np.ndarray[Any, Any]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tw.__version__, prog_name="tilewright")
@click.option("--debug", is_flag=True, help="Show where an error comes from.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Compile models for the CPU, run them, and read what the compiler made."""
    context.obj = debug


def main() -> None:
    """Run the command line; ends the process."""
    cli(prog_name="tilewright")


@cli.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-i", "--input", "inputs", multiple=True, metavar="NAME=FILE", help="An input from a .npy file.")
@click.option("-s", "--shape", "shapes", multiple=True, metavar="NAME=1,3,h,w", help="Sizes that narrow an input.")
@click.option("-d", "--dim", "dims", multiple=True, metavar="NAME=SIZE", help="A symbolic dimension; 1 without it.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here (.npz).")
@click.option("-t", "--target", default="llvm", show_default=True, help="What to generate code for.")
@click.option(
    "-O", "--opt-level", type=click.IntRange(0, 3), default=3, show_default=True, help="How much to optimize."
)
@click.option("-r", "--repeat", type=click.IntRange(1), default=10, show_default=True, help="Calls to time.")
@click.option("--seed", type=int, default=0, show_default=True, help="For inputs that are made up.")
@click.pass_obj
def run(
    debug: bool,
    model: Path,
    inputs: Sequence[str],
    shapes: Sequence[str],
    dims: Sequence[str],
    output: Path | None,
    target: str,
    opt_level: int,
    repeat: int,
    seed: int,
) -> None:
    """Compile MODEL (an .onnx file) and run it.

    Inputs that no file is given for are random numbers: standard normal, or integers from 0 to 9.
    """
    console, errors = Console(), Console(stderr=True)
    try:
        sizes = {name: _integer(size, f"--dim {name}") for name, size in _pairs(dims, "--dim")}
        files = dict(_pairs(inputs, "--input"))
        narrowed = {name: tuple(map(_entry, entries.split(","))) for name, entries in _pairs(shapes, "--shape")}
        with errors.status("importing", spinner="dots"):
            module, importing = _timed(lambda: _load(model, narrowed))
        with errors.status("compiling", spinner="dots"), tw.PassContext(opt_level=opt_level):
            built, building = _timed(lambda: tw.build(module, target=target))
        arrays = _arrays(built.signature.inputs, files, sizes, seed)
        results, first = _timed(lambda: built(**arrays))
        times = [_timed(lambda: built(**arrays))[1] for _ in range(repeat)]
    except (TilewrightError, ValueError, OSError) as error:
        if debug:
            raise
        errors.print(f"[red]error:[/] {type(error).__name__}: ", end="")
        errors.print(str(error), markup=False, highlight=False)
        raise SystemExit(1) from None
    found = results if isinstance(results, tuple) else (results,)
    names = module["main"].attrs["results"]
    console.print(_table("inputs", arrays.items()))
    console.print(_table("results", zip(names, found, strict=True)))
    console.print(
        f"imported in {importing:.2f} s, compiled in {building:.2f} s; first call {first * 1e3:.3f} ms, "
        f"then {statistics.median(times) * 1e3:.3f} ms (median of {repeat}, least {min(times) * 1e3:.3f} ms)"
    )
    if output is not None:
        np.savez(output, **dict(zip(names, found, strict=True)))


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a function gives, and the seconds that it takes."""
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def _load(model: Path, shapes: Mapping[str, tuple[int | str | None, ...]]) -> tw.IRModule:
    if model.suffix != ".onnx":
        raise click.BadParameter(f"expected a file that ends in .onnx, found {model.name}", param_hint="MODEL")
    return tw.from_onnx(model, shapes=shapes)


def _pairs(options: Sequence[str], option: str) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in options]
    for (name, equals, value), text in zip(pairs, options, strict=True):
        if not (name and equals and value):
            raise click.BadParameter(f"expected NAME=VALUE, found {text!r}", param_hint=option)
    return [(name, value) for name, _, value in pairs]


def _integer(text: str, where: str) -> int:
    if not text.isdecimal():
        raise click.BadParameter(f"expected a size, found {text!r}", param_hint=where)
    return int(text)


def _entry(text: str) -> int | str | None:
    """One dimension of a shape: a number, a name, or ``?`` for what the model says."""
    text = text.strip()
    return None if text == "?" else int(text) if text.isdecimal() else text


def _arrays(
    arguments: Iterable[Argument], files: Mapping[str, str], sizes: Mapping[str, int], seed: int
) -> dict[str, Array]:
    """The inputs: read from files, the others made up."""
    generator = np.random.default_rng(seed)
    arguments = list(arguments)
    _check_names(files, [argument.name for argument in arguments], "input")
    _check_names(sizes, [dim.name for dim in symbols_of([d for a in arguments for d in a.type.shape])], "dim")
    read = {name: np.load(file, allow_pickle=False) for name, file in files.items()}
    known: dict[Expr, int] = {symbol(name): size for name, size in sizes.items()}
    for argument in arguments:  # what files say of symbolic dimensions holds for the inputs that are made up
        array = read.get(argument.name)
        if array is not None and array.ndim == argument.type.ndim:
            pairs = zip(argument.type.shape, array.shape, strict=True)
            known |= {dim: size for dim, size in pairs if not isinstance(dim, int)}
    return {
        argument.name: read[argument.name] if argument.name in read else _made(argument.type, known, generator)
        for argument in arguments
    }


def _check_names(given: Iterable[str], names: Sequence[str], what: str) -> None:
    for name in given:
        if name not in names:
            found = ", ".join(names) or "none"
            raise click.BadParameter(f"the model has no {what} {name!r} (it has: {found})", param_hint=f"--{what}")


def _made(found: TensorType, known: Mapping[Expr, int], generator: np.random.Generator) -> Array:
    """Random numbers of a type; symbolic dimensions that are not known are 1."""
    sizes: dict[Expr, int] = {dim: known.get(dim, 1) for dim in symbols_of(found.shape)}
    shape = tuple(int(bind_dims(dim, sizes)) for dim in found.shape)
    if found.dtype.is_float:
        return generator.standard_normal(shape).astype(found.dtype.numpy)
    return generator.integers(0, 2 if found.dtype.is_bool else 10, shape).astype(found.dtype.numpy)


def _table(title: str, arrays: Iterable[tuple[str, Array]]) -> Table:
    """One line for each array: what it is and where its values lie."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in ("name", "type", "shape"):
        table.add_column(name, overflow="fold")
    for name in ("least", "mean", "greatest"):
        table.add_column(name, justify="right")
    for name, array in arrays:
        values = array.astype(np.float64)
        numbers = [f"{f(values):.6g}" for f in (np.min, np.mean, np.max)] if array.size else ["-"] * 3
        table.add_row(name, str(array.dtype), str(array.shape), *numbers)
    return table
