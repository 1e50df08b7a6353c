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
