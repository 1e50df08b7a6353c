"""Integers that are known before a model runs: what shape computations of a graph come to.

Exported models compute shapes with tensors: ``Shape``, ``Gather``, ``Concat``, arithmetic, ``Reshape``. A tensor of
integers whose elements are numbers or integer expressions over symbolic dimensions is *known*; :func:`known_values`
finds its elements by following the graph, so that a reshape keeps its static rank and a type to reason about.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, analyzer_for, has_symbols, simplify
from tilewright.graphir.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.errors import ShapeError
from tilewright.tensorir.expr import Expr as Scalar
from tilewright.tensorir.expr import as_expr, binary, compare, maximum, minimum, select

Array = np.ndarray[Any, Any]
Rule = Callable[[Sequence[Array], Any, TensorType], Any]

#: Tensors of more elements are not followed: they are data and no shapes.
MOST_ELEMENTS = 4096

#: Known elements by expression; None for what is not known. Numbers are kept as arrays of the tensor's type, anything
#: with an integer expression in it as an array of objects.
_KNOWN: weakref.WeakKeyDictionary[Expr, Array | tuple[Array | None, ...] | None] = weakref.WeakKeyDictionary()
_RULES: dict[str, Rule] = {}


def known_values(expr: Expr) -> Array | None:
    """The elements of a tensor, numbers or integer expressions (then the array holds objects); None if not known."""
    for node in post_order(expr, enter_functions=False, known=_KNOWN, children_of=_operands):
        _KNOWN[node] = _find(node)
    found = _KNOWN[expr]
    return None if isinstance(found, tuple) else found


def _operands(node: Expr) -> Sequence[Expr]:
    if isinstance(node, Call):
        return node.args if isinstance(node.op, Operator) and _worth(node.type) else ()
    return node.children if isinstance(node, (Tuple, TupleGetItem)) else ()


def _worth(found: Any) -> bool:
    """Whether a result is small enough to be followed; that of several outputs is looked at when one is taken."""
    if not isinstance(found, TensorType):
        return True
    count = math.prod(dim for dim in found.shape if isinstance(dim, int))
    return all(isinstance(dim, int) for dim in found.shape) and count <= MOST_ELEMENTS


def _find(node: Expr) -> Array | tuple[Array | None, ...] | None:
    if isinstance(node, Constant):
        return node.data if node.size <= MOST_ELEMENTS else None
    if isinstance(node, Tuple):
        fields = [_KNOWN[field] for field in node.fields]
        return tuple(None if isinstance(field, tuple) else field for field in fields)
    if isinstance(node, TupleGetItem):
        found = _KNOWN[node.value]
        return found[node.index] if isinstance(found, tuple) else None
    if not isinstance(node, Call) or not isinstance(node.op, Operator) or not _worth(node.type):
        return None
    if not node.op.pure or not node.op.bounded_reference:
        return None
    args: list[Array] = []
    for arg in node.args:
        known = _KNOWN.get(arg)
        if not isinstance(known, np.ndarray):
            return None
        args.append(known)
    return _apply(node, node.op, args)


def _apply(node: Call, op: Operator, args: list[Array]) -> Array | tuple[Array | None, ...] | None:
    symbolic = any(arg.dtype == object for arg in args)
    if op.name == "sizes":
        values = node.attrs.values
        return as_array(values, (len(values),))
    if not symbolic and not has_symbols(node.attrs):
        with np.errstate(all="ignore"):
            result = op.reference(args, node.attrs)
        return tuple(np.asarray(part) for part in result) if isinstance(result, tuple) else np.asarray(result)
    rule = _RULES.get(op.name)
    if rule is None or not isinstance(node.type, TensorType):
        return None
    made = rule(args, node.attrs, node.type)
    if made is None or (isinstance(made, np.ndarray) and made.dtype == bool):
        return made
    if isinstance(made, np.ndarray):
        return as_array(made.reshape(-1).tolist(), made.shape)
    return as_array([made], ())  # NumPy gives the one object of an array without dimensions itself


def as_array(values: Sequence[Any], shape: Sequence[int]) -> Array | None:
    """Numbers and integer expressions as an array: of int64 if all are numbers, else of objects, simplified; None if an
    expression is too long to be followed."""
    try:
        simple = [simplify(value) if isinstance(value, Scalar) else _wrapped(value) for value in values]
    except ShapeError:
        return None
    if all(not isinstance(value, Scalar) for value in simple):
        return np.array(simple, np.int64).reshape(tuple(shape))
    result = np.empty(len(simple), object)
    result[:] = simple
    return result.reshape(tuple(shape))


def _wrapped(value: int) -> int:
    """``value`` as arithmetic of 64 bits has it."""
    return value if -(1 << 63) <= value < 1 << 63 else (value + (1 << 63)) % (1 << 64) - (1 << 63)


# Rules: on arrays of which at least one holds integer expressions.


def _elementwise(function: Callable[[Any, Any], Any]) -> Rule:
    def rule(args: Sequence[Array], attrs: Any, out: TensorType) -> Array | None:
        if not out.dtype.is_integer:
            return None
        a, b = np.broadcast_arrays(*[arg.astype(object) for arg in args])
        results = [function(x, y) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]
        if any(result is None for result in results):
            return None
        made = np.empty(a.size, object)
        made[:] = results
        return made.reshape(a.shape)

    return rule


def _floordiv(a: Dim, b: Dim) -> Dim | None:
    """Division by a positive number; that by anything else is not followed."""
    if isinstance(b, int) and b > 0:
        return a // b
    return None


def _truncdiv(a: Dim, b: Dim) -> Dim | None:
    """Division rounded toward zero by a positive number: that of sizes is the floor's."""
    if not isinstance(b, int) or b <= 0:
        return None
    if isinstance(a, int):
        return abs(a) // b if a >= 0 else -(abs(a) // b)
    return a // b if analyzer_for(a).prove(a >= 0) else binary("truncdiv", a, b)


def _floormod(a: Dim, b: Dim) -> Dim | None:
    """The remainder of a division by a positive number."""
    return a % b if isinstance(b, int) and b > 0 else None


def _moved(function: Callable[..., Array]) -> Rule:
    """A rule for an operator that only moves elements, as ``function(args, attrs, out)`` does."""

    def rule(args: Sequence[Array], attrs: Any, out: TensorType) -> Array | None:
        return function([arg.astype(object) for arg in args], attrs, out)

    return rule


def _static(out: TensorType) -> tuple[int, ...]:
    return tuple(dim for dim in out.shape if isinstance(dim, int))  # all are: _worth has seen to that


def _take(args: Sequence[Array], attrs: Any, out: TensorType) -> Any:
    x, indices = args
    if indices.dtype == object:
        return None
    extent = x.shape[attrs.axis]
    if extent == 0:
        return None
    signed = indices.astype(np.int64)
    return np.take(x, np.clip(np.where(signed < 0, signed + extent, signed), 0, extent - 1), axis=attrs.axis)


def _where(args: Sequence[Array], attrs: Any, out: TensorType) -> Array | None:
    condition, a, b = np.broadcast_arrays(*[arg.astype(object) for arg in args])
    made = np.empty(condition.size, object)
    for number, (which, x, y) in enumerate(zip(condition.flat, a.flat, b.flat, strict=True)):
        made[number] = select(which, x, y) if isinstance(which, Scalar) else (x if which else y)
    return made.reshape(condition.shape)


def _cast(args: Sequence[Array], attrs: Any, out: TensorType) -> Array | None:
    if not out.dtype.is_integer:
        return None
    flat = args[0].reshape(-1)
    made: Array = np.empty(flat.size, object)
    made[:] = [select(x, 1, 0) if isinstance(x, Scalar) and x.dtype.is_bool else x for x in flat.tolist()]
    shaped: Array = made.reshape(args[0].shape)
    return shaped


def _comparison(op: str) -> Rule:
    """A comparison: true or false where that can be proved of all sizes, otherwise an expression."""

    def rule(args: Sequence[Array], attrs: Any, out: TensorType) -> Array | None:
        if any(arg.dtype.kind not in "iuO" for arg in args):
            return None
        a, b = np.broadcast_arrays(*[arg.astype(object) for arg in args])
        made = np.empty(a.size, object)
        for number, (x, y) in enumerate(zip(a.flat, b.flat, strict=True)):
            holds = compare(op, as_expr(x), as_expr(y))
            analyzer = analyzer_for(x, y)
            made[number] = True if analyzer.prove(holds) else False if analyzer.prove(~holds) else holds
        return made.reshape(a.shape) if any(isinstance(x, Scalar) for x in made) else made.astype(bool).reshape(a.shape)

    return rule


def _reference_of(name: str) -> Rule:
    """A rule for operators whose NumPy reference only moves elements, so that it works on objects as well."""

    def rule(args: Sequence[Array], attrs: Any, out: TensorType) -> Array | None:
        made: Array = get_operator(name).reference([arg.astype(object) for arg in args], attrs)
        return made

    return rule


def _prod(args: Sequence[Array], attrs: Any, out: TensorType) -> Any:
    return np.prod(args[0].reshape(-1), initial=1) if out.ndim == 0 else None


_RULES.update(
    add=_elementwise(lambda a, b: a + b),
    subtract=_elementwise(lambda a, b: a - b),
    multiply=_elementwise(lambda a, b: a * b),
    floor_divide=_elementwise(_floordiv),
    floor_mod=_elementwise(_floormod),
    trunc_divide=_elementwise(_truncdiv),
    maximum=_elementwise(lambda a, b: maximum(a, b) if isinstance(a, Scalar) or isinstance(b, Scalar) else max(a, b)),
    minimum=_elementwise(lambda a, b: minimum(a, b) if isinstance(a, Scalar) or isinstance(b, Scalar) else min(a, b)),
    cast=_cast,
    concatenate=_moved(lambda args, attrs, out: np.concatenate(args, axis=attrs.axis)),
    reshape=_moved(lambda args, attrs, out: args[0].reshape(_static(out))),
    squeeze=_moved(lambda args, attrs, out: args[0].reshape(_static(out))),
    expand_dims=_moved(lambda args, attrs, out: args[0].reshape(_static(out))),
    broadcast_to=_moved(lambda args, attrs, out: np.broadcast_to(args[0], _static(out))),
    take=_take,
    where=_where,
    equal=_comparison("eq"),
    not_equal=_comparison("ne"),
    less=_comparison("lt"),
    less_equal=_comparison("le"),
    greater=_comparison("gt"),
    greater_equal=_comparison("ge"),
    prod=_prod,
    **{name: _reference_of(name) for name in ("slice", "stack", "transpose", "flip", "tile", "repeat", "copy")},
)
