"""Instructions of users: described as loops over small buffers, implemented as LLVM IR or as a ``numba.cfunc``.

The description says what an instruction computes: :meth:`.Schedule.tensorize` matches loops against it, the interpreter
runs it, passes read from it which elements are read and written, and targets without an implementation compile it. The
name is that of Apache TVM (``TensorIntrin.register``).

Loops that were tensorized stay what they are, marked by annotations, until ``LowerTensorIntrin`` guards them by a call
of the instruction::

    if not dot4(address_of(a[...]), address_of(b[...]), ...): loops

which a code generator with an implementation replaces by a call of that, and all others by the loops.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm

from tilewright.tensorir.dtype import BOOL, DataType
from tilewright.tensorir.errors import CodegenError, TilewrightError
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, Var
from tilewright.tensorir.functor import free_vars, walk
from tilewright.tensorir.interpreter_memory import Pointer
from tilewright.tensorir.intrinsics import INTRINSICS, Intrinsic
from tilewright.tensorir.llvm_context import fresh_context
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Block, BufferStore, For, IfThenElse, PrimFunc, SeqStmt, Stmt

#: The symbols of implementations in generated code: of LLVM IR, which becomes part of the code, and of C functions of
#: this process, whose addresses are found when the code is linked.
LLVM_SYMBOL, C_SYMBOL = "tw.intrin.", "tw.extern."

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STATEMENTS = (For, SeqStmt, Block, BufferStore, IfThenElse)


class TensorIntrinError(TilewrightError, ValueError):
    """The description or an implementation of an instruction is not usable; or there is no such instruction."""


@dataclasses.dataclass(frozen=True, eq=False)
class TensorIntrin:
    """One instruction; :func:`tensor_intrin` makes it.

    Attributes:
        description: what it computes, as loops around blocks over the buffers among its parameters.
        llvm: LLVM IR that defines ``entry``; None without.
        entry: the name of the function there.
        cfunc: the object that ``numba.cfunc`` made; None without.
        digest: of all of it. Kept code is looked up by it.
    """

    name: str
    description: PrimFunc
    llvm: str | None
    entry: str
    cfunc: Any
    digest: str

    @property
    def c_symbol(self) -> str:
        """The symbol of its C function in machine code: it says what the code passes."""
        return f"{C_SYMBOL}{self.name}.{_digest(str(self.description))}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The LLVM types of an implementation's parameters."""
        return llvm_kinds(self.description.params)


_REGISTERED: dict[str, TensorIntrin] = {}
_PROVIDERS: dict[str, Callable[[str], Any]] = {}


def tensor_intrin(
    name: str, description: PrimFunc, *, llvm: str | None = None, numba: Any = None, override: bool = False
) -> TensorIntrin:
    """Register an instruction for :meth:`.Schedule.tensorize`.

    An implementation takes the parameters of the description in order, a buffer as the address of its first element and
    a variable as a 64-bit integer, and returns nothing. It must compute what the description does; this is not checked.

    Args:
        name: an identifier.
        description: loops around blocks, without inits; all buffers are parameters. Elements of a buffer lie row by
            row, as its shape says, or as its ``strides`` (in elements) say; a variable stands for any stride or extent.
        llvm: LLVM IR text that defines ``void @name(ptr ..., i64 ...)``, for the target ``llvm``. If it defines one
            function, that may have any name.
        numba: the result of ``@numba.cfunc("void(CPointer(float32), ..., int64, ...)")``, for the target ``numba``, and
            for ``llvm`` where there is no LLVM IR. It is called at its address, without Python.
        override: whether it may replace another instruction of this name.

    Raises:
        TensorIntrinError: something does not fit; the message says what was expected.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TensorIntrinError(f"tensor intrinsic: expected an identifier as the name, found {name!r}")
    if name in INTRINSICS and name not in _REGISTERED:
        raise TensorIntrinError(f"tensor intrinsic {name}: Tilewright has an intrinsic of this name")
    _check_description(name, description)
    entry = "" if llvm is None else _check_llvm(name, llvm, description)
    if numba is not None:
        _check_cfunc(name, numba, description.params)
    address = "" if numba is None else str(numba.address)
    text = "\0".join([name, str(description), llvm or "", address])
    digest = _digest(text)
    known = _REGISTERED.get(name)
    if known is not None and known.digest != digest and not override:
        raise TensorIntrinError(f"tensor intrinsic {name}: it is registered already; override=True replaces it")
    return _register(TensorIntrin(name, description, llvm, entry, numba, digest), _not_taken)


def native_function(name: str, params: Sequence[Buffer | Var], function: Any) -> TensorIntrin:
    """Register a C function that nothing describes, for calls as a statement: it writes the buffers that it is for.

    Raises:
        TensorIntrinError: it does not take ``params``.
    """
    _check_cfunc(name, function, params)
    description = PrimFunc(name, tuple(params), SeqStmt(()))
    made = TensorIntrin(name, description, None, "", function, _digest(f"{description}{function.address}"))
    return _register(made, functools.partial(_runs, name))


def _register(made: TensorIntrin, value: Callable[..., Any]) -> TensorIntrin:
    """Make ``made`` known to calls, whose result is what ``value`` returns in the interpreter."""
    _REGISTERED[made.name] = made
    INTRINSICS[made.name] = Intrinsic(
        made.name,
        len(made.description.params),
        "any",
        value,
        instructions=1,
        operations=0,
        lanewise=False,
        result="bool",
        pure=False,
    )
    return made


def provide(prefix: str, make: Callable[[str], Any]) -> None:
    """Let ``make`` register the C functions whose names begin with ``prefix``, when loaded code calls them."""
    _PROVIDERS[prefix] = make


def find_tensor_intrin(name: str) -> TensorIntrin:
    """Return the instruction of that name.

    Raises:
        TensorIntrinError: there is none.
    """
    found = _REGISTERED.get(name)
    if found is None:
        known = ", ".join(sorted(_REGISTERED)) or "none"
        raise TensorIntrinError(
            f"there is no tensor intrinsic {name!r}; tensor_intrin() registers one, in every process that uses it "
            f"(registered: {known})"
        )
    return found


def called_intrin(condition: Expr) -> TensorIntrin | None:
    """Return the instruction that a condition calls; None for any other condition."""
    return _REGISTERED.get(condition.name) if isinstance(condition, Call) else None


def c_address(name: str, symbol: str | None = None) -> int:
    """Return the address of the C function that implements an instruction in this process.

    Args:
        symbol: the symbol by which machine code calls it.

    Raises:
        CodegenError: there is none: code that calls it was made by another process; or it takes something else.
    """
    if name not in _REGISTERED:
        for prefix, make in _PROVIDERS.items():
            if name.startswith(prefix):
                make(name)
    found = _REGISTERED.get(name)
    if found is None or found.cfunc is None:
        raise CodegenError(
            f"the code calls the C function of the tensor intrinsic {name}, which is not part of it: register it in "
            "this process, too (tensor_intrin(..., numba=...), or its operator), before the code is loaded"
        )
    if symbol is not None and symbol != found.c_symbol:
        raise CodegenError(
            f"the code calls the C function of the tensor intrinsic {name} as another description says than the one "
            f"registered in this process:\n{found.description}"
        )
    return int(found.cfunc.address)


def c_function(name: str) -> Any:
    """Return the C function that implements an instruction, for Python code that numba compiles: it takes the
    ``ctypes`` of arrays, and integers.

    Raises:
        CodegenError: there is none in this process.
    """
    address = c_address(name)
    params = find_tensor_intrin(name).description.params
    kinds = [ctypes.c_void_p if isinstance(param, Buffer) else ctypes.c_int64 for param in params]
    return ctypes.CFUNCTYPE(None, *kinds)(address)


def llvm_kinds(params: Sequence[Any]) -> tuple[str, ...]:
    """Return the LLVM types in which a function takes ``params``."""
    return tuple("ptr" if isinstance(param, Buffer) else "i64" for param in params)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _not_taken(args: Sequence[DataType], result: DataType) -> Any:
    """Return the value of a call in the interpreter: the loops that describe the instruction run."""
    assert result is BOOL
    return _false


def _runs(name: str, args: Sequence[DataType], result: DataType) -> Any:
    """Return what the interpreter does for a call of a C function: call it."""
    function = c_function(name)

    def call(*values: Any) -> bool:
        function(*[_c_value(value) for value in values])
        return True

    return call


def _c_value(value: Any) -> int:
    if isinstance(value, Pointer):
        return int(value.memory.__array_interface__["data"][0]) + value.offset
    return int(value)


def _false(*args: Any) -> bool:
    return False


def _check_description(name: str, description: PrimFunc) -> None:
    where = f"tensor intrinsic {name}: its description"
    if not isinstance(description, PrimFunc):
        raise TensorIntrinError(f"{where}: expected a PrimFunc, found {type(description).__name__}")
    if not isinstance(description.body, For):
        raise TensorIntrinError(f"{where}: expected loops, found {type(description.body).__name__}")
    params = set(description.params)
    stores = False
    for node in walk(description.body):
        if isinstance(node, Stmt) and not isinstance(node, _STATEMENTS):
            raise TensorIntrinError(f"{where}: expected loops, blocks and stores, found {type(node).__name__}")
        if isinstance(node, For) and node.kind != "serial":
            raise TensorIntrinError(f"{where}: loop {node.var.name}: expected a serial loop, found a {node.kind} one")
        if isinstance(node, Block) and node.init is not None:
            raise TensorIntrinError(
                f"{where}: block {node.name} has an init; describe the steps of a reduction alone, and use "
                "decompose_reduction before tensorize"
            )
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer not in params:
            raise TensorIntrinError(f"{where}: buffer {node.buffer.name} is no parameter")
        stores = stores or isinstance(node, BufferStore)
    if not stores:
        raise TensorIntrinError(f"{where}: it stores nothing")
    used: set[Node] = set(free_vars(description.body))
    accessed = {node.buffer for node in walk(description.body) if isinstance(node, (BufferLoad, BufferStore))}
    for buffer in description.buffers:
        if buffer not in accessed:
            raise TensorIntrinError(f"{where}: buffer {buffer.name} is not used")
        for size in buffer.strides:
            used.update(free_vars(size))
    for var in description.variables:
        if var not in used:
            raise TensorIntrinError(f"{where}: variable {var.name} is neither an extent nor a stride")


def _check_llvm(name: str, text: str, description: PrimFunc) -> str:
    """Parse and verify LLVM IR; return the name of the function that implements the instruction."""
    where = f"tensor intrinsic {name}: its LLVM IR"
    if not isinstance(text, str):
        raise TensorIntrinError(f"{where}: expected text, found {type(text).__name__}")
    try:
        with fresh_context() as context, llvm.parse_assembly(text, context) as module:
            module.verify()
            functions = [found for found in module.functions if not found.is_declaration]
            defined = {found.name: str(found.global_value_type) for found in functions}
    except RuntimeError as error:
        raise TensorIntrinError(f"{where}: LLVM rejects it: {error}") from None
    entry = next(iter(defined)) if len(defined) == 1 else name
    if entry not in defined:
        found = ", ".join(f"@{each}" for each in defined) or "none"
        raise TensorIntrinError(f"{where}: expected a function @{name}, found {found}")
    expected = f"void ({', '.join(llvm_kinds(description.params))})"
    if defined[entry] != expected:
        names = ", ".join(param.name for param in description.params)
        raise TensorIntrinError(f"{where}: @{entry}: expected {expected}, for {names}; found {defined[entry]}")
    return entry


def _check_cfunc(name: str, function: Any, params: Sequence[Any]) -> None:
    """Check that a C function takes ``params``."""
    where = f"tensor intrinsic {name}: its C function"
    signature = getattr(function, "_sig", None)
    if signature is None or not isinstance(getattr(function, "address", None), int):
        raise TensorIntrinError(f"{where}: expected the result of @numba.cfunc, found {type(function).__name__}")
    expected = [_c_types(param) for param in params]
    found = [_c_type(arg) for arg in signature.args]
    fits = len(found) == len(expected) and all(one in any_of for one, any_of in zip(found, expected, strict=True))
    if not fits or str(signature.return_type) not in ("none", "void"):
        wanted = ", ".join(any_of[0] for any_of in expected)
        shown = f"{_c_type(signature.return_type)}({', '.join(found)})".replace("none(", "void(", 1)
        raise TensorIntrinError(f"{where}: expected void({wanted}), found {shown}")


def _c_types(param: Buffer | Var) -> tuple[str, ...]:
    """Return the numba types that a C function may have for a parameter, the usual one first."""
    if isinstance(param, Var):
        return ("int64",)
    element = str(param.dtype)
    if element in ("float16", "bfloat16"):
        element = "uint16"
    elements = ("boolean", "uint8") if param.dtype.is_bool else (element,)
    return (*[f"CPointer({each})" for each in elements], "voidptr")


def _c_type(found: Any) -> str:
    """Return the name of a numba type, as one writes it."""
    element = getattr(found, "dtype", None)
    return str(found) if element is None else f"CPointer({element})"
