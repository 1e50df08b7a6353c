"""Pad or crop a tensor at its borders."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import Dim, as_amount, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import guarded, normalize
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError
from tilewright.tensorir.expr import Expr, IntImm, Var, all_of, as_expr, binary, maximum, minimum, select
from tilewright.tensorir.tensor import Tensor

MODES = ("constant", "edge", "reflect", "wrap")


def _split(width: Dim) -> tuple[Dim, Dim]:
    """Split a width into the numbers of elements to add and to remove."""
    if isinstance(width, int):
        return max(width, 0), max(-width, 0)
    return simplify(maximum(width, 0)), simplify(maximum(0 - width, 0))


@dataclasses.dataclass(frozen=True)
class PadAttrs:
    """The border of a padded tensor.

    Attributes:
        pad_width: for each axis the numbers of elements before and behind: integers, or expressions over symbolic
            dimensions. Negative ones remove elements, before the others are added.
        mode: ``constant`` (``pad_value``), ``edge`` (the nearest element), ``reflect`` (mirrored at the outermost
            element, which is not repeated) or ``wrap`` (the tensor repeated periodically).
        pad_value: the value of a constant border.
    """

    pad_width: Any
    mode: str = "constant"
    pad_value: float = 0

    def __post_init__(self) -> None:
        try:
            width = tuple((as_amount(before), as_amount(behind)) for before, behind in self.pad_width)
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"pad_width: expected a pair (before, behind) for each axis, found {self.pad_width!r}"
            ) from None
        if self.mode not in MODES:
            raise ArgumentValueError(f"mode: expected one of {', '.join(MODES)}, found {self.mode!r}")
        value = self.pad_value.item() if hasattr(self.pad_value, "item") else self.pad_value
        normalize(self, pad_width=width, pad_value=value)


@register_operator
class pad(Operator):
    """Pad ``x`` on each side of each axis, as ``numpy.pad``; negative widths remove elements."""

    name = "pad"
    arguments = ("x",)
    kind = "injective"
    Attrs = PadAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: PadAttrs) -> TensorType:
        (x,) = args
        if len(attrs.pad_width) != x.ndim:
            raise self.error("pad_width", f"a pair for each of {x.ndim} axes", attrs.pad_width)
        if isinstance(attrs.pad_value, float) and not x.dtype.is_float:
            raise self.error("pad_value", f"a value of type {x.dtype!s}", attrs.pad_value)
        least = {"constant": 0, "edge": 1, "reflect": 2, "wrap": 1}[attrs.mode]
        shape: list[Dim] = []
        for axis, (extent, (before, behind)) in enumerate(zip(x.shape, attrs.pad_width, strict=True)):
            (more, less), (more_behind, less_behind) = _split(before), _split(behind)
            kept = simplify(extent - less - less_behind)
            if isinstance(kept, int) and kept < 0:
                raise self.error(
                    "pad_width", f"at most {extent} elements to take away along axis {axis}", attrs.pad_width
                )
            if isinstance(kept, int) and isinstance(more, int) and isinstance(more_behind, int):
                needed = max(more, more_behind) + 1 if attrs.mode == "reflect" else least
                if more + more_behind and kept < needed:
                    raise self.error(0, f"an extent of at least {needed} along axis {axis} for mode {attrs.mode}", x)
            shape.append(simplify(extent + before + behind))
        return TensorType(shape, x.dtype)

    def reference(self, args: Sequence[Any], attrs: PadAttrs) -> Any:
        (x,) = args
        if not attrs.pad_width:
            return x.copy()
        taken = [
            slice(max(-a, 0), extent - max(-b, 0)) for extent, (a, b) in zip(x.shape, attrs.pad_width, strict=True)
        ]
        added = [(max(before, 0), max(behind, 0)) for before, behind in attrs.pad_width]
        if attrs.mode == "constant":
            return np.pad(x[tuple(taken)], added, constant_values=np.asarray(attrs.pad_value).astype(x.dtype))
        return np.pad(x[tuple(taken)], added, mode=attrs.mode)  # type: ignore[call-overload]

    def is_identity(self, args: Sequence[GraphExpr], attrs: PadAttrs) -> bool:
        # A width that removes elements in front and adds as many behind keeps the shape, too.
        return all(isinstance(width, int) and width == 0 for pair in attrs.pad_width for width in pair)

    def places(self, args: Sequence[TensorType], attrs: PadAttrs) -> list[tuple[Dim, ...]] | None:
        widths = [width for pair in attrs.pad_width for width in pair]
        if attrs.mode != "constant" or not all(isinstance(width, int) and width >= 0 for width in widths):
            return None
        return [tuple(before for before, _ in attrs.pad_width)]

    def compute(self, args: Sequence[Tensor], attrs: PadAttrs, out: TensorType) -> Tensor:
        (x,) = args

        def element(*place: Var) -> Expr:
            indices: list[Expr] = []
            inside: list[Expr] = []
            for index, extent, (before, behind) in zip(place, x.shape, attrs.pad_width, strict=True):
                (more, less), (more_behind, less_behind) = _split(before), _split(behind)
                kept = extent - (less + as_expr(less_behind))
                at, conditions = _source(index - more, kept, more, more_behind, attrs.mode)
                indices.append(at + less)
                inside.extend(conditions)
            return guarded(all_of(*inside), x[tuple(indices)], attrs.pad_value)

        return te.compute(out.shape, element, name="pad")


def _source(at: Expr, extent: Expr, before: Dim, behind: Dim, mode: str) -> tuple[Expr, list[Expr]]:
    """Return the index of the element at place ``at`` of an axis whose first element is at 0, and the conditions on
    which there is one."""
    is_padded = not (before == 0 and behind == 0)
    if mode == "constant" or not is_padded:
        return at, ([] if before == 0 else [at >= 0]) + ([] if behind == 0 else [at < extent])
    if mode == "reflect":
        at = select(at < 0, 0 - at, at)
        at = select(at >= extent, 2 * (extent - 1) - at, at)
    if isinstance(extent, IntImm):
        if mode == "wrap":
            at = binary("floormod", at, extent)
        return (maximum(minimum(at, extent - 1), 0) if mode == "edge" else at), []
    # A part of unknown size may be too small for the mode: nothing outside is read.
    if mode == "wrap":
        return binary("floormod", at, maximum(extent, 1)), [extent > 0]
    return maximum(minimum(at, extent - 1), 0), [extent > 0]
