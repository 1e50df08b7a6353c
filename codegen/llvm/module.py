"""Emit whole modules: PrimFuncs as LLVM IR text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.codegen.analysis import uses
from tilewright.codegen.forks import several_forks
from tilewright.codegen.llvm import arithmetic
from tilewright.codegen.llvm import intrinsics as intrinsics  # registers the emitter of each intrinsic
from tilewright.codegen.llvm.function import FunctionEmitter, bind_parameters
from tilewright.codegen.llvm.team_ir import RUN_TEAM
from tilewright.codegen.llvm.text import Builder, Module, global_name
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.expr import Buffer, Call, IntImm, Var, as_expr
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: The prefix of generated functions: a kernel called "exp" must not be mistaken for the C library's.
PREFIX = "tw."
PACKED = ".packed"
_SERIAL = ".serial"
_IN_TEAM = ".in_team"


class ModuleEmitter:
    """Emits one LLVM module.

    Every PrimFunc ``f`` becomes ``void tw.f(ptr ..., i64 ...)`` with the parameters in order, buffers as addresses and
    variables as i64; with ``packed`` each entry also becomes ``void tw.f.packed(ptr)``, which takes them as an array of
    64-bit integers. For a target with several threads ``tw.f`` takes one more parameter, a team
    (:mod:`~tilewright.codegen.llvm.team`) or null: ``tw.f.packed`` gathers a team if ``f`` forks more than once.

    Args:
        traced: whether ``text`` records the statement that each line is for (:mod:`.source_lines`).
    """

    def __init__(
        self,
        functions: Sequence[PrimFunc],
        target: Target,
        entry_names: Collection[str],
        elsewhere: Sequence[PrimFunc] = (),
        packed: bool = True,
        traced: bool = False,
    ) -> None:
        self.target = target
        self.packed = packed
        self.has_teams = target.num_threads != 1
        self.text = Module(target.has_half_conversions, traced)
        self.functions: dict[str, PrimFunc] = {}
        self.entry_names = frozenset(entry_names)
        for func in functions:
            if func.name in self.functions:
                raise CodegenError(f"two functions are named {func.name}")
            self.functions[func.name] = func
        missing = sorted(self.entry_names.difference(self.functions))
        if missing:
            raise CodegenError(f"no function is named {', '.join(missing)}; found {', '.join(sorted(self.functions))}")
        self._known = {func.name: func for func in elsewhere} | self.functions
        self._emitted: set[tuple[str, bool]] = set()

    @property
    def attributes(self) -> str:
        """The attributes of every generated function."""
        width = self.target.vector_bits
        return f'nounwind "prefer-vector-width"="{width}"' if width == 512 else "nounwind"

    @property
    def attributes_of_calls(self) -> str:
        """The attributes of functions that do nothing but call others, of which each instruction runs once in a call:
        LLVM takes half the time for them where it leaves out its optimizations."""
        return f"{self.attributes} noinline optnone"

    def emit(self) -> str:
        """Return the text of the module."""
        for func in self.functions.values():
            self._function(func, serial=self.target.num_threads == 1)
        return self.text.text()

    def callee(self, call: Call, kinds: list[str], caller: FunctionEmitter) -> str:
        """Return the operand that calls the PrimFunc named by ``call``, whose arguments have these LLVM types.

        A function that one of several threads calls runs its parallel loops serially: it gets a second body.
        """
        name = call.name[1:]
        func = self.functions.get(name)
        if func is None:
            return self.text.declare(PREFIX + name, "void", [*kinds, "ptr"] if self.has_teams else kinds)
        expected = ["ptr" if isinstance(param, Buffer) else "i64" for param in func.params]
        if expected != kinds:
            caller.error(call, f"@{name} takes ({', '.join(expected)}), found ({', '.join(kinds)})")
        serial = caller.serial and self._calls_threads(name, set())
        if serial and self.target.num_threads != 1:
            self._function(func, serial=True)
            return global_name(PREFIX + name + _SERIAL)
        return global_name(PREFIX + name)

    def _calls_threads(self, name: str, seen: set[str]) -> bool:
        """Return whether ``name``, or a function that it calls, has parallel loops."""
        if name in seen or name not in self.functions:
            return False
        seen.add(name)
        found = uses(self.functions[name].body)
        return found.has_parallel_loop or any(self._calls_threads(other, seen) for other in found.called)

    def _function(self, func: PrimFunc, serial: bool) -> None:
        if (func.name, serial) in self._emitted:
            return
        self._emitted.add((func.name, serial))
        second = serial and self.target.num_threads != 1
        symbol = PREFIX + func.name + (_SERIAL if second else "")
        emitter = FunctionEmitter(self, func, symbol, serial)
        params = bind_parameters(emitter, func)
        if self.has_teams:
            params.append("ptr %team")
            emitter.team = "%team"
        emitter.statement(func.body)
        entry = func.name in self.entry_names and not second
        linkage = "" if entry else "internal "
        attributes = self.attributes if emitter.computes else self.attributes_of_calls
        header = f"define {linkage}void {global_name(symbol)}({', '.join(params)}) {attributes}"
        self.text.functions.append(emitter.finish(header))
        if entry and self.packed:
            self._packed(func)

    def _packed(self, func: PrimFunc) -> None:
        """Emit the function that takes its parameters as an array, and gathers a team if ``func`` has work for one."""
        name = PREFIX + func.name
        # Profiles need a team: only its threads record their working time.
        least = 1 if uses(func.body).has_profile else 2
        forks = several_forks(func, self._known, least) if self.has_teams else as_expr(False)
        emitter = FunctionEmitter(self, func, name + PACKED, serial=True)
        b = emitter.builder
        if isinstance(forks, IntImm):
            if forks.value:
                self._gather(emitter, func)
            else:
                self._call_unpacked(emitter, func)
        else:
            for position, param in enumerate(func.params):
                if isinstance(param, Var):
                    value = b.value(f"load i64, ptr {_place(b, position)}, align 8")
                    emitter.values[param] = arithmetic.cast(b, INT64, param.dtype, value)
            together, alone, end = b.fresh("together"), b.fresh("alone"), b.fresh("end")
            b.branch_if(emitter.expr(forks), together, alone)
            for label, write in ((together, self._gather), (alone, self._call_unpacked)):
                b.label(label)
                scope = b.enter_scope()
                write(emitter, func)
                b.leave_scope(scope)
                b.branch(end)
            b.label(end)
        self.text.functions.append(
            emitter.finish(f"define void {global_name(name + PACKED)}(ptr %args) {self.attributes_of_calls}")
        )

    def _gather(self, emitter: FunctionEmitter, func: PrimFunc) -> None:
        """Emit a call of ``func`` with a team, through a function of one address."""
        inner = FunctionEmitter(self, func, PREFIX + func.name + _IN_TEAM, serial=True)
        inner.team = "%team"
        self._call_unpacked(inner, func)
        symbol = global_name(inner.symbol)
        self.text.functions.append(
            inner.finish(f"define internal void {symbol}(ptr %args, ptr %team) {self.attributes_of_calls}")
        )
        run = self.text.declare(RUN_TEAM, "void", ["ptr", "ptr", "i32"])
        emitter.builder.emit(f"call void {run}(ptr {symbol}, ptr %args, i32 {self.target.num_threads})")

    def _call_unpacked(self, emitter: FunctionEmitter, func: PrimFunc) -> None:
        b, args = emitter.builder, []
        for position, param in enumerate(func.params):
            kind = "ptr" if isinstance(param, Buffer) else "i64"
            args.append(f"{kind} {b.value(f'load {kind}, ptr {_place(b, position)}, align 8')}")
        if self.has_teams:
            args.append(f"ptr {emitter.team}")
        b.emit(f"call void {global_name(PREFIX + func.name)}({', '.join(args)})")


def _place(b: Builder, position: int) -> str:
    """Return the address of the parameter at ``position`` in the array of all."""
    return b.pure(f"getelementptr inbounds i64, ptr %args, i64 {position}")


def emit_llvm_ir(
    functions: Sequence[PrimFunc],
    target: Target,
    entry_names: Collection[str] | None = None,
    elsewhere: Sequence[PrimFunc] = (),
    packed: bool = True,
) -> str:
    """Emit ``functions`` as LLVM IR text; ``entry_names`` (default: all) are visible from outside, and if ``packed``
    also take their parameters as an array. Callees that stand ``elsewhere``, in another module, are declared.

    Raises:
        CodegenError: a program contains something that cannot be expressed; the place is underlined.
    """
    names = [func.name for func in functions] if entry_names is None else entry_names
    return ModuleEmitter(functions, target, names, elsewhere, packed).emit()
