"""The machine that code is generated for: instruction set, vector registers, caches, cores."""

from __future__ import annotations

import contextvars
import difflib
import functools
import numbers
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import llvmlite.binding as llvm

from tilewright.tensorir.cores import default_threads
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import ArgumentTypeError, TargetError
from tilewright.tensorir.features import changed_features, parse_changes, preferred_bits
from tilewright.tensorir.llvm_names import check_names
from tilewright.tensorir.machine_queries import reported_caches
from tilewright.tensorir.processors import (
    DotProduct,
    Processor,
    architecture_of,
    dot_product,
    has_fma,
    has_half_conversions,
    masked_bits,
    processor_of,
    vector_bits,
)

#: Size of a cache line in bytes, on all processors that code is generated for.
CACHE_LINE = 64

KINDS = ("llvm", "numba")

#: The most threads that a target may name: more than any machine has.
MOST_THREADS = 1 << 16


@functools.cache
def process_triple() -> str:
    """LLVM's name of this system. Cached: only one thread at a time may call LLVM, so a call waits for a kernel that
    another thread compiles."""
    return str(llvm.get_process_triple())


@functools.cache
def host_features() -> llvm.FeatureMap:
    """Return LLVM's features by name, with whether this processor has them. Cached: asking takes .3 ms."""
    return llvm.get_host_cpu_features()


@functools.cache
def _host_cpu() -> tuple[str, frozenset[str]]:
    present = frozenset([name for name, present in host_features().items() if present])
    # Where LLVM cannot query the system, as on a Mac, it names the processor but no features.
    return llvm.get_host_cpu_name(), present | architecture_of(process_triple()).features


@functools.cache
def _host_caches() -> tuple[int, ...]:
    """Sizes in bytes of the first core's data caches, of three levels, as the system reports them; where it does not,
    those of the processor's description."""
    described = processor_of(_host_cpu()[0], process_triple()).caches
    reported = reported_caches()
    return tuple(reported.get(level, size) for level, size in enumerate(described, 1))


#: The options of a target as text, and what they are.
_OPTIONS: dict[str, Callable[[str], Any]] = {"mcpu": str, "mattr": str, "mtriple": str, "num-threads": int}


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    """The kind and the options in a target's text; each option is ``-name=value`` or ``-name value``, with one hyphen
    or two.

    Raises:
        TargetError: it is no such text.
    """
    kind, *words = text.split() or [""]
    options: dict[str, Any] = {}
    while words:
        option, joined, value = words.pop(0).partition("=")
        if not joined and words and not words[0].startswith("-"):
            value = words.pop(0)
        name = option.lstrip("-")
        if not option.startswith("-") or name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, 1)
            hint = f"did you mean -{near[0]}?" if near else f"expected -{', -'.join(_OPTIONS)}"
            raise TargetError(f"target {text!r}: unknown option {option!r}; {hint}")
        if not value or (value.startswith("-") and name != "mattr"):
            raise TargetError(f"target {text!r}: option {option} has no value")
        if name in options:
            raise TargetError(f"target {text!r}: option {option} is given twice")
        try:
            options[name] = _OPTIONS[name](value)
        except ValueError:
            raise TargetError(f"target {text!r}: {option} is a number, found {value!r}") from None
    return kind, options


def _shown(number: int) -> str:
    """Return a number, or how long it is: Python refuses to write numbers of many digits."""
    return str(number) if abs(number) < 10**40 else f"a number of {number.bit_length()} bits"


class Target:
    """The target of code generation.

    Args:
        kind: ``"llvm"`` (machine code) or ``"numba"`` (readable Python source that numba compiles); also the whole
            target as text, as ``str`` writes it: ``"llvm -mcpu=znver4 -num-threads=2"``. Keywords come before it.
        mcpu: LLVM's name of a processor (``"x86-64-v3"``, ``"znver4"``); default: this machine.
        mattr: changes of the processor's features, by LLVM's names: ``"+avx2,-avx512f"``, or a list of such words. They
            apply in order; a feature brings those that it needs, and takes with it those that need it. Vectors, tiles
            and instructions follow them, also in code for numba, whose own compiler knows only this machine.
        mtriple: LLVM's target triple; default: this machine's. Code for another triple can be read and exported, but
            not run.
        num_threads: upper limit of the threads of parallel loops; the process may have fewer to run them
            (``codegen.threads.thread_limit``); default: all cores that the process may use, or NUMBA_NUM_THREADS.

    Also a context: ``with Target("llvm"):`` makes it :meth:`current`, which ``build`` without a target reads.

    Raises:
        TargetError: the kind or an option of the text is unknown, LLVM has no such processor, feature or triple, the
            architecture cannot do without a feature, or the number of threads is not positive (also a ValueError).
        ArgumentTypeError: an argument has another type (also a TypeError).
    """

    #: The open ``with`` blocks, innermost last: several threads and tasks may enter a target at once.
    _entered: contextvars.ContextVar[tuple[Target, ...]] = contextvars.ContextVar("tilewright_targets", default=())

    def __init__(
        self,
        kind: str | Target = "llvm",
        *,
        mcpu: str | None = None,
        mattr: str | Sequence[str] | None = None,
        mtriple: str | None = None,
        num_threads: int | None = None,
    ) -> None:
        for name, given in (("mcpu", mcpu), ("mtriple", mtriple)):
            if given is not None and not isinstance(given, str):
                raise ArgumentTypeError(
                    f"{name}: expected a name of LLVM's, found {type(given).__name__}: {given!r:.80}"
                )
            if given is not None and (not given or given != given.strip()):
                raise TargetError(f"{name}: expected a name of LLVM's, found {given!r:.80}")
        if isinstance(kind, Target):
            mcpu, mattr, mtriple = mcpu or kind.mcpu, mattr or kind.mattr, mtriple or kind.mtriple
            num_threads, kind = num_threads or kind.num_threads, kind.kind
        elif isinstance(kind, str) and kind not in KINDS:
            kind, options = _parsed(kind)
            mcpu, mtriple = mcpu or options.get("mcpu"), mtriple or options.get("mtriple")
            mattr = mattr or options.get("mattr")
            num_threads = num_threads if num_threads is not None else options.get("num-threads")
        elif not isinstance(kind, str):
            raise ArgumentTypeError(f"target: expected a kind or a Target, found {type(kind).__name__}: {kind!r:.80}")
        if kind not in KINDS:
            raise TargetError(f"unknown target kind {kind!r:.80}; expected one of {', '.join(KINDS)}")
        if num_threads is not None:
            if isinstance(num_threads, bool) or not isinstance(num_threads, numbers.Integral):
                raise ArgumentTypeError(
                    f"num_threads must be an integer, found {type(num_threads).__name__}: {num_threads!r:.80}"
                )
            if not 1 <= num_threads <= MOST_THREADS:
                limit = "least 1" if num_threads < 1 else f"most {MOST_THREADS}"
                raise TargetError(f"num_threads must be at {limit}, found {_shown(num_threads)}")
            num_threads = int(num_threads)
        host, host_features = _host_cpu()
        self.kind: str = kind
        self.mtriple: str = mtriple or process_triple()
        self.mcpu: str = mcpu or (host if mtriple is None else "generic")
        changes = parse_changes(mattr)
        self.mattr: str = ",".join(changes)
        self.num_threads: int = num_threads or default_threads()
        self.is_host: bool = mcpu in (None, host) and mtriple in (None, process_triple())
        features = host_features if self.is_host else self._described.features
        self.features: frozenset[str] = changed_features(features, changes, self.mtriple) if changes else features
        if not self.is_host or changes:
            check_names(self.mcpu, self.mtriple, changes)

    @property
    def is_runnable(self) -> bool:
        """Whether this machine can run the code: the same system, and no instructions that it lacks."""
        return self.mtriple == process_triple() and self.features <= _host_cpu()[1]

    @property
    def vector_bits(self) -> int:
        """Width of a vector register in bits."""
        bits = vector_bits(self.features)
        return bits if not self.mattr else min(bits, preferred_bits(self.mattr.split(",")))

    @property
    def vector_registers(self) -> int:
        """Number of vector registers."""
        short, wide = architecture_of(self.mtriple).vector_registers
        return wide if self.vector_bits == 512 or "avx512vl" in self.features else short

    @property
    def masked_bits(self) -> int | None:
        """Bits of the shortest elements that a masked load or store can leave out; None where there is none."""
        return masked_bits(self.features)

    @property
    def tile_registers(self) -> int:
        """Vector registers for a tile of sums and the factors of one step: all of them, but for one that holds the
        product where multiplying and adding are two instructions."""
        return self.vector_registers - (not self.has_fma)

    @property
    def has_fma(self) -> bool:
        """Whether fused multiply-add is one instruction."""
        return has_fma(self.features)

    @property
    def has_half_conversions(self) -> bool:
        """Whether converting float16 to float32 and back is one instruction."""
        return has_half_conversions(self.features)

    def dot_product(self, left: DataType, right: DataType, total: DataType) -> DotProduct | None:
        """The instruction that adds neighbouring products of elements of ``left`` and ``right`` to each lane of a
        vector of ``total`` (of a scalar: of as many as a register holds); None where there is none."""
        bits = total.lanes * total.bits if total.lanes > 1 else self.vector_bits
        return dot_product(str(left.element), str(right.element), str(total.element), bits, self.features)

    def dot_products(self, left: DataType, right: DataType, total: DataType) -> int:
        """Number of products that this instruction adds to a lane; 1 if there is none and each step of a sum is a
        separate instruction."""
        found = self.dot_product(left, right, total)
        return 1 if found is None else found.products

    def lanes(self, dtype: DataType) -> int:
        """Elements of ``dtype`` in one vector register."""
        return max(1, self.vector_bits // max(8, dtype.bits))

    def cache_bytes(self, level: int) -> int:
        """Size of the data cache of that level (1 to 3), in bytes: this machine's, or those of the processor that is
        named (:mod:`.processors`)."""
        return (_host_caches() if self.is_host else self._described.caches)[level - 1]

    @property
    def _described(self) -> Processor:
        return processor_of(self.mcpu, self.mtriple)

    @classmethod
    def current(cls) -> Target:
        """The innermost ``with`` target of this thread or task; without one, this machine through LLVM."""
        entered = cls._entered.get()
        return entered[-1] if entered else cls("llvm")

    def __enter__(self) -> Target:
        Target._entered.set((*Target._entered.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered = Target._entered.get()
        # A generator that is closed late may leave its target when it is not the innermost one any more.
        position = next((i for i in reversed(range(len(entered))) if entered[i] is self), None)
        if position is None:
            raise RuntimeError(f"{self!r} was exited but never entered")
        Target._entered.set(entered[:position] + entered[position + 1 :])

    def key(self) -> tuple[Any, ...]:
        """The properties that generated code depends on: targets with equal keys are equal."""
        return (self.kind, self.mtriple, self.mcpu, self.mattr, self.num_threads, self.features)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __str__(self) -> str:
        mattr = f" -mattr={self.mattr}" if self.mattr else ""
        return f"{self.kind} -mcpu={self.mcpu}{mattr} -mtriple={self.mtriple} -num-threads={self.num_threads}"

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"
