"""Check calls between functions written as loops: ``@inner(address_of(a[0]), address_of(b[0]), n)``.

A call gives addresses and sizes, so only this check keeps the function that is called within the memory of its caller:
the elements are of the parameter's type, and as many of them lie behind the address as the parameter has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

from tilewright.graphir.expr import GlobalVar
from tilewright.graphir.module import IRModule
from tilewright.passes.tensor.flatten_buffer import element_count
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, Var, const
from tilewright.tensorir.functor import substitute, walk
from tilewright.tensorir.intrinsics import ADDRESSING
from tilewright.tensorir.keys import NUM_OUTPUTS
from tilewright.tensorir.printer import underline
from tilewright.tensorir.stmt import Evaluate, PrimFunc, Stmt


def calls_in(func: PrimFunc) -> Iterator[Call]:
    """Yield the calls of functions in ``func``."""
    return (node for node in walk(func.body) if isinstance(node, Call) and node.name.startswith("@"))


def check_inner_calls(func: PrimFunc, mod: IRModule) -> None:
    """Check that the calls in ``func`` fit the functions of ``mod`` that they call.

    Raises:
        TypeInferenceError: one calls a function that is not there, is a graph, or calls ``func`` in turn; or gives it
            something that does not fit a parameter, or is not known to; or the roles of buffers are not stated.
    """
    if next(calls_in(func), None) is not None:
        _Checker(func, mod).mutate(func.body)


class _Checker(ScopedMutator):
    """Checks each call with what is known at its place."""

    def __init__(self, func: PrimFunc, mod: IRModule) -> None:
        super().__init__(func)
        self.func, self.mod = func, mod

    def mutate_Evaluate(self, stmt: Evaluate) -> Stmt:
        if isinstance(stmt.value, Call) and stmt.value.name.startswith("@"):
            self.check(stmt.value)
        return stmt

    def check(self, call: Call) -> None:
        func, mod = self.func, self.mod
        callee = _callee(call, mod)
        if callee is None:
            _refuse(func, call, f"expected a function of the module that is loops, found {call.name}")
        for each in (func, callee):
            if NUM_OUTPUTS not in each.attrs:
                _refuse(func, call, f"@{each.name} has to state which buffers are results: attribute {NUM_OUTPUTS!r}")
        if func.name in _reached(callee, mod):
            _refuse(func, call, f"@{callee.name} calls @{func.name} in turn, without end")
        _check(func, call, callee, self.analyzer)


def _callee(call: Call, mod: IRModule) -> PrimFunc | None:
    name = GlobalVar(call.name[1:])
    if name not in mod:
        return None
    found = mod[name]
    return found if isinstance(found, PrimFunc) else None


def _reached(func: PrimFunc, mod: IRModule) -> set[str]:
    """Return the names of the functions that ``func`` calls, directly or not, and its own."""
    found: set[str] = set()
    waiting = [func]
    while waiting:
        each = waiting.pop()
        if each.name not in found:
            found.add(each.name)
            waiting += [callee for call in calls_in(each) if (callee := _callee(call, mod)) is not None]
    return found


def _check(func: PrimFunc, call: Call, callee: PrimFunc, analyzer: Analyzer) -> None:
    if len(call.args) != len(callee.params):
        _refuse(func, call, f"expected {len(callee.params)} arguments, found {len(call.args)}")
    pairs = list(zip(callee.params, call.args, strict=True))
    sizes: dict[Var, Expr] = {param: given for param, given in pairs if isinstance(param, Var)}
    for param, given in sizes.items():
        if given.dtype is not param.dtype:
            _refuse(func, call, f"size {param.name}: expected {param.dtype!s}, found {given.dtype!s}")
    for buffer, address in pairs:
        if isinstance(buffer, Buffer):
            _check_buffer(func, call, buffer, address, sizes, analyzer)


def _check_buffer(
    func: PrimFunc, call: Call, param: Buffer, given: Expr, sizes: Mapping[Var, Expr], analyzer: Analyzer
) -> None:
    load = given.args[0] if isinstance(given, Call) and given.name in ADDRESSING and given.args else None
    if not isinstance(load, BufferLoad):
        _refuse(func, call, f"buffer {param.name}: expected an address, as address_of(a[0]), found {given!s}")
    if load.buffer.dtype is not param.dtype:
        _refuse(func, call, f"buffer {param.name}: expected {param.dtype!s}, found {load.buffer.dtype!s}")
    if param.strides or load.buffer.strides:
        _refuse(func, call, f"buffer {param.name}: expected buffers without strides")
    offset: Expr = const(0, INT64)
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        offset = offset * extent + index
    needed = substitute(element_count(param), dict(sizes))
    if not (analyzer.prove(offset >= 0) and analyzer.prove(offset + needed <= element_count(load.buffer))):
        _refuse(
            func,
            call,
            f"buffer {param.name}: expected {needed!s} elements behind the address, which {load.buffer.name} of "
            f"{element_count(load.buffer)!s} is not known to have",
        )


def _refuse(func: PrimFunc, call: Call, message: str) -> NoReturn:
    raise TypeInferenceError(f"@{func.name}: call of {call.name}: {message}\n{underline(func, call)}")
