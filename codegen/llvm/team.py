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

Why each field of a team is accessed in the order that it is
------------------------------------------------------------

The *leader* is the thread that runs the program: it alone announces loops. The *helpers* are the others. Three edges
carry everything ("release" and "acquire" are LLVM's orderings; all other atomic accesses are monotonic, which says only
that a value is stored and loaded whole):

E1. The leader stores the epoch with release, a helper loads it with acquire. What the leader did before it announced
    loop ``e`` happens before what a helper does that has seen ``e``. So the helper finds the loop's fields and its
    queues as they are in ``e`` or later, and the data that the loop reads.
E2. A thread that has done items adds their number to ``finished`` with release, and the leader waits, by loads with
    acquire, until all items are there. (Each sum continues the release sequence of the ones before: the last one that
    the leader loads carries all of them.) So what the items wrote, and all that those threads did before they added,
    happens before the leader goes on, and by E1 before any item of the next loop.
E3. The leader stores ``items`` with release after it has moved all queues to the new epoch, and helpers load it with
    acquire. A helper that finds the number of items of a later loop also finds the queues at a later loop's epoch.

A *late* helper has seen epoch ``e`` and goes on after the leader has announced ``e + 1``, or while it does. It does
harm only if it takes an item, or if it adds to ``finished``, which it does only after it has taken one. It takes one by
a compare-and-swap on a queue's word, which must have its own epoch, ``e``, and an item below the queue's end. If its
``items`` is that of ``e``, so is the end, and an item below it that is still in the queue is one that the leader waits
for: the leader has not announced ``e + 1``. If it is that of a later loop, the word is too, by E3, and the epoch
differs. So a successful swap takes an item of loop ``e`` that nobody has taken. An update always reads the last value
of its place: an old word that the load before has found makes the swap fail.

=============  ==================  =====================  ==============================================================
field          who stores          who loads              ordering, and why that is enough
=============  ==================  =====================  ==============================================================
epoch          the leader          all                    Release and acquire: E1. The leader's own load is of what it
                                                          stored itself. The last value, -1, publishes nothing that a
                                                          helper reads: monotonic.
items          the leader          all                    Release and acquire: E3. The only field that decides something
                                                          before an item is taken.
task, data,    the leader          all                    Monotonic. A helper uses them only for an item that it has
first, last,                                              taken. They are not older than its epoch by E1. They are not
grain                                                     newer either: the leader waits for that item, so the loads, in
                                                          front of the addition to ``finished``, happen before the next
                                                          loop's stores by E2. A late helper's are never used.
queues         the leader: where   all                    Monotonic. A word is used for what it says itself; what it
               a loop begins; all:                        refers to came by E1. That the leader's stores come after
               items taken                                the swaps of the loop before, E2 says; that a late helper
                                                          finds them, E3.
finished       the leader: zero;   the leader             Release to add, acquire to load: E2. Zero is stored when all
               all: what they did                         of the loop before have added (none adds without an item),
                                                          and before the next loop's epoch, which who adds has seen.
                                                          So no addition is lost and the store itself is monotonic.
shares         who gathers         all                    No atomic access: stored before the threading layer is asked
               the team                                   for threads, never again. That a layer's threads see what was
                                                          done before they were asked for is what layers are for.
entry, args    who gathers         the leader             As shares.
               the team
arrived        all                 all, as they add       Monotonic: the numbers must differ, nothing else. Zero is
                                                          there as shares are.
busy, stride   the leader, when    who has done items     No atomic access (profiled models): stored before E1, loaded
               a kernel begins                            before E2.
=============  ==================  =====================  ==============================================================

*Epochs come round.* A queue's word has 40 bits of the epoch. A helper that stands still between its look at the epoch
and its swap takes a wrong item if it goes on after exactly 2 ** 40 loops of the same call: most of a day, as the least
loop takes 0.07 microseconds. The item's number never runs over into these bits, which would make the next epoch of it:
a fork makes items larger where there would be too many (``_MOST_ITEMS``).

*The memory of a team* is in the frame of who gathers it, which is left when the layer returns; the layer waits for all
that it handed out. A thread that joins late, after the program's end, is still one of these: it finds the epoch -1 and
returns. What a loop captured is in the leader's frame, and only who has taken an item reads it.

*Nothing is thrown* through a team: generated code has no exceptions, and calls nothing that has.

*Only the leader forks.* A loop inside of a parallel loop is compiled without a fork.

On x86 all of these loads and stores are plain instructions, whatever their order: no test there finds one that is too
weak. So tests run the text of these functions on a machine that is as loose as LLVM's rules (``tests/codegen``).
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading

import llvmlite.binding as llvm

from tilewright.codegen.llvm import clock
from tilewright.codegen.llvm.emission import emit_object
from tilewright.codegen.llvm.team_ir import FORK, PARALLEL_FOR, RUN_TEAM, THREAD_LIMIT, YIELD, team_ir
from tilewright.codegen.threads import ensure_threads, thread_limit_address

#: What object code that was kept in a file expects of the process that runs it: raise this number when the functions
#: above, the limit of threads or the parameters of an entry point change.
RUNTIME_INTERFACE = 2

_LIBRARY = "tilewright_team"
_lock = threading.Lock()


def _yield_address() -> int | None:
    """Of the function that lets other threads run on this core."""
    if sys.platform == "win32":
        function = ctypes.CDLL("kernel32").SwitchToThread
    else:
        function = getattr(ctypes.CDLL(None), "sched_yield", None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def _trackers(profiling: bool) -> tuple[llvm.LLJIT, dict[str, llvm.ResourceTracker]]:
    with _lock:
        return _made_trackers(profiling)


@functools.cache
def _made_trackers(profiling: bool) -> tuple[llvm.LLJIT, dict[str, llvm.ResourceTracker]]:
    ensure_threads()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_process_triple()
    # Level 2 takes 15 ms longer, a tenth of a small build; loops are handed over as fast.
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=0, reloc="pic", codemodel="small", jit=False)
    address = _yield_address()
    counter = clock.uses_counter()
    text = team_ir(triple.split("-")[0], address is not None, profiling, counter)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple, module.data_layout = triple, str(machine.target_data)
    module.verify()
    library = llvm.JITLibraryBuilder().add_object_img(emit_object(machine, module))
    library.import_symbol(PARALLEL_FOR, llvm.address_of_symbol(PARALLEL_FOR))
    library.import_symbol(THREAD_LIMIT, thread_limit_address())
    if address is not None:
        library.import_symbol(YIELD, address)
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
