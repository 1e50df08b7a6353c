"""Define the options that several commands share."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from tilewright.cli.console import Settings
from tilewright.cli.pictures import Scaling, numbers_of
from tilewright.passes.context import DEFAULT_OPT_LEVEL, PassContext
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.registry import get_pass
from tilewright.tensorir.errors import ConfigTypeError, ConfigValueError, UnknownConfigError, UnknownPassError
from tilewright.tensorir.target import KINDS, Target

F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """The settings of a build: the options of :func:`with_build`."""

    target_kind: str
    opt_level: int
    mcpu: str | None
    mattr: str | None
    threads: int | None
    disable_pass: Sequence[str]
    require_pass: Sequence[str]
    config: Sequence[str]

    def target(self) -> Target:
        """Return the target to generate code for."""
        with wrong_use("--mcpu", ValueError):
            target = Target(self.target_kind, mcpu=self.mcpu, num_threads=self.threads)
        with wrong_use("--mattr", ValueError):
            return Target(target, mattr=self.mattr)

    def context(self, instruments: Sequence[PassInstrument] = ()) -> PassContext:
        """Return a context with these settings.

        Raises:
            click.BadParameter: no pass has such an option, or it has another type.
        """
        config: dict[str, dict[str, Any]] = {}
        for text in self.config:
            name, value = pair(text, "--config", "KEY.FIELD=VALUE")
            key, dot, field = name.rpartition(".")
            if not dot:
                raise click.BadParameter(f"expected KEY.FIELD=VALUE, found {text!r}", param_hint="--config")
            config.setdefault(key, {})[field] = plain_value(value)
        with wrong_use("--config", UnknownConfigError, ConfigTypeError, ConfigValueError):
            return PassContext(self.opt_level, self.require_pass, self.disable_pass, instruments, config)

    @staticmethod
    def given() -> list[str]:
        """Return the names of these options that are set on the command line."""
        context = click.get_current_context()
        names = [field.name for field in dataclasses.fields(BuildOptions)]
        return [
            parameter.opts[-1]
            for parameter in context.command.params
            if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        ]


@dataclasses.dataclass(frozen=True)
class InputOptions:
    """The inputs of a model: the options of :func:`with_inputs`."""

    files: Sequence[str]
    shapes: Sequence[str]
    dims: Sequence[str]
    values: Sequence[str]
    convert: bool
    image_mean: tuple[float, ...] | None
    image_std: tuple[float, ...] | None
    seed: int

    @property
    def scaling(self) -> Scaling:
        """The scaling of images."""
        given = {"mean": self.image_mean, "std": self.image_std}
        return Scaling(**{name: numbers for name, numbers in given.items() if numbers is not None})


def pair(text: str, option: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    """Split ``NAME=VALUE``.

    Raises:
        click.BadParameter: the text has another form.
    """
    name, _, value = text.partition("=")
    if not (name and value):
        raise click.BadParameter(f"expected {form}, found {text!r}", param_hint=option)
    return name, value


def plain_value(text: str) -> Any:
    """Parse a value as JSON or Python; else return the text itself."""
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError):
            return read(text)
    return text


@contextlib.contextmanager
def wrong_use(option: str, *errors: type[Exception]) -> Iterator[None]:
    """Report an error of the library about a value as an error of the option that sets it."""
    try:
        yield
    except errors as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def _known_passes(context: click.Context, parameter: click.Parameter, names: Sequence[str]) -> Sequence[str]:
    for name in names:
        with wrong_use(parameter.opts[-1], UnknownPassError):
            get_pass(name)
    return names


def _model_place(context: click.Context, parameter: click.Parameter, value: str) -> tuple[Path, str]:
    """Parse a file name, or the name of a Python file and a name in it."""
    path, colon, function = value.rpartition(":")
    found = (Path(path), function) if colon and path.endswith(".py") else (Path(value), "")
    if not found[0].is_file():
        raise click.BadParameter(f"there is no file {found[0]}")
    return found


_BUILD = [
    click.option(
        "-t",
        "--target",
        "target_kind",
        type=click.Choice(KINDS),
        default="llvm",
        show_default=True,
        help="Generate machine code, or Python source for numba.",
    ),
    click.option(
        "-O",
        "--opt-level",
        type=click.IntRange(0, 3),
        default=DEFAULT_OPT_LEVEL,
        show_default=True,
        help="Optimization level; 3 rounds differently.",
    ),
    click.option("--mcpu", metavar="NAME", help="Processor to compile for, by LLVM's name [default: this one]."),
    click.option("--mattr", metavar="+NAME,-NAME", help="Change the processor's features, by LLVM's names."),
    click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads for parallel loops [default: cores]."),
    click.option("--disable-pass", multiple=True, metavar="NAME", callback=_known_passes, help="Skip a pass."),
    click.option(
        "--require-pass", multiple=True, metavar="NAME", callback=_known_passes, help="Run a pass at any level."
    ),
    click.option("--config", multiple=True, metavar="KEY.FIELD=VALUE", help="Set an option of a pass."),
]
_SHAPES = click.option(
    "-s",
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,3,h,w",
    help="Set the sizes of an input ('?' keeps the model's), or NAME=SIZE of a dimension.",
)
_VALUES = click.option(
    "--value",
    "values",
    multiple=True,
    metavar="NAME=VALUE",
    help="A number for all elements of an input, or all of them, as in shape=[1,80].",
)
_INPUTS = [
    click.option(
        "-i",
        "--input",
        "files",
        multiple=True,
        metavar="[NAME=]FILE",
        help="Read an input from .npy, .png or .jpg, or several from .npz; an only input needs no name.",
    ),
    _SHAPES,
    click.option(
        "-d",
        "--dim",
        "dims",
        multiple=True,
        metavar="NAME=SIZE",
        help="Set a symbolic dimension [default: a size that the model accepts].",
    ),
    _VALUES,
    click.option("--convert", is_flag=True, help="Round floating-point numbers of files to the type of the input."),
    click.option(
        "--image-mean",
        metavar="X,Y,Z",
        callback=numbers_of,
        help="Subtract these from the pixels of images, which are scaled to 0..1: one number, or one for each channel.",
    ),
    click.option(
        "--image-std", metavar="X,Y,Z", callback=numbers_of, help="Divide the pixels of images by these after that."
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs and weights."),
]


def with_build(command: F) -> F:
    """Give a command the options of a build, as its argument ``build``."""
    return _gathered(command, "build", BuildOptions, _BUILD)


def with_inputs(command: F) -> F:
    """Give a command the options for inputs, as its argument ``inputs``."""
    return _gathered(command, "inputs", InputOptions, _INPUTS)


def with_shapes(command: F) -> F:
    """Give a command the options ``--shape`` and ``--value``, as its arguments ``shapes`` and ``values``."""
    return _SHAPES(_VALUES(command))


def with_sizes(command: F) -> F:
    """Give a command the options ``--shape`` and ``--dim``, as its arguments ``shapes`` and ``dims``."""
    dims = click.option("-d", "--dim", "dims", multiple=True, metavar="NAME=SIZE", help="Set a symbolic dimension.")
    return _SHAPES(dims(command))


def with_model(command: F) -> F:
    """Give a command its argument ``model`` and ``--random-weights``."""
    command = click.argument("model", callback=_model_place)(command)
    return click.option(
        "--random-weights", is_flag=True, help="Generate the weights that IR text gives only as digests."
    )(command)


def _gathered(command: F, name: str, kind: type[Any], options: Sequence[Callable[[F], F]]) -> F:
    fields = [field.name for field in dataclasses.fields(kind)]

    @functools.wraps(command)
    def gathering(*args: Any, **values: Any) -> Any:
        return command(*args, **{name: kind(**{field: values.pop(field) for field in fields})}, **values)

    found: Any = gathering
    for option in reversed(options):
        found = option(found)
    return found  # type: ignore[no-any-return]


def with_settings(command: F) -> F:
    """Give a command ``--quiet`` and ``--debug``."""

    def note(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            setattr(context.find_root().ensure_object(Settings), str(parameter.name), True)

    for names, text in (
        (("-q", "--quiet"), "Show no progress and no notes."),
        (("--debug",), "Show the traceback of an error."),
    ):
        flag = click.option(*names, is_flag=True, expose_value=False, is_eager=True, callback=note, help=text)
        command = flag(command)
    return command
