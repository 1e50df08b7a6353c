"""Compute sums of products of tensors, in Einstein's notation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, dim_equal, product
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import NUMBERS, axis_index, check_dtype, same_dtype
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var
from tilewright.tensorir.tensor import Tensor

#: The label of an axis: a letter, or the position (from the end) of an axis that an ellipsis stands for.
Label = str | int


@dataclasses.dataclass(frozen=True)
class DiagonalAttrs:
    """``axis1``, ``axis2``: the two axes, of equal extent."""

    axis1: int = 0
    axis2: int = 1


@register_operator
class diagonal(Operator):
    """Take the diagonal, as ``numpy.diagonal``: the elements with equal indices along two axes, as a last axis that
    replaces both."""

    name = "diagonal"
    arguments = ("x",)
    kind = "injective"
    Attrs = DiagonalAttrs

    def _axes(self, ndim: int, attrs: DiagonalAttrs) -> tuple[int, int]:
        first, second = axis_index(self, attrs.axis1, ndim, "axis1"), axis_index(self, attrs.axis2, ndim, "axis2")
        if first == second:
            raise self.error("axis2", f"another axis than axis1, {attrs.axis1}", attrs.axis2)
        return first, second

    def infer_type(self, args: Sequence[TensorType], attrs: DiagonalAttrs) -> TensorType:
        (x,) = args
        first, second = self._axes(x.ndim, attrs)
        if not dim_equal(x.shape[first], x.shape[second]):
            raise self.error(0, f"equal extents along the axes {first} and {second}", x)
        return TensorType([*[d for n, d in enumerate(x.shape) if n not in (first, second)], x.shape[first]], x.dtype)

    def reference(self, args: Sequence[Any], attrs: DiagonalAttrs) -> Any:
        return np.diagonal(args[0], 0, attrs.axis1, attrs.axis2).copy()

    def compute(self, args: Sequence[Tensor], attrs: DiagonalAttrs, out: TensorType) -> Tensor:
        (x,) = args
        axes = self._axes(x.ndim, attrs)

        def element(*place: Var) -> Expr:
            rest = iter(place[:-1])
            return x[tuple(place[-1] if n in axes else next(rest) for n in range(x.ndim))]

        return te.compute(out.shape, element, name="diagonal")


@dataclasses.dataclass(frozen=True)
class EinsumAttrs:
    """``equation``: as NumPy's, ``"bij,bjk->bik"``: letters name axes, ``...`` stands for any number of axes that
    broadcast. Without ``->`` the result has the ellipsis and, in alphabetical order, the letters that occur once."""

    equation: str

    def __post_init__(self) -> None:
        text = self.equation.replace(" ", "")
        sources, arrow, target = text.partition("->")
        terms = [*sources.split(","), *([target] if arrow else [])]
        for term in terms:
            letters = term.replace("...", "", 1)
            if not (letters == "" or (letters.isascii() and letters.isalpha())):
                raise ArgumentValueError(f"equation: expected letters and at most one '...' in a term, found {term!r}")
        object.__setattr__(self, "equation", text)


@dataclasses.dataclass
class _Term:
    """A value with labelled axes."""

    value: GraphExpr
    labels: list[Label]

    def dim(self, label: Label) -> Dim:
        return self.value.shape[self.labels.index(label)]

    def without(self, labels: Sequence[Label]) -> _Term:
        """Sum over ``labels``."""
        axes = tuple(n for n, label in enumerate(self.labels) if label in labels)
        if not axes:
            return self
        kept = [label for label in self.labels if label not in labels]
        return _Term(calls.sum(self.value, axis=axes), kept)

    def ordered(self, labels: Sequence[Label]) -> _Term:
        """Transpose the axes to the order of ``labels``, which are all of them."""
        order = tuple(self.labels.index(label) for label in labels)
        moved = self.value if order == tuple(range(len(order))) else calls.transpose(self.value, axes=order)
        return _Term(moved, list(labels))

    def diagonals(self) -> _Term:
        """Take the diagonals of repeated labels, so that every label occurs once."""
        term = self
        while len(set(term.labels)) < len(term.labels):
            label = next(label for label in term.labels if term.labels.count(label) > 1)
            first, second = [n for n, other in enumerate(term.labels) if other == label][:2]
            value = call_operator("diagonal", term.value, axis1=first, axis2=second)
            rest = [other for n, other in enumerate(term.labels) if n not in (first, second)]
            term = _Term(value, [*rest, label])
        return term


@register_operator
class einsum(Operator):
    """Compute ``numpy.einsum(equation, *operands)``. Operands are multiplied from left to right, as matrix products;
    half types are rounded after each of these."""

    name = "einsum"
    bounded_reference = False
    arguments = ("operand", "*operands")
    Attrs = EinsumAttrs

    def terms(self, ranks: Sequence[int], attrs: EinsumAttrs) -> tuple[list[list[Label]], list[Label]]:
        """Return the labels of each operand and those of the result.

        Raises:
            TypeInferenceError: the equation has another number of terms than there are operands, a term another number
                of letters than its operand has axes, or the result a letter that no operand has, or one twice.
        """
        sources, arrow, target = attrs.equation.partition("->")
        texts = sources.split(",")
        if len(texts) != len(ranks):
            raise self.error("equation", f"terms for {len(ranks)} operands", attrs.equation)
        labels = []
        for number, (text, rank) in enumerate(zip(texts, ranks, strict=True)):
            before, dots, behind = text.partition("...")
            covered = rank - len(before) - len(behind)
            if covered < 0 or (covered and not dots):
                raise self.error(number, f"as many axes as {text!r} has letters", f"{rank} dimensions")
            labels.append([*before, *range(-covered, 0), *behind])
        ellipsis = list(range(min([0, *[n for term in labels for n in term if isinstance(n, int)]]), 0))
        if arrow:
            before, dots, behind = target.partition("...")
            result: list[Label] = [*before, *(ellipsis if dots else []), *behind]
        else:
            letters = [label for term in labels for label in term if isinstance(label, str)]
            result = [*ellipsis, *sorted(label for label in letters if letters.count(label) == 1)]
        known = {label for term in labels for label in term}
        if len(set(result)) < len(result) or not known.issuperset(result):
            raise self.error("equation", "each letter of the result once, and in some operand", attrs.equation)
        return labels, result

    def infer_type(self, args: Sequence[TensorType], attrs: EinsumAttrs) -> TensorType:
        dtype = same_dtype(self, args)
        check_dtype(self, 0, args[0], NUMBERS)
        labels, result = self.terms([arg.ndim for arg in args], attrs)
        dims: dict[Label, Dim] = {}
        for number, (term, arg) in enumerate(zip(labels, args, strict=True)):
            for label, dim in zip(term, arg.shape, strict=True):
                known = dims.get(label, 1)
                if isinstance(known, int) and known == 1:
                    dims[label] = dim
                elif not (isinstance(dim, int) and dim == 1) and not dim_equal(dim, known):
                    raise self.error(number, f"extent {known} for {label!r} of {attrs.equation}", arg)
        return TensorType([dims[label] for label in result], dtype)

    def decompose(self, args: Sequence[GraphExpr], attrs: EinsumAttrs) -> GraphExpr:
        labels, result = self.terms([len(arg.shape) for arg in args], attrs)
        terms = [_Term(arg, term).diagonals() for arg, term in zip(args, labels, strict=True)]
        term = terms[0]
        for number, other in enumerate(terms[1:], 1):
            later = {label for left in terms[number + 1 :] for label in left.labels} | set(result)
            term = _contract(term, other, later)
        term = term.without([label for label in term.labels if label not in result])
        return term.ordered(result).value

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: EinsumAttrs) -> GraphExpr:
        return self.decompose(args, attrs)


def _contract(a: _Term, b: _Term, later: set[Label]) -> _Term:
    """Multiply two terms, and sum over the labels that no later factor or result has."""
    a, b = _without_ones(a, b), _without_ones(b, a)
    a = a.without([label for label in a.labels if label not in b.labels and label not in later])
    b = b.without([label for label in b.labels if label not in a.labels and label not in later])
    shared = [label for label in a.labels if label in b.labels]
    batch = [label for label in shared if label in later]
    summed = [label for label in shared if label not in later]
    rows = [label for label in a.labels if label not in shared]
    columns = [label for label in b.labels if label not in shared]
    left, right = a.ordered([*batch, *rows, *summed]), b.ordered([*batch, *summed, *columns])
    if not summed:
        spread = left.value
        if columns:
            spread = calls.expand_dims(spread, axis=tuple(range(len(left.labels), len(left.labels) + len(columns))))
        other = right.value
        if rows:
            other = calls.expand_dims(other, axis=tuple(range(len(batch), len(batch) + len(rows))))
        return _Term(calls.multiply(spread, other), [*batch, *rows, *columns])
    outer: list[Dim] = [left.dim(label) for label in batch]
    inner = product(left.dim(label) for label in summed)
    heights, widths = [left.dim(label) for label in rows], [right.dim(label) for label in columns]
    matrix = calls.reshape(left.value, newshape=(*outer, product(heights), inner))
    other = calls.reshape(right.value, newshape=(*outer, inner, product(widths)))
    value = calls.reshape(calls.matmul(matrix, other), newshape=(*outer, *heights, *widths))
    return _Term(value, [*batch, *rows, *columns])


def _without_ones(term: _Term, other: _Term) -> _Term:
    """Drop the axes of ``term`` of extent 1 that broadcast to those of ``other``."""
    axes = []
    for n, label in enumerate(term.labels):
        if label in other.labels:
            mine, theirs = term.dim(label), other.dim(label)
            if isinstance(mine, int) and mine == 1 and not (isinstance(theirs, int) and theirs == 1):
                axes.append(n)
    if not axes:
        return term
    kept = [label for n, label in enumerate(term.labels) if n not in axes]
    return _Term(calls.squeeze(term.value, axis=tuple(axes)), kept)
