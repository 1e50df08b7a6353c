"""Turn generated Python source into functions that run."""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import linecache
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.llvm.bounds import reported_accesses
from tilewright.codegen.llvm.call import check_arguments
from tilewright.codegen.llvm.headroom import headroom
from tilewright.codegen.numba_.expressions import is_half
from tilewright.codegen.numba_.functions import emit_source, python_names
from tilewright.codegen.numba_.prologue import HEADER, HELPERS
from tilewright.codegen.numba_.source import only_calls
from tilewright.codegen.threads import ensure_threads, limited_threads, parallel_lock, pool_is_lost
from tilewright.codegen.vector_width import vector_bits
from tilewright.tensorir import forking
from tilewright.tensorir.errors import CodegenError, InputError
from tilewright.tensorir.expr import Buffer, IntImm, Var
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.keys import CHECKED_ACCESSES
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

_LOG = logging.getLogger("tilewright.codegen")

_numbers = itertools.count(1)

#: The number of calls that Python interprets of a function that only calls others, before numba compiles it. Compiling
#: the entry of a whole model takes a quarter of a second; interpreting it costs 1 to 11 microseconds more a call, so
#: that about as much is lost by then.
RUNS_BY_PYTHON = 50_000

#: The bytes of LLVM IR that numba makes of a byte of source, about.
_LLVM_BYTES = 40


class NumbaModule:
    """Python functions for some PrimFuncs. numba compiles each at its first call, and a function that only calls others
    (the entry of most models) after ``runs_by_python`` calls.

    Attributes:
        source: the Python text; a debugger shows its lines.
        functions: the Python functions by the names of the PrimFuncs.
        runs_by_python: the number of calls that Python itself interprets.
    """

    runs_by_python = RUNS_BY_PYTHON

    def __init__(self, functions: Sequence[PrimFunc], target: Target) -> None:
        self.target = target
        self.source = emit_source(functions)
        self._primfuncs = {func.name: func for func in functions}
        filename = f"<tilewright {next(_numbers)}>"
        lines = self.source.splitlines(keepends=True)
        linecache.cache[filename] = (len(self.source), None, lines, filename)
        self._filename = filename
        self._reports = any(CHECKED_ACCESSES in func.attrs for func in functions)
        self._names = python_names(functions)
        self._runs = {func.name: itertools.count() for func in functions if only_calls(func)}
        self._lock = forking.Lock()
        self._load()

    def _load(self) -> None:
        """Make Python functions of the source; where the process has lost its pool, without parallel loops."""
        ensure_threads()  # before numba is imported below: afterwards it would not find TBB
        parallel = not pool_is_lost()
        namespace: dict[str, Any] = {"__name__": self._filename}
        tree = _parsed(self.source, self._filename)
        if not parallel:
            for keyword in (node for node in ast.walk(tree) if isinstance(node, ast.keyword)):
                if keyword.arg == "parallel":
                    keyword.value = ast.copy_location(ast.Constant(False), keyword.value)
        helpers = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in HELPERS]
        tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in HELPERS)]
        namespace |= {name: _helper(name) for name in helpers}
        exec(compile(tree, self._filename, "exec"), namespace)
        self._namespace = namespace
        self.functions = {name: namespace[python] for name, python in self._names.items()}
        self._compiled = False
        self._parallel = parallel

    def _follow_fork(self) -> None:
        """Make the functions again, without parallel loops, in a forked process that has lost its pool."""
        if self._parallel and pool_is_lost():
            with self._lock:
                if self._parallel:
                    self._load()

    def with_function(self, func: PrimFunc) -> NumbaModule:
        """Return a module with ``func`` in place of the function of its name; it shares the other functions with this
        module, so that numba need not compile them again."""
        self._follow_fork()
        module = NumbaModule([func if name == func.name else old for name, old in self._primfuncs.items()], self.target)
        for name, function in self.functions.items():
            if name != func.name:
                module.functions[name] = module._namespace[module._names[name]] = function
        return module

    def vector_bits(self, name: str) -> int:
        """Return the vector width in bits of the machine code of the PrimFunc ``name``; 0 if it has no vector
        arithmetic or has not been called so far."""
        inspect = getattr(self.functions[name], "inspect_asm", None)  # Python interprets some, and all without the JIT
        return 0 if inspect is None else vector_bits("".join(inspect().values()))

    def function(self, name: str) -> Callable[..., None]:
        """Return a callable that runs the PrimFunc ``name`` on arrays and integers, as :meth:`call` does."""
        return functools.partial(self.call, name)

    def call(self, name: str, *args: Any) -> None:
        """Run the PrimFunc ``name`` on arrays and integers; it writes results into the arrays.

        Raises:
            InputError: an argument does not fit.
            MemoryError: numba may need more memory than there is to compile the function.
            OutOfBoundsError: the code checks its accesses, and one was outside of a buffer.
        """
        func = self._primfuncs[name]
        check_arguments(func, args)
        sizes = {
            param: IntImm(int(arg), param.dtype)
            for param, arg in zip(func.params, args, strict=True)
            if isinstance(param, Var)
        }
        passed = [
            _as_parameter(param, arg, sizes) if isinstance(param, Buffer) else int(arg)
            for param, arg in zip(func.params, args, strict=True)
        ]
        self._follow_fork()
        function = self.functions[name]
        if name in self._runs and next(self._runs[name]) < self.runs_by_python:
            function = getattr(function, "py_func", function)  # functions that Python always interprets have none
        reporting = reported_accesses() if self._reports else contextlib.nullcontext()
        compiling = contextlib.nullcontext() if self._compiled else headroom(_LLVM_BYTES * len(self.source))
        limited = limited_threads(self.target.num_threads) if self._parallel else contextlib.nullcontext()
        with reporting, compiling, parallel_lock(), limited:
            function(*passed)
        self._compiled = True


def _parsed(source: str, filename: str) -> ast.Module:
    """Parse generated source.

    Raises:
        CodegenError: it is nested more deeply than Python's parser can follow.
    """
    try:
        return ast.parse(source, filename)
    except (SyntaxError, MemoryError) as error:  # earlier versions of Python name the limit by a MemoryError
        if isinstance(error, SyntaxError) and "too many" not in error.msg:
            raise CodegenError(f"numba: Python refuses the generated source: {error}") from error
        raise CodegenError(
            f"numba: the loops are nested more deeply than Python source can be: {error}; target llvm compiles them, "
            "or functions of their own make them flat"
        ) from None


@functools.cache
def _helper(name: str) -> Callable[..., Any]:
    """Return a helper function; numba compiles it once in a process, however many modules have it in their source."""
    filename = f"<tilewright {name}>"
    text = f"{HEADER}\n\n{HELPERS[name]}"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": filename}
    exec(compile(text, filename, "exec"), namespace)
    function: Callable[..., Any] = namespace[name]
    return function


def _as_parameter(param: Buffer, array: np.ndarray[Any, Any], sizes: dict[Var, IntImm]) -> np.ndarray[Any, Any]:
    """Return ``array`` as the generated function takes it: half types as bits, in the shape of the parameter."""
    if is_half(param.dtype):
        array = array.view(np.uint16)
    elif param.dtype.kind == "storage":
        array = array.view(np.uint8)
    if param.strides:
        end = max(
            1, 1 + sum((extent - 1) * abs(stride) for extent, stride in zip(array.shape, array.strides, strict=True))
        )
        count = 1 + (end - 1) // array.itemsize
        return np.lib.stride_tricks.as_strided(array, (count,), (array.itemsize,))
    shape = []
    for extent in param.shape:
        value = substitute(extent, sizes)
        shape.append(value.value if isinstance(value, IntImm) else -1)
    if shape.count(-1) > 1 or 0 in shape:
        shape = list(array.shape)
    if len(shape) != array.ndim or -1 in shape or tuple(shape) != array.shape:
        try:
            array = array.reshape(shape)
        except ValueError as error:
            raise InputError(f"{param.name}: expected shape {tuple(shape)}, found {array.shape}") from error
    return array


def compile_module(functions: Sequence[PrimFunc], target: Target) -> NumbaModule:
    """Return ``functions`` as Python functions, each compiled by numba at its first call.

    Raises:
        CodegenError: a program contains something that cannot be expressed; the place is underlined.
    """
    made = NumbaModule(functions, target)
    names = ", ".join(f"@{func.name}" for func in functions)
    _LOG.debug("%s: Python source, %d characters", names, len(str(made.source)))
    return made
