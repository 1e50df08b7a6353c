"""Show the progress of a build.

On a terminal, write one line, from the first second on, and remove it when the build is done::

    building: 12 of 38 kernels, 5 of them found in the cache, 3 s

Elsewhere, write nothing, unless ``TILEWRIGHT_LOG=build`` (the logger ``tilewright.build``) requests lines. Commands
write that line into a pipe, too, every few seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TextIO

from tilewright.passes.environment import LOG
from tilewright.passes.tables import format_seconds
from tilewright.tensorir import forking

_LOG = logging.getLogger("tilewright.build")

#: Shorter builds write nothing to a terminal.
_SILENT_SECONDS = 1.0
#: Seconds between two updates of the line, and between two lines of a log about kernels.
_LINE_SECONDS = 0.2
_LOG_SECONDS = 1.0
#: Seconds between two lines in a pipe.
_PIPE_SECONDS = 5.0


class Progress:
    """The progress of a build: count kernels and stages, and log them where the logger is enabled."""

    def __init__(self) -> None:
        self._begin = self._stage_begin = self._logged = time.perf_counter()
        self._lock = forking.Lock()  # threads that wait for other processes report too
        self._stage = ""
        self._kernels = self._done = self._found = self._models = 0

    def stage(self, name: str) -> None:
        """Begin the stage that makes ``name``, and end the previous one."""
        self._end_stage()
        self._stage = name

    def kernels(self, count: int) -> None:
        """Add kernels that are to be made."""
        self._kernels += count

    def done(self, count: int = 1, found: bool = False) -> None:
        """Count kernels that were made, or ``found`` in the cache."""
        with self._lock:
            self._done += count
            self._found += count if found else 0
        now = time.perf_counter()
        if now - self._logged > _LOG_SECONDS and self._done < self._kernels:
            self._logged = now
            _LOG.debug("%s, %s", self._kernels_text(), self._seconds_text(now - self._begin))

    def found(self) -> None:
        """Count a function that was found in the cache as a whole."""
        self._models += 1

    @property
    def was_found(self) -> bool:
        """Whether the build made nothing: all of it was found in the cache."""
        return self._models > 0 and not self._kernels

    def text(self) -> str:
        """Return the line for the terminal."""
        doing = self._kernels_text() if self._kernels else self._stage or "reading the graph"
        return f"building: {doing}, {time.perf_counter() - self._begin:.0f} s"

    def end(self) -> None:
        """End the build."""
        self._end_stage()
        seconds = self._seconds_text(time.perf_counter() - self._begin)
        if self._kernels:
            _LOG.debug("built in %s: %s", seconds, self._kernels_text())
        elif self._models:
            _LOG.debug("found in the cache, in %s", seconds)

    def _end_stage(self) -> None:
        now = time.perf_counter()
        if self._stage:
            _LOG.debug("%s in %s", self._stage, self._seconds_text(now - self._stage_begin))
        self._stage, self._stage_begin = "", now

    def _kernels_text(self) -> str:
        found = f", {self._found} of them found in the cache" if self._found else ""
        return f"{self._done} of {self._kernels} kernels{found}"

    @staticmethod
    def _seconds_text(seconds: float) -> str:
        return format_seconds(seconds).strip()


_current: ContextVar[Progress | None] = ContextVar("tilewright_progress", default=None)
#: Held by the build that shows its line: several may run at once.
_line = forking.Lock()


def progress() -> Progress:
    """Return the progress of the current build; outside of builds, one that is not shown."""
    return _current.get() or Progress()


@contextlib.contextmanager
def building(lines: bool = False) -> Iterator[Progress]:
    """Show the progress of a build inside the ``with`` block. A nested build counts as a part of the outer one.

    Args:
        lines: whether to write lines where standard error is no terminal.
    """
    known = _current.get()
    if known is not None:
        yield known
        return
    made = Progress()
    token = _current.set(made)
    try:
        with _shown(made, lines):
            yield made
        made.end()
    finally:
        _current.reset(token)


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Show no line of a build inside the ``with`` block, where something else writes to the terminal."""
    held = _line.acquire(blocking=False)
    try:
        yield
    finally:
        if held:
            _line.release()


@contextlib.contextmanager
def _shown(made: Progress, lines: bool) -> Iterator[None]:
    """Show the line if standard error is a terminal and no log is written to it; or ``lines`` where it is none."""
    stream = sys.stderr
    write = _write if _is_terminal(stream) else _write_lines if lines and stream is not None else None
    if write is None or os.environ.get(LOG) or not _line.acquire(blocking=False):
        yield
        return
    try:
        over = threading.Event()
        writer = threading.Thread(target=write, args=(made, stream, over), name="tilewright-progress", daemon=True)
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join()
    finally:
        _line.release()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # a replacement in some programs, or a closed file
        return False


def _write_lines(made: Progress, stream: TextIO, over: threading.Event) -> None:
    """Write a line periodically."""
    with contextlib.suppress(OSError, ValueError):  # nobody reads any more
        while not over.wait(_PIPE_SECONDS):
            stream.write(made.text() + "\n")
            stream.flush()


def _write(made: Progress, stream: TextIO, over: threading.Event) -> None:
    """Update the line in place periodically; overwrite it with spaces at the end."""
    width, pause = 0, _SILENT_SECONDS
    with contextlib.suppress(OSError, ValueError):  # the terminal is gone
        while not over.wait(pause):
            text = made.text()[: shutil.get_terminal_size().columns - 1]
            stream.write("\r" + text.ljust(width))
            stream.flush()
            width, pause = len(text), _LINE_SECONDS
        if width:
            stream.write("\r" + " " * width + "\r")
            stream.flush()
