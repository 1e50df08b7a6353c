"""SimplifyExpr on chains: reshapes, layouts, casts, clips, constants, and numbers of any shape."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.graph import SimplifyExpr

X = gi.var("x", shape=("n", 4, 6))
Y = gi.var("y", shape=(2, 20, 5, 3))
INTEGERS = gi.var("i", shape=("n",), dtype="int8")
TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
TYPES += ("float16", "bfloat16", "float32", "float64")


def layout(x, source, target, **extents):
    return gi.layout_transform(x, src_layout=source, dst_layout=target, extents=extents)


def clip(x, low, high):
    return gi.clip(x, a_min=low, a_max=high)


def simplified(expr, opt_level=2):
    with tw.PassContext(opt_level=opt_level):
        return SimplifyExpr()(tw.IRModule.from_expr(expr))["main"].body


JOINED = [
    (gi.reshape(gi.reshape(X, (-1, 24)), (-1, 12)), gi.reshape(X, (-1, 12))),
    (gi.reshape(gi.expand_dims(X, axis=0), (-1, 24)), gi.reshape(X, (-1, 24))),
    (layout(layout(Y, "NCHW", "NHWC"), "NHWC", "NCHW16c"), layout(Y, "NCHW", "NCHW16c")),
    (layout(layout(Y, "NCHW", "NCHW16c"), "NCHW16c", "NHWC", C=20), layout(Y, "NCHW", "NHWC", C=20)),
    (gi.transpose(layout(Y, "NCHW", "NHWC"), (0, 3, 1, 2)), Y),
    (gi.transpose(layout(Y, "NCHW", "NHWC"), (3, 0, 1, 2)), layout(Y, "NCHW", "CNHW")),
    (layout(gi.transpose(Y, (0, 2, 3, 1)), "NHWC", "NCHW"), Y),
    (layout(gi.transpose(Y, (0, 2, 3, 1)), "NHWC", "NCHW16c"), layout(Y, "NCHW", "NCHW16c")),
    (gi.cast(gi.cast(INTEGERS, dtype="int16"), dtype="int32"), gi.cast(INTEGERS, dtype="int32")),
    (gi.cast(gi.cast(INTEGERS, dtype="float32"), dtype="float64"), gi.cast(INTEGERS, dtype="float64")),
    (clip(clip(X, -1.0, 6.0), 0.0, 8.0), clip(X, 0.0, 6.0)),
    (clip(clip(X, -1.0, 1.0), 2.0, 3.0), clip(X, 2.0, 2.0)),
    (clip(clip(X, None, 6.0), 0.0, None), clip(X, 0.0, 6.0)),
    (clip(clip(INTEGERS, 3, None), None, 90), clip(INTEGERS, 3, 90)),
    (5 + (INTEGERS + 3), INTEGERS + 8),
    (5 + (3 + INTEGERS), INTEGERS + 8),
    ((3 * INTEGERS) * 5, INTEGERS * 15),
    (X * gi.ones_like(X), X),
    (gi.ones_like(X) * X, X),
    (INTEGERS + gi.zeros_like(INTEGERS), INTEGERS),
    (X * gi.ones(("n", 4, 6)), X),
    (X / gi.broadcast_to(gi.const(1.0), ("n", 4, 6)), X),
    (gi.where(gi.ones_like(gi.cast(X, dtype="bool")), X, X + 1.0), X),
]


@pytest.mark.parametrize(("before", "after"), JOINED, ids=[str(before) for before, _ in JOINED])
def test_a_chain_becomes_one_operator(before, after):
    gi.assert_structural_equal(simplified(before), after)


@pytest.mark.parametrize("before", [before for before, _ in JOINED], ids=str)
def test_a_chain_computes_the_same(before):
    mod = tw.IRModule.from_expr(before)
    (param,) = mod["main"].params
    shape = [7 if not isinstance(dim, int) else dim for dim in param.shape]
    value = (np.random.default_rng(0).standard_normal(shape) * 4).astype(param.dtype.numpy)
    np.testing.assert_array_equal(gi.evaluate(SimplifyExpr()(mod), value), gi.evaluate(mod, value))


@pytest.mark.parametrize(
    "before",
    [
        layout(layout(Y, "NCHW", "NCHW16c"), "NCHW16c", "NHWC"),  # with 12 channels of padding
        layout(layout(Y, "NCHW", "NHWC"), "NCHW", "NHWC"),  # another reading of the dimensions
        gi.transpose(layout(Y, "NCHW", "NCHW16c"), (0, 1, 4, 2, 3)),
        clip(clip(X, 1.0, -1.0), 0.0, 5.0),  # bounds that cross
        clip(clip(X, -0.0, 5.0), 0.0, 6.0),
        gi.cast(gi.cast(X, dtype="float16"), dtype="float64"),  # loses digits
        gi.cast(gi.cast(gi.var("j", shape=("n",), dtype="int16"), dtype="float32"), dtype="int8"),  # floats do not wrap
        2.0 * (X * 3.0),  # rounds differently
        X + gi.zeros_like(X),  # -0.0 + 0.0 is 0.0
        X * gi.ones((5, "n", 4, 6)),
    ],
    ids=str,
)
def test_what_is_not_the_same_stays(before):
    gi.assert_structural_equal(simplified(before), before)


@pytest.mark.parametrize(
    "before", [2.0 * (X * 3.0), 2.0 * (3.0 * X), (3.0 * X) * 2.0, (X * 3.0) * 2.0, (X * gi.ones_like(X)) * 3.0 * 2.0]
)
def test_constants_on_either_side_meet_at_level_3(before):
    gi.assert_structural_equal(simplified(before, 3), X * 6.0)


@pytest.mark.parametrize("first", TYPES)
def test_joined_casts_give_the_same_bits(first):
    values = np.array([0, 1, 2, 100, 127, 3.75, 60000, -1, -3.5, -128, 1e-8], "float64")
    with np.errstate(all="ignore"):
        values = values.astype("float32" if first == "bfloat16" else first)
    x = gi.var("x", shape=(len(values),), dtype=first)
    y = gi.var("y", shape=x.shape, dtype=values.dtype.name)
    given = gi.evaluate(gi.Function([y], gi.cast(y, dtype=first)), values)
    joined = 0
    for middle in TYPES:
        for last in TYPES:
            before = gi.cast(gi.cast(x, dtype=middle), dtype=last)
            after = simplified(before)
            if len(gi.call_nodes(after)) < 2:
                joined += 1
                with np.errstate(all="ignore"):
                    found, expected = (gi.evaluate(gi.Function([x], each), given) for each in (after, before))
                assert found.tobytes() == expected.tobytes(), (middle, last)
    assert joined > 10
