"""Convolutions and pooling whose padding is an expression over symbolic sizes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.graphir.window_oracles import average, convolve, greatest, norm, pool
from tilewright import graphir as gi
from tilewright.graphir.dims import symbol

W = symbol("w")
#: Padding that depends on the size, and the same for an array.
FORMULAS = {"padding": (W % 2, (W + 1) // 3)}
PADDED = [{"w": size} for size in (3, 4, 5)]


def formulas_of(x: Any) -> tuple[int, int]:
    size = x.shape[-1]
    return size % 2, (size + 1) // 3


@pytest.mark.parametrize("name", ["nn.max_pool", "nn.avg_pool", "nn.lp_pool"])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pooling_whose_padding_is_an_expression(check: Any, name: str, ceil_mode: bool) -> None:
    attrs = {"pool_size": (3,), "strides": (2,), "ceil_mode": ceil_mode}
    oracle = {"nn.max_pool": greatest, "nn.avg_pool": average, "nn.lp_pool": norm(2)}[name]
    check(name, [((1, 2, "w"), "float32")], {**attrs, **FORMULAS},
          lambda x: pool(x, {**attrs, "padding": formulas_of(x)}, oracle), None, PADDED, 2)  # fmt: skip


def test_convolutions_whose_padding_is_an_expression(check: Any) -> None:
    (before, behind), weight = FORMULAS["padding"], ((3, 2, 2, 2), "float32")
    check("nn.conv1d", [(("n", 2, "w"), "float32"), ((4, 2, 3), "float32")], FORMULAS,
          lambda x, w: convolve(x, w, {"padding": formulas_of(x)}), None, [{"n": 2, **size} for size in PADDED],
          4)  # fmt: skip
    check("nn.conv2d", [((1, 2, 3, "w"), "float32"), weight], {"padding": (1, before, 0, behind)},
          lambda x, w: convolve(x, w, {"padding": (1, formulas_of(x)[0], 0, formulas_of(x)[1])}), None, PADDED,
          4)  # fmt: skip
    check("nn.conv3d", [((1, 2, 2, 3, "w"), "float32"), ((3, 2, 1, 2, 2), "float32")],
          {"padding": (0, 1, before, 0, 0, behind)},
          lambda x, w: convolve(x, w, {"padding": (0, 1, formulas_of(x)[0], 0, 0, formulas_of(x)[1])}), None, PADDED,
          4)  # fmt: skip


def test_text_with_padding_that_is_an_expression_is_read_back() -> None:
    x, w = gi.var("x", shape=(1, 2, 3, "w")), gi.var("k", shape=(2, 2, 1, 1))
    mod = gi.IRModule.from_expr(gi.Function([x, w], gi.nn.conv2d(x, w, padding=(0, W % 2))))
    assert gi.structural_equal(gi.parse(str(mod)), mod)
