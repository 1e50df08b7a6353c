"""Interleave channels to pixels: each channel of the result takes its pixels from several channels in turn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import Expr
from tilewright.graphir.dims import Dim, as_dim, simplify
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import reshape, transpose
from tilewright.graphir.ops.common import normalize
from tilewright.graphir.ops.nn.window import per_axis
from tilewright.graphir.types import TensorType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import as_expr


@dataclasses.dataclass(frozen=True)
class InterleaveAttrs:
    """The correspondence of channels and pixels.

    Attributes:
        strides: the number of pixels that are interleaved along each of the last dimensions.
        groups: groups of channels, each of which is interleaved by itself.
    """

    strides: Any
    groups: int = 1

    def __post_init__(self) -> None:
        rank = len(self.strides) if isinstance(self.strides, (tuple, list)) else 1
        normalize(self, strides=per_axis(self.strides, "strides", rank))
        if type(self.groups) is not int or self.groups < 1:
            raise ArgumentValueError(f"groups: expected a positive integer, found {self.groups!r}")


@register_operator
class interleave(Operator):
    """Interleave channels: ``(N, s * C, X)`` becomes ``(N, C, X * s)``, and so along several dimensions. Pixel ``x`` of
    channel ``c`` is the one at ``x // s`` of channel ``x % s * C + c``. With groups, channels are
    ``(groups, s, C)``."""

    name = "nn.interleave"
    arguments = ("data",)
    kind = "injective"
    Attrs = InterleaveAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: InterleaveAttrs) -> TensorType:
        (data,) = args
        if data.ndim != len(attrs.strides) + 2:
            raise self.error(0, f"{len(attrs.strides)} dimensions behind batch and channels", data)
        batch, channels, *space = data.shape
        made = self._made(channels, attrs)
        if simplify(channels - made * (math.prod(attrs.strides) * attrs.groups)) != 0:
            expected = f"a number of channels that {math.prod(attrs.strides) * attrs.groups} divides"
            raise self.error(0, expected, data)
        extents = [simplify(extent * stride) for extent, stride in zip(space, attrs.strides, strict=True)]
        return TensorType((batch, simplify(made * attrs.groups), *extents), data.dtype)

    def _made(self, channels: Dim, attrs: InterleaveAttrs) -> Dim:
        """Return the channels of the result in each group."""
        return simplify(as_dim(as_expr(channels) // (math.prod(attrs.strides) * attrs.groups)))

    def decompose(self, args: Sequence[Expr], attrs: InterleaveAttrs) -> Expr:
        return self._moved(args[0], attrs, 0)

    def in_layout(
        self,
        args: Sequence[Expr],
        blocked: Sequence[Expr | None],
        attrs: InterleaveAttrs,
        plain: str,
        target: str,
    ) -> Expr | None:
        (data,), (at_hand,), block = args, blocked, parse_layout(target).block("C")
        made = self._made(data.shape[1], attrs)
        if at_hand is None or plain[:2] != "NC" or target != f"{plain}{block}c":
            return None
        return self._moved(at_hand, attrs, 1) if isinstance(made, int) and made and made % block == 0 else None

    def _moved(self, data: Expr, attrs: InterleaveAttrs, behind: int) -> Expr:
        """Interleave ``data``; the last ``behind`` dimensions, of blocks of channels, keep their positions."""
        rank, groups = len(attrs.strides), (attrs.groups,) if attrs.groups > 1 else ()
        batch, channels, *space = data.shape
        made, blocks, space = self._made(channels, attrs), space[rank:], space[:rank]
        parts = reshape(data, newshape=(batch, *groups, *attrs.strides, made, *space, *blocks))
        first = 1 + len(groups)  # the first axis of offsets; the channel and the pixels are behind these
        channel = first + rank
        pixels = [axis for n in range(rank) for axis in (channel + 1 + n, first + n)]
        order = (*range(first), channel, *pixels, *range(channel + 1 + rank, channel + 1 + rank + behind))
        extents = [simplify(extent * stride) for extent, stride in zip(space, attrs.strides, strict=True)]
        moved = transpose(parts, axes=order)
        return reshape(moved, newshape=(batch, simplify(made * attrs.groups), *extents, *blocks))
