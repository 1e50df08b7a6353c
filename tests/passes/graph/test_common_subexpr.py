"""EliminateCommonSubexpr shares equal expressions, and nothing else."""

from __future__ import annotations

import pytest

from tilewright import graphir as gi
from tilewright.passes.graph import EliminateCommonSubexpr

HEAD = "def @main(%x: Tensor[(2, 2), float32]) {"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("%0 = tanh(%x) %1 = tanh(%x) %2 = add(%0, %1) %2", "%0 = tanh(%x) %2 = add(%0, %0) %2"),
        (
            "%0 = sum(%x, axis=1) %1 = sum(%x, axis=1) %2 = exp(%0) %3 = exp(%1) %4 = (%2, %3) %4",
            "%0 = sum(%x, axis=1) %2 = exp(%0) %4 = (%2, %2) %4",
        ),
        (
            "%0 = add(%x, float32(1.0)) %1 = add(%x, float32(1.0)) %2 = (%0, %1) %2",
            "%0 = add(%x, float32(1.0)) %2 = (%0, %0) %2",
        ),
    ],
)
def test_equal_expressions_are_shared(rewrites, before, after):
    rewrites(EliminateCommonSubexpr(), f"{HEAD} {before} }}", f"{HEAD} {after} }}")


@pytest.mark.parametrize(
    "body",
    [
        "%0 = sum(%x, axis=0) %1 = sum(%x, axis=1) %2 = (%0, %1) %2",
        "%0 = sum(%x, axis=1) %1 = sum(%x, axis=True) %2 = (%0, %1) %2",
        "%0 = add(%x, float32(0.0)) %1 = add(%x, float32(-0.0)) %2 = (%0, %1) %2",
    ],
)
def test_what_differs_stays_apart(rewrites, body):
    rewrites(EliminateCommonSubexpr(), f"{HEAD} {body} }}", f"{HEAD} {body} }}")


def test_a_function_inside_does_not_come_to_capture(rewrites):
    body = "%f = fn (%p: Tensor[(2, 2), float32]) { %0 = tanh(%x) %1 = add(%p, %0) %1 } %2 = tanh(%x) %3 = %f(%2) %3"
    before = f"{HEAD} {body} }}".replace("%f", "%9")
    after = EliminateCommonSubexpr()(gi.parse(before))
    nested = after["main"].body.op
    assert nested.body.args[1] is not after["main"].body.args[0]
