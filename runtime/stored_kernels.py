"""Cache compiled kernels in memory and on disk, for models with equal scheduled loop nests.

The key of a kernel is a digest of everything that it depends on: the loop nest up to its names (``tensorir.encoding``),
the target and this machine's caches, the settings of the ``PassContext``, and the source of Tilewright and its
libraries. The entry holds the object code, an outline of the kernel for compiling ``main`` and planning its memory
(``codegen.forks.outline``), the lowered function for display, and the remarks of the passes, which are repeated.

Entries are stored in the folder of builds (:mod:`.build_cache`) and in memory (:class:`KernelMemory`).
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import logging
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.llvm.compile import CompiledModule
from tilewright.passes.diagnostics import Remark
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.packed_file import Unpacked
from tilewright.tensorir import forking
from tilewright.tensorir.encoding import MALFORMED, Encoded
from tilewright.tensorir.errors import EncodingError
from tilewright.tensorir.keys import KERNEL_KEY, ORIGIN_ATTRS
from tilewright.tensorir.stmt import PrimFunc

_LOG = logging.getLogger("tilewright.cache")

#: The prefix of entries that hold kernels.
_FILE = "kernel-"

#: One of the fastest levels of compression: text of records shrinks to a third.
_COMPRESSION = 1

_WORD = re.compile(r"\w+")

#: Errors of decoding data that has correct checksums but was not written by this version.
_OTHER_DATA = (*MALFORMED, zlib.error)


@dataclasses.dataclass(frozen=True)
class StoredKernel:
    """A scheduled kernel after the tensor passes and LLVM.

    Attributes:
        names: the names of the scheduled kernel's variables and buffers, and its own.
        outline: outline of the lowered function.
        lowered: the lowered function itself.
        remarks: the remarks of the passes.
        symbol: the name of the function in its object file.
        code: the object file.
    """

    names: tuple[str, ...]
    outline: Encoded
    lowered: Encoded
    remarks: tuple[Remark, ...]
    symbol: str
    code: bytes

    def lowered_for(self, kernel: PrimFunc, names: Sequence[str]) -> PrimFunc | None:
        """Return the lowered function of ``kernel``; None if the names in ``kernel`` differ from those of the stored
        kernel, as names in the lowered function are derived from them."""
        return decode_for(kernel, self.lowered) if list(names[:-1]) == list(self.names[:-1]) else None

    def encode(self) -> tuple[Any, list[np.ndarray[Any, Any]]]:
        """Encode the kernel as plain data and arrays of bytes."""
        texts = [part.records for part in (self.outline, self.lowered)]
        data = {
            "names": self.names,
            "functions": [[part.names, part.origins] for part in (self.outline, self.lowered)],
            "remarks": plain_remarks(self.remarks),
            "symbol": self.symbol,
        }
        packed = [zlib.compress(text.encode("utf-8", "surrogatepass"), _COMPRESSION) for text in texts]
        return data, [np.frombuffer(part, np.uint8) for part in (self.code, *packed)]

    @classmethod
    def decode(cls, entry: Unpacked) -> StoredKernel:
        """Invert :meth:`encode`.

        Raises:
            EncodingError: the entry is not a kernel.
        """
        try:
            data, (code, *packed) = entry
            texts = [zlib.decompress(part.tobytes()).decode("utf-8", "surrogatepass") for part in packed]
            outline, lowered = (
                Encoded(text, tuple(names), origins)
                for text, (names, origins) in zip(texts, data["functions"], strict=True)
            )
            remarks = tuple(Remark(*fields) for fields in data["remarks"])
            return cls(tuple(data["names"]), outline, lowered, remarks, data["symbol"], code.tobytes())
        except _OTHER_DATA as error:
            raise EncodingError(f"expected a kernel, found something else: {type(error).__name__}: {error}") from error


def decode_for(kernel: PrimFunc, encoded: Encoded, key: str | None = None) -> PrimFunc:
    """Decode a function that was lowered from an equal of ``kernel``, with the name, the origin and the variables of
    ``kernel``, which may be a model's dimensions.

    Args:
        key: the key of the kernel, for outlines.
    """
    made = encoded.decode(kernel.variables)
    origins = {name: value for name, value in kernel.attrs.items() if name in ORIGIN_ATTRS}
    attrs = {name: value for name, value in made.attrs.items() if name in origins or name not in ORIGIN_ATTRS}
    attrs |= origins
    if key is not None:
        attrs[KERNEL_KEY] = key
    return PrimFunc(kernel.name, made.params, made.body, attrs)


def renamed_remarks(remarks: Sequence[Remark], names: Sequence[str], others: Sequence[str]) -> list[Remark]:
    """Return the remarks on a kernel with ``names`` (as in ``Encoded``), rewritten for a kernel with the names
    ``others``."""
    changed = {old: new for old, new in zip(names, others, strict=True) if old != new}

    def named(text: str) -> str:
        return _WORD.sub(lambda found: changed.get(found[0], found[0]), text) if changed else text

    return [Remark(said.pass_name, others[-1], said.kind, named(said.message), named(said.place)) for said in remarks]


def plain_remarks(remarks: Sequence[Remark]) -> list[list[str]]:
    """Encode remarks as plain data: the arguments of ``Remark``."""
    return [list(vars(remark).values()) for remark in remarks]


class KernelKeys:
    """Compute keys of scheduled kernels.

    Args:
        depends_on: everything that a kernel depends on besides itself.
        with_names: whether the names in a kernel are part of its key.
    """

    def __init__(self, *depends_on: str, with_names: bool = False) -> None:
        self._with_names = with_names
        self._state = hashlib.sha256()
        for part in depends_on:
            text = part.encode("utf-8", "surrogatepass")
            self._state.update(b"%d:" % len(text))
            self._state.update(text)

    def key(self, kernel: Encoded) -> str:
        """Return the key of a kernel; kernels that are equal up to names share it, unless names are part of it."""
        state = self._state.copy()
        if self._with_names:
            state.update(repr(kernel.names).encode("utf-8", "surrogatepass"))
        state.update(kernel.digest().encode())
        return state.hexdigest()


def load_kernel(cache: DiskCache, key: str) -> StoredKernel | None:
    """Load the kernel of ``key`` from disk; None if it is missing or damaged."""
    entry = cache.load(_FILE + key)
    if entry is None:
        return None
    try:
        return StoredKernel.decode(entry)
    except EncodingError as error:
        _LOG.debug("kernel %s in %s is dropped: %s", key[:16], cache.directory, error)
        cache.remove(_FILE + key)
        return None


def store_kernel(cache: DiskCache, key: str, made: StoredKernel) -> None:
    """Write a kernel to disk synchronously (see ``DiskCache.later``)."""
    cache.store(_FILE + key, *made.encode())


class LinkedKernel:
    """A kernel and its code, linked in this process.

    Args:
        made: the kernel, or a function that encodes it on demand (for another build, or for the thread that writes it
            to disk) and returns None if it cannot be encoded.
        module: its code.
    """

    def __init__(self, made: StoredKernel | Callable[[], StoredKernel | None], module: CompiledModule) -> None:
        self._made: StoredKernel | Callable[[], StoredKernel | None] | None = made
        self.module = module

    @property
    def made(self) -> StoredKernel | None:
        """The encoded kernel. Threads that request it at the same time may each encode it, with equal results."""
        made = self._made
        if callable(made):
            made = self._made = made()
        return made


class KernelMemory:
    """A cache of the kernels of a process by their keys; the least recently used one is dropped first. Threads may
    share it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._known: collections.OrderedDict[str, LinkedKernel] = collections.OrderedDict()
        self._lock = forking.Lock()

    def find(self, key: str) -> LinkedKernel | None:
        """Return the kernel of ``key``, None if it is not known."""
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def keep(self, key: str, known: LinkedKernel) -> None:
        """Add a kernel."""
        with self._lock:
            self._known[key] = known
            while len(self._known) > self._capacity:
                self._known.popitem(last=False)
