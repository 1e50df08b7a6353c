"""SimplifyExpr: test each rule where it applies and where it must not."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.passes.graph import SimplifyExpr

X = gi.var("x", shape=("n", 4))
I = gi.var("i", shape=("n", 4), dtype="int32")
U = gi.var("u", shape=("n", 4), dtype="uint8")
B = gi.var("b", shape=("n", 4), dtype="bool")
T = gi.var("t", shape=(2, 3, 4))
W = gi.var("w", shape=(4, 5))
IMAGE = gi.var("image", shape=(1, 16, 2, 2))


def layout(x: gi.Expr, source: str, target: str) -> gi.Expr:
    return gi.layout_transform(x, src_layout=source, dst_layout=target)


RULES = [
    (X, lambda x: x * 1.0, lambda x: x),
    (X, lambda x: 1.0 * x, lambda x: x),
    (X, lambda x: x / 1.0, lambda x: x),
    (X, lambda x: x**1.0, lambda x: x),
    (X, lambda x: x / 4.0, lambda x: x * 0.25),
    (X, lambda x: x + -0.0, lambda x: x),
    (X, lambda x: x - 0.0, lambda x: x),
    (I, lambda i: i + 0, lambda i: i),
    (I, lambda i: i // 1, lambda i: i),
    (X, lambda x: gi.negative(gi.negative(x)), lambda x: x),
    (B, lambda b: ~(~b), lambda b: b),
    (X, lambda x: abs(abs(-x)), lambda x: abs(x)),
    (X, lambda x: gi.nn.relu(gi.nn.relu(x)), gi.nn.relu),
    (X, lambda x: gi.maximum(x, x), lambda x: x),
    (X, lambda x: gi.where(gi.const(True), x, gi.exp(x)), lambda x: x),
    (X, lambda x: gi.where(gi.const(False), x, gi.exp(x)), gi.exp),
    (X, lambda x: gi.cast(x, "float32"), lambda x: x),
    (I, lambda i: gi.cast(gi.cast(i, "float64"), "int32"), lambda i: i),
    (T, lambda t: gi.transpose(gi.transpose(t)), lambda t: t),
    (T, lambda t: gi.transpose(gi.transpose(t, (1, 2, 0)), (1, 2, 0)), lambda t: gi.transpose(t, (2, 0, 1))),
    (T, lambda t: gi.reshape(gi.reshape(t, (6, 4)), (2, 12)), lambda t: gi.reshape(t, (2, 12))),
    (T, lambda t: gi.squeeze(gi.expand_dims(t, 0), 0), lambda t: t),
    (T, lambda t: gi.concatenate([t], axis=0), lambda t: t),
    (T, lambda t: gi.concatenate([t[:, :1], t[:, 1:]], axis=1), lambda t: t),
    (T, lambda t: gi.concatenate([t[..., 1:2], t[..., 2:3], t], -1), lambda t: gi.concatenate([t[..., 1:3], t], -1)),
    (X, lambda x: gi.concatenate([x, x[:, :2], x[:, 2:]], 1), lambda x: gi.concatenate([x, x], 1)),
    (T, lambda t: gi.broadcast_to(t, (2, 3, 4)), lambda t: t),
    (IMAGE, lambda x: layout(layout(x, "NCHW", "NCHW8c"), "NCHW8c", "NCHW"), lambda x: x),
    (T, lambda t: t[:, ::1], lambda t: t),
    (T, lambda t: gi.pad(t, pad_width=((0, 0),) * 3), lambda t: t),
    (X, lambda x: gi.clip(gi.clip(x, 0.0, 2.0), 0.0, 2.0), lambda x: gi.clip(x, 0.0, 2.0)),
    (X, lambda x: gi.floor(gi.floor(x)), gi.floor),
    (X, lambda x: gi.flip(gi.flip(x, axis=1), axis=1), lambda x: x),
    (I, lambda i: gi.bitwise_and(i, -1), lambda i: i),
    (I, lambda i: gi.bitwise_or(i, i), lambda i: i),
    (B, lambda b: gi.logical_and(b, gi.const(True)), lambda b: b),
]


def test_a_layer_whose_weight_is_transposed_multiplies_by_the_weight_itself(rewrites):
    before, after = gi.nn.dense(X, gi.transpose(W)), gi.matmul(X, W)
    rewrites(SimplifyExpr(), *(gi.IRModule.from_expr(gi.Function([X, W], body)) for body in (before, after)))


@pytest.mark.parametrize(("var", "before", "after"), RULES)
def test_exact_rules_apply_at_level_1(rewrites, var, before, after):
    make = lambda build: gi.IRModule({"main": gi.Function([var], build(var))})  # noqa: E731
    rewrites(SimplifyExpr(), make(before), make(after), opt_level=1)


@pytest.mark.parametrize(
    ("var", "build"),
    [
        (X, lambda x: x + 0.0),  # -0.0 + 0.0 is 0.0
        (X, lambda x: x * 0.0),  # NaN and infinity stay
        (X, lambda x: (x * 3.0) * 0.1),
        (X, lambda x: x / 3.0),
        (X, lambda x: x - x),
        (I, lambda i: gi.cast(gi.cast(i, "float32"), "int32")),  # float32 holds 24 bits
        (I, lambda i: gi.cast(gi.cast(i, "int8"), "int32")),
        (T, lambda t: t[::-1]),
        (T, lambda t: gi.concatenate([t[:, :1], t[:, 2:]], axis=1)),
        (T, lambda t: gi.concatenate([t[:, 1:], t[:, :1]], axis=1)),
        (T, lambda t: gi.concatenate([t[:, :1], gi.exp(t)[:, 1:]], axis=1)),
        (T, lambda t: gi.concatenate([t[:1], t[1:]], axis=2)),
        (T, lambda t: gi.concatenate([t[:1, :1], t[:1, 1:]], axis=1)),
        (T, lambda t: gi.concatenate([t[:, :1], t[:, 1::2]], axis=1)),
        (T, lambda t: gi.concatenate([t[:, :1], t[:, :0:-1]], axis=1)),
        (X, lambda x: x * gi.const(np.ones((3, 1, 4), np.float32))),  # it broadcasts
        (X, lambda x: gi.floor_divide(x, 1.0)),
        (IMAGE, lambda x: layout(layout(x, "NCHW", "NHWC"), "NCHW", "NHWC")),  # another reading of the dimensions
        (T, lambda t: gi.pad(t, pad_width=((0, 0), (0, 0), (-1, 1)))),  # the shape stays, the elements move
        (U, lambda u: gi.abs(gi.negative(u))),  # -u wraps
        (I, lambda i: ~gi.negative(i)),  # each is its own inverse, not the other's
        (X, lambda x: gi.clip(gi.clip(x, 2.0, 0.0), 1.0, 3.0)),  # bounds that cross
    ],
)
def test_what_is_not_the_same_to_the_last_bit_stays_at_level_2(rewrites, var, build):
    mod = gi.IRModule({"main": gi.Function([var], build(var))})
    rewrites(SimplifyExpr(), mod, mod, opt_level=2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda x: x + 0.0, lambda x: x),
        (lambda x: (x * 2.0) * 3.0, lambda x: x * 6.0),
        (lambda x: (x + 2.0) + 3.0, lambda x: x + 5.0),
    ],
)
def test_inexact_rules_apply_at_level_3(rewrites, before, after):
    make = lambda build: gi.IRModule({"main": gi.Function([X], build(X))})  # noqa: E731
    rewrites(SimplifyExpr(), make(before), make(after), opt_level=3)


@pytest.mark.parametrize(("var", "before", "after"), RULES)
def test_exact_rules_keep_every_bit(var, before, after):
    shape = [2 if not isinstance(dim, int) else dim for dim in var.shape]
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1.5, 3e38, 0.1, 7, -7, 2, 100, -3, 5, 6])
    with np.errstate(all="ignore"):
        values = np.resize(special, shape).astype(np.float32)
        if not var.dtype.is_float:
            values = np.resize(np.arange(-4, 4), shape).astype(var.dtype.numpy)
    a, b = (gi.evaluate(gi.Function([var], build(var)), values) for build in (before, after))
    np.testing.assert_array_equal(a, b)
    if var.dtype.is_float:
        np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))
