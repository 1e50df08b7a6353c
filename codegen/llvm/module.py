"""Whole modules: PrimFuncs to LLVM IR text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.codegen.analysis import called_names, has_parallel_loop
from tilewright.codegen.llvm import intrinsics as intrinsics  # registers how each intrinsic is written
from tilewright.codegen.llvm.function import FunctionEmitter, bind_parameters
from tilewright.codegen.llvm.text import Module, global_name
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.expr import Buffer, Call
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: Before the names of generated functions: a kernel called "exp" must not be taken for the C library's.
PREFIX = "tw."
PACKED = ".packed"
_SERIAL = ".serial"


class ModuleEmitter:
    """Writes one LLVM module.

    Every PrimFunc ``f`` becomes ``void tw.f(ptr ..., i64 ...)`` with the parameters in order, buffers as addresses and
    variables as i64; each entry also ``void tw.f.packed(ptr)``, which takes them as an array of 64-bit integers.
    """

    def __init__(self, functions: Sequence[PrimFunc], target: Target, entry_names: Collection[str]) -> None:
        self.target = target
        self.text = Module(target.has_half_conversions)
        self.functions: dict[str, PrimFunc] = {}
        self.entry_names = frozenset(entry_names)
        for func in functions:
            if func.name in self.functions:
                raise CodegenError(f"two functions are called {func.name}")
            self.functions[func.name] = func
        missing = sorted(self.entry_names - self.functions.keys())
        if missing:
            raise CodegenError(f"no function is called {', '.join(missing)}; found {', '.join(sorted(self.functions))}")
        self._parallel = {name: has_parallel_loop(func.body) for name, func in self.functions.items()}
        self._emitted: set[tuple[str, bool]] = set()

    @property
    def attributes(self) -> str:
        """Attributes of every generated function."""
        width = self.target.vector_bits
        return f'nounwind "prefer-vector-width"="{width}"' if width == 512 else "nounwind"

    def emit(self) -> str:
        """The text of the module."""
        for func in self.functions.values():
            self._function(func, serial=self.target.num_threads == 1)
        return self.text.text()

    def callee(self, call: Call, kinds: list[str], caller: FunctionEmitter) -> str:
        """The operand that calls the PrimFunc named by ``call``, whose arguments have these LLVM types.

        A function that is called by one of several threads runs its parallel loops serially: it gets a second body.
        """
        name = call.name[1:]
        func = self.functions.get(name)
        if func is None:
            return self.text.declare(PREFIX + name, "void", kinds)
        expected = ["ptr" if isinstance(param, Buffer) else "i64" for param in func.params]
        if expected != kinds:
            caller.error(call, f"@{name} takes ({', '.join(expected)}), found ({', '.join(kinds)})")
        serial = caller.serial and self._calls_threads(name, set())
        if serial and self.target.num_threads != 1:
            self._function(func, serial=True)
            return global_name(PREFIX + name + _SERIAL)
        return global_name(PREFIX + name)

    def _calls_threads(self, name: str, seen: set[str]) -> bool:
        """Whether ``name``, or a function that it calls, has parallel loops."""
        if name in seen or name not in self.functions:
            return False
        seen.add(name)
        called = called_names(self.functions[name].body)
        return self._parallel[name] or any(self._calls_threads(other, seen) for other in called)

    def _function(self, func: PrimFunc, serial: bool) -> None:
        if (func.name, serial) in self._emitted:
            return
        self._emitted.add((func.name, serial))
        second = serial and self.target.num_threads != 1
        symbol = PREFIX + func.name + (_SERIAL if second else "")
        emitter = FunctionEmitter(self, func, symbol, serial)
        params = bind_parameters(emitter, func)
        emitter.statement(func.body)
        entry = func.name in self.entry_names and not second
        linkage = "" if entry else "internal "
        header = f"define {linkage}void {global_name(symbol)}({', '.join(params)}) {self.attributes}"
        self.text.functions.append(emitter.finish(header))
        if entry:
            self.text.functions.append(self._packed(func))

    def _packed(self, func: PrimFunc) -> str:
        lines, args = [], []
        for position, param in enumerate(func.params):
            kind = "ptr" if isinstance(param, Buffer) else "i64"
            lines.append(f"  %p{position} = getelementptr inbounds i64, ptr %args, i64 {position}")
            lines.append(f"  %v{position} = load {kind}, ptr %p{position}, align 8")
            args.append(f"{kind} %v{position}")
        name = global_name(PREFIX + func.name + PACKED)
        call = f"  call void {global_name(PREFIX + func.name)}({', '.join(args)})"
        head = f"define void {name}(ptr %args) {self.attributes} {{"
        return "\n".join([head, *lines, call, "  ret void", "}", ""])


def emit_llvm_ir(functions: Sequence[PrimFunc], target: Target, entry_names: Collection[str] | None = None) -> str:
    """The LLVM IR of ``functions`` as text; ``entry_names`` (default: all) are visible from outside.

    Raises:
        CodegenError: a program holds something that cannot be expressed; the place is underlined.
    """
    names = [func.name for func in functions] if entry_names is None else entry_names
    return ModuleEmitter(functions, target, names).emit()
