"""Keep the frames of Python functions in one chunk of memory during a build.

CPython (3.11 and later) keeps the frames of running functions in chunks of 16 KiB. A call that does not fit into the
last chunk maps a new one, which is unmapped when the call returns. So a traversal whose frame ends near the end of a
chunk, and which calls a function for each child node, maps, touches and unmaps a page for each call: that was a seventh
of the time of large builds, most of it in the operating system, and no Python profiler shows it.

A frame larger than a chunk gets a chunk of its own size, rounded up to a power of two. The frames of functions that it
calls follow it in the rest of that chunk. Memory that no frame reaches is never touched and costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: The stack size of :func:`with_frame_memory`, in pointers: a little more than half of 1 MiB, so that its chunk has 1
#: MiB, and the rest of it holds more frames than Python's default recursion limit.
_PLACES = (1 << 16) + 64


def with_frame_memory(function: Callable[..., T], *args: Any) -> T:
    """Call ``function`` with ``args``, keeping the frames of the functions that it calls in one chunk of memory."""
    return function(*args)


if sys.implementation.name == "cpython" and sys.version_info >= (3, 11):
    with_frame_memory.__code__ = with_frame_memory.__code__.replace(co_stacksize=_PLACES)
