"""Compile LLVM IR text to machine code: run passes, generate object code, link it into this process."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import logging
import platform
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import llvmlite.binding as llvm

from tilewright.codegen.analysis import called_names
from tilewright.codegen.llvm.bounds import REPORT, report_address
from tilewright.codegen.llvm.clock import PROFILE_FUNCTIONS
from tilewright.codegen.llvm.emission import emit_object
from tilewright.codegen.llvm.engine import process_engine
from tilewright.codegen.llvm.headroom import headroom
from tilewright.codegen.llvm.instructions import c_functions, link_instructions
from tilewright.codegen.llvm.module import PACKED, PREFIX, emit_llvm_ir
from tilewright.codegen.llvm.system_symbols import system_addresses
from tilewright.codegen.llvm.team import profiling_functions, team_functions
from tilewright.codegen.llvm.team_ir import FORK, RUN_TEAM
from tilewright.codegen.llvm.text import DIVISIBLE
from tilewright.codegen.threads import ensure_threads
from tilewright.tensorir import forking
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.keys import KIND, LLVM_VECTORIZE
from tilewright.tensorir.llvm_context import fresh_context
from tilewright.tensorir.stmt import Allocate, BufferStore, For, PrimFunc
from tilewright.tensorir.target import Target, host_features, process_triple
from tilewright.tensorir.tensor_intrins import LLVM_SYMBOL

_LOG = logging.getLogger("tilewright.codegen")

#: Numbers of linked libraries: no two libraries of the engine may share a name.
_libraries = itertools.count()
_initialize_lock = forking.Lock()
_initialized: set[str] = set()
#: Target machines not in use, by their description.
_idle_machines: dict[tuple[str, str, str, int], collections.deque[_Machine]] = {}


def _initialize(target: Target) -> None:
    """Register LLVM's code generators: this machine's alone, unless ``target`` is another."""
    which = "native" if target.mtriple == process_triple() else "all"
    with _initialize_lock:
        if which in _initialized:
            return
        if which == "native":
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
        else:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        _initialized.add(which)


class Effort(enum.Enum):
    """The effort that LLVM spends on a module. The value is the level of its code generator."""

    #: A module that only calls others, as ``main`` does: every instruction runs at most once in a call. Register
    #: allocation is not worth its time: code generation at level 0 takes an eighth.
    CALLS = 0
    #: A module of tiles of products, which the schedule has put in order: level 1, without the passes on LLVM IR. What
    #: level 2 adds, scheduling after the allocation of registers and copies of ends of blocks, takes a tenth of the
    #: time: networks of convolutions and of products of matrices took .99 to 1.01 of theirs without it.
    TILES = 1
    #: A module of other scheduled loops: level 2, without the passes on LLVM IR. Level 3 gives the same code for nearly
    #: all of them; at level 1 a layer norm ran 6 % slower.
    SCHEDULED = 2
    #: All passes, vectorizers included, and level 2.
    FULL = 3

    @classmethod
    def of(cls, functions: Sequence[PrimFunc]) -> Effort:
        """Return the effort that ``functions`` need."""
        if any(func.attrs.get(LLVM_VECTORIZE) for func in functions):
            return cls.FULL
        works = (For, BufferStore, Allocate)
        statements = (stmt for func in functions for stmt in walk_statements(func.body))
        if not any(isinstance(stmt, works) for stmt in statements):
            return cls.CALLS
        return cls.TILES if all(func.attrs.get(KIND) == "contraction" for func in functions) else cls.SCHEDULED


def create_target_machine(target: Target, effort: Effort = Effort.SCHEDULED) -> llvm.TargetMachine:
    """Create LLVM's target machine for ``target`` and an effort; only one thread at a time may use it.

    Raises:
        CodegenError: LLVM does not know the triple or the processor.
    """
    _initialize(target)
    try:
        triple, processor, features, level = _described(target, effort)
        return llvm.Target.from_triple(triple).create_target_machine(
            cpu=processor, features=features, opt=level, reloc="pic", codemodel="small", jit=False
        )
    except RuntimeError as error:
        raise CodegenError(f"LLVM has no code generator for {target!s}: {error}") from error


def _described(target: Target, effort: Effort) -> tuple[str, str, str, int]:
    """Return the triple, the processor, its features, and the level of the code generator."""
    # LLVM knows the features of a named processor; this machine may lack some of those that the name implies.
    features = [_host_features()] if target.is_host else []
    features += [target.mattr] if target.mattr else []
    return target.mtriple, target.mcpu, ",".join(features), min(effort.value, 2)


class _Machine(NamedTuple):
    """A target machine.

    Attributes:
        generator: LLVM's object.
        header: what a module for it begins with. To set that in the parsed module takes eight calls of LLVM, each of
            which may have to wait for the GIL.
    """

    generator: llvm.TargetMachine
    header: str


@contextlib.contextmanager
def _borrowed_machine(target: Target, effort: Effort) -> Iterator[_Machine]:
    """Lend the result of :func:`create_target_machine` to this thread alone: code generation changes its state.
    Machines are pooled, as creating one takes .7 ms, a tenth of a small build; raises as that function does."""
    idle = _idle_machines.setdefault(_described(target, effort), collections.deque())
    try:
        machine = idle.pop()
    except IndexError:
        made = create_target_machine(target, effort)
        machine = _Machine(made, f'target datalayout = "{made.target_data}" target triple = "{made.triple}" ')
    try:
        yield machine
    finally:
        idle.append(machine)


@functools.cache
def _host_features() -> str:
    return str(host_features().flatten())


def _optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine, effort: Effort, llvm_ir: str) -> None:
    """Promote stack slots to registers where the code generator did not. Scheduled loops gain nothing from the rest of
    LLVM's passes, which double the time.

    Args:
        llvm_ir: the module's text.
    """
    full = effort is Effort.FULL
    if not full and DIVISIBLE not in llvm_ir:
        return  # setting up a pass takes a tenth of a small kernel's time
    options = llvm.create_pipeline_tuning_options(speed_level=3 if full else 1)
    options.loop_vectorization = options.slp_vectorization = full
    builder = llvm.create_pass_builder(machine, options)
    if full:
        builder.getModulePassManager().run(module, builder)
        return
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.run(module, builder)


class CompiledModule:
    """Machine code of some PrimFuncs. The addresses stay valid as long as this object lives.

    Attributes:
        target: the target of the code.
        object_bytes: the object file; :meth:`from_object` loads it.
        llvm_ir: its LLVM IR; empty for a module loaded from object code.
        reports_accesses: whether its accesses are checked: call it inside of ``bounds.reported_accesses``.
        unresolved: called PrimFuncs without an address: the module cannot run before they are resolved.
    """

    def __init__(
        self, object_bytes: bytes, target: Target, llvm_ir: str, externals: Mapping[str, int], effort: Effort
    ) -> None:
        self.target = target
        self.object_bytes = object_bytes
        self.llvm_ir = llvm_ir
        self._externals = dict(externals)
        self._profiling = any(name.encode() in object_bytes for name in PROFILE_FUNCTIONS.values())
        self._forks = self._profiling or any(name.encode() in object_bytes for name in (FORK, RUN_TEAM))
        self.reports_accesses = REPORT.encode() in object_bytes
        self.unresolved: tuple[str, ...] = ()
        self._effort = effort
        self._lock = forking.Lock()
        self._library = ""
        self._trackers: dict[str, llvm.ResourceTracker] = {}

    @classmethod
    def from_object(
        cls, object_bytes: bytes, target: Target, externals: Mapping[str, int] | None = None
    ) -> CompiledModule:
        """Load a module from kept object code, ready to run.

        Args:
            externals: addresses of the PrimFuncs that it calls but does not contain, by name.
        """
        return cls(object_bytes, target, "", externals or {}, Effort.SCHEDULED)

    def for_profiling(self) -> CompiledModule:
        """Return a copy of the module whose threads record how long they work on parallel loops; for callers that
        enclose its calls in ``profile_begin`` and ``profile_end``."""
        again = CompiledModule(self.object_bytes, self.target, self.llvm_ir, self._externals, self._effort)
        again._profiling = again._forks = True
        return again

    def start_threads(self) -> None:
        """Start the pool of threads if the module has parallel loops, which run on one thread until then. The thread
        that is going to call it does so, not one that links it."""
        if self._forks:
            ensure_threads()

    def resolve(self, externals: Mapping[str, int]) -> None:
        """Set the addresses of PrimFuncs that the module calls but does not contain, by name, before it is linked: code
        can be generated before they are known."""
        self._externals.update(externals)
        self.unresolved = tuple(name for name in self.unresolved if name not in externals)

    @property
    def assembly(self) -> str:
        """The machine code as assembly text (generated on access).

        Raises:
            CodegenError: the module was made from object code.
        """
        if not self.llvm_ir:
            raise CodegenError("a module loaded from object code has no assembly text")
        return assembly_of(self.llvm_ir, self.target, self._effort)

    def address(self, name: str) -> int:
        """Return the address of the PrimFunc ``name``: ``void f(ptr..., i64...)`` with its parameters in order; if the
        target has several threads, a team or null follows them."""
        return self._lookup(PREFIX + name, name)

    def packed_address(self, name: str) -> int:
        """Return the address of ``void f(ptr)``, which takes the parameters of ``name`` as an array of 64-bit integers.
        The module has it if it was compiled with ``packed``."""
        return self._lookup(PREFIX + name + PACKED, name)

    def _lookup(self, symbol: str, name: str) -> int:
        with self._lock:
            tracker = self._trackers.get(symbol)
            if tracker is None:
                try:
                    if self._trackers:
                        tracker = process_engine().lookup(self._library, symbol)
                    else:
                        with headroom(len(self.object_bytes)):
                            tracker = self._link(symbol)
                except RuntimeError as error:
                    raise CodegenError(
                        f"the function {name} is not in this module, or cannot be linked: {error}"
                    ) from None
                self._trackers[symbol] = tracker
            return int(tracker[symbol])

    def _link(self, symbol: str) -> llvm.ResourceTracker:
        """Link the module; return what keeps it, and the address of ``symbol``, alive."""
        if self.target.mtriple.split("-")[0] != process_triple().split("-")[0]:
            raise CodegenError(f"code for {self.target.mtriple} does not run on this machine ({platform.machine()})")
        if self.unresolved:
            raise CodegenError(f"the module calls {', '.join(self.unresolved)}; pass their addresses as externals")
        # A new name for each try: one that was interrupted may have linked the library.
        self._library = f"tilewright.{next(_libraries)}"
        library = llvm.JITLibraryBuilder().add_object_img(self.object_bytes).export_symbol(symbol)
        if self._forks:
            functions = profiling_functions() if self._profiling else team_functions()
            for name, address in functions.items():
                library.import_symbol(name, address)
        for name, address in system_addresses(self.object_bytes).items():
            library.import_symbol(name, address)
        if self.reports_accesses:
            library.import_symbol(REPORT, report_address())
        for name, address in c_functions(self.object_bytes).items():
            library.import_symbol(name, address)
        for name, address in self._externals.items():
            library.import_symbol(PREFIX + name, address)
        return library.link(process_engine(), self._library)


def assembly_of(llvm_ir: str, target: Target, effort: Effort) -> str:
    """Return the machine code of LLVM IR as assembly text.

    Raises:
        CodegenError: LLVM rejects the text.
    """
    with headroom(len(llvm_ir)), _borrowed_machine(target, effort) as machine, _parsed(llvm_ir, machine) as module:
        _optimize(module, machine.generator, effort, llvm_ir)
        return str(machine.generator.emit_assembly(module))


@contextlib.contextmanager
def _parsed(llvm_ir: str, machine: _Machine) -> Iterator[llvm.ModuleRef]:
    """Parse a module in a context of its own, so that several threads can compile at once.

    The module is closed at the end, whatever happens.

    Raises:
        CodegenError: the text is invalid, which is a fault of the generator; the message quotes LLVM's.
    """
    with fresh_context() as context, contextlib.ExitStack() as opened:
        try:
            # The header is in the first line: LLVM's errors name the lines of the text.
            module = opened.enter_context(llvm.parse_assembly(machine.header + llvm_ir, context))
            module.verify()
        except RuntimeError as error:
            raise CodegenError(f"LLVM rejects the generated code: {error}") from error
        if LLVM_SYMBOL in llvm_ir:
            link_instructions(module, context, machine.generator)
        yield module


def _object_code(llvm_ir: str, target: Target, effort: Effort) -> bytes:
    """Return the object code of LLVM IR; raises as :func:`compile_module` does."""
    with headroom(len(llvm_ir)), _borrowed_machine(target, effort) as machine, _parsed(llvm_ir, machine) as module:
        _optimize(module, machine.generator, effort, llvm_ir)
        return emit_object(machine.generator, module)


@dataclasses.dataclass(frozen=True)
class ModuleText:
    """A module as text, which :meth:`compile` turns into machine code, also in another thread: LLVM runs without the
    GIL.

    Attributes:
        names: its functions.
        called: the functions that it calls but does not contain.
        llvm_ir: LLVM IR.
        effort: the effort that LLVM spends on it.
    """

    names: tuple[str, ...]
    called: frozenset[str]
    llvm_ir: str
    effort: Effort

    def compile(self, target: Target, externals: Mapping[str, int] | None = None) -> CompiledModule:
        """Compile the module; raises as :func:`compile_module` does.

        Args:
            externals: addresses of the functions that it calls but does not contain, by name.
        """
        start = time.perf_counter()
        object_bytes = _object_code(self.llvm_ir, target, self.effort)
        compiled = CompiledModule(object_bytes, target, self.llvm_ir, externals or {}, self.effort)
        compiled.unresolved = tuple(sorted(self.called - set(externals or {})))
        _LOG.debug(
            "%s: %d bytes of machine code from %d characters of LLVM IR in %.1f ms",
            ", ".join(f"@{name}" for name in self.names),
            len(compiled.object_bytes),
            len(self.llvm_ir),
            (time.perf_counter() - start) * 1e3,
        )
        return compiled


def emit_module(
    functions: Sequence[PrimFunc],
    target: Target,
    entry_names: Collection[str] | None = None,
    elsewhere: Sequence[PrimFunc] = (),
    packed: bool = True,
) -> ModuleText:
    """Emit ``functions`` as the text of a module; see :func:`compile_module`.

    Raises:
        CodegenError: a program contains something that cannot be expressed; the place is underlined.
    """
    llvm_ir = emit_llvm_ir(functions, target, entry_names, elsewhere, packed)
    names = tuple([func.name for func in functions])
    called = frozenset[str]().union(*[called_names(func.body) for func in functions])
    return ModuleText(names, called.difference(names), llvm_ir, Effort.of(functions))


def compile_module(
    functions: Sequence[PrimFunc],
    target: Target,
    entry_names: Collection[str] | None = None,
    externals: Mapping[str, int] | None = None,
    elsewhere: Sequence[PrimFunc] = (),
    packed: bool = True,
) -> CompiledModule:
    """Compile ``functions``, which are lowered (loops serial or parallel, no blocks), to machine code.

    Args:
        entry_names: the functions visible from outside (default: all).
        externals: addresses of PrimFuncs that the functions call but that are compiled elsewhere, by name.
        elsewhere: those PrimFuncs: a function that calls several with parallel loops keeps its threads together.
        packed: whether the entries have a :meth:`CompiledModule.packed_address`, at the price of more code.

    Raises:
        CodegenError: a program contains something that cannot be expressed; the place is underlined.
        MemoryError: LLVM may need more memory than there is.
    """
    return emit_module(functions, target, entry_names, elsewhere, packed).compile(target, externals)
