"""Reshape a tensor: keep its elements under another shape."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, as_dim, dim_equal, format_shape, product
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import normalize, sequence_of
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var, as_expr, binary, const
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class ReshapeAttrs:
    """``newshape``: the new dimensions; one of them may be -1 and follows from the others."""

    newshape: Any

    def __post_init__(self) -> None:
        given = sequence_of(self.newshape, "newshape")
        dims = tuple(-1 if _is_inferred(dim) else as_dim(dim) for dim in given)
        if sum(_is_inferred(dim) for dim in dims) > 1:
            raise ArgumentValueError(f"newshape: expected one -1 at most, found {given}")
        normalize(self, newshape=dims)


def _is_inferred(dim: Any) -> bool:
    if type(dim) is int:
        return dim == -1
    if isinstance(dim, IntImm):
        dim = dim.value
    return isinstance(dim, (int, np.integer)) and int(dim) == -1


def _factors(dim: Dim) -> list[Dim]:
    """Return the factors of ``dim``."""
    if isinstance(dim, BinaryOp) and dim.op == "mul":
        return _factors(_plain(dim.a)) + _factors(_plain(dim.b))
    return [dim]


def _plain(dim: Expr) -> Dim:
    return dim.value if isinstance(dim, IntImm) else dim


def quotient(total: Sequence[Dim], known: Sequence[Dim]) -> Dim | None:
    """Return the dimension whose product with those of ``known`` is the product of ``total``; None if there is provably
    none or it cannot be found.

    Equal symbolic factors cancel: the answer also holds where they are 0, as it does not matter there.
    """
    above = [factor for dim in total for factor in _factors(dim)]
    below: list[Dim] = []
    for factor in [factor for dim in known for factor in _factors(dim)]:
        match = None
        if isinstance(factor, Expr):
            match = next((n for n, dim in enumerate(above) if isinstance(dim, Expr) and dim_equal(dim, factor)), None)
        if match is None:
            below.append(factor)
        else:
            del above[match]
    numbers = math.prod(dim for dim in above if isinstance(dim, int))
    divisor = product(below)
    if isinstance(divisor, int) and divisor and numbers % divisor == 0:
        return product([numbers // divisor, *[dim for dim in above if isinstance(dim, Expr)]])
    if isinstance(divisor, int) and divisor == 0:
        return None
    # Factors alone do not decide, as in (2n + 2) / 2: divide, and check whether multiplication restores the total.
    whole = product(above)
    found = as_dim(as_expr(whole) // as_expr(divisor))
    return found if isinstance(divisor, int) and dim_equal(product([found, divisor]), whole) else None


@register_operator
class reshape(Operator):
    """Reshape ``x``: keep its elements in row-major order under another shape with provably as many elements."""

    name = "reshape"
    arguments = ("x",)
    kind = "injective"
    keeps_order = True
    Attrs = ReshapeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: ReshapeAttrs) -> TensorType:
        (x,) = args
        newshape = attrs.newshape
        known = [dim for dim in newshape if not _is_inferred(dim)]
        if len(known) == len(newshape):
            total, wanted = product(x.shape), product(newshape)
            if not dim_equal(total, wanted):
                found = f"{format_shape(newshape)} with {wanted}"
                raise self.error("newshape", f"a shape with {total} elements as in {format_shape(x.shape)}", found)
            return TensorType(newshape, x.dtype)
        inferred = quotient(x.shape, known)
        if inferred is None:
            raise self.error(
                "newshape",
                f"dimensions that divide the {product(x.shape)} elements of {format_shape(x.shape)}",
                format_shape(newshape),
            )
        return TensorType([inferred if _is_inferred(dim) else dim for dim in newshape], x.dtype)

    def reference(self, args: Sequence[Any], attrs: ReshapeAttrs) -> Any:
        x = args[0]
        if x.size == 0:  # NumPy infers no dimension of an empty array from zeros
            out = self.infer_type([TensorType(x.shape, x.dtype)], attrs)
            return np.reshape(x, out.shape)
        return np.reshape(x, attrs.newshape)

    def compute(self, args: Sequence[Tensor], attrs: ReshapeAttrs, out: TensorType) -> Tensor:
        (x,) = args
        return reshaped(x, out.shape, "reshape")


def reshaped(x: Tensor, shape: Sequence[Dim], name: str) -> Tensor:
    """Return the stage that reads ``x`` under another shape. Unchanged dimensions keep their index; only those that are
    split or joined need divisions."""
    source = [as_dim(extent) for extent in x.shape]
    groups = _groups(source, list(shape))

    def element(*place: Var) -> Expr:
        indices: list[Expr] = []
        for read, written in groups:
            indices.extend(_unravel(_ravel(place, written, shape), [source[n] for n in read]))
        return x[tuple(indices)]

    return te.compute(shape, element, name=name)


def _groups(source: list[Dim], target: list[Dim]) -> list[tuple[list[int], list[int]]]:
    """Return runs of dimensions of both shapes with equal products, as short as can be proved."""
    groups: list[tuple[list[int], list[int]]] = []
    tail: list[tuple[list[int], list[int]]] = []
    low, (high, top) = 0, (len(source), len(target))
    while low < min(high, top) and dim_equal(source[low], target[low]):
        groups.append(([low], [low]))
        low += 1
    while min(high, top) > low and dim_equal(source[high - 1], target[top - 1]):
        high, top = high - 1, top - 1
        tail.append(([high], [top]))
    groups.extend(_static_groups(source, target, (low, high), (low, top)))
    return groups + tail[::-1]


def _static_groups(
    source: list[Dim], target: list[Dim], read: tuple[int, int], written: tuple[int, int]
) -> list[tuple[list[int], list[int]]]:
    i, j = read[0], written[0]
    groups: list[tuple[list[int], list[int]]] = []
    start_i, start_j = i, j
    while i < read[1] and j < written[1]:
        i, j = i + 1, j + 1
        while True:
            a, b = product(source[start_i:i]), product(target[start_j:j])
            if dim_equal(a, b) or not isinstance(a, int) or not isinstance(b, int):
                break
            if a < b and i < read[1]:
                i += 1
            elif b < a and j < written[1]:
                j += 1
            else:
                break
        if not dim_equal(a, b):
            break
        groups.append((list(range(start_i, i)), list(range(start_j, j))))
        start_i, start_j = i, j
    if start_i < read[1] or start_j < written[1]:
        groups.append((list(range(start_i, read[1])), list(range(start_j, written[1]))))
    return groups


def _ravel(place: Sequence[Expr], dims: Sequence[int], shape: Sequence[Dim]) -> Expr:
    flat: Expr = const(0, "int64")
    for n in dims:
        flat = flat * shape[n] + place[n]
    return flat


def _unravel(flat: Expr, extents: Sequence[Dim]) -> list[Expr]:
    indices: list[Expr] = []
    for n in range(len(extents) - 1, 0, -1):
        # An empty tensor has no element to index, but a constant division by zero would be wrong code.
        extent = as_expr(1 if extents[n] == 0 else extents[n])
        indices.append(binary("floormod", flat, extent))
        flat = binary("floordiv", flat, extent)
    return [flat, *reversed(indices)] if extents else []
