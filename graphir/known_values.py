"""Evaluate the shape computations of a graph: find integers that are known before a model runs.

Exported models compute shapes with tensors: ``Shape``, ``Gather``, ``Concat``, arithmetic, ``Reshape``. A tensor of
integers whose elements are numbers or integer expressions over symbolic dimensions is *known*; :func:`known_values`
finds its elements by following the graph, so that a reshape keeps its static rank and a type to reason about. An
operator states by ``Operator.symbolic_value``, ``keeps_order`` or ``moves_elements`` its result on such elements.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import has_symbols, simplify
from tilewright.graphir.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.graphir.op import Operator
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.errors import ShapeError
from tilewright.tensorir.expr import Expr as Scalar

Array = np.ndarray[Any, Any]

#: Tensors of more elements are not followed: they are data rather than shapes.
MOST_ELEMENTS = 4096

#: Known elements by expression; None if unknown. Numbers are kept as arrays of the tensor's type, anything with an
#: integer expression as an array of objects.
_KNOWN: weakref.WeakKeyDictionary[Expr, Array | tuple[Array | None, ...] | None] = weakref.WeakKeyDictionary()


def known_values(expr: Expr) -> Array | None:
    """Return the elements of a tensor: numbers, or integer expressions in an array of objects; None if they are not
    known."""
    for node in post_order(expr, enter_functions=False, known=_KNOWN, children_of=_operands):
        _KNOWN[node] = _find(node)
    found = _KNOWN[expr]
    return None if isinstance(found, tuple) else found


def _operands(node: Expr) -> Sequence[Expr]:
    if isinstance(node, Call):
        return node.args if isinstance(node.op, Operator) and _worth(node.type) else ()
    return node.children if isinstance(node, (Tuple, TupleGetItem)) else ()


def _worth(found: Any) -> bool:
    """Return whether a result is small enough to be followed; that of several outputs is checked when one is taken."""
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
    if not symbolic and not has_symbols(node.attrs):
        with np.errstate(all="ignore"):
            result = op.reference(args, node.attrs)
        return tuple(np.asarray(part) for part in result) if isinstance(result, tuple) else np.asarray(result)
    out = node.type
    if not isinstance(out, TensorType):
        return None
    if op.keeps_order:
        made: Any = args[0].reshape([dim for dim in out.shape if isinstance(dim, int)])  # all are: see _worth
    elif op.moves_elements:
        made = op.reference([arg.astype(object) for arg in args], node.attrs)
    else:
        made = op.symbolic_value(args, node.attrs, out)
    if made is None or (isinstance(made, np.ndarray) and made.dtype == bool):
        return made
    if isinstance(made, np.ndarray):
        return as_array(made.reshape(-1).tolist(), made.shape)
    return as_array([made], ())  # NumPy gives the one object of an array without dimensions itself


def as_array(values: Sequence[Any], shape: Sequence[int]) -> Array | None:
    """Return numbers and integer expressions as an array: of int64 if all are numbers, else of objects, simplified;
    None if an expression is too long to be followed."""
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
    """Wrap ``value`` to 64 bits."""
    return value if -(1 << 63) <= value < 1 << 63 else (value + (1 << 63)) % (1 << 64) - (1 << 63)
