"""What lies where in a model's arena, and from which kernel call to which: read from the calls in ``main``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.passes.lower.kernel_calls import kernel_calls
from tilewright.runtime.compiled import Lowered
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, Var
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.known_numbers import integer_value
from tilewright.tensorir.stmt import LetStmt, PrimFunc


@dataclasses.dataclass
class Allocation:
    """A value in the arena.

    Attributes:
        kernel: what writes it first.
        offset: of its first byte.
        size: in bytes.
        first: the number of the call that writes it first, in the order of ``main``'s text.
        last: the number of the last call that uses it.
        workspace: whether it is scratch memory of the one kernel.
    """

    kernel: str
    offset: int
    size: int
    first: int
    last: int
    workspace: bool = False

    @property
    def end(self) -> int:
        """Behind its last byte."""
        return self.offset + self.size


def allocations(lowered: Lowered, sizes: Sequence[int]) -> list[Allocation]:
    """The values in the arena of a model's function, in the order in which they come to life.

    Args:
        sizes: of the function's symbolic dimensions.
    """
    module, main = lowered.modules["lowered"], lowered.main
    arena = main.params[len(main.params) - len(main.variables) - 1]
    known: dict[Var, int] = dict(zip(main.variables, sizes, strict=True))
    for stmt in walk_statements(main.body):
        if isinstance(stmt, LetStmt):  # where the slots of values of unknown size begin
            known[stmt.var] = integer_value(stmt.value, known) or 0
    found: list[Allocation] = []
    live: list[_Live] = []
    for number, called in enumerate(kernel_calls(module)):
        func = module[called.kernel]
        assert isinstance(func, PrimFunc)
        buffers = [param for param in func.params if isinstance(param, Buffer)]
        values = {
            param: integer_value(arg, known) or 0
            for param, arg in zip(func.params, called.arguments, strict=True)
            if isinstance(param, Var)
        }
        scratch = len(buffers) - int(func.attrs.get("num_workspaces", 0))
        results = scratch - int(func.attrs.get("num_outputs", 1))
        for position, (param, arg) in enumerate(zip(buffers, called.arguments, strict=False)):
            offset = _offset(arg, arena, known)
            if offset is None:
                continue
            end = offset + _span(param, values)
            here = [value for value in live if value.place.offset < end and offset < value.place.end]
            if position < results:
                for value in here:
                    value.place.last, value.is_read = number, True
                continue
            whole = next((value for value in here if param.strides and value.in_pieces and not value.is_read), None)
            if whole is not None:  # rows of several values take turns in one that is read later
                begin = min(whole.place.offset, offset)
                whole.place.size, whole.place.offset = max(whole.place.end, end) - begin, begin
                whole.place.last = number
                continue
            for value in here:  # their memory is taken: by the call that reads them last, or later
                value.place.last = max(value.place.first, min(value.place.last, number - 1))
                live.remove(value)
            made = Allocation(called.kernel, offset, end - offset, number, number, position >= scratch)
            found.append(made)
            live.append(_Live(made, in_pieces=bool(param.strides)))
    return found


@dataclasses.dataclass(eq=False)
class _Live:
    """A value that may still be read; ``in_pieces``: others may lie between its rows."""

    place: Allocation
    in_pieces: bool
    is_read: bool = False


def live_bytes(values: Sequence[Allocation], calls: int) -> list[int]:
    """The bytes that hold something during each of so many calls."""
    changes = [0] * (calls + 1)
    for value in values:
        changes[value.first] += value.size
        changes[value.last + 1] -= value.size
    used, total = [], 0
    for change in changes[:calls]:
        total += change
        used.append(total)
    return used


def _offset(arg: Expr, arena: object, known: dict[Var, int]) -> int | None:
    """Where in the arena an argument begins; None if it is somewhere else, or nobody knows."""
    if not (isinstance(arg, Call) and arg.name == "address_of" and isinstance(arg.args[0], BufferLoad)):
        return None
    access = arg.args[0]
    if access.buffer is not arena:
        return None
    return integer_value(access.indices[0], known)


def _span(buffer: Buffer, values: dict[Var, int]) -> int:
    """From the first to the last byte that a buffer covers."""

    def number(expr: Expr) -> int:
        value = integer_value(expr, values)
        return 1 if value is None else value

    extents = [number(extent) for extent in buffer.shape]
    if buffer.strides:
        strides = [number(stride) for stride in buffer.strides]
        last = sum((extent - 1) * stride for extent, stride in zip(extents, strides, strict=True))
        return (last + 1) * buffer.dtype.bytes
    size = buffer.dtype.bytes
    for extent in extents:
        size *= extent
    return size
