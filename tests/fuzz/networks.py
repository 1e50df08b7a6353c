"""Make calls of the operators of neural networks."""

from __future__ import annotations

import math
from typing import Any

from tests.fuzz.makers import maker
from tests.fuzz.pool import Pool
from tests.fuzz.values import Fill
from tilewright import graphir as gi
from tilewright.graphir.op import Operator
from tilewright.graphir.ops.common import FLOATS, NUMBERS

#: Floats by how often convolutions and products have them.
_USUAL = ("float32", *FLOATS)


def image(pool: Pool, space: int = 2, dtypes: tuple[str, ...] = _USUAL) -> gi.Expr:
    """Return a batch of images: (N, C, and ``space`` extents)."""
    return pool.tensor(dtypes, rank=space + 2)


@maker(
    "nn.celu", "nn.elu", "nn.leaky_relu", "nn.thresholded_relu", "nn.hard_sigmoid", "nn.selu", "nn.shrink",
    "nn.swish", "nn.gelu", "nn.dropout",
)  # fmt: skip
def activation(pool: Pool, op: Operator) -> gi.Expr:
    choices = {
        "alpha": (1.0, 0.25, 2.0),
        "beta": (0.5, 1.0),
        "gamma": (1.0, 2.0),
        "bias": (0.0, 0.5),
        "lambd": (0.5, 0.0),
    }
    attrs: dict[str, Any] = {name: pool.pick(choices[name]) for name in op.attr_names if name in choices}
    if "approximate" in op.attr_names:
        attrs["approximate"] = pool.chance(40)
    return op(pool.float(), **attrs)


@maker("nn.softmax", "nn.log_softmax", "nn.lp_normalize")
def normalized(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.float(least=1)
    return op(x, axis=pool.axis(x))


@maker("nn.layer_norm", "nn.rms_norm", "nn.instance_norm", "nn.group_norm", "nn.batch_norm", "nn.batch_norm_training")
def norm(pool: Pool, op: Operator) -> gi.Expr:
    last = op.name in ("nn.layer_norm", "nn.rms_norm")
    x = pool.float(least=1 if last else 3)
    axis = pool.axis(x) if last else 1
    shape, dtype = (x.tensor_type.shape[axis],), x.tensor_type.dtype
    vectors = [pool.exactly(shape, dtype) for _ in range(1 if op.name == "nn.rms_norm" else 2)]
    attrs: dict[str, Any] = {"axis": axis}
    if op.name.startswith("nn.batch_norm"):
        vectors += [pool.exactly(shape, dtype), pool.leaf(shape, dtype, Fill("positive"))]
    if op.name == "nn.group_norm":
        channels = shape[0]
        attrs["num_groups"] = pool.pick(
            [n for n in (1, 2, 4, 8) if isinstance(channels, int) and channels % n == 0] or [1]
        )
    return op(x, *vectors, **attrs)


@maker("nn.bias_add", "nn.prelu")
def along_channels(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.numbers(least=1) if op.name == "nn.bias_add" else pool.float(least=1)
    axis = pool.axis(x)
    return op(x, pool.exactly((x.tensor_type.shape[axis],), x.tensor_type.dtype), axis=axis)


@maker("nn.batch_flatten")
def batch_flatten(pool: Pool, op: Operator) -> gi.Expr:
    return op(pool.tensor(least=2))


@maker("nn.dense", "nn.batch_matmul")
def product(pool: Pool, op: Operator) -> gi.Expr:
    if op.name == "nn.dense":
        x = pool.tensor((*_USUAL, "int32"), rank=2)
        return op(x, pool.exactly((pool.dim(symbolic=False), x.tensor_type.shape[1]), x.tensor_type.dtype))
    x = pool.tensor((*_USUAL, "int32"), rank=3)
    batch, rows, k = x.tensor_type.shape
    transposed, other = pool.chance(30), pool.chance(30)
    if transposed:
        rows, k = k, rows
    shape = (batch, pool.dim(), k) if other else (batch, k, pool.dim())
    return op(x, pool.exactly(shape, x.tensor_type.dtype), transpose_a=transposed, transpose_b=other)


@maker("nn.conv1d", "nn.conv2d", "nn.conv3d")
def convolution(pool: Pool, op: Operator) -> gi.Expr:
    space = int(op.name[-2])
    x = image(pool, space, (*_USUAL, "int32"))
    shape, dtype = x.tensor_type.shape, x.tensor_type.dtype
    channels = shape[1]
    groups = 1
    if isinstance(channels, int) and channels and pool.chance(30):
        groups = pool.pick([n for n in (channels, 2) if channels % n == 0] or [1])
    inputs = channels // groups if isinstance(channels, int) else channels
    outputs = groups * pool.pick((1, 2, 4, 8, 16, 17)[: 6 if groups == 1 else 3])
    window = [pool.pick((3, 1, 2, 5)[: 4 if space < 3 else 3]) for _ in range(space)]
    dilation = tuple(pool.pick((1, 1, 2)) for _ in range(space))
    padding = [pool.number(0, 2) for _ in range(space)]
    for n in range(space):  # an image that is smaller than the window is another matter
        missing = (window[n] - 1) * dilation[n] + 1 - pool.least(shape[n + 2]) - 2 * padding[n]
        padding[n] += max(0, (missing + 1) // 2)
    weight = pool.exactly((outputs, inputs, *window), dtype)
    strides = tuple(pool.pick((1, 1, 2)) for _ in range(space))
    return op(x, weight, strides=strides, padding=tuple(padding), dilation=dilation, groups=groups)


@maker("nn.conv_transpose")
def conv_transpose(pool: Pool, op: Operator) -> gi.Expr:
    space = pool.pick((2, 1))
    x = image(pool, space)
    shape = x.tensor_type.shape
    weight = pool.exactly(
        (shape[1], pool.pick((1, 2, 4)), *[pool.pick((3, 2, 1)) for _ in range(space)]), x.tensor_type.dtype
    )
    return op(x, weight, strides=pool.pick((1, 2)), padding=pool.pick((0, 1)))


@maker("nn.dilate")
def dilate(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=1, most=4)
    return op(x, strides=(pool.pick((2, 1, 3)),), padding=(pool.number(0, 1), pool.number(0, 1)))


@maker("nn.deform_conv2d")
def deform_conv(pool: Pool, op: Operator) -> gi.Expr:
    n, channels, height, width = pool.dim(most=3), pool.pick((1, 2)), pool.pick((3, 5)), pool.pick((3, 4))
    x = pool.exactly((n, channels, height, width), "float32")
    weight = pool.exactly((pool.pick((1, 2, 4)), channels, 2, 2), "float32")
    offset = pool.leaf((n, 8, height - 1, width - 1), "float32", Fill("normal"))
    mask = [pool.leaf((n, 4, height - 1, width - 1), "float32", Fill("positive"))] if pool.chance(50) else []
    return op(x, weight, offset, *mask)


@maker(
    "nn.avg_pool", "nn.avg_pool2d", "nn.lp_pool", "nn.max_pool", "nn.max_pool2d", "nn.max_pool_indices", "nn.max_unpool"
)  # fmt: skip
def pooling(pool: Pool, op: Operator) -> gi.Expr:
    space = 2 if op.name.endswith("2d") else pool.pick((2, 1, 3))
    whole = op.name in ("nn.max_pool", "nn.max_pool2d")
    x = image(pool, space, (*_USUAL, *NUMBERS) if whole else _USUAL)
    shape = x.tensor_type.shape
    window = [pool.pick((2, 3, 1)) for _ in range(space)]
    padding = []
    for n in range(space):
        missing = max(0, window[n] - pool.least(shape[n + 2]))
        if missing >= window[n]:
            window[n], missing = 1, 0
        padding.append(min(window[n] - 1, max(pool.number(0, 1), missing)))
    attrs: dict[str, Any] = {"pool_size": tuple(window), "strides": tuple(pool.pick((1, 2)) for _ in range(space))}
    attrs["padding"] = tuple(padding)
    if op.name == "nn.max_unpool":
        indices = gi.nn.max_pool_indices(x, **attrs)
        return op(gi.nn.max_pool(x, **attrs), indices, shape=shape)
    if op.name != "nn.max_pool_indices" and pool.chance(25):
        attrs["ceil_mode"] = True
    if "count_include_pad" in op.attr_names:
        attrs["count_include_pad"] = pool.chance(40)
    if "p" in op.attr_names:
        attrs["p"] = pool.pick((2.0, 1.0))
    return op(x, **attrs)


@maker("nn.global_avg_pool2d", "nn.global_max_pool2d")
def global_pooling(pool: Pool, op: Operator) -> gi.Expr:
    return op(image(pool), layout=pool.pick(("NCHW", "NHWC")))


@maker("nn.lrn")
def lrn(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.float(least=2)
    return op(x, size=pool.pick((3, 5, 2)), axis=1)


@maker("nn.col2im")
def col2im(pool: Pool, op: Operator) -> gi.Expr:
    height, width, window = pool.pick((4, 5)), pool.pick((4, 3)), pool.pick((2, 1, 3))
    windows = (height - window + 1) * (width - window + 1)
    x = pool.exactly((pool.dim(most=5), pool.pick((1, 2)) * window * window, windows), "float32")
    return op(x, image_shape=(height, width), block_shape=(window, window))


@maker("nn.depth_to_space", "nn.space_to_depth")
def blocks(pool: Pool, op: Operator) -> gi.Expr:
    mode = pool.pick(("DCR", "CRD"))
    shape = (pool.dim(most=5), pool.pick((4, 8)), pool.pick((2, 4)), pool.pick((4, 2)))
    return op(pool.exactly(shape, pool.pick(("float32", "int32", "bfloat16"))), block_size=2, mode=mode)


@maker("nn.interleave")
def interleave(pool: Pool, op: Operator) -> gi.Expr:
    strides = tuple(pool.pick((2, 1, 3)) for _ in range(2))
    channels = math.prod(strides) * pool.pick((1, 2, 3))
    return op(
        pool.exactly((pool.dim(most=4), channels, pool.dim(most=9), pool.dim(most=5)), "float32"), strides=strides
    )


@maker("nn.resize")
def resize(pool: Pool, op: Operator) -> gi.Expr:
    x = image(pool, 2)
    shape = x.tensor_type.shape
    attrs: dict[str, Any] = {"method": pool.pick(("nearest", "linear", "cubic")), "axes": (2, 3)}
    attrs["coordinate_mode"] = pool.pick(("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"))
    if attrs["method"] == "nearest":
        attrs["rounding"] = pool.pick(("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"))
    elif pool.chance(20):
        attrs["antialias"] = True
    if pool.chance(50) or any(pool.least(dim) == 0 for dim in shape[2:]):
        attrs["scale"] = (pool.pick((2.0, 1.5, 0.5, 1.0)), pool.pick((2.0, 1.0, 0.75)))
    else:
        attrs["size"] = (pool.pick((3, 4, 7, 1)), pool.pick((5, 2, 8)))
    return op(x, **attrs)


@maker("nn.grid_sample")
def grid_sample(pool: Pool, op: Operator) -> gi.Expr:
    n = pool.dim(most=4)
    x = pool.exactly((n, pool.pick((1, 3)), pool.pick((4, 5)), pool.pick((3, 4))), "float32")
    grid = pool.leaf((n, pool.pick((2, 3)), pool.pick((3, 1)), 2), "float32", Fill("normal"))
    attrs = {
        "method": pool.pick(("linear", "nearest", "cubic")),
        "padding_mode": pool.pick(("zeros", "border", "reflection", "edge")),
    }
    return op(x, grid, align_corners=pool.chance(40), **attrs)


@maker("nn.roi_align")
def roi_align(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.exactly((pool.pick((1, 2)), pool.pick((1, 3)), pool.pick((5, 8)), pool.pick((5, 6))), "float32")
    count = pool.dim(most=5)
    rois = pool.leaf((count, 4), "float32", Fill("positive"))
    batch = pool.leaf((count,), "int64", Fill("index", 0, 1))
    attrs = {"method": pool.pick(("avg", "max")), "aligned": pool.chance(50), "sampling_ratio": pool.pick((0, 2))}
    return op(x, rois, batch, output_size=(2, 3), **attrs)


@maker("nn.suppress_overlaps")
def suppress_overlaps(pool: Pool, op: Operator) -> gi.Expr:
    count = pool.dim(most=9)
    boxes = pool.leaf((1, count, 4), "float32", Fill("normal"))
    scores = pool.leaf((1, pool.pick((1, 2)), count), "float32", Fill("normal"))
    most = gi.const(pool.number(0, 4), "int64")
    return op(boxes, scores, most, gi.const(0.5), gi.const(-1.0), corners=pool.chance(50))


@maker("nn.attention")
def attention(pool: Pool, op: Operator) -> gi.Expr:
    query = pool.tensor(_USUAL, rank=4)
    *batch, heads, words, width = query.tensor_type.shape
    dtype, keys = query.tensor_type.dtype, pool.dim()
    key = pool.exactly((*batch, heads, keys, width), dtype)
    value = pool.exactly((*batch, heads, keys, pool.dim(symbolic=False)), dtype)
    mask = [pool.exactly((words, keys), pool.pick(("bool", str(dtype))))] if pool.chance(30) else []
    return op(query, key, value, *mask, scale=0.5, causal=not mask and pool.chance(40))


@maker("nn.rnn", "nn.gru", "nn.lstm")
def recurrent(pool: Pool, op: Operator) -> gi.Expr:
    gates, states = op.gates, op.states  # type: ignore[attr-defined]
    steps, batch, size = pool.dim(most=9), pool.dim(most=5), pool.dim(symbolic=False, most=9)
    x = pool.exactly((steps, batch, size), pool.pick(("float32", "float32", "float64", "bfloat16")))
    dtype, hidden = x.tensor_type.dtype, pool.pick((2, 3, 8))
    direction = pool.pick(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    arguments = [
        pool.exactly((count, gates * hidden, size), dtype),
        pool.exactly((count, gates * hidden, hidden), dtype),
        pool.exactly((count, 2 * gates * hidden), dtype),
        *[pool.exactly((count, x.tensor_type.shape[1], hidden), dtype) for _ in range(states)],
    ]
    if pool.chance(25):
        arguments.append(pool.leaf((x.tensor_type.shape[1],), "int64", Fill("index", 0, 4)))
    attrs: dict[str, Any] = {"linear_before_reset": True} if op.name == "nn.gru" and pool.chance(40) else {}
    return op(x, *arguments, direction=direction, **attrs)
