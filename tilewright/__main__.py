"""Run the command line: ``python -m tilewright``, and the script ``tilewright``.

Ctrl-C ends it with one line at any moment: while modules are imported, where an interrupt may come out as another
error, or be lost (modules written in Cython drop it); in a callback, where Python would print it and go on; and where
threads are waited for, one of which may wait for a module that the interrupted import has left locked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType
from typing import Any

#: The exit code of an interrupted command.
INTERRUPTED = 130
#: Seconds that an interrupted command has to put away what it began.
GRACE = 2.0


class _Interrupts:
    """Handles Ctrl-C: first as an exception, so that what was begun is put away. A second one ends the process, and so
    does an alarm after :data:`GRACE` seconds: the exception was lost, or what it ended waits forever."""

    def __init__(self) -> None:
        self.came = False
        self._unraisable = sys.unraisablehook

    def install(self) -> None:
        """Handle interrupts from now on, unless they are ignored, as in the background of a script."""
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._interrupt)
            sys.unraisablehook = self._unraised

    def end(self) -> None:
        """End the process with the line."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # the reader is gone
                stream.flush()
        os.write(2, b"interrupted\n")
        os._exit(INTERRUPTED)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            self.end()
        self.came = True
        if hasattr(signal, "setitimer"):  # not on Windows
            signal.signal(signal.SIGALRM, self._interrupt)
            signal.setitimer(signal.ITIMER_REAL, GRACE)
        raise KeyboardInterrupt

    def _unraised(self, error: Any) -> None:
        if self.came:
            self.end()
        self._unraisable(error)


def main() -> None:
    """Run the command line and end the process."""
    interrupts = _Interrupts()
    try:
        interrupts.install()
        from tilewright.cli.group import main as run

        run()
    finally:
        if interrupts.came:  # whatever it became on its way here
            interrupts.end()


if __name__ == "__main__":
    main()
