"""Define normalizations in terms of other operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import dim_equal, product, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import (
    add,
    cast,
    divide,
    mean,
    multiply,
    reshape,
    sqrt,
    square,
    subtract,
)
from tilewright.graphir.ops.common import axis_index, is_half
from tilewright.graphir.ops.nn.layer_norm import LayerNormAttrs, along, check_vectors
from tilewright.graphir.types import TensorType


def _normalized(data: GraphExpr, axes: tuple[int, ...], epsilon: float) -> GraphExpr:
    """Normalize ``data`` to mean 0 and variance 1 over ``axes``."""
    centred = subtract(data, mean(data, axis=axes, keepdims=True))
    return divide(centred, sqrt(add(mean(square(centred), axis=axes, keepdims=True), epsilon)))


def _widen(args: Sequence[GraphExpr]) -> list[GraphExpr]:
    return [cast(arg, dtype="float32") if is_half(arg.dtype) else arg for arg in args]


@register_operator
class rms_norm(Operator):
    """Normalize by the root mean square along ``axis``: ``data / sqrt(mean(data ** 2) + epsilon) * gamma``: Zhang and
    Sennrich, "Root Mean Square Layer Normalization", 2019."""

    name = "nn.rms_norm"
    arguments = ("data", "gamma")
    kind = "reduction"
    Attrs = LayerNormAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: LayerNormAttrs) -> TensorType:
        check_vectors(self, args, attrs.axis)
        return args[0]

    def decompose(self, args: Sequence[GraphExpr], attrs: LayerNormAttrs) -> GraphExpr:
        data, gamma = _widen(args)
        size = sqrt(add(mean(square(data), axis=attrs.axis, keepdims=True), attrs.epsilon))
        return cast(multiply(divide(data, size), along(gamma, data.ndim, attrs.axis)), dtype=args[0].dtype)


@dataclasses.dataclass(frozen=True)
class GroupNormAttrs:
    """``num_groups``: the number of groups of channels; ``axis``: the axis of the channels; ``epsilon``: added to the
    variance."""

    num_groups: int
    axis: int = 1
    epsilon: float = 1e-5


@register_operator
class group_norm(Operator):
    """Normalize each group of channels of each item, then scale and shift each channel: Wu and He, "Group
    Normalization", 2018. Axis 0 is the batch, ``axis`` is 1."""

    name = "nn.group_norm"
    arguments = ("data", "gamma", "beta")
    kind = "reduction"
    Attrs = GroupNormAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: GroupNormAttrs) -> TensorType:
        data = args[0]
        check_vectors(self, args, attrs.axis)
        if axis_index(self, attrs.axis, data.ndim) != 1:
            raise self.error("axis", "axis 1 of a tensor with the batch first", attrs.axis)
        channels = data.shape[1]
        if attrs.num_groups < 1 or not dim_equal(simplify(channels % attrs.num_groups), 0):
            raise self.error("num_groups", f"a divisor of {channels} channels", attrs.num_groups)
        return data

    def decompose(self, args: Sequence[GraphExpr], attrs: GroupNormAttrs) -> GraphExpr:
        data, gamma, beta = _widen(args)
        size = product([simplify(data.shape[1] // attrs.num_groups), *data.shape[2:]])
        grouped = reshape(data, newshape=(data.shape[0], attrs.num_groups, size))
        result = reshape(_normalized(grouped, (2,), attrs.epsilon), newshape=data.shape)
        result = add(multiply(result, along(gamma, data.ndim, 1)), along(beta, data.ndim, 1))
        return cast(result, dtype=args[0].dtype)


@dataclasses.dataclass(frozen=True)
class InstanceNormAttrs:
    """``axis``: the axis of the channels; ``epsilon``: added to the variance."""

    axis: int = 1
    epsilon: float = 1e-5


@register_operator
class instance_norm(Operator):
    """Normalize each channel of each item, then scale and shift it: Ulyanov, Vedaldi and Lempitsky, "Instance
    Normalization", 2016. Axis 0 is the batch."""

    name = "nn.instance_norm"
    arguments = ("data", "gamma", "beta")
    kind = "reduction"
    Attrs = InstanceNormAttrs

    def _axes(self, ndim: int, attrs: InstanceNormAttrs) -> tuple[int, ...]:
        return tuple(n for n in range(1, ndim) if n != attrs.axis % ndim)

    def infer_type(self, args: Sequence[TensorType], attrs: InstanceNormAttrs) -> TensorType:
        check_vectors(self, args, attrs.axis)
        if args[0].ndim < 3:
            raise self.error(0, "at least 3 dimensions (batch, channels, space)", args[0])
        return args[0]

    def decompose(self, args: Sequence[GraphExpr], attrs: InstanceNormAttrs) -> GraphExpr:
        data, gamma, beta = _widen(args)
        result = _normalized(data, self._axes(data.ndim, attrs), attrs.epsilon)
        result = multiply(result, along(gamma, data.ndim, attrs.axis))
        return cast(add(result, along(beta, data.ndim, attrs.axis)), dtype=args[0].dtype)
