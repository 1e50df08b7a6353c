"""Emit the functions with which profiled models read the clock: LLVM IR, linked with the functions of teams.

A record is described in :mod:`tilewright.tensorir.profiling`. The clock is the processor's time stamp counter where the
operating system itself uses it as clock source, else the system's clock. Between kernels that evict everything from the
caches, a call of ``clock_gettime`` takes several times as long as the instruction: its code and data must be fetched
anew.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tilewright.tensorir.profiling import BUSY, END, PROFILE_INTRINSICS, RUNS, TOTAL

#: ``void f(ptr team, ptr record, i64 stride)``: records that a kernel's call begins, or ends.
PROFILE_FUNCTIONS = {name: f"tilewright_{name}" for name in PROFILE_INTRINSICS}
#: ``i64 f()``: returns the current ticks.
TICKS = "tilewright_ticks"
#: The name under which the operating system's clock is linked.
CLOCK = "tilewright_clock"

#: Stands in the function that works on a loop, before the first item.
BEGIN_WORK = "  %start = call i64 @now()\n"


def end_work(busy: int, stride: int) -> str:
    """Return the IR that adds up a thread's work. It stands behind the last item, before the items are reported as
    finished: ``main`` may end then. ``busy`` and ``stride`` are the offsets in the memory of a team of the address of
    the first thread's sum and of the distance to the next thread's."""
    return f"""\
  %stop = call i64 @now()
  %took = sub i64 %stop, %start
  %busy.place = getelementptr i8, ptr %team, i64 {busy}
  %busy = load ptr, ptr %busy.place, align 8
  %stride.place = getelementptr i8, ptr %team, i64 {stride}
  %stride = load i64, ptr %stride.place, align 8
  %mine.offset = mul i64 %me, %stride
  %worked.place = getelementptr i64, ptr %busy, i64 %mine.offset
  %sum = load i64, ptr %worked.place, align 8
  %sum.more = add i64 %sum, %took
  store i64 %sum.more, ptr %worked.place, align 8
"""


# The processor would read the counter before earlier instructions have finished; the fence makes it wait.
_COUNTER = """
declare void @llvm.x86.sse2.lfence()
declare i64 @llvm.readcyclecounter()

define internal i64 @now() nounwind alwaysinline {
  call void @llvm.x86.sse2.lfence()
  %time = call i64 @llvm.readcyclecounter()
  ret i64 %time
}
"""

_POSIX = f"""
declare i32 @{CLOCK}(i32, ptr)

define internal i64 @now() nounwind {{
  %time = alloca {{ i64, i64 }}
  %status = call i32 @{CLOCK}(i32 {6 if sys.platform == "darwin" else 1}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.place = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.place
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}}
"""

# The performance counter has ticks of 100 nanoseconds on Windows 10 and later.
_WINDOWS = f"""
declare i32 @{CLOCK}(ptr)

define internal i64 @now() nounwind {{
  %ticks = alloca i64
  %status = call i32 @{CLOCK}(ptr %ticks)
  %count = load i64, ptr %ticks
  %time = mul i64 %count, 100
  ret i64 %time
}}
"""

#: The clock source of Linux.
_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


@functools.cache
def uses_counter() -> bool:
    """Return whether the clock is the time stamp counter. Linux uses it as clock source only if it is synchronous on
    all cores, has one frequency and never stops. Determined once: code and the length of its ticks belong together."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        return _CLOCK_SOURCE.read_text(encoding="ascii").strip() == "tsc"
    except OSError:
        return False


def functions(busy: int, stride: int, counter: bool) -> str:
    """Return the IR of ``PROFILE_FUNCTIONS``, ``TICKS`` and ``i64 @now()``, which reads the counter, or the operating
    system's clock with ticks of nanoseconds. For ``busy`` and ``stride`` see :func:`end_work`."""
    system = _WINDOWS if sys.platform == "win32" else _POSIX
    return f"""{_COUNTER if counter else system}
define i64 @{TICKS}() nounwind {{
  %now = call i64 @now()
  ret i64 %now
}}

define void @{PROFILE_FUNCTIONS["profile_begin"]}(ptr %team, ptr %record, i64 %stride) nounwind {{
  %none = icmp eq ptr %team, null
  br i1 %none, label %read, label %tell
tell:
  %busy.offset = mul i64 %stride, {BUSY}
  %busy = getelementptr i64, ptr %record, i64 %busy.offset
  %busy.place = getelementptr i8, ptr %team, i64 {busy}
  store ptr %busy, ptr %busy.place, align 8
  %stride.place = getelementptr i8, ptr %team, i64 {stride}
  store i64 %stride, ptr %stride.place, align 8
  br label %read
read:
  %now = call i64 @now()
  store i64 %now, ptr %record, align 8
  ret void
}}

define void @{PROFILE_FUNCTIONS["profile_end"]}(ptr %team, ptr %record, i64 %stride) nounwind {{
  %now = call i64 @now()
  %began = load i64, ptr %record, align 8
  %took = sub i64 %now, %began
  %end.offset = mul i64 %stride, {END}
  %end.place = getelementptr i64, ptr %record, i64 %end.offset
  store i64 %now, ptr %end.place, align 8
  %runs.offset = mul i64 %stride, {RUNS}
  %runs.place = getelementptr i64, ptr %record, i64 %runs.offset
  %runs = load i64, ptr %runs.place, align 8
  %runs.more = add i64 %runs, 1
  store i64 %runs.more, ptr %runs.place, align 8
  %total.offset = mul i64 %stride, {TOTAL}
  %total.place = getelementptr i64, ptr %record, i64 %total.offset
  %total = load i64, ptr %total.place, align 8
  %total.more = add i64 %total, %took
  store i64 %total.more, ptr %total.place, align 8
  ret void
}}
"""


def address() -> int | None:
    """Return the address of the operating system's clock, which the code links as :data:`CLOCK`."""
    if sys.platform == "win32":
        function = ctypes.CDLL("kernel32").QueryPerformanceCounter
    else:
        function = ctypes.CDLL(None).clock_gettime
    return ctypes.cast(function, ctypes.c_void_p).value


#: Seconds between the two samples that yield a frequency. Each is known to some ten nanoseconds.
_APART = 0.02


def seconds_per_tick(read: Callable[[], int]) -> float:
    """Measure the tick of a counter of constant frequency, which ``read`` reads, against Python's clock. Takes 20
    milliseconds: an old sample would not do, since suspending the machine stops one of the two clocks and not the
    other."""
    begin, first = _moment(read)
    time.sleep(_APART)
    end, last = _moment(read)
    return (end - begin) / (last - first)


def _moment(read: Callable[[], int]) -> tuple[float, int]:
    """Return the time in seconds and the ticks at that time: the closest pair of a few, the first of which are cold."""
    pairs = []
    for _ in range(5):
        before = time.perf_counter()
        ticks = read()
        after = time.perf_counter()
        pairs.append((after - before, (before + after) / 2, ticks))
    _, now, ticks = min(pairs)
    return now, ticks
