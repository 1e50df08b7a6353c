"""Pixels that become channels and back, and columns that become images, one element at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright.graphir.ops.common import NUMBERS


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_channels_become_pixels_and_back(check: Any, mode: str) -> None:
    def deep(x: Any) -> Any:
        n, c, h, w = x.shape
        out = np.zeros((n, c // 4, 2 * h, 2 * w))
        for at in np.ndindex(*out.shape):
            block = at[2] % 2 * 2 + at[3] % 2
            channel = block * (c // 4) + at[1] if mode == "DCR" else at[1] * 4 + block
            out[at] = x[at[0], channel, at[2] // 2, at[3] // 2]
        return out

    def flat(x: Any) -> Any:
        n, c, h, w = x.shape
        out = np.zeros((n, 4 * c, h // 2, w // 2))
        for at in np.ndindex(*out.shape):
            block, channel = divmod(at[1], c) if mode == "DCR" else (at[1] % 4, at[1] // 4)
            out[at] = x[at[0], channel, 2 * at[2] + block // 2, 2 * at[3] + block % 2]
        return out

    attrs = {"block_size": 2, "mode": mode}
    for dtype in ("int8", "float32", "float16"):
        check("nn.depth_to_space", [((1, 8, "h", 2), dtype)], attrs, deep, None, [{"h": 1}, {"h": 3}])
        check("nn.space_to_depth", [((2, 2, "h", 6), dtype)], attrs, flat, None, [{"h": 2}, {"h": 4}])


@pytest.mark.parametrize(("strides", "groups"), [((3,), 1), ((2, 1), 2), ((1, 2, 3), 1), ((2, 2), 1)])
def test_pixels_of_several_channels_take_turns(check: Any, strides: tuple[int, ...], groups: int) -> None:
    rank, places, made = len(strides), int(np.prod(strides)), 2

    def oracle(x: Any) -> Any:
        out = np.zeros((x.shape[0], groups * made, *[n * s for n, s in zip(x.shape[2:], strides, strict=True)]))
        for n, c, *at in np.ndindex(*out.shape):
            group, channel = divmod(c, made)
            turn = int(np.ravel_multi_index([p % s for p, s in zip(at, strides, strict=True)], strides))
            pixel = [p // s for p, s in zip(at, strides, strict=True)]
            out[(n, c, *at)] = x[(n, (group * places + turn) * made + channel, *pixel)]
        return out

    types = [(("n", groups * places * made, "h", 3, 2)[: rank + 2], "float32")]
    check("nn.interleave", types, {"strides": strides, "groups": groups}, oracle, None, [{"n": 2, "h": 3}])


@together("dtype", NUMBERS)
def test_columns_add_up_to_an_image(check: Any, dtype: str) -> None:
    attrs = {
        "image_shape": (5, 6),
        "block_shape": (2, 3),
        "strides": (2, 1),
        "padding": (1, 0, 0, 2),
        "dilation": (1, 2),
    }

    def oracle(x: Any) -> Any:
        out = np.zeros((x.shape[0], x.shape[1] // 6, 5, 6))
        for n, row, column in np.ndindex(*x.shape):
            c, (ky, kx) = row // 6, divmod(row % 6, 3)
            wy, wx = divmod(column, 4)
            y, z = wy * 2 + ky - 1, wx + kx * 2
            if 0 <= y < 5 and 0 <= z < 6:
                out[n, c, y, z] += x[n, row, column]
        return out

    def small(rng: Any, shape: Any, kind: Any) -> Any:
        return rng.integers(0, 4, shape).astype(kind)

    check("nn.col2im", [(("n", 12, 12), dtype)], attrs, oracle, small, [{"n": 1}, {"n": 2}], 4)
