"""Assert that a tensor has a given shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir import expr as graph
from tilewright.graphir.dims import Dim, as_dim, dim_equal, format_shape
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import normalize, sequence_of
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.expr import Expr, Var
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class MatchShapeAttrs:
    """``shape``: dimensions, which may be symbolic."""

    shape: Any

    def __post_init__(self) -> None:
        normalize(self, shape=tuple(as_dim(dim) for dim in sequence_of(self.shape, "shape")))


@register_operator
class match_shape(Operator):
    """Assert that the sizes of ``x`` are those of ``shape``, although that cannot be proved. A compiled model checks
    them when it is called with sizes that it has not seen, and raises an error that names the dimension and both sizes.
    (Relax, of Apache TVM, has ``match_cast`` for the same purpose.)"""

    name = "match_shape"
    arguments = ("x",)
    kind = "injective"
    Attrs = MatchShapeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: MatchShapeAttrs) -> TensorType:
        (x,) = args
        if len(attrs.shape) != x.ndim:
            raise self.error("shape", f"{x.ndim} dimensions as in {format_shape(x.shape)}", format_shape(attrs.shape))
        for found, wanted in zip(x.shape, attrs.shape, strict=True):
            if isinstance(found, int) and isinstance(wanted, int) and found != wanted:
                raise self.error("shape", f"the sizes of {format_shape(x.shape)}", format_shape(attrs.shape))
        return TensorType(attrs.shape, x.dtype)

    def in_layout(
        self, args: Sequence[Any], blocked: Sequence[Any], attrs: MatchShapeAttrs, plain: str, target: str
    ) -> Any:
        """Assert the shape in the blocked layout; blocked axes keep their sizes, which must provably be the asserted
        ones."""
        source, layout = parse_layout(plain), parse_layout(target)
        if blocked[0] is None or len(attrs.shape) != source.ndim:
            return None
        named = dict(zip(source.primal, attrs.shape, strict=True))
        found = layout.extents(blocked[0].shape)
        for axis in source.primal:
            if layout.block(axis) > 1:
                if not dim_equal(args[0].shape[source.position(axis)], named[axis]):
                    return None
                named[axis] = found[axis]
        return graph.Call(self, [blocked[0]], MatchShapeAttrs(layout.shape(named)))

    def reference(self, args: Sequence[Any], attrs: MatchShapeAttrs) -> Any:
        (x,) = args
        if x.shape != attrs.shape:
            raise InputError(f"match_shape: expected shape {format_shape(attrs.shape)}, found {x.shape}")
        return x.copy()

    def claimed_sizes(self, args: Sequence[TensorType], attrs: MatchShapeAttrs) -> Sequence[tuple[str, Dim, Dim]]:
        sizes = enumerate(zip(args[0].shape, attrs.shape, strict=True))
        return [(f"dimension {axis}", dim, claimed) for axis, (dim, claimed) in sizes if not dim_equal(dim, claimed)]

    def compute(self, args: Sequence[Tensor], attrs: MatchShapeAttrs, out: TensorType) -> Tensor:
        (x,) = args

        def element(*place: Var) -> Expr:
            return x[place]

        return te.compute(out.shape, element, name="match_shape")
