"""A border around a tensor."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import guarded, normalize
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, all_of, maximum, minimum, select
from tilewright.tensorir.tensor import Tensor

MODES = ("constant", "edge", "reflect")


@dataclasses.dataclass(frozen=True)
class PadAttrs:
    """The border.

    Attributes:
        pad_width: for each axis how many elements come before and behind.
        mode: ``constant`` (``pad_value``), ``edge`` (the nearest element) or ``reflect`` (mirrored at the outermost
            element, which is not repeated).
        pad_value: the value of a constant border.
    """

    pad_width: Any
    mode: str = "constant"
    pad_value: float = 0

    def __post_init__(self) -> None:
        try:
            width = tuple((operator.index(before), operator.index(behind)) for before, behind in self.pad_width)
        except (TypeError, ValueError):
            raise TypeError(
                f"pad_width: expected a pair (before, behind) for each axis, found {self.pad_width!r}"
            ) from None
        if any(amount < 0 for pair in width for amount in pair):
            raise ValueError(f"pad_width: expected no negative width, found {width}")
        if self.mode not in MODES:
            raise ValueError(f"mode: expected one of {', '.join(MODES)}, found {self.mode!r}")
        value = self.pad_value.item() if hasattr(self.pad_value, "item") else self.pad_value
        normalize(self, pad_width=width, pad_value=value)


@register_operator
class pad(Operator):
    """``x`` with a border on each side of each axis, as ``numpy.pad``."""

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
        least = {"constant": 0, "edge": 1, "reflect": 2}[attrs.mode]
        for axis, (before, behind) in enumerate(attrs.pad_width):
            extent = x.shape[axis]
            needed = max(before, behind) + 1 if attrs.mode == "reflect" else least
            if before + behind and isinstance(extent, int) and extent < needed:
                raise self.error(0, f"an extent of at least {needed} along axis {axis} for mode {attrs.mode}", x)
        shape = [simplify(dim + sum(pair)) for dim, pair in zip(x.shape, attrs.pad_width, strict=True)]
        return TensorType(shape, x.dtype)

    def reference(self, args: Sequence[Any], attrs: PadAttrs) -> Any:
        (x,) = args
        if not attrs.pad_width:
            return x.copy()
        if attrs.mode == "constant":
            return np.pad(x, attrs.pad_width, constant_values=np.asarray(attrs.pad_value).astype(x.dtype))
        return np.pad(x, attrs.pad_width, mode=attrs.mode)  # type: ignore[call-overload]

    def compute(self, args: Sequence[Tensor], attrs: PadAttrs, out: TensorType) -> Tensor:
        (x,) = args

        def element(*place: Var) -> Expr:
            indices: list[Expr] = []
            inside: list[Expr] = []
            for index, extent, (before, behind) in zip(place, x.shape, attrs.pad_width, strict=True):
                at = index - before
                if attrs.mode == "constant":
                    inside.extend([at >= 0] if before else [])
                    inside.extend([at < extent] if behind else [])
                elif attrs.mode == "edge" and before + behind:
                    at = maximum(minimum(at, extent - 1), 0)
                elif before + behind:
                    at = select(at < 0, 0 - at, at)
                    at = select(at >= extent, 2 * (extent - 1) - at, at)
                indices.append(at)
            return guarded(all_of(*inside), x[tuple(indices)], attrs.pad_value)

        return te.compute(out.shape, element, name="pad")
