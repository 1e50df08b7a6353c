"""Passes that remove the value at which a size is bound bind it where the size is left."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.graph import DeadCodeElimination, InlineFunctions, ToANormalForm, ToGraphNormalForm

HEAD = "def @main(%x: Tensor[(3,), float32], %k: Tensor[(), int64]) -> Tensor[(min(n, 3),), float32] {"
BIND = "%0 = slice(%x, begin=(0,), end=(dim[n],), axes=(0,))"
FILL = "%1 = broadcast_to(float32(2.0), shape=(dim[min(n, 3)],))"
CALLED = f"def @f(%y: Tensor[(min(n, 3),), float32]) {{ {FILL} %1 }}"

DEAD_LET = f"{HEAD} {BIND} let %v = bind_size(%0, %k, dim=dim[n]) {FILL} %1 }}"
DEAD_CHAIN = f"{HEAD} {BIND} let %v = bind_size(%0, %k, dim=dim[n]) let %w = exp(%v) {FILL} %1 }}"
FIELD = f"{HEAD} {BIND} %2 = bind_size(%0, %k, dim=dim[n]) {FILL} %3 = (%2, %1) %4 = %3.1 %4 }}"
UNUSED = f"{HEAD} {BIND} %2 = bind_size(%0, %k, dim=dim[n]) %3 = @f(%2) %3 }} {CALLED}"
BOUND = f"{HEAD} {FILL} %2 = bind_size(%1, %k, dim=dim[n]) %2 }}"


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        (ToGraphNormalForm(), DEAD_LET, BOUND),
        (ToGraphNormalForm(), DEAD_CHAIN, BOUND),
        (ToANormalForm(), DEAD_LET, f"{HEAD} let %v0 = {FILL[5:]} let %v1 = bind_size(%v0, %k, dim=dim[n]) %v1 }}"),
        (DeadCodeElimination(), DEAD_LET, BOUND),
        (DeadCodeElimination(), DEAD_CHAIN, BOUND),
        (DeadCodeElimination(), FIELD, BOUND),
        (InlineFunctions(), UNUSED, f"{BOUND} {CALLED}"),
    ],
)
def test_rewrites(rewrites, rule, before, after):
    rewrites(rule, before, after)


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("text", [DEAD_LET, DEAD_CHAIN, FIELD, UNUSED])
def test_the_size_is_that_of_the_number(text, level):
    with tw.PassContext(opt_level=level):
        model = tw.build(gi.parse(text))
    np.testing.assert_array_equal(model(np.ones(3, "f4"), np.int64(2)), np.full(2, 2, "f4"))


def test_a_size_that_is_bound_elsewhere_is_not_bound_again(rewrites):
    used = f"{HEAD} {BIND} let %v = bind_size(%0, %k, dim=dim[n]) {FILL} %2 = add(%v, %1) %2 }}"
    rewrites(ToGraphNormalForm(), used, used.replace("let %v = bind", "%v = bind").replace("%v", "%3"))
