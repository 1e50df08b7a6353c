"""Models of one operator, or few: every kind of loops, with sizes that are no multiples of a vector's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import graphir as gi

RNG = np.random.default_rng(3)

Make = Callable[[], gi.Function]


def _const(*shape: int, dtype: str = "float32") -> gi.Constant:
    return gi.const(RNG.standard_normal(shape).astype(dtype))


def _of(formula: Callable[..., gi.Expr], *types: tuple[Sequence[Any], str]) -> Make:
    """Make the function of ``formula`` of inputs with these shapes and element types."""

    def make() -> gi.Function:
        params = [gi.var(f"x{number}", shape=shape, dtype=dtype) for number, (shape, dtype) in enumerate(types)]
        return gi.Function(params, formula(*params))

    return make


def _float(formula: Callable[..., gi.Expr], *shapes: Sequence[Any], dtype: str = "float32") -> Make:
    return _of(formula, *((shape, dtype) for shape in shapes))


def _conv(
    channels: int, out: int, kernel: Sequence[int] = (3, 3), size: Sequence[int] = (13, 15), **attrs: Any
) -> Make:
    op = {1: gi.nn.conv1d, 2: gi.nn.conv2d, 3: gi.nn.conv3d}[len(kernel)]
    weight = _const(out, channels // attrs.get("groups", 1), *kernel)
    return _float(lambda x: op(x, weight, **attrs), ("n", channels, *size))


_POSITIVE = {"log", "log2", "log10", "log1p", "sqrt", "rsqrt"}
_BETWEEN = {"acos", "asin", "atanh"}
_UNARY = (
    *("abs", "acos", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "exp2", "expm1", "floor"),
    *("log", "log10", "log1p", "log2", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt"),
    *("tan", "tanh", "trunc"),
)


def _unary(name: str) -> Callable[[gi.Expr], gi.Expr]:
    op = getattr(gi, name)
    if name in _POSITIVE:
        return lambda x: op(gi.abs(x) + gi.const(0.5, "float32"))
    if name in _BETWEEN:
        return lambda x: op(gi.clip(x, a_min=-0.9, a_max=0.9))
    return lambda x: op(x)  # type: ignore[no-any-return]


def _lstm(x: gi.Expr) -> gi.Expr:
    weights = (_const(1, 4 * 12, 20), _const(1, 4 * 12, 12), _const(1, 2 * 4 * 12), _const(1, 3, 12), _const(1, 3, 12))
    return gi.TupleGetItem(gi.nn.lstm(x, *weights), 0)


_N = ("n",)
_ROWS = (37, 83)
_IMAGE = (2, 5, 13, 15)

KERNELS: dict[str, Make] = {
    **{name: _float(_unary(name), _N) for name in _UNARY},
    **{
        f"{name}_{dtype}": _float(getattr(gi, name), (7, "n"), (1, "n"), dtype=dtype)
        for dtype in ("float32", "float16", "bfloat16", "float64", "int8", "int32", "uint8", "int64")
        for name in ("add", "multiply", "maximum")
    },
    **{
        f"cast_{source}_{target}": _of(functools.partial(gi.cast, dtype=target), (_N, source))
        for source, target in (
            *(("float16", "float32"), ("float32", "float16"), ("bfloat16", "float32"), ("float32", "bfloat16")),
            *(("int8", "float32"), ("float32", "int8"), ("uint8", "int32"), ("int64", "float64"), ("float64", "int32")),
        )
    },
    "floor_divide": _of(lambda a, b: gi.floor_divide(a, b * b + gi.const(1, "int32")), (_N, "int32"), (_N, "int32")),
    "floor_mod": _of(lambda a, b: gi.floor_mod(a, b * b + gi.const(1, "int64")), (_N, "int64"), (_N, "int64")),
    "divide": _float(lambda a, b: a / (b * b + gi.const(1.0, "float32")), (5, "n"), (5, 1)),
    "where": _float(lambda a, b: gi.where(gi.less(a, b), a, b), _N, _N),
    **{
        f"{name}_axis_{axis}": _float(functools.partial(getattr(gi, name), axis=axis), _ROWS)
        for name in ("sum", "max", "mean", "argmax")
        for axis in (0, 1)
    },
    "sum_of_all": _float(gi.sum, ("n", 9)),
    "variance": _float(lambda x: gi.variance(x, axis=1), _ROWS),
    **{
        f"matmul_{m}x{k}x{n}": _float(gi.matmul, (m, k), (k, n))
        for m, k, n in ((1, 64, 96), (7, 33, 50), (64, 64, 64), (100, 80, 128), (3, 200, 1))
    },
    "matmul_symbolic": _float(gi.matmul, ("n", 40), (40, 72)),
    "matmul_float64": _float(gi.matmul, (9, 31), (31, 45), dtype="float64"),
    "matmul_float16": _float(gi.matmul, (9, 31), (31, 45), dtype="float16"),
    "matmul_int8": _of(lambda a, b: gi.matmul(a, b, out_dtype="int32"), ((9, 64), "int8"), ((64, 40), "int8")),
    "batch_matmul": _float(gi.nn.batch_matmul, (4, 9, 33), (4, 33, 21)),
    "dense_relu": _float(lambda x: gi.nn.relu(gi.nn.dense(x, _const(96, 80))), ("n", 80)),
    "conv2d_3x3": _conv(32, 32, padding=(1, 1)),
    "conv2d_1x1": _conv(40, 24, (1, 1)),
    "conv2d_5x5": _conv(8, 16, (5, 5), padding=(2, 2)),
    "conv2d_strides": _conv(16, 20, strides=(2, 2), padding=(1, 1)),
    "conv2d_dilation": _conv(16, 20, dilation=(2, 2)),
    "conv2d_of_images": _conv(3, 32, padding=(1, 1)),
    "conv2d_groups": _conv(24, 24, groups=3),
    "depthwise": _conv(32, 32, padding=(1, 1), groups=32),
    "conv1d": _conv(12, 20, (5,), (40,), padding=(2, 2)),
    "conv3d": _conv(4, 6, (3, 3, 3), (6, 7, 8)),
    "conv_transpose": _float(lambda x: gi.nn.conv_transpose(x, _const(8, 6, 3, 3), strides=2), (2, 8, 7, 9)),
    "max_pool2d": _float(lambda x: gi.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1)), _IMAGE),
    "avg_pool2d": _float(lambda x: gi.nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2)), _IMAGE),
    "global_avg_pool2d": _float(gi.nn.global_avg_pool2d, _IMAGE),
    "softmax": _float(gi.nn.softmax, ("n", 83)),
    "log_softmax": _float(gi.nn.log_softmax, _ROWS),
    "layer_norm": _float(lambda x: gi.nn.layer_norm(x, _const(83), _const(83)), ("n", 83)),
    "rms_norm": _float(lambda x: gi.nn.rms_norm(x, _const(83)), ("n", 83)),
    "instance_norm": _float(lambda x: gi.nn.instance_norm(x, _const(5), _const(5)), _IMAGE),
    "gelu": _float(gi.nn.gelu, _N),
    "mish": _float(gi.nn.mish, _N),
    "attention": _float(gi.nn.attention, (2, 3, 11, 16), (2, 3, 13, 16), (2, 3, 13, 16)),
    "lstm": _float(_lstm, (7, 3, 20)),
    "transpose": _float(lambda x: gi.transpose(x, axes=(1, 0)), ("n", 29)),
    "transpose_of_images": _float(lambda x: gi.transpose(x, axes=(0, 2, 3, 1)), _IMAGE),
    "concatenate": _float(lambda a, b: gi.concatenate(a, b, axis=1), (5, "n"), (5, 7)),
    "stack": _float(lambda a, b: gi.stack(a, b, axis=1), (5, 19), (5, 19)),
    "stack along the last axis": _float(lambda *x: gi.stack(*x, axis=-1), *[(5, "n")] * 3),
    "stack of halves": _float(lambda *x: gi.stack(*x, axis=-1), *[(70,)] * 6, dtype="float16"),
    "pad": _float(lambda x: gi.pad(x, pad_width=((1, 2), (3, 1))), (6, "n")),
    "slice": _float(lambda x: x[1:, ::3], _ROWS),
    "flip": _float(lambda x: gi.flip(x, axis=1), _ROWS),
    "tile": _float(lambda x: gi.tile(x, reps=(2, 3)), (3, 5)),
    "take": _of(lambda x, i: gi.take(x, gi.abs(i), axis=0), ((20, 30), "float32"), (_N, "int64")),
    "gather_elements": _of(
        lambda x, i: gi.gather_elements(x, gi.abs(i), axis=0), ((20, 30), "float32"), ((4, 30), "int64")
    ),
    "scatter_nd": _of(
        lambda x, i, u: gi.scatter_nd(x, gi.abs(i), u, reduction="add"),
        *(((20, 6), "float32"), ((9, 1), "int64"), ((9, 6), "float32")),
    ),
    "cumsum": _float(lambda x: gi.cumsum(x, axis=1), _ROWS),
    "top_k": _float(lambda x: gi.TupleGetItem(gi.top_k(x, k=5), 0), _ROWS),
    "resize_linear": _float(lambda x: gi.nn.resize(x, size=(20, 11), axes=(2, 3), method="linear"), _IMAGE),
    "dft": _float(lambda x: gi.dft(x, axis=1), (3, 12, 2)),
    "quantize": _float(lambda x: gi.quantize(x, gi.const(0.05, "float32")), _N),
}
