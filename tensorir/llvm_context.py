"""Make contexts of LLVM that outlive their modules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import llvmlite.binding as llvm

#: Contexts of which a module may be alive.
_contexts: set[llvm.ContextRef] = set()


@contextlib.contextmanager
def fresh_context() -> Iterator[llvm.ContextRef]:
    """Make a context for the modules of the ``with`` block, which closes them; in contexts of their own, several
    threads can compile at once.

    To dispose of a module whose context is gone ends the process. An interrupt, or a lack of memory, may come at any
    step: a module that was just made is then only in the frames of the error, in a cycle with its context, and the
    garbage collector finalizes the objects of a cycle in any order. After those errors the context is kept for ever.
    """
    context = llvm.create_context()
    _contexts.add(context)
    try:
        yield context
    except MemoryError:
        raise
    except Exception:
        _contexts.discard(context)
        raise
    _contexts.discard(context)
