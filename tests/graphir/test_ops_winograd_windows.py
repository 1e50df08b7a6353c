"""Winograd's transforms of large windows, against the definition of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.nn.winograd_transforms import POINTS, transforms
from tilewright.tensorir.errors import TypeInferenceError

TYPES = ("float32", "float64")
TILES = sorted(POINTS)


@pytest.mark.parametrize("tile", TILES)
def test_window(check: Any, tile: int) -> None:
    matrix, side = np.array(transforms(tile).result).T, tile + 2

    def oracle(x: Any) -> Any:
        n, channels, height, width, block = x.shape
        rows, columns = -(-height // tile), -(-width // tile)
        whole = np.pad(x, ((0, 0), (0, 0), (0, tile), (0, tile), (0, 0)))
        out = np.zeros((channels, side, side, n, rows, columns, block))
        for b, c, y, z, lane in np.ndindex(n, channels, rows, columns, block):
            patch = whole[b, c, y * tile : (y + 1) * tile, z * tile : (z + 1) * tile, lane]
            out[c, :, :, b, y, z, lane] = matrix @ patch @ matrix.T
        return out

    sizes = ({"n": 1, "h": 5, "w": 6}, {"n": 2, "h": 8, "w": 3})
    for dtype in TYPES:
        check("nn.winograd_window", [(("n", 2, "h", "w", 4), dtype)], {"tile": tile}, oracle, sizes=sizes)
    check("nn.winograd_window", [((1, 3, 7, 9, 4), "float32")], {"tile": tile}, oracle)


@together("dtype", TYPES)
def test_sums(check: Any, dtype: str) -> None:
    def oracle(v: Any, m: Any) -> Any:
        out = np.zeros((4, 4, m.shape[0], v.shape[0], v.shape[-1], m.shape[-1]))
        for x, y, o, i in np.ndindex(*out.shape[:4]):
            left, right = (part[number, x, y].reshape(-1, part.shape[-1]) for part, number in ((v, i), (m, o)))
            out[x, y, o, i] = left.T @ right
        return out

    types = [((2, 4, 4, "n", "h", 3, 4), dtype), ((3, 4, 4, "n", "h", 3, 8), dtype)]
    check("nn.winograd_sums", types, {}, oracle, sizes=({"n": 1, "h": 3}, {"n": 2, "h": 5}), scale=4)


@together("dtype", TYPES)
@pytest.mark.parametrize("tile", TILES)
def test_sums_output(check: Any, tile: int, dtype: str) -> None:
    matrix, side = np.array(transforms(tile).weight), tile + 2

    def oracle(u: Any) -> Any:
        out = np.zeros((*u.shape[2:4], 3, 3, *u.shape[4:]))
        for o, i, k, lane in np.ndindex(*u.shape[2:]):
            out[o, i, :, :, k, lane] = matrix.T @ u[:, :, o, i, k, lane] @ matrix
        return out

    check("nn.winograd_sums_output", [((side, side, 3, 2, 2, 4), dtype)], {"tile": tile}, oracle, scale=4)
    check("nn.winograd_sums_output", [((side, side, 1, 1, 5, 3), dtype)], {"tile": tile}, oracle, scale=4)


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "message"),
    [
        ("nn.winograd_window", [(2, 3, 4, 4)], {"tile": 4}, "layout NCHWc"),
        ("nn.winograd_sums", [(2, 6, 6, 1, 2, 2), (2, 6, 6, 1, 2, 2)], {}, "7 dimensions"),
        ("nn.winograd_sums", [(2, 6, 6, 1, 2, 2, 4), (2, 6, 6, 1, 2, 3, 4)], {}, "points and tiles as in data"),
        ("nn.winograd_sums_output", [(4, 4, 1, 1, 4, 4)], {"tile": 4}, r"\(6, 6, O, I, i, o\)"),
    ],
)
def test_other_shapes_are_errors(name: str, shapes: Any, attrs: Any, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        gi.evaluate(get_operator(name)(*(gi.const(np.zeros(shape, np.float32)) for shape in shapes), **attrs))
