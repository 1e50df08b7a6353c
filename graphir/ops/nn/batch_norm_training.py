"""Normalize batches by their own statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.expr import Tuple
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import (
    add,
    cast,
    divide,
    mean,
    multiply,
    reshape,
    sqrt,
    subtract,
    variance,
)
from tilewright.graphir.ops.common import compute_type
from tilewright.graphir.ops.nn.layer_norm import along, check_vectors
from tilewright.graphir.types import TensorType, TupleType


@dataclasses.dataclass(frozen=True)
class BatchNormTrainingAttrs:
    """``axis``: the axis of the channels; ``epsilon``: added to the variance; ``momentum``: the weight of the running
    statistics beside the batch's."""

    axis: int = 1
    epsilon: float = 1e-5
    momentum: float = 0.9


@register_operator
class batch_norm_training(Operator):
    """Normalize as ``nn.batch_norm`` by mean and variance of the batch; also return the running mean and variance,
    ``running * momentum + batch * (1 - momentum)``. The variance is that of the population."""

    name = "nn.batch_norm_training"
    arguments = ("data", "gamma", "beta", "running_mean", "running_var")
    kind = "reduction"
    num_outputs = 3
    Attrs = BatchNormTrainingAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: BatchNormTrainingAttrs) -> TupleType:
        check_vectors(self, args, attrs.axis)
        return TupleType([args[0], args[3], args[4]])

    def decompose(self, args: Sequence[GraphExpr], attrs: BatchNormTrainingAttrs) -> GraphExpr:
        dtype = args[0].dtype
        data, gamma, beta, running_mean, running_var = [cast(arg, dtype=compute_type(dtype)) for arg in args]
        axes = tuple(axis for axis in range(data.ndim) if axis != attrs.axis % data.ndim)
        # The axes stay until the statistics are computed, so that this can be done in a layout with blocks of channels.
        kept_centre, kept_spread = mean(data, axis=axes, keepdims=True), variance(data, axis=axes, keepdims=True)
        centre, spread = [reshape(kept, newshape=(data.shape[attrs.axis],)) for kept in (kept_centre, kept_spread)]
        factor = divide(gamma, sqrt(add(spread, attrs.epsilon)))
        factor, beta = [along(each, data.ndim, attrs.axis) for each in (factor, beta)]
        # Not a single multiplication and addition, as of moving statistics: where a channel hardly varies, they cancel.
        result = add(multiply(subtract(data, kept_centre), factor), beta)

        def moved(running: GraphExpr, batch: GraphExpr) -> GraphExpr:
            return add(multiply(running, attrs.momentum), multiply(batch, 1 - attrs.momentum))

        results = result, moved(running_mean, centre), moved(running_var, spread)
        return Tuple([cast(each, dtype=dtype) for each in results])
