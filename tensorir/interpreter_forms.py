"""Closures of the interpreter for operations on two scalars and for elements of arrays: one form for each kind of
operands.

Most operations in loops compute indices from variables and constants. A call of a closure for each of these, and of a
function for each sum, would take most of the interpreter's time. So the closure of an operation is compiled from a line
of Python that contains variables and constants directly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import BinaryOp, Compare, Expr, IntImm
from tilewright.tensorir.folding import wrap_integer

#: The kind of an operand, and the constant, the slot of the frame, or the closure.
Operand = tuple[str, Any]

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_DIVISIONS = {"floordiv": "//", "floormod": "%"}
_EXACT = {"min": "min({a}, {b})", "max": "max({a}, {b})"}
_LOGICAL = {"and": "bool({a} & {b})", "or": "bool({a} | {b})"}  # without a short cut: both sides are computed

#: The text of an operand in the line, by its kind.
_OPERANDS = {"constant": "{0}", "variable": "frame[{0}]", "code": "{0}(frame)"}


def scalar_operation(expr: BinaryOp | Compare, operand: Callable[[Expr], Operand]) -> Any:
    """Return the closure of ``expr``, or None if its operands are not scalars or it may fail.

    Args:
        operand: compiles an operand.
    """
    dtype = expr.a.dtype
    if dtype.lanes != 1:
        return None
    if isinstance(expr, Compare):
        return _made(f"{{a}} {_COMPARISONS[expr.op]} {{b}}", operand(expr.a), operand(expr.b), dtype)
    if expr.op in _ARITHMETIC:
        line = f"{{a}} {_ARITHMETIC[expr.op]} {{b}}"
        if dtype.is_integer:
            line = f"value if low <= (value := {line}) <= high else wrap(value)"
        return _made(line, operand(expr.a), operand(expr.b), dtype)
    if expr.op in _LOGICAL:
        return _made(_LOGICAL[expr.op], operand(expr.a), operand(expr.b), dtype)
    if expr.op in _EXACT and not dtype.is_float:
        return _made(_EXACT[expr.op], operand(expr.a), operand(expr.b), dtype)
    if expr.op in _DIVISIONS and isinstance(expr.b, IntImm) and expr.b.value > 0:  # stays in the range of the type
        return _made(f"{{a}} {_DIVISIONS[expr.op]} {{b}}", operand(expr.a), operand(expr.b), dtype)
    return None


def element(
    slot: int, indices: Sequence[Operand], result: str, fail: Callable[[tuple[Any, ...], tuple[int, ...]], NoReturn]
) -> Any:
    """The closure that finds an element of an array.

    Args:
        slot: where the array is in the frame.
        indices: the operands that compute the place of the element.
        result: the value of the closure: "place" (a tuple), "array[place]", or "array.item(place)" (a Python number).
        fail: raises the error of a place outside the shape; its arguments are the place and the shape.
    """
    make = _element_form(result, tuple(kind for kind, _ in indices))
    return make(slot, fail, *[index for _, index in indices])


@functools.cache
def _element_form(result: str, kinds: tuple[str, ...]) -> Callable[..., Any]:
    """Compile the function that makes closures for elements at indices of these kinds."""
    inside = "len(place) == len(shape)"
    inside += "".join(f" and 0 <= place[{axis}] < shape[{axis}]" for axis in range(len(kinds)))
    make: Callable[..., Any] = eval(
        f"lambda slot, fail{_names(kinds)}: lambda frame: {result} if "
        f"(array := frame[slot], place := {_tuple(kinds)}, shape := array.shape) and {inside} else fail(place, shape)"
    )
    return make


def all_of(operands: Sequence[Operand]) -> Callable[[Any], tuple[Any, ...]]:
    """The closure that computes all ``operands``."""
    return _tuple_form(tuple(kind for kind, _ in operands))(*[operand for _, operand in operands])


@functools.cache
def _tuple_form(kinds: tuple[str, ...]) -> Callable[..., Callable[[Any], tuple[Any, ...]]]:
    """Compile the function that makes closures which compute operands of these kinds as a tuple."""
    make: Callable[..., Any] = eval(f"lambda{_names(kinds)[1:]}: lambda frame: {_tuple(kinds)}")
    return make


def _names(kinds: tuple[str, ...]) -> str:
    """Parameters for operands of these kinds, to follow others."""
    return "".join(f", i{number}" for number in range(len(kinds)))


def _tuple(kinds: tuple[str, ...]) -> str:
    """Operands of these kinds, as a tuple."""
    return f"({''.join(f'{_OPERANDS[kind]}, '.format(f'i{number}') for number, kind in enumerate(kinds))})"


def all_inside(ranges: Sequence[tuple[int, Operand, Operand]]) -> Callable[[Any], bool]:
    """Tells whether each variable (its slot) is in its range: at least the first operand, by less than the second."""
    text = "0 <= frame[{0}] - {1} < {2}"
    return _conjunction(text, tuple((low[0], extent[0]) for _, low, extent in ranges))(
        *[value for slot, low, extent in ranges for value in (slot, low[1], extent[1])]
    )


def all_first(starts: Sequence[tuple[int, Operand]]) -> Callable[[Any], bool]:
    """Tells whether each variable (its slot) equals its operand."""
    return _conjunction("frame[{0}] == {1}", tuple((low[0],) for _, low in starts))(
        *[value for slot, low in starts for value in (slot, low[1])]
    )


@functools.cache
def _conjunction(text: str, kinds: tuple[tuple[str, ...], ...]) -> Callable[..., Callable[[Any], bool]]:
    """Compile the function that makes closures which tell whether all of several conditions hold: each is ``text`` with
    a slot and operands of these kinds."""
    names, conditions = [], []
    for number, of_one in enumerate(kinds):
        slot, *operands = [f"v{number}_{part}" for part in range(len(of_one) + 1)]
        names += [slot, *operands]
        conditions.append(text.format(slot, *[_OPERANDS[k].format(n) for k, n in zip(of_one, operands, strict=True)]))
    make: Callable[..., Any] = eval(f"lambda {', '.join(names)}: lambda frame: {' and '.join(conditions) or True}")
    return make


def _made(line: str, a: Operand, b: Operand, dtype: DataType) -> Any:
    low, high, wrap = _range(dtype) if dtype.is_integer else (0, 0, None)
    return _form(line, a[0], b[0])(a[1], b[1], low, high, wrap)


@functools.cache
def _range(dtype: DataType) -> tuple[int, int, Callable[[int], int]]:
    """Return the least and the largest value of an integer type, and the function that wraps others to that range."""
    low = -(1 << (dtype.bits - 1)) if dtype.is_int else 0
    return low, low + (1 << dtype.bits) - 1, lambda value: wrap_integer(value, dtype)


@functools.cache
def _form(line: str, a: str, b: str) -> Callable[..., Any]:
    """Compile the function that makes closures of ``line`` with operands of these kinds."""
    text = line.format(a=_OPERANDS[a].format("a"), b=_OPERANDS[b].format("b"))
    make: Callable[..., Any] = eval(f"lambda a, b, low, high, wrap: lambda frame: {text}")
    return make
