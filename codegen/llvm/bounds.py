"""Report accesses outside of buffers, from generated code to the caller of a model.

Code of the pass ``CheckBounds`` calls :data:`REPORT` with an index that is outside, and goes on without the access. The
first report since the beginning of :func:`reported_accesses` stays in one record of this process: threads of a parallel
loop race for it by a compare-and-swap. So calls of such models run one at a time.

The description of an access is a string in the object code, or, for Python code, one of this process: a model that is
loaded from a file reports as the one that was built.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator

import llvmlite.binding as llvm

from tilewright.codegen.llvm.emission import emit_object
from tilewright.codegen.llvm.engine import native_machine, process_engine
from tilewright.codegen.llvm.headroom import headroom
from tilewright.tensorir import forking
from tilewright.tensorir.errors import OutOfBoundsError
from tilewright.tensorir.llvm_context import fresh_context

#: ``void f(ptr where, i64 index, i64 extent)`` reports an access that is described by the C string ``where``.
REPORT = "tilewright_report_index"

#: Whether there is a report; the address of its string; index and extent.
_record = (ctypes.c_int64 * 4)()

_TEXT = f"""
define void @{REPORT}(ptr %where, i64 %index, i64 %extent) nounwind {{
  %record = inttoptr i64 {ctypes.addressof(_record)} to ptr
  %swapped = cmpxchg ptr %record, i64 0, i64 1 monotonic monotonic, align 8
  %first = extractvalue {{ i64, i1 }} %swapped, 1
  br i1 %first, label %write, label %out
write:
  %where.place = getelementptr i64, ptr %record, i64 1
  %index.place = getelementptr i64, ptr %record, i64 2
  %extent.place = getelementptr i64, ptr %record, i64 3
  store ptr %where, ptr %where.place, align 8
  store i64 %index, ptr %index.place, align 8
  store i64 %extent, ptr %extent.place, align 8
  br label %out
out:
  ret void
}}
"""

_making = forking.Lock()
_calls = forking.RLock()


@contextlib.contextmanager
def reported_accesses() -> Iterator[None]:
    """Call code that reports accesses inside the ``with`` block; only one thread at a time is in it.

    Raises:
        OutOfBoundsError: an access was outside; this is raised at the end of the block.
    """
    with _calls:
        _record[0] = 0
        yield
        if _record[0]:
            where = ctypes.string_at(_record[1]).decode()
            raise OutOfBoundsError(f"{where}: expected 0 <= index < {_record[3]}, found {_record[2]}")


@functools.cache
def _made() -> llvm.ResourceTracker:
    machine = native_machine()
    with fresh_context() as context, llvm.parse_assembly(_TEXT, context) as module:
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        module.verify()
        object_bytes = emit_object(machine, module)
    library = llvm.JITLibraryBuilder().add_object_img(object_bytes).add_current_process().export_symbol(REPORT)
    return library.link(process_engine(), REPORT)


def report_address() -> int:
    """Return the address of :data:`REPORT`."""
    with _making, headroom():
        return int(_made()[REPORT])


def report_function() -> Callable[[int, int, int], None]:
    """Return :data:`REPORT` as a function that Python and numba call."""
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(report_address())


@functools.cache
def _text(description: str) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(description.encode())


def address_of_text(description: str) -> int:
    """Return the address of a C string, which lives as long as the process."""
    return ctypes.addressof(_text(description))
