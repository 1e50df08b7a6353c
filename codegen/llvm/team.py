"""Run all parallel loops of a call in one fork and join: threads meet once and stay together.

A fork of the threading layer costs 2 to 4 microseconds, more if its threads have fallen asleep, and a network has a
hundred of them. So the layer forks once, with as many items as there are threads. The first thread to arrive runs the
program; the others help: they wait for its next parallel loop, take items of it, and leave when the program ends. A new
*epoch* announces a loop; handing it over and joining take 0.3 microseconds.

No thread is waited for before it has taken an item. The share of a thread that is late (or never arrives, since the
layer's threads are busy elsewhere) is done by the others. Each thread has a queue of items and empties its own first,
so that it finds in its cache the results of its previous loop; then it takes from the others' queues.

Waiting threads poll, at first without a break, and yield the core to other programs after a while.

A profiled model uses a second set of these functions (:func:`profiling_functions`), in which threads also record their
working time. The usual set has no code for that.

The memory ordering of each field of a team
-------------------------------------------

The *leader* is the thread that runs the program: it alone announces loops. The *helpers* are the others. Three
happens-before edges suffice ("release" and "acquire" are LLVM's orderings; all other atomic accesses are monotonic,
which only guarantees that a value is stored and loaded whole):

E1. The leader stores the epoch with release, a helper loads it with acquire. Everything that the leader did before it
    announced loop ``e`` happens before everything that a helper does after it has loaded ``e``. So the helper sees the
    loop's fields and its queues as of ``e`` or later, and the data that the loop reads.
E2. A thread that has done items adds their number to ``finished`` with release, and the leader waits, by loads with
    acquire, until all items are counted. (Each addition continues the release sequence of the earlier ones: the last
    sum that the leader loads synchronizes with all of them.) So the writes of the items, and everything that those
    threads did before they added, happen before the leader continues, and by E1 before any item of the next loop.
E3. The leader stores ``items`` with release after it has moved all queues to the new epoch, and helpers load it with
    acquire. A helper that finds the number of items of a later loop also finds the queues at a later loop's epoch.

A *late* helper has loaded epoch ``e`` and continues after the leader has announced ``e + 1``, or during that. It does
harm only if it takes an item, or if it adds to ``finished``, which it does only after it has taken one. It takes one by
a compare-and-swap on a queue's word, which must have its own epoch, ``e``, and an item below the queue's end. If its
``items`` is that of ``e``, so is the end, and an item below it that is still in the queue is one that the leader waits
for: the leader has not announced ``e + 1``. If it is that of a later loop, the word is too, by E3, and the epoch
differs. So a successful swap takes an item of loop ``e`` that nobody has taken. A read-modify-write always reads the
last value in the modification order: a stale word from the load before it makes the swap fail.

=============  ==================  =====================  ==============================================================
field          stored by           loaded by              ordering, and why it suffices
=============  ==================  =====================  ==============================================================
epoch          the leader          all                    Release and acquire: E1. The leader itself loads the value
                                                          that it stored. The last value, -1, publishes nothing that
                                                          a helper reads: monotonic.
items          the leader          all                    Release and acquire: E3. The only field on which a decision
                                                          depends before an item is taken.
task, data,    the leader          all                    Monotonic. A helper uses them only for an item that it has
first, last,                                              taken. They are not older than its epoch by E1. They are not
grain                                                     newer either: the leader waits for that item, so the loads, in
                                                          front of the addition to ``finished``, happen before the next
                                                          loop's stores by E2. A late helper's are never used.
queues         the leader: where   all                    Monotonic. Only the word itself is used; the data of its
               a loop begins; all:                        item are visible by E1. The leader's stores come after the
               items taken                                swaps of the loop before by E2, and are visible to a late
                                                          helper by E3.
finished       the leader: zero;   the leader             Release to add, acquire to load: E2. Zero is stored after
               all: their items                           all threads of the loop before have added (none adds
                                                          without an item), and before the next loop's epoch, which
                                                          a thread has loaded before it adds. So no addition is lost
                                                          and the store itself is monotonic.
shares         the thread that     all                    No atomic access: stored only before the threading layer
               gathers the team                           forks. A fork of the layer makes earlier writes visible to
                                                          its threads.
entry, args    the thread that     the leader             As shares.
               gathers the team
arrived        all                 all, as they add       Monotonic: the numbers must differ, nothing else. Zero is
                                                          stored as shares are.
busy, stride   the leader, when    threads that have      No atomic access (profiled models): stored before E1, loaded
               a kernel begins     done items             before E2.
=============  ==================  =====================  ==============================================================

*Epochs wrap around.* A queue's word has 40 bits of the epoch. A helper that is suspended between its load of the epoch
and its swap takes a wrong item if it continues after exactly 2 ** 40 loops of the same call: most of a day, as the
shortest loop takes 0.07 microseconds. The item's number never carries into these bits, which would be the next epoch:
a fork makes items larger where there would be too many (``_MOST_ITEMS``).

*The memory of a team* lies in the frame of the thread that gathers it. The frame lives until the layer returns, which
waits for all of its items. A thread that joins late, after the program's end, runs one of these: it loads the epoch -1
and returns. The captured values of a loop lie in the leader's frame; only threads that have taken an item read them.

*Nothing is thrown* through a team: generated code has no exceptions, and calls nothing that has.

*Only the leader forks.* A loop nested in a parallel loop is compiled without a fork.

On x86 all of these loads and stores are plain instructions, whatever their ordering: no test there detects one that is
too weak. So tests run the text of these functions on a simulated machine as weakly ordered as LLVM's rules allow
(``tests/codegen``).
"""

from __future__ import annotations

import ctypes
import functools
import sys

import llvmlite.binding as llvm

from tilewright.codegen.llvm import clock
from tilewright.codegen.llvm.emission import emit_object
from tilewright.codegen.llvm.engine import native_machine, process_engine
from tilewright.codegen.llvm.headroom import headroom
from tilewright.codegen.llvm.system_symbols import system_addresses
from tilewright.codegen.llvm.team_ir import (
    FORK,
    PARALLEL_FOR,
    RUN_TEAM,
    SHARED_TASK_NAMES,
    THREAD_LIMIT,
    YIELD,
    team_ir,
)
from tilewright.codegen.threads import parallel_for_address, thread_limit_address
from tilewright.tensorir import forking
from tilewright.tensorir.llvm_context import fresh_context

#: The version of the interface that kept object code expects of the process that runs it: raise this number when the
#: functions above, the limit of threads or the parameters of an entry point change.
RUNTIME_INTERFACE = 3

_LIBRARIES = ("tilewright_team", "tilewright_profiled_team")
_lock = forking.Lock()


def _yield_address() -> int | None:
    """Return the address of the function that lets other threads run on this core."""
    if sys.platform == "win32":
        function = ctypes.CDLL("kernel32").SwitchToThread
    else:
        function = getattr(ctypes.CDLL(None), "sched_yield", None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def _linked(profiling: bool) -> llvm.ResourceTracker:
    with _lock, headroom():
        return _made(profiling)


@functools.cache
def _made(profiling: bool) -> llvm.ResourceTracker:
    """Compile and link the functions; return what keeps them alive, and their addresses."""
    machine = native_machine()  # level 2 takes 15 ms longer, a tenth of a small build; loops are handed over as fast
    triple = machine.triple
    address = _yield_address()
    counter = clock.uses_counter()
    text = team_ir(triple.split("-")[0], address is not None, profiling, counter)
    with fresh_context() as context, llvm.parse_assembly(text, context) as module:
        module.triple, module.data_layout = triple, str(machine.target_data)
        module.verify()
        object_bytes = emit_object(machine, module)
    library = llvm.JITLibraryBuilder().add_object_img(object_bytes)
    for name, found in system_addresses(object_bytes).items():
        library.import_symbol(name, found)
    library.import_symbol(PARALLEL_FOR, parallel_for_address())
    library.import_symbol(THREAD_LIMIT, thread_limit_address())
    if address is not None:
        library.import_symbol(YIELD, address)
    if profiling and not counter:
        library.import_symbol(clock.CLOCK, clock.address())
    for name in _names(profiling):
        library.export_symbol(name)
    return library.link(process_engine(), _LIBRARIES[profiling])


def _names(profiling: bool) -> list[str]:
    names = [RUN_TEAM, FORK, *SHARED_TASK_NAMES]
    return [*names, clock.TICKS, *clock.PROFILE_FUNCTIONS.values()] if profiling else names


def _addresses(profiling: bool) -> dict[str, int]:
    linked = _linked(profiling)
    return {name: int(linked[name]) for name in _names(profiling)}


def team_functions() -> dict[str, int]:
    """Return the addresses of ``RUN_TEAM``, ``FORK`` and the shared tasks. Until the pool is started
    (``threads.ensure_threads``), loops run on one thread."""
    return _addresses(profiling=False)


def profiling_functions() -> dict[str, int]:
    """Return the addresses of the functions for profiled code, including ``clock.PROFILE_FUNCTIONS`` and ``TICKS``."""
    return _addresses(profiling=True)


@functools.cache
def seconds_per_tick() -> float:
    """Return the length of a tick of the clock by which code is profiled."""
    if not clock.uses_counter():
        return 1e-9
    return clock.seconds_per_tick(ctypes.CFUNCTYPE(ctypes.c_int64)(profiling_functions()[clock.TICKS]))
