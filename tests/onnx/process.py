"""A process that answers lines with lines, is ended when it takes too long, and is started again when it crashed."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class ProcessError(Exception):
    """A line had no answer: ``status`` is ``crashed`` or ``hung``."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class LineProcess:
    """``python -m`` with ``arguments``: one line in and one line out for each request."""

    def __init__(self, arguments: Sequence[str], time_limit: float) -> None:
        self.arguments = list(arguments)
        self.time_limit = time_limit
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str] = queue.Queue()

    def ask(self, request: str, time_limit: float | None = None) -> str:
        """The answer to a line, within the process's time limit or another.

        Raises:
            ProcessError: the process crashed or hung; the next request gets a new one.
        """
        if self.process is None:
            self._start()
        process = self.process  # another thread may stop it meanwhile
        assert process is not None and process.stdin is not None
        process.stdin.write(request + "\n")
        process.stdin.flush()
        limit = self.time_limit if time_limit is None else time_limit
        try:
            line = self.lines.get(timeout=limit)
        except queue.Empty:
            self.stop()
            raise ProcessError("hung", f"no result after {limit:.0f} s") from None
        if not line:
            code = process.wait()
            self.stop()
            raise ProcessError("crashed", f"the process ended with {code}")
        return line

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        lines: queue.Queue[str] = queue.Queue()
        self.process, self.lines = process, lines

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
