"""Switch instruments on by environment variables, without a change of any program.

``SWITCHES`` is the table of all of them, those that other rooms read too. Those here are looked at whenever passes
begin to run outside of others: a build, a pipeline, a pass by itself. Passes that run inside of one :func:`session`
share what it switches on.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.passes.context import RUNNING
from tilewright.tensorir.errors import SettingError

if TYPE_CHECKING:
    from tilewright.passes.context import PassContext
    from tilewright.passes.instrument import PassInstrument

LOG = "TILEWRIGHT_LOG"
DUMP = "TILEWRIGHT_DUMP"
VERIFY = "TILEWRIGHT_VERIFY"
PROFILE = "TILEWRIGHT_PROFILE"

#: What ``TILEWRIGHT_LOG`` may name: a logger ``tilewright.<family>`` of the standard library each, and what it is told.
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
        name: of the variable.
        value: an example of what it is set to.
        meaning: what that does, one sentence.
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
        "verifies the module after every pass, and names the one that broke a rule; `mutation` also looks whether a "
        "pass changed its input, which is slow",
    ),
    Switch(
        PROFILE,
        "profile.json",
        "records the calls of every model that is built; when the program ends their profiles are written, as JSON or "
        "as a trace (`profile.trace.json`); `%p` in the name stands for the number of the process",
    ),
    Switch("TILEWRIGHT_REPORT", "report.html", "writes a page about every model that is built (`tw.report`)"),
    Switch("TILEWRIGHT_CACHE", "off", "keeps no build and no kernel on disk, and looks for none"),
    Switch("TILEWRIGHT_CACHE_DIR", "folder", "keeps builds and kernels there"),
    Switch(
        "TILEWRIGHT_CACHE_BYTES",
        "1000000000",
        "the limit of that folder (4 GiB without it); what was used longest ago goes first",
    ),
)


def markdown_table() -> str:
    """``SWITCHES`` as documents show it."""
    rows = [f"| `{switch.name}={switch.value}` | {switch.meaning} |" for switch in SWITCHES]
    return "\n".join(["| environment variable | what it does |", "|---|---|", *rows])


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Passes that run inside of the ``with`` block belong together: a build. Inside of another session it is that one.

    Raises:
        SettingError: a variable has a value that it cannot have.
        OSError: no folder can be made where ``TILEWRIGHT_DUMP`` says.
    """
    if RUNNING.watchers is not None:
        yield
        return
    configure_logging()
    RUNNING.watchers = _watchers()
    try:
        yield
    finally:
        RUNNING.watchers = None


def is_watched(ctx: PassContext) -> bool:
    """Whether somebody looks at each pass that runs in ``ctx`` now: instruments, a trace, or the environment."""
    return bool(ctx.instruments or RUNNING.watchers) or ctx.trace is not None


def needs_whole_modules(ctx: PassContext) -> bool:
    """Whether somebody who looks at passes in ``ctx`` is not content with parts of modules."""
    watchers = (*ctx.instruments, *(RUNNING.watchers or ()))
    return ctx.trace is not None or not all(instrument.in_parts for instrument in watchers)


def _watchers() -> tuple[PassInstrument, ...]:
    """The instruments that the environment asks for."""
    folder, verify = os.environ.get(DUMP), os.environ.get(VERIFY)
    if not folder and not verify:
        return ()
    from tilewright.passes.instruments.dumping import DumpIR  # both are loaded when they are asked for
    from tilewright.passes.instruments.verifying import VerifyInstrument

    found: list[PassInstrument] = []
    if folder:
        found.append(DumpIR(_numbered_folder(Path(folder)), index=True))
    if verify and verify.lower() not in _OFF:
        if verify.lower() not in _VERIFY:
            raise SettingError(f"{VERIFY}: expected 1, mutation or off, found {verify!r}")
        found.append(VerifyInstrument(_VERIFY[verify.lower()]))
    return tuple(found)


def _numbered_folder(root: Path) -> Path:
    """A new folder in ``root``, with the next number that no other process has taken."""
    root.mkdir(parents=True, exist_ok=True)
    for number in itertools.count():
        with contextlib.suppress(FileExistsError):
            made = root / f"{number:03d}"
            made.mkdir()
            return made
    raise AssertionError("there are always more numbers")


class _StandardError(logging.Handler):
    """Writes to what is standard error at the time: notebooks and tests put another one in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)


class _Logging:
    """The logs that ``TILEWRIGHT_LOG`` has switched on."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.configured = ""
        self.families: frozenset[str] = frozenset()
        self.handler = _StandardError()
        self.handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))

    def switch(self, wanted: str) -> None:
        named = [family.strip().lower() for family in wanted.split(",") if family.strip()]
        unknown = [family for family in named if family not in FAMILIES and family != "all"]
        if unknown:
            raise SettingError(f"{LOG}: expected some of {', '.join(FAMILIES)}, or all; found {unknown[0]!r}")
        families = frozenset(FAMILIES if "all" in named else named)
        for family in families ^ self.families:
            logger = logging.getLogger(f"tilewright.{family}")
            on = family in families
            logger.setLevel(logging.DEBUG if on else logging.NOTSET)
            logger.propagate = not on  # a program that shows all logs would show these twice
            (logger.addHandler if on else logger.removeHandler)(self.handler)
        self.configured, self.families = wanted, families


_logging = _Logging()


def configure_logging() -> None:
    """Switch the loggers on and off that ``TILEWRIGHT_LOG`` names, where it has changed.

    Loggers that it does not name are as a program has configured them: everything is said at level ``DEBUG``.

    Raises:
        SettingError: it names a family that does not exist.
    """
    wanted = os.environ.get(LOG, "")
    if wanted != _logging.configured:
        with _logging.lock:
            _logging.switch(wanted)
