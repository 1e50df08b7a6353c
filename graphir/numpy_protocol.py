"""Implement NumPy's functions for graph expressions: ``np.tanh(x)`` builds the node that ``gi.tanh(x)`` builds.

NumPy dispatches functions on foreign arrays to these (NEP 13 and NEP 18, ``__array_ufunc__`` and
``__array_function__``); two tables map NumPy's functions to operators.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.expr import Expr, const
from tilewright.graphir.op import get_operator
from tilewright.tensorir.errors import ArgumentTypeError

UFUNCS: dict[str, str] = {
    "absolute": "abs",
    "add": "add",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctanh": "atanh",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "ceil": "ceil",
    "cos": "cos",
    "cosh": "cosh",
    "divide": "divide",
    "equal": "equal",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "fabs": "abs",
    "floor": "floor",
    "floor_divide": "floor_divide",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "invert": "bitwise_not",
    "isfinite": "isfinite",
    "isinf": "isinf",
    "isnan": "isnan",
    "left_shift": "left_shift",
    "less": "less",
    "less_equal": "less_equal",
    "log": "log",
    "log10": "log10",
    "log1p": "log1p",
    "log2": "log2",
    "logical_and": "logical_and",
    "logical_not": "logical_not",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
    "matmul": "matmul",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "multiply",
    "negative": "negative",
    "not_equal": "not_equal",
    "power": "power",
    "reciprocal": "reciprocal",
    "remainder": "floor_mod",
    "right_shift": "right_shift",
    "rint": "round",
    "sign": "sign",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "square": "square",
    "subtract": "subtract",
    "tan": "tan",
    "tanh": "tanh",
    "trunc": "trunc",
}

#: ``np.add.reduce(x)`` and the like; NumPy reduces the first axis if none is named.
REDUCTIONS: dict[str, str] = {
    "add": "sum",
    "logical_and": "all",
    "logical_or": "any",
    "maximum": "max",
    "minimum": "min",
    "multiply": "prod",
}


def _call(name: str, *args: Any, **attrs: Any) -> Expr:
    return get_operator(name)(*args, **attrs)


def _expr(value: Any) -> Expr:
    return value if isinstance(value, Expr) else const(value)


def _reduction(name: str) -> Callable[..., Expr]:
    def function(a: Any, axis: Any = None, keepdims: bool = False) -> Expr:
        return _call(name, a, axis=axis, keepdims=keepdims)

    return function


def _moment(name: str) -> Callable[..., Expr]:
    def function(a: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> Expr:
        if ddof not in (0, 1):
            raise ArgumentTypeError(f"expected ddof 0 or 1, found {ddof}")
        return _call(name, a, axis=axis, keepdims=keepdims, unbiased=bool(ddof))

    return function


def _same(name: str) -> Callable[..., Expr]:
    def function(x: Any) -> Expr:
        return _call(name, x)

    return function


def _joined(name: str) -> Callable[..., Expr]:
    def function(arrays: Sequence[Any], axis: int = 0) -> Expr:
        return _call(name, *arrays, axis=axis)

    return function


def _where(condition: Any, x: Any, y: Any) -> Expr:
    return _call("where", condition, x, y)


def _reshape(a: Any, shape: Any = None, *, newshape: Any = None) -> Expr:
    return _call("reshape", a, newshape=newshape if shape is None else shape)


def _transpose(a: Any, axes: Any = None) -> Expr:
    return _call("transpose", a, axes=axes)


def _expand_dims(a: Any, axis: Any) -> Expr:
    return _call("expand_dims", a, axis=axis)


def _squeeze(a: Any, axis: Any = None) -> Expr:
    return _call("squeeze", a, axis=axis)


def _broadcast_to(array: Any, shape: Any) -> Expr:
    return _call("broadcast_to", array, shape=shape)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Expr:
    low, high = a_min if min is None else min, a_max if max is None else max
    if isinstance(low, Expr) or isinstance(high, Expr) or np.ndim(low) or np.ndim(high):
        result = a if low is None else _call("maximum", a, low)
        return _expr(result if high is None else _call("minimum", result, high))
    return _call("clip", a, a_min=low, a_max=high)


def _pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Expr:
    widths = np.broadcast_to(np.asarray(pad_width), (_expr(array).ndim, 2))
    pairs = tuple((int(before), int(behind)) for before, behind in widths)
    return _call("pad", array, pad_width=pairs, mode=mode, pad_value=constant_values)


def _take(a: Any, indices: Any, axis: int | None = None) -> Expr:
    if axis is None:
        a, axis = _call("reshape", a, newshape=(-1,)), 0
    return _call("take", a, indices, axis=axis)


def _flip(m: Any, axis: Any = None) -> Expr:
    return _call("flip", m, axis=axis)


def _tile(A: Any, reps: Any) -> Expr:  # noqa: N803 - NumPy's name
    return _call("tile", A, reps=reps)


def _repeat(a: Any, repeats: int, axis: int | None = None) -> Expr:
    if axis is None:
        a, axis = _call("reshape", a, newshape=(-1,)), 0
    return _call("repeat", a, repeats=repeats, axis=axis)


def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Expr]:
    parts = _call("split", ary, indices_or_sections=indices_or_sections, axis=axis)
    return [parts[number] for number in range(len(parts.type.fields))]  # type: ignore[union-attr]


def _argument(name: str) -> Callable[..., Expr]:
    def function(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Expr:
        return _call(name, a, axis=axis, keepdims=keepdims)

    return function


def _full_like(a: Any, fill_value: float) -> Expr:
    tensor = _expr(a)
    return _call("full", shape=tensor.shape, fill=fill_value, dtype=tensor.dtype)


def _dot(a: Any, b: Any) -> Expr:
    left, right = _expr(a), _expr(b)
    if left.ndim == 0 or right.ndim == 0:
        return _call("multiply", left, right)
    if right.ndim > 2:
        raise ArgumentTypeError("np.dot of a graph expression takes at most 2 dimensions on the right; use np.matmul")
    return _call("matmul", left, right)


def _swapaxes(a: Any, axis1: int, axis2: int) -> Expr:
    order = list(range(_expr(a).ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return _call("transpose", a, axes=tuple(order))


def _moveaxis(a: Any, source: Any, destination: Any) -> Expr:
    ndim = _expr(a).ndim
    # NumPy itself computes the permutation, on an empty tensor whose axes have different extents.
    probe = np.moveaxis(np.empty((0, *range(1, ndim)) if ndim else ()), source, destination)
    return _call("transpose", a, axes=tuple(probe.shape))


def _ravel(a: Any) -> Expr:
    return _call("reshape", a, newshape=(-1,))


def _round(a: Any, decimals: int = 0) -> Expr:
    if decimals:
        raise ArgumentTypeError(f"np.round of a graph expression rounds to integers, found decimals={decimals}")
    return _call("round", a)


def _shape(a: Any) -> Any:
    return _expr(a).shape


def _ndim(a: Any) -> int:
    return _expr(a).ndim


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "all": _reduction("all"),
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "any": _reduction("any"),
    "argmax": _argument("argmax"),
    "argmin": _argument("argmin"),
    "around": _round,
    "broadcast_to": _broadcast_to,
    "clip": _clip,
    "concatenate": _joined("concatenate"),
    "copy": _same("copy"),
    "dot": _dot,
    "expand_dims": _expand_dims,
    "flip": _flip,
    "full_like": _full_like,
    "max": _reduction("max"),
    "mean": _reduction("mean"),
    "min": _reduction("min"),
    "moveaxis": _moveaxis,
    "ndim": _ndim,
    "ones_like": _same("ones_like"),
    "pad": _pad,
    "prod": _reduction("prod"),
    "ravel": _ravel,
    "repeat": _repeat,
    "reshape": _reshape,
    "round": _round,
    "shape": _shape,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _joined("stack"),
    "std": _moment("std"),
    "sum": _reduction("sum"),
    "swapaxes": _swapaxes,
    "take": _take,
    "tile": _tile,
    "transpose": _transpose,
    "var": _moment("variance"),
    "where": _where,
    "zeros_like": _same("zeros_like"),
}


def _unsupported(name: str, known: Mapping[str, Any]) -> TypeError:
    close = difflib.get_close_matches(name, known, 3)
    hint = f"did you mean np.{' or np.'.join(close)}?" if close else f"supported are: {', '.join(sorted(known))}"
    return TypeError(f"np.{name} does not work on graph expressions; {hint}")


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Expr:
    """Implement ``__array_ufunc__`` for graph expressions.

    Raises:
        TypeError: the function, its method or an argument has no counterpart.
    """
    name = ufunc.__name__
    table = {"__call__": UFUNCS, "reduce": REDUCTIONS}.get(method)
    if table is None:
        raise ArgumentTypeError(f"np.{name}.{method} does not work on graph expressions")
    if name not in table:
        raise _unsupported(name if method == "__call__" else f"{name}.{method}", table)
    kwargs = {key: value for key, value in kwargs.items() if value is not np._NoValue}
    allowed = {"axis": kwargs.pop("axis", 0), "keepdims": kwargs.pop("keepdims", False)} if method == "reduce" else {}
    if kwargs:
        raise ArgumentTypeError(f"np.{name} of a graph expression takes no argument {', '.join(kwargs)}")
    return _call(table[name], *inputs, **allowed)


def call_function(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Implement ``__array_function__`` for graph expressions.

    Raises:
        TypeError: the function or an argument has no counterpart.
    """
    name = function.__name__
    found = FUNCTIONS.get(name) if getattr(np, name, None) is function else None
    if found is None:
        raise _unsupported(name, {**FUNCTIONS, **UFUNCS})
    return found(*args, **kwargs)
