"""Calls without a gradient say so when it is asked for, and rules that cannot be are refused when they are made."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.gradient import register_composition, register_gradient


@pytest.mark.parametrize(
    ("build", "shapes", "message"),
    [
        (
            lambda x, y: y + gi.broadcast_to(x, shape=("k", 3)),
            [("n", 3), ("k", 3)],
            "it is not known whether dimension 0 is 1",
        ),
        (lambda x: x[::2], [("n", 3)], "slice: no gradient of a slice in steps of 2"),
        (lambda x: gi.pad(x, pad_width=((1, 1),), mode="edge"), [("n",)], "pad: no gradient of a padding of 1 and 1"),
        (lambda x: gi.nn.resize(x, size=(5,), method="linear"), [("n",)], "no gradient of a resize of n elements to 5"),
        (
            lambda x, u: gi.scatter_nd(x, gi.const([[0]]), u, reduction="max"),
            [(4,), (1,)],
            "scatter_nd: no gradient of the reduction max",
        ),
        (
            lambda x, u: gi.scatter_elements(x, gi.const([0]), u, reduction="max"),
            [(4,), (1,)],
            "scatter_elements: no gradient of the reduction max",
        ),
        (
            lambda x: gi.gather_nd(x, gi.const([[[0]], [[1]]]), batch_dims=1),
            [(2, 3)],
            "gather_nd: no gradient of 1 batch dimensions",
        ),
        (
            lambda x, w: gi.nn.conv1d(x, w, pad_value=1.0),
            [(1, 2, 5), (3, 2, 3)],
            "no gradient of a convolution in the layouts NCW, OIW, NCW",
        ),
        (
            gi.nn.conv1d,
            [(1, "c", 5), (3, "c", 3)],
            "nn.conv1d: no gradient of a convolution with a weight of the shape",
        ),
        (lambda x: gi.nn.avg_pool(x, (2,), layout="NCW2c"), [(1, 2, 5, 2)], "no gradient of a tensor in layout NCW2c"),
        (lambda x: gi.nn.lp_pool(x, (2,), ceil_mode=True), [(1, 2, 5)], "windows over 1 dimensions with ceil_mode"),
        (
            lambda x, w: gi.nn.dense(x, w, 6, weight_layout="OI2o"),
            [(3, 4), (3, 4, 2)],
            "no gradient of a weight in layout OI2o",
        ),
        (
            lambda x: gi.nn.resize(x, (2,), coordinate_mode="tf_crop_and_resize", roi=(0.0, 1.0)),
            [(4,)],
            "no gradient of a resize that crops",
        ),
    ],
)
def test_calls_that_rules_do_not_cover(build: Any, shapes: Any, message: str) -> None:
    variables = [gi.var(f"x{number}", shape=shape, dtype="float64") for number, shape in enumerate(shapes)]
    with pytest.raises(tw.TilewrightError, match=message):
        tw.grad(gi.Function(variables, build(*variables)), cotangents=True)


@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda: register_gradient(), "a gradient is registered for operators or their names; found ()"),
        (lambda: register_gradient(3), "a gradient is registered for operators or their names; found (3,)"),
        (lambda: register_gradient("add")("rule"), "a gradient is a function, found 'rule'"),
        (lambda: register_gradient("add")(lambda call, cotangent: ()), "operator 'add' has a gradient already"),
        (lambda: register_composition("add")(lambda call: call), "operator 'add' has a gradient already"),
        (
            lambda: register_gradient("ad")(lambda call, cotangent: ()),
            "unknown operator 'ad'; did you mean pad or add?",
        ),
    ],
)
def test_rules_that_cannot_be_registered(register: Any, message: str) -> None:
    with pytest.raises(tw.TilewrightError, match=re.escape(message)):
        register()
