"""Define the functions of teams as LLVM IR. :mod:`~tilewright.codegen.llvm.team` gives the reason for each memory
ordering.

The memory of a team, one cache line each: the epoch; the loop (its task, captured values, the number of items and of
queues, the first iteration, the end of the last one, iterations of an item); the number of finished items; the number
of arrived threads, and the program that they run; and the queues. A queue is its epoch and the next item in one word:
an item is taken by a compare-and-swap, which fails for a thread that is late by a loop. The next loop advances the
queues before it changes the number of items, from which such a thread computes the end of a queue.
"""

from __future__ import annotations

import string

from tilewright.codegen.llvm import clock
from tilewright.tensorir.processors import architecture_of

#: The address of ``void f(task, args, dims, steps, data, inner_ndim, array_count, num_threads)``, numba's function that
#: splits ``dims[0]`` items among threads and calls ``task(args, dims, steps, data)`` with the addresses ``args[i]``
#: advanced by ``steps[i]`` bytes for each preceding item, and with ``dims[0]`` the number of items of this call (which
#: may be zero).
PARALLEL_FOR = "tilewright_parallel_for"
#: An i32: the number of threads of the pool that may be used. A request for more than the pool has would hang in
#: workqueue. Object code is kept, and run by processes with fewer cores than its target has.
THREAD_LIMIT = "tilewright_thread_limit"
#: ``void f(ptr entry, ptr args, i32 threads)`` calls ``entry(args, team)`` with a team of so many threads, at most.
RUN_TEAM = "tilewright_run_team"
#: ``void f(ptr team, ptr task, ptr data, i64 first, i64 extent, i64 grain, i32 threads)`` does ``extent`` iterations of
#: a loop, from ``first`` on, by calls of ``task(i64 begin, i64 end, ptr data)``: by the threads of the team, or (null)
#: of the threading layer, or in one call if one thread may run or there is work for only one. ``grain`` iterations are
#: one item of work, more where a queue could not count so many items; zero leaves the choice to the fork.
FORK = "tilewright_fork"
#: The numbers of captured values that a shared task passes on (:func:`shared_task`). The loops of seven networks from a
#: digits classifier to detectors with unknown sizes capture 2 to 16; up to 4 travel in registers.
_SHARED_TASKS = (4, 8, 16)
#: Items for each thread if the loop has no grain: enough to balance the load when a core is busy, few enough to cost
#: nothing.
ITEMS_PER_THREAD = 8

#: The name under which the function that yields the core to other threads is linked.
YIELD = "tilewright_yield"

#: The bits of the next item in the word of a queue; the others are the epoch's.
_ITEM_BITS = 24
#: A loop has 2 ** _MOST_ITEMS items at most: fewer than fit, as an empty queue holds one more than its last item.
_MOST_ITEMS = _ITEM_BITS - 1

#: The number of polls before a waiting thread yields its core at each further poll: about 20 microseconds.
_LOOKS = 1000

# Places in the memory of a team, in bytes.
_LINE = 64
_EPOCH, _LOOP, _FINISHED, _ARRIVED, _QUEUES = (number * _LINE for number in range(5))
_TASK, _DATA, _ITEMS, _SHARES, _FIRST, _LAST, _GRAIN = (_LOOP + 8 * number for number in range(7))
#: The program and its arguments; in profiled models the address of the first thread's working time, and the distance to
#: the next thread's.
_ENTRY, _ARGS, _BUSY, _STRIDE = (_ARRIVED + 8 * number for number in range(1, 5))

_LOOP_PLACES = f"""\
  %task.place = getelementptr i8, ptr %team, i64 {_TASK}
  %data.place = getelementptr i8, ptr %team, i64 {_DATA}
  %items.place = getelementptr i8, ptr %team, i64 {_ITEMS}
  %shares.place = getelementptr i8, ptr %team, i64 {_SHARES}
  %first.place = getelementptr i8, ptr %team, i64 {_FIRST}
  %last.place = getelementptr i8, ptr %team, i64 {_LAST}
  %grain.place = getelementptr i8, ptr %team, i64 {_GRAIN}
"""

#: The data of an item of the layer: the task, its captured values, the first iteration, the end, iterations of an item.
_WHOLE_LOOP = "{ ptr, ptr, i64, i64, i64 }"

_TEXT = f"""
@{PARALLEL_FOR} = external global ptr
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @llvm.smin.i32(i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
@{THREAD_LIMIT} = external global i32
$declarations

; Fork through the threading layer: it counts items.
define internal void @layer(ptr %task, ptr %data, i64 %items, i32 %threads) nounwind {{
  %args = alloca ptr
  %dims = alloca i64
  %steps = alloca i64
  store ptr null, ptr %args
  store i64 %items, ptr %dims
  store i64 1, ptr %steps
  %split = load ptr, ptr @{PARALLEL_FOR}, align 8
  call void %split(ptr %task, ptr %args, ptr %dims, ptr %steps, ptr %data, i64 0, i64 1, i32 %threads)
  ret void
}}

; Limit a number of threads to those that may run.
define internal i32 @allowed(i32 %threads) nounwind alwaysinline {{
  %limit = load i32, ptr @{THREAD_LIMIT}, align 4
  %fewer = call i32 @llvm.smin.i32(i32 %limit, i32 %threads)
  ret i32 %fewer
}}

; Run consecutive items of a loop.
define internal void @work(ptr %task, ptr %data, i64 %item, i64 %count, i64 %first, i64 %last, i64 %grain)
    nounwind alwaysinline {{
  %low = mul i64 %item, %grain
  %begin = add i64 %first, %low
  %iterations = mul i64 %count, %grain
  %above = add i64 %begin, %iterations
  %end = call i64 @llvm.smin.i64(i64 %above, i64 %last)
  call void %task(i64 %begin, i64 %end, ptr %data)
  ret void
}}

; Wait a little; return the number of polls.
define internal i32 @wait(i32 %looks) nounwind alwaysinline {{
  %patient = icmp ult i32 %looks, {_LOOKS}
  br i1 %patient, label %pause, label %offer
pause:
  $pause
  %more = add nuw i32 %looks, 1
  ret i32 %more
offer:
  $give_way
  ret i32 %looks
}}

; Run items of one loop, those of queue %me first, until all queues are empty.
define internal void @take_part(ptr %team, i64 %epoch, i64 %me) nounwind {{
entry:
{_LOOP_PLACES}  %task = load atomic ptr, ptr %task.place monotonic, align 8
  %data = load atomic ptr, ptr %data.place monotonic, align 8
  %items = load atomic i64, ptr %items.place acquire, align 8
  %first = load atomic i64, ptr %first.place monotonic, align 8
  %last = load atomic i64, ptr %last.place monotonic, align 8
  %grain = load atomic i64, ptr %grain.place monotonic, align 8
  %shares = load i64, ptr %shares.place, align 8
  %high = shl i64 %epoch, {_ITEM_BITS}
$begin_work  br label %share
share:
  %turn = phi i64 [ 0, %entry ], [ %next.turn, %empty ]
  %done = phi i64 [ 0, %entry ], [ %done.here, %empty ]
  %ahead = add i64 %me, %turn
  %past = icmp uge i64 %ahead, %shares
  %back = sub i64 %ahead, %shares
  %number = select i1 %past, i64 %back, i64 %ahead
  %offset = mul i64 %number, {_LINE}
  %place = add i64 %offset, {_QUEUES}
  %queue = getelementptr i8, ptr %team, i64 %place
  %following = add i64 %number, 1
  %scaled = mul i64 %following, %items
  %end = udiv i64 %scaled, %shares
  br label %look
look:
  %done.here = phi i64 [ %done, %share ], [ %done.here, %claim ], [ %done.more, %item ]
  %word = load atomic i64, ptr %queue monotonic, align 8
  ; Where the word has another epoch, the difference is larger than any end.
  %next = sub i64 %word, %high
  %some = icmp ult i64 %next, %end
  br i1 %some, label %claim, label %empty
claim:
  %word.next = add i64 %word, 1
  %swapped = cmpxchg ptr %queue, i64 %word, i64 %word.next monotonic monotonic, align 8
  %mine = extractvalue {{ i64, i1 }} %swapped, 1
  br i1 %mine, label %item, label %look
item:
  call void @work(ptr %task, ptr %data, i64 %next, i64 1, i64 %first, i64 %last, i64 %grain)
  %done.more = add i64 %done.here, 1
  br label %look
empty:
  %next.turn = add i64 %turn, 1
  %again = icmp ult i64 %next.turn, %shares
  br i1 %again, label %share, label %leave
leave:
  %worked = icmp ne i64 %done.here, 0
  br i1 %worked, label %count, label %out
count:
$end_work  %finished = getelementptr i8, ptr %team, i64 {_FINISHED}
  %before = atomicrmw add ptr %finished, i64 %done.here release, align 8
  br label %out
out:
  ret void
}}

; Run a helper: a thread that does not run the program.
define internal void @help(ptr %team, i64 %me) nounwind {{
entry:
  br label %look
look:
  %seen = phi i64 [ 0, %entry ], [ %seen, %nothing ], [ %epoch, %loop ]
  %looks = phi i32 [ 0, %entry ], [ %more, %nothing ], [ 0, %loop ]
  %epoch = load atomic i64, ptr %team acquire, align 8
  %same = icmp eq i64 %epoch, %seen
  br i1 %same, label %nothing, label %something
nothing:
  %more = call i32 @wait(i32 %looks)
  br label %look
something:
  %over = icmp eq i64 %epoch, -1
  br i1 %over, label %out, label %loop
loop:
  call void @take_part(ptr %team, i64 %epoch, i64 %me)
  br label %look
out:
  ret void
}}

; Run an item of the layer: this thread joins the team.
define internal void @join(ptr %args, ptr %dims, ptr %steps, ptr %team) nounwind {{
entry:
  %count = load i64, ptr %dims
  br label %check
check:
  %number = phi i64 [ 0, %entry ], [ %number.next, %left ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %come, label %out
come:
  %number.next = add i64 %number, 1
  %arrived = getelementptr i8, ptr %team, i64 {_ARRIVED}
  %me = atomicrmw add ptr %arrived, i64 1 monotonic, align 8
  %first = icmp eq i64 %me, 0
  br i1 %first, label %lead, label %follow
lead:
  %entry.place = getelementptr i8, ptr %team, i64 {_ENTRY}
  %args.place = getelementptr i8, ptr %team, i64 {_ARGS}
  %program = load ptr, ptr %entry.place
  %passed = load ptr, ptr %args.place
  call void %program(ptr %passed, ptr %team)
  store atomic i64 -1, ptr %team monotonic, align 8
  br label %left
follow:
  call void @help(ptr %team, i64 %me)
  br label %left
left:
  br label %check
out:
  ret void
}}

define void @{RUN_TEAM}(ptr %entry, ptr %args, i32 %wished) nounwind {{
  %threads = call i32 @allowed(i32 %wished)
  %several = icmp sgt i32 %threads, 1
  br i1 %several, label %gather, label %single
single:
  call void %entry(ptr %args, ptr null)
  ret void
gather:
  %shares = zext i32 %threads to i64
  %lines = mul i64 %shares, {_LINE}
  %size = add i64 %lines, {_QUEUES}
  %team = alloca i8, i64 %size, align {_LINE}
  call void @llvm.memset.p0.i64(ptr align {_LINE} %team, i8 0, i64 %size, i1 false)
  %shares.place = getelementptr i8, ptr %team, i64 {_SHARES}
  %entry.place = getelementptr i8, ptr %team, i64 {_ENTRY}
  %args.place = getelementptr i8, ptr %team, i64 {_ARGS}
  store i64 %shares, ptr %shares.place
  store ptr %entry, ptr %entry.place
  store ptr %args, ptr %args.place
  call void @layer(ptr @join, ptr %team, i64 %shares, i32 %threads)
  ret void
}}

; Run an item of the layer: a part of a loop without a team.
define internal void @alone(ptr %args, ptr %dims, ptr %steps, ptr %loop) nounwind {{
  %base = load ptr, ptr %args
  %item = ptrtoint ptr %base to i64
  %count = load i64, ptr %dims
  %task = load ptr, ptr %loop
  %data.place = getelementptr {_WHOLE_LOOP}, ptr %loop, i32 0, i32 1
  %data = load ptr, ptr %data.place
  %first.place = getelementptr {_WHOLE_LOOP}, ptr %loop, i32 0, i32 2
  %first = load i64, ptr %first.place
  %last.place = getelementptr {_WHOLE_LOOP}, ptr %loop, i32 0, i32 3
  %last = load i64, ptr %last.place
  %grain.place = getelementptr {_WHOLE_LOOP}, ptr %loop, i32 0, i32 4
  %grain = load i64, ptr %grain.place
  call void @work(ptr %task, ptr %data, i64 %item, i64 %count, i64 %first, i64 %last, i64 %grain)
  ret void
}}

define void @{FORK}(ptr %team, ptr %task, ptr %data, i64 %first, i64 %extent, i64 %wish, i32 %wished) nounwind {{
entry:
  %whole = alloca {_WHOLE_LOOP}
  %last = add i64 %first, %extent
  %threads = call i32 @allowed(i32 %wished)
  %several = icmp sgt i32 %threads, 1
  br i1 %several, label %divide, label %one
divide:
  %open = icmp eq i64 %wish, 0
  br i1 %open, label %choose, label %chosen
choose:
  %threads.wide = zext i32 %threads to i64
  %many.items = mul i64 %threads.wide, {ITEMS_PER_THREAD}
  %share.each = sdiv i64 %extent, %many.items
  br label %chosen
chosen:
  %some.grain = phi i64 [ %wish, %divide ], [ %share.each, %choose ]
  %huge = lshr i64 %extent, {_MOST_ITEMS}
  %least = add i64 %huge, 1
  %grain = call i64 @llvm.smax.i64(i64 %some.grain, i64 %least)
  %one.item = icmp sle i64 %extent, %grain
  br i1 %one.item, label %one, label %count
one:
  tail call void %task(i64 %first, i64 %last, ptr %data)
  ret void
count:
  %less = sub i64 %grain, 1
  %round = add i64 %extent, %less
  %items = sdiv i64 %round, %grain
  %none = icmp eq ptr %team, null
  br i1 %none, label %without, label %with
without:
  store ptr %task, ptr %whole
  %whole.data = getelementptr {_WHOLE_LOOP}, ptr %whole, i32 0, i32 1
  store ptr %data, ptr %whole.data
  %whole.first = getelementptr {_WHOLE_LOOP}, ptr %whole, i32 0, i32 2
  store i64 %first, ptr %whole.first
  %whole.last = getelementptr {_WHOLE_LOOP}, ptr %whole, i32 0, i32 3
  store i64 %last, ptr %whole.last
  %whole.grain = getelementptr {_WHOLE_LOOP}, ptr %whole, i32 0, i32 4
  store i64 %grain, ptr %whole.grain
  call void @layer(ptr @alone, ptr %whole, i64 %items, i32 %threads)
  ret void
with:
{_LOOP_PLACES}  %finished = getelementptr i8, ptr %team, i64 {_FINISHED}
  %shares = load i64, ptr %shares.place
  %before = load atomic i64, ptr %team monotonic, align 8
  %epoch = add i64 %before, 1
  %high = shl i64 %epoch, {_ITEM_BITS}
  br label %share
share:
  %number = phi i64 [ 0, %with ], [ %number.next, %share ]
  %offset = mul i64 %number, {_LINE}
  %place = add i64 %offset, {_QUEUES}
  %queue = getelementptr i8, ptr %team, i64 %place
  %scaled = mul i64 %number, %items
  %start = udiv i64 %scaled, %shares
  %word = or i64 %high, %start
  store atomic i64 %word, ptr %queue monotonic, align 8
  %number.next = add i64 %number, 1
  %more = icmp ult i64 %number.next, %shares
  br i1 %more, label %share, label %announce
announce:
  store atomic i64 0, ptr %finished monotonic, align 8
  store atomic ptr %task, ptr %task.place monotonic, align 8
  store atomic ptr %data, ptr %data.place monotonic, align 8
  store atomic i64 %items, ptr %items.place release, align 8
  store atomic i64 %first, ptr %first.place monotonic, align 8
  store atomic i64 %last, ptr %last.place monotonic, align 8
  store atomic i64 %grain, ptr %grain.place monotonic, align 8
  store atomic i64 %epoch, ptr %team release, align 8
  call void @take_part(ptr %team, i64 %epoch, i64 0)
  br label %look
look:
  %looks = phi i32 [ 0, %announce ], [ %again, %nothing ]
  %found = load atomic i64, ptr %finished acquire, align 8
  %all = icmp eq i64 %found, %items
  br i1 %all, label %out, label %nothing
nothing:
  %again = call i32 @wait(i32 %looks)
  br label %look
out:
  ret void
}}
"""


def _task_name(values: int) -> str:
    return f"tilewright_task_{values}"


#: The names of all shared tasks.
SHARED_TASK_NAMES = tuple(map(_task_name, _SHARED_TASKS))


def shared_task(values: int) -> tuple[str, int] | None:
    """Return the name of a task for bodies that take the range and ``values`` captured values, all of them addresses or
    64-bit integers, and the number of values that it passes; None if there are too many.

    A loop of a kernel needs no task of its own then, a function which LLVM takes .4 ms to compile. The captured values
    lie behind the address of the body; what is passed beyond them is ignored, as calling conventions of the processors
    that have 64-bit addresses leave the arguments to the caller.
    """
    passed = next((count for count in _SHARED_TASKS if values <= count), None)
    return None if passed is None else (_task_name(passed), passed)


def _shared_task_ir(values: int) -> str:
    """Return the task that calls the body whose address ``data`` points to, with the ``values`` integers behind it."""
    lines = [f"define void @{_task_name(values)}(i64 %begin, i64 %end, ptr %data) nounwind {{"]
    lines += ["  %body = load ptr, ptr %data"]
    for number in range(1, values + 1):
        lines += [f"  %place.{number} = getelementptr i64, ptr %data, i64 {number}"]
        lines += [f"  %value.{number} = load i64, ptr %place.{number}"]
    passed = "".join(f", i64 %value.{number}" for number in range(1, values + 1))
    return "\n".join([*lines, f"  call void %body(i64 %begin, i64 %end{passed})", "  ret void", "}", ""])


def team_ir(processor: str, yields: bool, profiling: bool = False, counter: bool = False) -> str:
    """Return the functions of teams as LLVM IR, for a processor (the first part of LLVM's triple); profiled ones read
    the processor's ``counter``, or the operating system's clock."""
    declaration, pause = architecture_of(processor).pause
    if yields:
        declaration += f"\ndeclare i32 @{YIELD}()"
    give_way = f"%ignored = call i32 @{YIELD}()" if yields else pause
    begin_work, end_work = (clock.BEGIN_WORK, clock.end_work(_BUSY, _STRIDE)) if profiling else ("", "")
    text = string.Template(_TEXT).substitute(
        declarations=declaration, pause=pause, give_way=give_way, begin_work=begin_work, end_work=end_work
    )
    text += "".join(f"\n{_shared_task_ir(values)}" for values in _SHARED_TASKS)
    return text + clock.functions(_BUSY, _STRIDE, counter) if profiling else text
