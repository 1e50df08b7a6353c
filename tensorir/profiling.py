"""Records of the time of kernels, which a profiled ``main`` writes.

``profile_begin(record, stride)`` and ``profile_end(record, stride)`` stand around each call of a kernel. The records
are an array of 64-bit integers with a column for each call. Its rows: when the call last began and ended, in ticks of a
monotonic clock (of ``Code.seconds_per_tick`` each); the number of its runs, and the ticks of all of them; and for each
thread of the team the ticks that it worked on parallel loops of the kernel. ``record`` is the address of
the first element of a column, and ``stride`` the number of elements in a row.

A row is a whole number of cache lines long. So two threads never write to one line for the same call (false sharing),
and one thread writes the values of successive calls to the same line.
"""

from __future__ import annotations

#: The intrinsics before and after the call of a kernel.
PROFILE_INTRINSICS = ("profile_begin", "profile_end")

#: Rows of the records. From the last on there is one for each thread.
BEGIN, END, RUNS, TOTAL, BUSY = range(5)


def records_shape(num_calls: int, num_threads: int) -> tuple[int, int]:
    """Shape of the records of ``num_calls`` calls by teams of ``num_threads``; columns beyond the calls stay zero."""
    return BUSY + num_threads, max(1, -(-num_calls // 8)) * 8
