"""Records of what kernels cost, which a profiled ``main`` writes.

``profile_begin(record)`` and ``profile_end(record)`` stand around each call of a kernel. A record is a row of 64-bit
integers: when its call last began and ended, by a clock of nanoseconds that never goes back (``time.perf_counter_ns``
on the systems where that clock is ``CLOCK_MONOTONIC``); how often it ran, and for how long in all; and for each thread
of the team how long it worked on parallel loops of the kernel.
"""

from __future__ import annotations

#: What stands before, and after, the call of a kernel.
PROFILE_INTRINSICS = ("profile_begin", "profile_end")

#: Places in a record.
BEGIN, END, RUNS, TOTAL, BUSY = range(5)


def record_length(num_threads: int) -> int:
    """How many integers a record has: in whole cache lines, since threads write their own numbers."""
    return -(-(BUSY + num_threads) // 8) * 8
