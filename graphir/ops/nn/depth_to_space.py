"""Move blocks of pixels to channels, and back."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import Expr, call_operator
from tilewright.graphir.dims import Dim, as_dim, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import normalize
from tilewright.graphir.types import TensorType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import as_expr

MODES = ("DCR", "CRD")


@dataclasses.dataclass(frozen=True)
class BlockAttrs:
    """The correspondence of pixels and channels.

    Attributes:
        block_size: height and width of a block of pixels.
        mode: the order of the channels' parts: ``DCR`` (positions in the block outermost) or ``CRD`` (innermost).
    """

    block_size: Any
    mode: str = "DCR"

    def __post_init__(self) -> None:
        size = operator.index(self.block_size)
        if size < 1:
            raise ArgumentValueError(f"block_size: expected a positive integer, found {size}")
        if self.mode not in MODES:
            raise ArgumentValueError(f"mode: expected one of {', '.join(MODES)}, found {self.mode!r}")
        normalize(self, block_size=size)


def _part(dim: Dim, size: int) -> Dim:
    return simplify(as_dim(as_expr(dim) // size))


class _Blocks(Operator):
    """Base of both directions: images in NCHW."""

    arguments = ("data",)
    kind = "injective"
    Attrs = BlockAttrs

    def check_image(self, data: TensorType) -> None:
        """Check the rank.

        Raises:
            TypeInferenceError: it is not 4.
        """
        if data.ndim != 4:
            raise self.error(0, "a tensor in layout NCHW (4 dimensions)", data)


@register_operator
class depth_to_space(_Blocks):
    """Rearrange channels to blocks of pixels: ``(N, C * b * b, H, W)`` becomes ``(N, C, H * b, W * b)``."""

    name = "nn.depth_to_space"

    def infer_type(self, args: Sequence[TensorType], attrs: BlockAttrs) -> TensorType:
        (data,) = args
        self.check_image(data)
        n, c, h, w = data.shape
        size = attrs.block_size
        if simplify(c - _part(c, size * size) * (size * size)) != 0:
            raise self.error(0, f"a number of channels that {size * size} divides", data)
        return TensorType((n, _part(c, size * size), simplify(h * size), simplify(w * size)), data.dtype)

    def decompose(self, args: Sequence[Expr], attrs: BlockAttrs) -> Expr:
        (x,) = args
        assert isinstance(x.type, TensorType)
        n, c, h, w = x.type.shape
        b = attrs.block_size
        if attrs.mode == "DCR":
            return call_operator("nn.interleave", x, strides=(b, b))
        depth = _part(c, b * b)
        parts = calls.transpose(calls.reshape(x, newshape=(n, depth, b, b, h, w)), axes=(0, 1, 4, 2, 5, 3))
        return calls.reshape(parts, newshape=(n, depth, simplify(h * b), simplify(w * b)))

    def simplify_inference(self, args: Sequence[Expr], attrs: BlockAttrs) -> Expr:
        return self.decompose(args, attrs)


@register_operator
class space_to_depth(_Blocks):
    """Rearrange blocks of pixels to channels: ``(N, C, H * b, W * b)`` becomes ``(N, C * b * b, H, W)``. Rows and
    columns that fill no block are dropped."""

    name = "nn.space_to_depth"

    def infer_type(self, args: Sequence[TensorType], attrs: BlockAttrs) -> TensorType:
        (data,) = args
        self.check_image(data)
        n, c, h, w = data.shape
        size = attrs.block_size
        for dim in (h, w):
            if isinstance(dim, int) and dim % size:
                raise self.error(0, f"height and width that {size} divides", data)
        return TensorType((n, simplify(c * (size * size)), _part(h, size), _part(w, size)), data.dtype)

    def decompose(self, args: Sequence[Expr], attrs: BlockAttrs) -> Expr:
        (x,) = args
        assert isinstance(x.type, TensorType)
        n, c, height, width = x.type.shape
        b = attrs.block_size
        h, w = _part(height, b), _part(width, b)
        if simplify(height - h * b) != 0 or simplify(width - w * b) != 0:
            x = calls.slice(x, begin=(0, 0), end=(simplify(h * b), simplify(w * b)), axes=(2, 3))
        order = (0, 3, 5, 1, 2, 4) if attrs.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        parts = calls.transpose(calls.reshape(x, newshape=(n, c, h, b, w, b)), axes=order)
        return calls.reshape(parts, newshape=(n, simplify(c * (b * b)), h, w))
