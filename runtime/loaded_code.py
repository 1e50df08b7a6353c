"""Load machine code from object files of a cached build or of an artifact."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.llvm.compile import CompiledModule
from tilewright.runtime.compile_functions import compile_functions
from tilewright.runtime.generated_code import Code, MachineCode, ObjectCode, refusing_runner, separate_kernels
from tilewright.runtime.kernel_cache import Kernel, NamedFunction
from tilewright.runtime.runners import runner_of
from tilewright.runtime.steps import Array, Runner
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target


class LoadedCode:
    """Machine code, linked from object files, without its functions: it can only be run."""

    def __init__(self, code: ObjectCode, target: Target) -> None:
        *others, main = code.objects
        self._target = target
        self._modules = [CompiledModule.from_object(content, target) for content in others]
        self._symbols = list(code.symbols)
        addresses = {
            name: self._modules[place].address(symbol) if target.is_runnable else 0
            for name, place, symbol in code.symbols
        }
        self._main = CompiledModule.from_object(main, target, addresses)

    def runner(self, num_values: int, constants: Sequence[Array]) -> Runner:
        """Return a runner of ``main``, which takes ``num_values`` values in total, with ``constants`` bound."""
        if not self._target.is_runnable:
            return refusing_runner(self._target)
        return runner_of([*self._modules, self._main], self._main.packed_address("main"), constants, num_values, self)

    def of(self, functions: Sequence[PrimFunc]) -> Code:
        """Return the code as that of ``functions``, which the same passes made as in the earlier program.

        If their names differ, kernels cannot be matched with functions, and the functions are compiled.
        """
        names = {name for name, _, _ in self._symbols}
        if names != {function.name for function in separate_kernels(functions)}:
            return compile_functions(functions, self._target)
        by_name = {function.name: function for function in functions}
        kernels = {
            name: Kernel(NamedFunction.of(by_name[name], self._target).unnamed, symbol, self._modules[place])
            for name, place, symbol in self._symbols
        }
        return MachineCode(functions, self._target, kernels, self._main)
