"""The operators and functions of Python in loops that are written as Python, and what they are in the IR."""

from __future__ import annotations

import ast
import builtins
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.tensorir import functions
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Expr, as_expr, maximum, minimum

#: What each operator of two values is in Python, and in the IR.
OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.MatMult: operator.matmul,
}
#: The comparison of the IR, none for those that only Python has, and that of Python.
COMPARISONS: dict[type[ast.AST], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
    ast.Is: ("", operator.is_),
    ast.IsNot: ("", operator.is_not),
    ast.In: ("", lambda a, b: a in b),
    ast.NotIn: ("", lambda a, b: a not in b),
}
#: Python's own functions, where they are given expressions.
BUILTINS: dict[Any, Callable[..., Any]] = {
    builtins.abs: functions.abs,
    builtins.round: functions.round,
    builtins.pow: functions.pow,
    builtins.min: lambda *values: functools.reduce(minimum, values),
    builtins.max: lambda *values: functools.reduce(maximum, values),
}


def typed(values: Sequence[Any], dtype: DataType | None) -> list[Any]:
    """Return values with the numbers among them as constants of a type, if none is an expression and all fit."""
    known = dtype is not None and not any(isinstance(value, (Expr, bool)) for value in values)
    if known and dtype is not None and (dtype.is_float or all(isinstance(value, int) for value in values)):
        return [as_expr(value, dtype) for value in values]
    return list(values)
