"""One fork and join for all parallel loops of a call: threads meet once and stay together.

A fork of the threading layer costs 2 to 4 microseconds, more if its threads fell asleep meanwhile, and a network has a
hundred of them. So the layer is asked once, for as many items as there are threads. The first thread to come runs the
program; the others help it: they wait for its next parallel loop, take items of it, and leave when the program ends.
A loop is announced by the next *epoch*; handing it over and gathering the results take 0.3 microseconds.

No thread is waited for before it has taken an item. Whoever comes late (or not at all, since the layer's threads are
busy with something else) finds its share done by the others: items lie in one queue a thread, which takes from its own
first, so that a thread finds in its cache what it made in the loop before, and from the others' when that is empty.

Waiting threads look again and again, at first without a pause, and offer the core to other programs after a while.

A profiled model has a second set of these functions (:func:`profiling_functions`): threads also note how long they
worked. The usual set has nothing of that.

The memory of a team, one cache line each: the epoch; the loop (what runs an item, what it captured, the number of items
and of queues); how many items are finished; how many threads have come, and what they are to run; and the queues. A
queue is its epoch and the next item in one word: an item is taken by a compare-and-swap, which fails for a thread that
is late by a loop. The next loop moves the queues on before it changes anything that such a thread reads.
"""

from __future__ import annotations

import ctypes
import functools
import string
import sys

import llvmlite.binding as llvm

from tilewright.codegen.llvm import clock
from tilewright.codegen.threads import ensure_threads

#: ``void numba_parallel_for(task, args, dims, steps, data, inner_ndim, array_count, num_threads)`` splits ``dims[0]``
#: items among threads and calls ``task(args, dims, steps, data)`` with the addresses ``args[i]`` moved by ``steps[i]``
#: bytes for each item before, and with ``dims[0]`` the number of items that this call has to do (which may be zero).
PARALLEL_FOR = "numba_parallel_for"
#: ``void f(ptr entry, ptr args, i32 threads)`` calls ``entry(args, team)`` with a team of so many threads.
RUN_TEAM = "tilewright_run_team"
#: ``void f(ptr team, ptr task, ptr data, i64 items, i32 threads)`` calls ``task(i64 first, i64 count, ptr data)`` until
#: all items are done, by the threads of the team, or (null) by the threading layer's.
FORK = "tilewright_fork"

#: What object code that was kept in a file expects of the process that runs it: raise this number when the functions
#: above, the limit of threads or the parameters of an entry point change.
RUNTIME_INTERFACE = 1

_YIELD = "tilewright_yield"
_LIBRARY = "tilewright_team"


#: How often a waiting thread looks before it offers its core to others, each time then: about 20 microseconds.
_LOOKS = 1000

_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

# Places in the memory of a team, in bytes.
_LINE = 64
_EPOCH, _LOOP, _FINISHED, _ARRIVED, _QUEUES = (number * _LINE for number in range(5))
#: What a loop is; and where the first thread adds up how long it worked, if anywhere, and how far on the next one.
_TASK, _DATA, _ITEMS, _SHARES, _BUSY, _STRIDE = (_LOOP + 8 * number for number in range(6))
_ENTRY, _ARGS = _ARRIVED + 8, _ARRIVED + 16

_LOOP_PLACES = f"""\
  %task.place = getelementptr i8, ptr %team, i64 {_TASK}
  %data.place = getelementptr i8, ptr %team, i64 {_DATA}
  %items.place = getelementptr i8, ptr %team, i64 {_ITEMS}
  %shares.place = getelementptr i8, ptr %team, i64 {_SHARES}
"""

_TEXT = f"""
declare void @{PARALLEL_FOR}(ptr, ptr, ptr, ptr, ptr, i64, i64, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
$declarations

; The threading layer, with one item for what it counts.
define internal void @layer(ptr %task, ptr %data, i64 %items, i32 %threads) nounwind {{
  %args = alloca ptr
  %dims = alloca i64
  %steps = alloca i64
  store ptr null, ptr %args
  store i64 %items, ptr %dims
  store i64 1, ptr %steps
  call void @{PARALLEL_FOR}(ptr %task, ptr %args, ptr %dims, ptr %steps, ptr %data, i64 0, i64 1, i32 %threads)
  ret void
}}

; Waits a little; gives how often that was done.
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

; Items of one loop, those of queue %me first, for as long as there are some.
define internal void @take_part(ptr %team, i64 %epoch, i64 %me) nounwind {{
entry:
{_LOOP_PLACES}  %task = load atomic ptr, ptr %task.place acquire, align 8
  %data = load atomic ptr, ptr %data.place acquire, align 8
  %items = load atomic i64, ptr %items.place acquire, align 8
  %shares = load i64, ptr %shares.place, align 8
  %epoch.low = and i64 %epoch, 4294967295
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
  %word = load atomic i64, ptr %queue acquire, align 8
  %word.epoch = lshr i64 %word, 32
  %same = icmp eq i64 %word.epoch, %epoch.low
  %next = and i64 %word, 4294967295
  %some = icmp ult i64 %next, %end
  %both = and i1 %same, %some
  br i1 %both, label %claim, label %empty
claim:
  %word.next = add i64 %word, 1
  %swapped = cmpxchg ptr %queue, i64 %word, i64 %word.next acq_rel monotonic, align 8
  %mine = extractvalue {{ i64, i1 }} %swapped, 1
  br i1 %mine, label %item, label %look
item:
  call void %task(i64 %next, i64 1, ptr %data)
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

; What the threads do that do not run the program.
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

; An item of the layer: a thread that joins the team.
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
  store atomic i64 -1, ptr %team release, align 8
  br label %left
follow:
  call void @help(ptr %team, i64 %me)
  br label %left
left:
  br label %check
out:
  ret void
}}

define void @{RUN_TEAM}(ptr %entry, ptr %args, i32 %threads) nounwind {{
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

; A loop without a team, as an item of the layer.
define internal void @alone(ptr %args, ptr %dims, ptr %steps, ptr %data) nounwind {{
  %base = load ptr, ptr %args
  %first = ptrtoint ptr %base to i64
  %count = load i64, ptr %dims
  %task = load ptr, ptr %data
  %captured.place = getelementptr i8, ptr %data, i64 8
  %captured = load ptr, ptr %captured.place
  call void %task(i64 %first, i64 %count, ptr %captured)
  ret void
}}

define void @{FORK}(ptr %team, ptr %task, ptr %data, i64 %items, i32 %threads) nounwind {{
entry:
  %both = alloca {{ ptr, ptr }}
  %none = icmp eq ptr %team, null
  %many = icmp ugt i64 %items, 2147483647
  %layer = or i1 %none, %many
  br i1 %layer, label %without, label %with
without:
  store ptr %task, ptr %both
  %second = getelementptr i8, ptr %both, i64 8
  store ptr %data, ptr %second
  call void @layer(ptr @alone, ptr %both, i64 %items, i32 %threads)
  ret void
with:
{_LOOP_PLACES}  %finished = getelementptr i8, ptr %team, i64 {_FINISHED}
  %shares = load i64, ptr %shares.place
  %last = load atomic i64, ptr %team monotonic, align 8
  %epoch = add i64 %last, 1
  %high = shl i64 %epoch, 32
  br label %share
share:
  %number = phi i64 [ 0, %with ], [ %number.next, %share ]
  %offset = mul i64 %number, {_LINE}
  %place = add i64 %offset, {_QUEUES}
  %queue = getelementptr i8, ptr %team, i64 %place
  %scaled = mul i64 %number, %items
  %first = udiv i64 %scaled, %shares
  %word = or i64 %high, %first
  store atomic i64 %word, ptr %queue release, align 8
  %number.next = add i64 %number, 1
  %more = icmp ult i64 %number.next, %shares
  br i1 %more, label %share, label %announce
announce:
  store atomic i64 0, ptr %finished release, align 8
  store atomic ptr %task, ptr %task.place release, align 8
  store atomic ptr %data, ptr %data.place release, align 8
  store atomic i64 %items, ptr %items.place release, align 8
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


def _yield_address() -> int | None:
    """Of the function that lets other threads run on this core."""
    if sys.platform == "win32":
        function = ctypes.CDLL("kernel32").SwitchToThread
    else:
        function = getattr(ctypes.CDLL(None), "sched_yield", None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def team_ir(processor: str, yields: bool, profiling: bool = False, counter: bool = False) -> str:
    """The functions of teams as LLVM IR, for a processor (the first part of LLVM's triple); those that are profiled by
    the processor's ``counter``, or by the operating system's clock."""
    declaration, pause = _PAUSES.get(processor, ("", ""))
    if yields:
        declaration += f"\ndeclare i32 @{_YIELD}()"
    give_way = f"%ignored = call i32 @{_YIELD}()" if yields else pause
    begin_work, end_work = (clock.BEGIN_WORK, clock.end_work(_BUSY, _STRIDE)) if profiling else ("", "")
    text = string.Template(_TEXT).substitute(
        declarations=declaration, pause=pause, give_way=give_way, begin_work=begin_work, end_work=end_work
    )
    return text + clock.functions(_BUSY, _STRIDE, counter) if profiling else text


@functools.cache
def _trackers(profiling: bool) -> tuple[llvm.LLJIT, dict[str, llvm.ResourceTracker]]:
    ensure_threads()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=2, reloc="pic", codemodel="small", jit=False)
    address = _yield_address()
    counter = clock.uses_counter()
    text = team_ir(triple.split("-")[0], address is not None, profiling, counter)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple, module.data_layout = triple, str(machine.target_data)
    module.verify()
    library = llvm.JITLibraryBuilder().add_object_img(machine.emit_object(module))
    library.import_symbol(PARALLEL_FOR, llvm.address_of_symbol(PARALLEL_FOR))
    if address is not None:
        library.import_symbol(_YIELD, address)
    if profiling and not counter:
        library.import_symbol(clock.CLOCK, clock.address())
    engine = llvm.create_lljit_compiler(machine)
    first = library.link(engine, _LIBRARY)
    names = (RUN_TEAM, FORK, *((clock.TICKS, *clock.PROFILE_FUNCTIONS.values()) if profiling else ()))
    return engine, {"": first, **{name: engine.lookup(_LIBRARY, name) for name in names}}


def _addresses(profiling: bool) -> dict[str, int]:
    return {name: int(tracker[name]) for name, tracker in _trackers(profiling)[1].items() if name}


def team_functions() -> dict[str, int]:
    """The addresses of ``RUN_TEAM`` and ``FORK``. The threads start if they do not run yet."""
    return _addresses(profiling=False)


def profiling_functions() -> dict[str, int]:
    """The addresses of all of them for code that is profiled, of ``clock.PROFILE_FUNCTIONS`` and of ``TICKS``."""
    return _addresses(profiling=True)


@functools.cache
def seconds_per_tick() -> float:
    """Of the clock by which code is profiled."""
    if not clock.uses_counter():
        return 1e-9
    return clock.seconds_per_tick(ctypes.CFUNCTYPE(ctypes.c_int64)(profiling_functions()[clock.TICKS]))
