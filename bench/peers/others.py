"""Measure the processor time of other programs during a measurement, as Linux counts it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

#: Fields of a line of /proc/stat: idle and waiting; of /proc/PID/stat after the name: time in user and in system mode.
IDLE, OWN = (3, 4), (11, 12)


class Others:
    """Measures from its creation on.

    Args:
        own: the processes of the measurement, with all of their threads.
    """

    def __init__(self, own: Sequence[int]) -> None:
        self._own = own
        self._start = self._now()

    def cores(self) -> float | None:
        """Return the mean number of cores that others have kept busy since; None if unknown."""
        now = self._now()
        if now is None or self._start is None or now[0] <= self._start[0]:
            return None
        return max(0.0, (now[1] - self._start[1]) / (now[0] - self._start[0]))

    def _now(self) -> tuple[float, float] | None:
        """Return the time, and the seconds that others have used so far."""
        try:
            fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
            used = sum(fields) - sum(fields[place] for place in IDLE)
            for process in self._own:
                values = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
                used -= sum(int(values[place]) for place in OWN)
            return time.monotonic(), used / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            return None
