"""Evaluate symbolic dimensions in calls: bind symbols to sizes of inputs, and compute other shapes from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.graphir.dims import Dim, symbols_of
from tilewright.graphir.types import TensorType
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.expr import BinaryOp, Cast, Compare, Expr, IntImm, Select, Var

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "floormod": "%",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "and",
    "or": "or",
}


def to_python(dim: Dim, names: dict[Var, str]) -> str:
    """Write an integer expression as Python source; ``names`` holds the names of its variables.

    Raises:
        CodegenError: the expression contains something other than integer arithmetic, or an unknown variable.
    """
    if isinstance(dim, int):
        return str(dim)
    if isinstance(dim, IntImm):
        return str(dim.value)
    if isinstance(dim, Var) and dim in names:
        return names[dim]
    if isinstance(dim, (BinaryOp, Compare)):
        a, b = to_python(dim.a, names), to_python(dim.b, names)
        if dim.op in ("min", "max"):
            return f"{dim.op}({a}, {b})"
        if dim.op in ("truncdiv", "truncmod"):  # sizes are not negative, so both divisions agree
            return f"({a} {'//' if dim.op == 'truncdiv' else '%'} {b})"
        if dim.op in _INFIX:
            return f"({a} {_INFIX[dim.op]} {b})"
    if isinstance(dim, Select):
        condition, yes, no = (to_python(part, names) for part in (dim.condition, dim.true_value, dim.false_value))
        return f"({yes} if {condition} else {no})"
    if isinstance(dim, Cast) and dim.dtype.is_integer:
        return f"int({to_python(dim.value, names)})"
    raise CodegenError(f"dimension {dim!s} cannot be computed from the sizes of the inputs")


def compile_dims(dims: Sequence[Dim], symbols: Sequence[Var]) -> Callable[..., tuple[int, ...]]:
    """Compile ``dims`` to a function of the values of ``symbols``."""
    names = {var: f"s{number}" for number, var in enumerate(symbols)}
    body = "".join(f"{to_python(dim, names)}, " for dim in dims)
    function: Callable[..., tuple[int, ...]] = eval(
        f"lambda {', '.join(names.values())}: ({body})", {"__builtins__": {"min": min, "max": max, "int": int}}
    )
    return function


def bindable_symbols(inputs: Sequence[TensorType]) -> list[Var]:
    """List the symbolic dimensions of the inputs, in order of first use.

    Raises:
        CodegenError: a symbol is never a dimension by itself, so that no input determines it.
    """
    symbols = symbols_of([dim for found in inputs for dim in found.shape])
    alone: set[Expr] = {dim for found in inputs for dim in found.shape if isinstance(dim, Var)}
    for symbol in symbols:
        if symbol not in alone:
            raise CodegenError(
                f"symbolic dimension {symbol.name!r} occurs only inside larger expressions; at least one input needs "
                f"a dimension that is {symbol.name!r} itself"
            )
    return symbols
