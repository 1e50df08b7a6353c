"""Keep the frames of Python's functions in one chunk of memory during a build.

CPython (3.11 and later) keeps the frames of the functions that run in chunks of 16 KiB. A call that does not fit into
the last chunk maps a new one, which is unmapped when the call returns. So a walk that happens to stand at the end of a
chunk, and from there calls something for each node below, maps, touches and unmaps a page for each: that was a seventh
of the time of large builds, most of it the kernel's, and no profiler of Python shows it.

A frame that is larger than a chunk gets one of its own size, rounded up to a power of two. What is called from there
lies behind it, in the rest of that chunk. Memory that no frame has come to is never touched, and costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: The places on the stack of :func:`with_room`, one for a pointer each: a little more than half of 1 MiB, so that its
#: chunk has that size, and the rest takes more frames than Python's usual limit of recursion.
_PLACES = (1 << 16) + 64


def with_room(function: Callable[..., T], *args: Any) -> T:
    """Call ``function`` with ``args``, with the frames of the functions that it calls in one chunk of memory."""
    return function(*args)


if sys.implementation.name == "cpython" and sys.version_info >= (3, 11):
    with_room.__code__ = with_room.__code__.replace(co_stacksize=_PLACES)
