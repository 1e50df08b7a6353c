"""Switch instruments on by environment variables, without changes to programs.

``SWITCHES`` is the table of all these variables, including those that other packages read. The variables of this module
are read whenever an outermost pass starts: a build, a pipeline, a pass by itself. Passes inside of one :func:`session`
share its instruments.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.passes.context import RUNNING
from tilewright.tensorir import forking
from tilewright.tensorir.errors import NestingError, SettingError
from tilewright.tensorir.nesting import TRUST, too_deep

if TYPE_CHECKING:
    from tilewright.passes.context import PassContext
    from tilewright.passes.instrument import PassInstrument

LOG = "TILEWRIGHT_LOG"
DUMP = "TILEWRIGHT_DUMP"
VERIFY = "TILEWRIGHT_VERIFY"
PROFILE = "TILEWRIGHT_PROFILE"

#: The families of ``TILEWRIGHT_LOG``, each a standard logger ``tilewright.<family>``, and their messages.
FAMILIES = {
    "build": "how far a build is, and how long its stages take",
    "passes": "each pass that ran, with its time, and what it says (its remarks)",
    "fusion": "what is fused, and why other operators are not",
    "schedule": "how loops are tiled, vectorized and made parallel",
    "cache": "what is found or kept on disk and in memory",
    "codegen": "what code is generated, with its size and time",
}

_OFF = ("", "0", "off", "no", "false")
_VERIFY = {"1": False, "on": False, "yes": False, "true": False, "mutation": True}


@dataclass(frozen=True)
class Switch:
    """An environment variable.

    Attributes:
        name: the name of the variable.
        value: an example of a value.
        meaning: the effect, one sentence.
    """

    name: str
    value: str
    meaning: str


SWITCHES = (
    Switch(
        LOG,
        "fusion,cache",
        f"logs to standard error: any of {', '.join(f'`{family}`' for family in FAMILIES)}, or `all`",
    ),
    Switch(
        DUMP,
        "folder",
        "writes the module after each pass that changed it: for each build a numbered folder, in it numbered files "
        "and an index",
    ),
    Switch(
        VERIFY,
        "1",
        "verifies the module after every pass, and names the one that broke a rule; `mutation` also checks whether a "
        "pass changed its input, which is slow",
    ),
    Switch(
        PROFILE,
        "profile.json",
        "records the calls of every model that is built; when the program ends their profiles are written, as JSON or "
        "as a trace (`profile.trace.json`); `%p` in the name stands for the number of the process",
    ),
    Switch("TILEWRIGHT_REPORT", "report.html", "writes a page about every model that is built (`tw.report`)"),
    Switch("TILEWRIGHT_CACHE", "off", "neither reads nor writes builds and kernels on disk"),
    Switch("TILEWRIGHT_CACHE_DIR", "folder", "keeps builds and kernels there"),
    Switch(
        "TILEWRIGHT_CACHE_BYTES",
        "1000000000",
        "the size limit of that folder (default: 4 GiB); the least recently used entries are removed first",
    ),
)


def markdown_table() -> str:
    """Format ``SWITCHES`` as a Markdown table."""
    rows = [f"| `{switch.name}={switch.value}` | {switch.meaning} |" for switch in SWITCHES]
    return "\n".join(["| environment variable | effect |", "|---|---|", *rows])


@contextlib.contextmanager
def session(what: str = "building") -> Iterator[None]:
    """Group the passes inside of the ``with`` block into one build, whose programs have been checked (``nesting``).
    Inside of another session this does nothing.

    Args:
        what: the work, as a subject of errors.

    Raises:
        NestingError: a program is nested more deeply than the work can follow.
        SettingError: a variable has a value that it cannot have.
        OSError: the folder of ``TILEWRIGHT_DUMP`` cannot be created.
    """
    if RUNNING.watchers is not None:
        yield
        return
    configure_logging()
    RUNNING.watchers = _watchers()
    RUNNING.vetoed = {}
    TRUST.given = True
    try:
        yield
    except RecursionError as error:
        if isinstance(error, NestingError):
            raise
        raise too_deep(what) from error
    finally:
        RUNNING.watchers = None
        TRUST.given = False


def is_watched(ctx: PassContext) -> bool:
    """Return whether each pass that runs in ``ctx`` now is watched: by instruments, a trace, or the environment."""
    return bool(ctx.instruments or RUNNING.watchers) or ctx.trace is not None


def needs_whole_modules(ctx: PassContext) -> bool:
    """Return whether an observer of passes in ``ctx`` needs whole modules rather than parts."""
    watchers = (*ctx.instruments, *(RUNNING.watchers or ()))
    return ctx.trace is not None or not all(instrument.in_parts for instrument in watchers)


def _watchers() -> tuple[PassInstrument, ...]:
    """Create the instruments that the environment requests."""
    folder, verify = os.environ.get(DUMP), os.environ.get(VERIFY)
    if not folder and not verify:
        return ()
    from tilewright.passes.instruments.dumping import DumpIR  # both are imported only when needed
    from tilewright.passes.instruments.verifying import VerifyInstrument

    found: list[PassInstrument] = []
    if folder:
        found.append(DumpIR(_numbered_folder(Path(folder)), index=True))
    if verify and verify.lower() not in _OFF:
        if verify.lower() not in _VERIFY:
            raise SettingError(f"{VERIFY}: expected 1, mutation or off, found {verify!r:.80}")
        found.append(VerifyInstrument(_VERIFY[verify.lower()]))
    return tuple(found)


def _numbered_folder(root: Path) -> Path:
    """Create a folder in ``root`` with the next number that no other process has taken."""
    root.mkdir(parents=True, exist_ok=True)
    for number in itertools.count():
        with contextlib.suppress(FileExistsError):
            made = root / f"{number:03d}"
            made.mkdir()
            return made
    raise AssertionError("there are always more numbers")


class _StandardError(logging.Handler):
    """Write to the current standard error, which notebooks and tests replace."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)


class _Logging:
    """The logs that ``TILEWRIGHT_LOG`` has switched on."""

    def __init__(self) -> None:
        self.lock = forking.Lock()
        self.configured = ""
        self.families: frozenset[str] = frozenset()
        self.handler = _StandardError()
        self.handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))

    def switch(self, wanted: str) -> None:
        named = [family.strip().lower() for family in wanted.split(",") if family.strip()]
        unknown = [family for family in named if family not in FAMILIES and family != "all"]
        if unknown:
            raise SettingError(f"{LOG}: expected some of {', '.join(FAMILIES)}, or all; found {unknown[0]!r:.80}")
        families = frozenset(FAMILIES if "all" in named else named)
        for family in families ^ self.families:
            logger = logging.getLogger(f"tilewright.{family}")
            on = family in families
            logger.setLevel(logging.DEBUG if on else logging.NOTSET)
            logger.propagate = not on  # or a program that shows all logs would show these twice
            (logger.addHandler if on else logger.removeHandler)(self.handler)
        self.configured, self.families = wanted, families


_logging = _Logging()


def configure_logging() -> None:
    """Switch the loggers on and off that ``TILEWRIGHT_LOG`` names, where it has changed.

    Other loggers keep the configuration of the program. All messages have the level ``DEBUG``.

    Raises:
        SettingError: it names a family that does not exist.
    """
    wanted = os.environ.get(LOG, "")
    if wanted != _logging.configured:
        with _logging.lock:
            _logging.switch(wanted)
