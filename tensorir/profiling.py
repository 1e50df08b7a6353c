"""Records of what kernels cost, which a profiled ``main`` writes.

``profile_begin(record, stride)`` and ``profile_end(record, stride)`` stand around each call of a kernel. The records
are an array of 64-bit integers with a column for each call. Its rows: when the call last began and ended, in ticks of a
clock that never goes back (``Code.seconds_per_tick`` says how long one is); how often it ran, and for how many ticks in
all; and for each thread of the team how many it worked on parallel loops of the kernel. ``record`` is the address of
the first element of a column, and ``stride`` the number of elements in a row.

A row is a whole number of cache lines long. So what threads write down of the same call never lies in one line, which
would travel between their cores, and what one thread writes of successive calls does.
"""

from __future__ import annotations

#: What stands before, and after, the call of a kernel.
PROFILE_INTRINSICS = ("profile_begin", "profile_end")

#: Rows of the records. From the last on there is one for each thread.
BEGIN, END, RUNS, TOTAL, BUSY = range(5)


def records_shape(num_calls: int, num_threads: int) -> tuple[int, int]:
    """Of the records of so many calls by teams of so many threads; columns beyond the calls stay zero."""
    return BUSY + num_threads, max(1, -(-num_calls // 8)) * 8
