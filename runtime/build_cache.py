"""Cache builds on disk for later programs.

The key of a build is a digest of everything that it depends on: the text of the graph and digests of its constants, the
target and this machine's caches, the settings of the ``PassContext``, the source of Tilewright itself and the versions
of the libraries that compute at build time. The entry holds the object code, the constants as the kernels read them,
the size of the arena, and the passes' remarks, which are repeated. So no pass runs again until the IR of a stage is
requested.

Large constants take long to digest. So an empty entry records that the graph, whatever its constants, was kept before:
where it is missing, no constant is digested. A build is kept only if it takes longer than digesting its constants and
reading those that the kernels take instead: otherwise only its kernels are kept (``stored_kernels``), and the passes
over the graph run again. Entries are digested and written after the build, by the thread of the ``DiskCache``.

The cache is not used where passes are observed or changed: with instruments or a trace in the context, with an
environment that dumps or verifies, with passes of the user's own, for a graph with operators that are not Tilewright's,
and for the target ``numba``.

``passes.environment`` lists the environment variables: the folder, its limit, and whether the cache is enabled.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import hashlib
import logging
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import ml_dtypes
import numpy

from tilewright.graphir.expr import Call, Constant, Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import to_text
from tilewright.graphir.spelling import digest, inline_text
from tilewright.graphir.visitor import post_order
from tilewright.passes.build_config import BUILD
from tilewright.passes.context import PassContext
from tilewright.passes.diagnostics import Remark
from tilewright.passes.environment import is_watched
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.stored_function import (
    ArrayReader,
    ArrayWriter,
    StoredFunction,
    decode_function,
    encode_function,
    unnamed_symbols,
)
from tilewright.runtime.stored_kernels import plain_remarks
from tilewright.runtime.target_facts import target_facts
from tilewright.tensorir import forking
from tilewright.tensorir.cores import available_cores
from tilewright.tensorir.encoding import MALFORMED
from tilewright.tensorir.errors import SettingError
from tilewright.tensorir.lazy import FIRST_IMPORT
from tilewright.tensorir.target import Target

_DEFAULT_BYTES = 4 << 30
_OFF = ("off", "0", "no", "false")
#: The libraries that compute at build time.
_LIBRARIES = (llvmlite, numpy, ml_dtypes)

#: The prefix of entries that record that a graph was kept before.
_GRAPH = "graph-"
#: The approximate rate at which constants are digested (SHA-256, with the processor's own instructions) and read.
_BYTES_PER_SECOND = 1 << 30
#: Builds of fewer bytes of constants are kept however short they were: they may be short because their kernels were
#: found in the cache.
_ALWAYS_KEPT = 16 << 20

#: Minimum bytes of constants that are worth handing to a thread.
_DIGESTED_IN_THREADS = 1 << 20
_MOST_THREADS = 4

_ROOMS = ("tensorir", "graphir", "passes", "codegen", "runtime")
_BEGIN = FIRST_IMPORT

_LOG = logging.getLogger("tilewright.cache")

_caches: dict[tuple[Path, int], DiskCache | OSError] = {}
_lock = forking.Lock()


@dataclasses.dataclass(frozen=True)
class CachedBuild:
    """A build from disk: the compiled function, and the remarks of its passes."""

    function: StoredFunction
    remarks: list[Remark]


def open_cache(context: PassContext) -> DiskCache | None:
    """Open the folder that the environment names; None if it disables the cache or, with a remark, if the folder cannot
    be used.

    Raises:
        SettingError: the limit of the folder's size is no number of bytes.
    """
    if os.environ.get("TILEWRIGHT_CACHE", "").lower() in _OFF:
        return None
    named = os.environ.get("TILEWRIGHT_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = (Path(named or Path(home, "tilewright")), _most_bytes())
    with _lock:
        found = _caches.get(place)
        if found is None:
            try:
                found = DiskCache(*place)
            except OSError as error:
                found = error
            _caches[place] = found
    if isinstance(found, OSError):
        context.remark(f"compiled code is not cached: {found}", "missed")
        return None
    return found


def _most_bytes() -> int:
    given = os.environ.get("TILEWRIGHT_CACHE_BYTES", "").strip()
    if not given:
        return _DEFAULT_BYTES
    if not re.fullmatch(r"[0-9]{1,18}", given):
        raise SettingError(f"TILEWRIGHT_CACHE_BYTES: expected a number of bytes, found {given!r:.80}")
    return int(given)


def graph_key(mod: IRModule, target: Target, context: PassContext) -> str | None:
    """Compute the key of a build of ``mod``, without the values of large constants; None if its passes must run (see
    the module's docstring)."""
    version = source_version()
    if version is None or target.kind != "llvm" or is_watched(context):
        _LOG.debug("no build is looked for: this one's passes must run")
        return None
    calls = [node for node in post_order(*_functions(mod)) if isinstance(node, Call)]
    operators = {type(call.op) for call in calls if isinstance(call.op, Operator)}
    if not all(operator.__module__.startswith("tilewright.") for operator in operators):
        return None
    state = hashlib.sha256(version.encode())
    # Remarks contain the names of an imported model's nodes, which the text of the graph leaves out.
    for part in (settings_text(target, context), to_text(mod, "type"), repr([call.span for call in calls])):
        text = part.encode("utf-8", "surrogatepass")
        state.update(b"%d:" % len(text))
        state.update(text)
    return state.hexdigest()


def key_of(graph: str, mod: IRModule, pause: Callable[[], None] = lambda: None) -> str:
    """Compute the key of the build of ``mod``; ``graph`` is its key without large constants. Call ``pause`` before the
    digest of each of these."""
    parts = [graph]
    for node in _constants(mod):
        if inline_text(node) is None:
            pause()
            parts.append(digest(node))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _functions(mod: IRModule) -> list[Function]:
    return [function for function in mod.functions.values() if isinstance(function, Function)]


def _constants(mod: IRModule) -> list[Constant]:
    return [node for node in post_order(*_functions(mod)) if isinstance(node, Constant)]


def _digest_constants(mod: IRModule) -> None:
    """Digest large constants on several cores, and keep the digests with them; hashing releases the GIL."""
    large = [constant for constant in _constants(mod) if constant.nbytes >= _DIGESTED_IN_THREADS]
    threads = min(len(large), available_cores(), _MOST_THREADS)
    if threads > 1:
        with concurrent.futures.ThreadPoolExecutor(threads, "tilewright-digest") as pool:
            list(pool.map(digest, large))


def settings_text(target: Target, context: PassContext) -> str:
    """Return as text everything that passes may read besides the module that they run on."""
    settings = (
        context.opt_level,
        sorted(context.required_pass),
        sorted(context.disabled_pass),
        sorted((key, repr(value)) for key, value in context.config.items() if key != BUILD),
        target_facts(target),
    )
    return repr(settings)


@functools.cache
def source_version() -> str | None:
    """Digest what decides how a graph is compiled: Tilewright's source and the libraries. None if the source is not
    available, or was changed after this program started, so that it is not the code that runs."""
    state = hashlib.sha256()
    root = str(Path(__file__).resolve().parent.parent)
    try:
        sources = sorted(_sources(root))
    except OSError:  # the source is in an archive, or may not be read
        return None
    if not sources or any(changed > _BEGIN for _, changed in sources):
        return None
    for path, _ in sources:
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        state.update(f"{path[len(root) :]} {len(content)} ".encode())
        state.update(content)
    versions = [(library.__name__, library.__version__) for library in _LIBRARIES]
    state.update(repr((versions, llvm.llvm_version_info, platform.python_version())).encode())
    return state.hexdigest()


def _sources(root: str) -> Iterator[tuple[str, float]]:
    """List the source files and the times of their last changes. Each first build of a process asks: plain strings
    take a third of the time of ``Path`` objects."""
    folders = [os.path.join(root, room) for room in _ROOMS]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    yield entry.path, entry.stat().st_mtime


def find(cache: DiskCache, graph: str, mod: IRModule, given: Sequence[Constant]) -> CachedBuild | None:
    """Find the build of ``mod`` on disk; None if there is none.

    Args:
        graph: the key of ``mod`` without large constants.
        given: the constants of the graph, some of which the kernels may read unchanged.
    """
    entry = None
    if cache.load(_GRAPH + graph) is None:
        _LOG.debug("miss: no build of the graph %s in %s", graph[:16], cache.directory)
    else:
        _digest_constants(mod)
        key = key_of(graph, mod)
        entry = cache.load(key)
        _LOG.debug("%s %s in %s", "miss: no build" if entry is None else "hit: build", key[:16], cache.directory)
    if entry is None:
        return None
    try:
        arrays = ArrayReader(entry.arrays, _arrays_named_by_key(given))
        return CachedBuild(
            decode_function(entry.data["image"], arrays), [Remark(*fields) for fields in entry.data["remarks"]]
        )
    except MALFORMED as error:  # its checksums are right, but something else has written it
        _LOG.debug("build %s in %s is dropped: %r", key[:16], cache.directory, error)
        cache.remove(key)
        return None


def _arrays_named_by_key(given: Sequence[Constant]) -> list[numpy.ndarray[Any, Any]]:
    """Return the arrays that an entry may refer to by their places: those of large constants. The key does not tell
    one small constant that is used twice from two equal ones, so that the places after it may differ."""
    return [constant.data for constant in given if inline_text(constant) is None]


def is_worth_keeping(mod: IRModule, made: Sequence[Constant], given: Sequence[Constant], seconds: float) -> bool:
    """Return whether a build that took ``seconds`` is worth keeping: whether loading it takes less.

    Args:
        made: the constants that the kernels take.
        given: the constants of the graph.
    """
    there = {id(constant.data) for constant in given}
    size = sum(constant.nbytes for constant in _constants(mod))
    size += sum(constant.nbytes for constant in made if id(constant.data) not in there)
    return size <= _ALWAYS_KEPT or size / _BYTES_PER_SECOND < seconds


def keep(
    cache: DiskCache,
    graph: str,
    mod: IRModule,
    make_function: Callable[[], StoredFunction],
    given: Sequence[Constant],
    remarks: Sequence[Remark],
) -> None:
    """Write the build of ``mod`` to disk synchronously (see ``DiskCache.later``). Large constants among those
    ``given`` with the graph are not written again."""
    function = make_function()
    if unnamed_symbols([function.arena_bytes]):
        return
    arrays = ArrayWriter(_arrays_named_by_key(given))
    data = {"image": encode_function(function, arrays), "remarks": plain_remarks(remarks)}
    if cache.is_too_large(sum(array.nbytes for array in arrays.arrays)):
        return
    key = key_of(graph, mod, cache.pause)
    cache.store(key, data, arrays.arrays)
    cache.store(_GRAPH + graph, None, [])
    _LOG.debug("kept: build %s in %s", key[:16], cache.directory)
