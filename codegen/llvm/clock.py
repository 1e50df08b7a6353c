"""What a profiled model calls to read the clock: LLVM IR that is linked with the functions of teams.

A record is described in :mod:`tilewright.tensorir.profiling`.
"""

from __future__ import annotations

import ctypes
import sys

from tilewright.tensorir.profiling import BUSY, END, PROFILE_INTRINSICS, RUNS, TOTAL

#: ``void f(ptr team, ptr record)``: a kernel's call begins, or ends.
PROFILE_FUNCTIONS = {name: f"tilewright_{name}" for name in PROFILE_INTRINSICS}
#: The name under which the operating system's clock is linked.
CLOCK = "tilewright_clock"

#: In the function in which a thread works on a loop: before the first item.
BEGIN_WORK = "  %start = call i64 @now()\n"


def end_work(busy: int) -> str:
    """After the last item, before they are reported as finished: ``main`` reads the sums then. ``busy`` is the place in
    the memory of a team that says where the sums are."""
    return f"""\
  %stop = call i64 @now()
  %took = sub i64 %stop, %start
  %busy.place = getelementptr i8, ptr %team, i64 {busy}
  %busy = load ptr, ptr %busy.place, align 8
  %worked.place = getelementptr i64, ptr %busy, i64 %me
  %sum = atomicrmw add ptr %worked.place, i64 %took monotonic, align 8
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

# Its ticks are 100 nanoseconds on Windows 10 and later.
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


def functions(busy: int) -> str:
    """``PROFILE_FUNCTIONS``, and ``i64 @now()``, in nanoseconds."""
    return f"""{_WINDOWS if sys.platform == "win32" else _POSIX}
define void @{PROFILE_FUNCTIONS["profile_begin"]}(ptr %team, ptr %record) nounwind {{
  %none = icmp eq ptr %team, null
  br i1 %none, label %read, label %tell
tell:
  %busy.place = getelementptr i8, ptr %team, i64 {busy}
  %busy = getelementptr i64, ptr %record, i64 {BUSY}
  store ptr %busy, ptr %busy.place, align 8
  br label %read
read:
  %now = call i64 @now()
  store i64 %now, ptr %record, align 8
  ret void
}}

define void @{PROFILE_FUNCTIONS["profile_end"]}(ptr %team, ptr %record) nounwind {{
  %now = call i64 @now()
  %began = load i64, ptr %record, align 8
  %took = sub i64 %now, %began
  %end.place = getelementptr i64, ptr %record, i64 {END}
  store i64 %now, ptr %end.place, align 8
  %runs.place = getelementptr i64, ptr %record, i64 {RUNS}
  %runs = load i64, ptr %runs.place, align 8
  %runs.more = add i64 %runs, 1
  store i64 %runs.more, ptr %runs.place, align 8
  %total.place = getelementptr i64, ptr %record, i64 {TOTAL}
  %total = load i64, ptr %total.place, align 8
  %total.more = add i64 %total, %took
  store i64 %total.more, ptr %total.place, align 8
  ret void
}}
"""


def address() -> int | None:
    """Of the operating system's clock, which the code links as :data:`CLOCK`."""
    if sys.platform == "win32":
        function = ctypes.CDLL("kernel32").QueryPerformanceCounter
    else:
        function = ctypes.CDLL(None).clock_gettime
    return ctypes.cast(function, ctypes.c_void_p).value
