"""Convert normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import Dim, product, simplify
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.torch.node import Node, cast_to, dtype_of, reshaped, shape_of, with_shape
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, divide, mean, multiply, reshape, sqrt, square, subtract
from tilewright.tensorir.dtype import FLOAT32, DataType


def _ones(shape: Sequence[Dim], dtype: DataType, fill: float = 1.0) -> Expr:
    return get_operator("full")(shape=tuple(shape), fill=fill, dtype=dtype)


@converter("aten.layer_norm.default")
def layer_norm(
    node: Node, x: Expr, shape: Sequence[Dim], weight: Expr | None, bias: Expr | None, eps: float, cudnn: bool
) -> Expr:
    """Normalize the last axes together, then scale and shift their elements."""
    return _layer_normalized(x, len(shape), weight, bias, eps)


@converter("aten.native_layer_norm.default")
def native_layer_norm(
    node: Node, x: Expr, shape: Sequence[Dim], weight: Expr | None, bias: Expr | None, eps: float
) -> list[Expr]:
    """Normalize the last axes together; return the means and the reciprocal deviations as well."""
    axes = tuple(range(len(shape_of(x)) - len(shape), len(shape_of(x))))
    centre, inverse = _moments(x, axes, eps)
    return [
        _layer_normalized(x, len(shape), weight, bias, eps),
        *(cast_to(part, node.result(1).dtype) for part in (centre, inverse)),
    ]


def _moments(x: Expr, axes: Sequence[int], eps: float) -> tuple[Expr, Expr]:
    """Return the mean over axes, and one over the deviation."""
    wide = cast_to(x, FLOAT32) if dtype_of(x).bits < 32 else x
    centre = mean(wide, axis=tuple(axes), keepdims=True)
    variance = mean(square(subtract(wide, centre)), axis=tuple(axes), keepdims=True)
    return centre, divide(1.0, sqrt(add(variance, eps)))


def _layer_normalized(x: Expr, count: int, weight: Expr | None, bias: Expr | None, eps: float) -> Expr:
    shape, dtype = shape_of(x), dtype_of(x)
    before, last = shape[: len(shape) - count], shape[len(shape) - count :]
    size = product(last)
    gamma = _ones((size,), dtype) if weight is None else reshape(cast_to(weight, dtype), newshape=(size,))
    beta = _ones((size,), dtype, 0.0) if bias is None else reshape(cast_to(bias, dtype), newshape=(size,))
    rows = x if count == 1 else reshaped(x, (*before, size))
    return reshaped(get_operator("nn.layer_norm")(rows, gamma, beta, axis=-1, epsilon=float(eps)), shape)


@converter("aten.rms_norm.default", "aten._fused_rms_norm.default")
def rms_norm(node: Node, x: Expr, shape: Sequence[Dim], weight: Expr | None, eps: float | None) -> Expr | list[Expr]:
    """Divide the last axes by their root mean square, then scale their elements."""
    dtype, count = dtype_of(x), len(shape)
    if eps is None:
        eps = {16: 2.0**-23, 32: 2.0**-23, 64: 2.0**-52}[dtype.bits]
    wide = cast_to(x, FLOAT32) if dtype.bits < 32 else x
    axes = tuple(range(len(shape_of(x)) - count, len(shape_of(x))))
    inverse = divide(1.0, sqrt(add(mean(square(wide), axis=axes, keepdims=True), float(eps))))
    made = multiply(wide, inverse)
    if weight is not None:
        made = multiply(made, cast_to(weight, dtype_of(made)))
    result = cast_to(made, node.result(0).dtype)
    return [result, cast_to(inverse, node.result(1).dtype)] if isinstance(node.value, (list, tuple)) else result


@converter("aten.group_norm.default")
def group_norm(
    node: Node, x: Expr, groups: int, weight: Expr | None, bias: Expr | None, eps: float, cudnn: bool
) -> Expr:
    """Normalize each group of channels, then scale and shift each channel."""
    return _group_normalized(x, groups, weight, bias, eps)


@converter("aten.native_group_norm.default")
def native_group_norm(
    node: Node, x: Expr, weight: Expr | None, bias: Expr | None, n: Dim, c: Dim, hw: Dim, groups: int, eps: float
) -> list[Expr]:
    """Normalize each group of channels; return the means and the reciprocal deviations as well."""
    rows = reshaped(x, (n, groups, product([c, hw]) // groups))
    moments = [reshaped(part, (n, groups)) for part in _moments(rows, (2,), eps)]
    return [_group_normalized(x, groups, weight, bias, eps), *(cast_to(part, node.result(1).dtype) for part in moments)]


def _group_normalized(x: Expr, groups: int, weight: Expr | None, bias: Expr | None, eps: float) -> Expr:
    batch, channels, *space = shape_of(x)
    dtype = dtype_of(x)
    if not isinstance(channels, int):  # PyTorch knows from guards that the number of groups divides it
        channels = simplify(channels // groups * groups)
        x = with_shape(x, (batch, channels, *space))
    gamma = _ones((channels,), dtype) if weight is None else cast_to(weight, dtype)
    beta = _ones((channels,), dtype, 0.0) if bias is None else cast_to(bias, dtype)
    return get_operator("nn.group_norm")(x, gamma, beta, num_groups=groups, epsilon=float(eps))


@converter("aten.instance_norm.default")
def instance_norm(node: Node, x: Expr, weight: Expr | None, bias: Expr | None, *options: Any) -> Expr:
    """Normalize each channel of each item, by its own mean and variance."""
    running_mean, running_var, use_input_stats, _, eps, _ = options
    if not use_input_stats:
        assert running_mean is not None and running_var is not None
        return _batch_normalized(x, weight, bias, running_mean, running_var, eps)
    vectors = [_vector(x, shape_of(x)[1], vector, fill) for vector, fill in ((weight, 1.0), (bias, 0.0))]
    return get_operator("nn.instance_norm")(x, *vectors, axis=1, epsilon=float(eps))


def _vector(x: Expr, size: Dim, vector: Expr | None, fill: float) -> Expr:
    return _ones((size,), dtype_of(x), fill) if vector is None else cast_to(vector, dtype_of(x))


def _batch_normalized(
    x: Expr, weight: Expr | None, bias: Expr | None, centre: Expr, variance: Expr, eps: float
) -> Expr:
    size = shape_of(x)[1]
    vectors = [_vector(x, size, weight, 1.0), _vector(x, size, bias, 0.0)]
    vectors += [_vector(x, size, centre, 0.0), _vector(x, size, variance, 1.0)]
    return get_operator("nn.batch_norm")(x, *vectors, axis=1, epsilon=float(eps))


@converter("aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    node: Node,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    centre: Expr,
    variance: Expr,
    momentum: float,
    eps: float,
) -> list[Expr]:
    """Normalize each channel by known statistics; the other results are empty."""
    result = _batch_normalized(x, weight, bias, centre, variance, eps)
    return [result, *(get_operator("zeros")(shape=node.result(n).shape, dtype=node.result(n).dtype) for n in (1, 2))]


@converter("aten.batch_norm.default")
def batch_norm_by_flag(node: Node, x: Expr, weight: Expr | None, bias: Expr | None, *options: Any) -> Expr:
    """Normalize each channel, by known statistics or by those of the batch."""
    running_mean, running_var, training, _, eps, _ = options
    if not training and running_mean is not None:
        return _batch_normalized(x, weight, bias, running_mean, running_var, eps)
    return _by_own_statistics(node, x, weight, bias, eps)[0]


def _by_own_statistics(
    node: Node, x: Expr, weight: Expr | None, bias: Expr | None, eps: float
) -> tuple[Expr, Expr, Expr, Expr]:
    """Normalize each channel by the mean and the variance of the batch; return these as well, and one over the
    deviation."""
    wide = cast_to(x, FLOAT32) if dtype_of(x).bits < 32 else x
    axes = tuple(n for n in range(len(shape_of(x))) if n != 1)
    centre = mean(wide, axis=axes, keepdims=True)
    variance = mean(square(subtract(wide, centre)), axis=axes, keepdims=True)
    inverse = divide(1.0, sqrt(add(variance, float(eps))))
    made = multiply(subtract(wide, centre), inverse)
    column = (shape_of(x)[1], *(1,) * (len(shape_of(x)) - 2))
    if weight is not None:
        made = multiply(made, reshape(cast_to(weight, dtype_of(made)), newshape=column))
    if bias is not None:
        made = add(made, reshape(cast_to(bias, dtype_of(made)), newshape=column))
    size = (shape_of(x)[1],)
    flat = [reshape(part, newshape=size) for part in (centre, variance, inverse)]
    return cast_to(made, dtype_of(x)), flat[0], flat[1], flat[2]


@converter("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    node: Node, x: Expr, weight: Expr | None, bias: Expr | None, training: bool, momentum: float, eps: float
) -> list[Expr]:
    """Normalize each channel by the mean and the variance of the batch; return the mean and one over the deviation."""
    result, centre, _, inverse = _by_own_statistics(node, x, weight, bias, eps)
    return [result, cast_to(centre, node.result(1).dtype), cast_to(inverse, node.result(2).dtype)]


@converter("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    node: Node,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr,
    running_var: Expr,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Expr]:
    """Normalize each channel by the mean and the variance of the batch, and update running ones: the new running
    statistics are the last results."""
    # PyTorch gives new statistics of half types in single precision.
    running_mean, running_var = (cast_to(old, node.result(n).dtype) for n, old in ((3, running_mean), (4, running_var)))
    if not training:
        empty = [_ones((0,), dtype_of(x)) for _ in range(2)]
        return [_batch_normalized(x, weight, bias, running_mean, running_var, eps), *empty, running_mean, running_var]
    result, centre, variance, inverse = _by_own_statistics(node, x, weight, bias, eps)
    count = product([dim for n, dim in enumerate(shape_of(x)) if n != 1])
    size = cast_to(node.tensor(count, dtype_of(running_var)), dtype_of(running_var))
    unbiased = divide(multiply(cast_to(variance, dtype_of(running_var)), size), subtract(size, 1.0))

    def moved(old: Expr, new: Expr) -> Expr:
        return add(multiply(old, 1.0 - momentum), multiply(cast_to(new, dtype_of(old)), momentum))

    statistics = [cast_to(part, node.result(n).dtype) for n, part in ((1, centre), (2, inverse))]
    return [result, *statistics, moved(running_mean, centre), moved(running_var, unbiased)]
