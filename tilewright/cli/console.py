"""Print the output of the commands, and end them.

Colours and progress are for terminals: piped output is plain text, and ``NO_COLOR`` is respected (by rich).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from tilewright.tensorir.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.runtime.progress import Progress

# The progress of builds is imported when it is shown: `tilewright --help` loads no compiler.

#: Exit codes: refused or failed; wrong use (click's); the answer to the command's question is "no"; interrupted.
REFUSED, WRONG_USE, DIFFERENT, INTERRUPTED = 1, 2, 3, 130

#: Lines of piped output are not wrapped.
_WIDE = 100_000


@dataclasses.dataclass
class Settings:
    """The settings of a whole command.

    Attributes:
        debug: show the tracebacks of errors.
        quiet: show no progress.
    """

    debug: bool = False
    quiet: bool = False


def settings() -> Settings:
    """Return the settings of the running command."""
    context = click.get_current_context(silent=True)
    return Settings() if context is None else context.ensure_object(Settings)


def console(stderr: bool = False) -> Console:
    """Return a console on standard output, or on standard error."""
    found = Console(stderr=stderr, highlight=False)
    if not found.is_terminal:
        found.width = _WIDE
    return found


def width() -> int | None:
    """Return the characters in a line of the terminal; None if the output goes elsewhere."""
    found = console()
    return found.width if found.is_terminal else None


def say(text: str = "") -> None:
    """Print a line of the results."""
    console().print(text, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """Print a line that is no result, unless ``--quiet``."""
    if not settings().quiet:
        console(stderr=True).print(text, markup=False, style="dim", soft_wrap=True)


def say_json(data: Any) -> None:
    """Print results as JSON."""
    click.echo(json.dumps(data, indent=2))


def say_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[str] = ()) -> None:
    """Print a table; the columns ``numbers`` are aligned to the right. A header of empty names is not shown."""
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        show_header=any(header),
    )
    for name in header:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    where = console()
    if where.is_terminal:
        where.print(table)
        return
    with where.capture() as printed:
        where.print(table)
    click.echo("\n".join(line.rstrip() for line in printed.get().rstrip().split("\n")))


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Show that work is going on, and for how long."""
    from tilewright.runtime.progress import hidden

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with hidden(), _progress(*columns) as shown:  # one line at a time
        shown.add_task(text, total=None)
        yield


@contextlib.contextmanager
def counting(text: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show the progress; yield the function that updates it."""
    from tilewright.runtime.progress import hidden

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with hidden(), _progress(*columns) as shown:
        task = shown.add_task(text, total=total)
        yield lambda done: shown.update(task, completed=done)


@contextlib.contextmanager
def compiling() -> Iterator[Progress]:
    """Show the progress of a build, unless ``--quiet``: a line of a terminal, or lines in a pipe if it takes long."""
    from tilewright.runtime.progress import building, hidden

    quiet = settings().quiet
    with hidden() if quiet else contextlib.nullcontext(), building(lines=not quiet) as progress:
        yield progress


@contextlib.contextmanager
def _progress(*columns: Any) -> Iterator[Bars]:
    where = console(stderr=True)
    hides = settings().quiet or not where.is_terminal
    # Four updates a second: more would take time from the code that is measured.
    shown = Bars(*columns, console=where, transient=True, refresh_per_second=4, disable=hides)
    with contextlib.nullcontext() if hides else shown:  # rich 13 and 14 end what is not shown with an empty line
        yield shown


class Commands(click.Group):
    """A group of commands that report an error as a line on standard error, and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader closed the pipe; click ends quietly
            raise
        except Exception as error:
            if _comes_from_interrupt(error):
                raise SystemExit(INTERRUPTED) from None
            if ctx.ensure_object(Settings).debug:
                raise
            _show(error)
            raise SystemExit(REFUSED) from None


def _comes_from_interrupt(error: BaseException) -> bool:
    """Return whether an interrupt came out as ``error``: Python 3.11 wraps what ``__set_name__`` raises."""
    before: BaseException | None = error
    while before is not None and not isinstance(before, KeyboardInterrupt):
        before = before.__cause__ or before.__context__
    return before is not None


def _show(error: Exception) -> None:
    """Print an error without its traceback."""
    where = console(stderr=True)
    where.print("error:", style="red", end=" ")
    where.print(_message(error), markup=False, soft_wrap=True)
    if not isinstance(error, (TilewrightError, OSError, ValueError, ImportError)):
        where.print("(this may be a fault of Tilewright: --debug shows the traceback)", markup=False, style="dim")


def _message(error: Exception) -> str:
    text = "\n".join([str(error), *getattr(error, "__notes__", ())]).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
