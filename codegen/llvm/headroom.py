"""Look for memory before LLVM needs it.

LLVM, and the C++ library under it, end the process where an allocation fails: there is no error that Python could
raise. So before it is called, as much address space as it may need is mapped, untouched, and given back. Where the
limit of the process (``ulimit -v``, ``RLIMIT_AS``) or the policy of the operating system does not permit that, a
MemoryError is raised instead. Calls that are running in other threads are counted: none has all of its memory yet.

A container's limit is another matter. It counts pages that are touched, and the operating system ends a process that
touches too many.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator

from tilewright.tensorir import forking

_MIB = 1 << 20
#: What any call of LLVM may take: its own tables, the memory that belongs to a thread, a chunk of the allocator.
_BASE = 8 * _MIB
#: What it may take for each byte of the text of a module. Kernels took up to 60, unrolled ones the least.
_PER_BYTE = 100

_lock = forking.Lock()
#: What the calls that are running may take, in bytes.
_running: dict[object, int] = {}


forking.in_forked_process(_running.clear)


@contextlib.contextmanager
def headroom(text_bytes: int = 0) -> Iterator[None]:
    """Call LLVM inside the ``with`` block.

    Args:
        text_bytes: the length of the module's text, or of its object code.

    Raises:
        MemoryError: there may not be enough memory for it.
    """
    wanted, call = _BASE + _PER_BYTE * text_bytes, object()
    try:
        with _lock:
            total = wanted + sum(_running.values())
            try:
                mmap.mmap(-1, total).close()
            except (OSError, ValueError, OverflowError) as error:
                raise MemoryError(
                    f"compiling may take {total // _MIB} MiB of memory, which the operating system refuses: {error}"
                ) from None
            _running[call] = wanted
        yield
    finally:
        _running.pop(call, None)


def check_headroom() -> None:
    """Check that code can be compiled at all, before threads start for it.

    Raises:
        MemoryError: there may not be enough memory.
    """
    with headroom():
        pass
