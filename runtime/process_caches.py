"""Share compiled code between the builds of a process: kernels, their lowered functions, and whole models."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence

from tilewright.runtime.generated_code import Code
from tilewright.runtime.kernel_cache import KernelCache, Key, NamedFunction
from tilewright.runtime.stored_kernels import KernelMemory
from tilewright.tensorir import forking
from tilewright.tensorir.structural import structural_equal

_LOG = logging.getLogger("tilewright.cache")

#: Capacities: the numbers of compiled models and kernels that a process keeps for later builds.
MODELS = 64
KERNELS = 1024


class ModelCache:
    """A cache of the code of whole models by the functions that it was compiled from; the least recently used one is
    dropped first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = forking.Lock()
        self._models: collections.OrderedDict[tuple[tuple[str, Key], ...], tuple[Sequence[NamedFunction], Code]] = (
            collections.OrderedDict()
        )

    def code(self, functions: Sequence[NamedFunction], compile_code: Callable[[], Code]) -> Code:
        """Return the code of a model with equal functions of equal names; call ``compile_code`` if there is none.

        The lock is held during compilation: another thread that builds the same model waits for this code.
        """
        key = tuple((each.function.name, each.key) for each in functions)
        with self._lock:
            found = self._models.get(key)
            if found is not None and all(
                structural_equal(a.unnamed, b.unnamed) for a, b in zip(found[0], functions, strict=True)
            ):
                self._models.move_to_end(key)
                _LOG.debug("hit: an equal model is in memory")
                return found[1]
            made = compile_code()
            self._models[key] = (functions, made)
            while len(self._models) > self._capacity:
                self._models.popitem(last=False)
            return made


@dataclasses.dataclass(frozen=True)
class ProcessCaches:
    """The caches that all builds of a process share.

    Attributes:
        kernels: machine code of kernels, by their lowered functions.
        lowered: lowered kernels with their machine code, by their scheduled functions.
        models: code of whole models.
    """

    kernels: KernelCache = dataclasses.field(default_factory=lambda: KernelCache(KERNELS))
    lowered: KernelMemory = dataclasses.field(default_factory=lambda: KernelMemory(KERNELS))
    models: ModelCache = dataclasses.field(default_factory=lambda: ModelCache(MODELS))


_current = ProcessCaches()


def process_caches() -> ProcessCaches:
    """Return the caches of this process."""
    return _current


@contextlib.contextmanager
def fresh_caches() -> Iterator[None]:
    """Use empty caches inside the ``with`` block, so that builds take as long as first ones, and drop them at its end.

    Other threads that build during the block use these caches, too.
    """
    global _current
    before, _current = _current, ProcessCaches()
    try:
        yield
    finally:
        _current = before
