"""Winograd's transforms, against the definition of each and, put together, against convolution in double precision."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.nn.winograd_transforms import POINTS, transforms
from tilewright.tensorir.errors import TypeInferenceError

TYPES = ("float32", "float64")
TILES = sorted(POINTS)


def evaluations(points: Any, count: int) -> Any:
    """The values of ``count`` coefficients' polynomial at the points; infinity takes its last coefficient."""
    rows = [[float(Fraction(point) ** power) for power in range(count)] for point in points]
    return np.array([*rows, [0.0] * (count - 1) + [1.0]])


@pytest.mark.parametrize("tile", TILES)
def test_matrices_filter_exactly_in_fractions_of_two(tile: int) -> None:
    found, rng = transforms(tile), np.random.default_rng(1)
    x, w = rng.standard_normal(tile + 2), rng.standard_normal(3)
    products = (np.array(found.weight) @ w) * (np.array(found.image) @ x)
    np.testing.assert_allclose(np.array(found.result) @ products, np.correlate(x, w, "valid"), atol=1e-14)


@pytest.mark.parametrize("tile", TILES)
def test_the_result_is_taken_at_the_points_that_are_stated(tile: int) -> None:
    np.testing.assert_allclose(np.array(transforms(tile).result).T, evaluations(POINTS[tile], tile))


@together("dtype", TYPES)
@pytest.mark.parametrize("tile", TILES)
def test_weight(check: Any, tile: int, dtype: str) -> None:
    matrix = np.array(transforms(tile).weight)

    def oracle(w: Any) -> Any:
        both = np.kron(matrix, matrix) @ np.moveaxis(w, (2, 3), (0, 1)).reshape(9, -1)
        return both.reshape(-1, *w.shape[:2], *w.shape[4:])

    check("nn.winograd_weight", [((3, 2, 3, 3, 2, 4), dtype)], {"tile": tile}, oracle)
    check("nn.winograd_weight", [((1, 5, 3, 3), dtype)], {"tile": tile}, oracle)


@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 0, 0, 0), (2, 0, 1, 3)])
@pytest.mark.parametrize("tile", TILES)
def test_input(check: Any, tile: int, padding: tuple[int, ...]) -> None:
    matrix, side = np.array(transforms(tile).image), tile + 2

    def oracle(x: Any) -> Any:
        n, channels, height, width, block = x.shape
        top, left, bottom, right = padding
        rows, columns = (-(-(extent - 2) // tile) for extent in (height + top + bottom, width + left + right))
        image = np.pad(x, ((0, 0), (0, 0), (top, tile + bottom), (left, tile + right), (0, 0)))
        out = np.zeros((channels, side, side, n, rows, columns, block))
        for b, c, y, z, lane in np.ndindex(n, channels, rows, columns, block):
            patch = image[b, c, y * tile : y * tile + side, z * tile : z * tile + side, lane]
            out[c, :, :, b, y, z, lane] = matrix @ patch @ matrix.T
        return out

    sizes = ({"n": 1, "h": 5, "w": 6}, {"n": 2, "h": 8, "w": 3})
    for dtype in TYPES:
        attrs = {"tile": tile, "padding": padding}
        check("nn.winograd_input", [(("n", 2, "h", "w", 4), dtype)], attrs, oracle, sizes=sizes)
    check("nn.winograd_input", [((1, 3, 7, 9, 4), "float32")], {"tile": tile, "padding": padding}, oracle)


@together("dtype", TYPES)
def test_product(check: Any, dtype: str) -> None:
    def oracle(v: Any, u: Any) -> Any:
        flat = v.reshape(v.shape[0], 16, -1, v.shape[6])
        out = np.zeros((u.shape[1], 16, flat.shape[2], u.shape[4]))
        for point in range(16):
            for o in range(u.shape[1]):
                out[o, point] = sum(flat[i, point] @ u[point, o, i] for i in range(v.shape[0]))
        return out

    types = [((2, 4, 4, "n", "h", 3, 4), dtype), ((16, 3, 2, 4, 8), dtype)]
    check("nn.winograd_product", types, {}, oracle, sizes=({"n": 1, "h": 3}, {"n": 2, "h": 5}), scale=4)


@pytest.mark.parametrize("tile", TILES)
def test_output(check: Any, tile: int) -> None:
    matrix, side = np.array(transforms(tile).result), tile + 2
    batch, height, width = 2, 9, 6
    rows, columns = -(-height // tile), -(-width // tile)

    def oracle(m: Any) -> Any:
        tiles = m.reshape(m.shape[0], side, side, batch, rows, columns, m.shape[3])
        out = np.zeros((batch, m.shape[0], rows * tile, columns * tile, m.shape[3]))
        for c, b, y, z, lane in np.ndindex(m.shape[0], batch, rows, columns, m.shape[3]):
            whole = matrix @ tiles[c, :, :, b, y, z, lane] @ matrix.T
            out[b, c, y * tile : (y + 1) * tile, z * tile : (z + 1) * tile, lane] = whole
        return out[:, :, :height, :width]

    attrs = {"tile": tile, "size": (batch, height, width)}
    for dtype in TYPES:
        types = [((3, side**2, batch * rows * columns, 4), dtype)]
        check("nn.winograd_output", types, attrs, oracle, scale=4)


@together("dtype", TYPES)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("depth", [1, 3])
def test_volumes_are_transformed_slice_by_slice(check: Any, depth: int, tile: int, dtype: str) -> None:
    padding, side = (depth // 2, 1, 0, depth // 2, 0, 2), tile + 2
    matrices = [np.array(matrix) for matrix in (transforms(tile).weight, transforms(tile).image)]

    def weight(w: Any) -> Any:
        at_points = np.einsum("ai,bj,ocdijkl->abocdkl", matrices[0], matrices[0], w)
        return at_points.reshape(side**2, *at_points.shape[2:])

    def image(x: Any) -> Any:
        rows, columns = (-(-(extent - 1) // tile) for extent in x.shape[3:5])
        reach = ((0, 0), (0, 0), (depth // 2,) * 2, (1, tile), (0, tile + 2), (0, 0))
        whole = np.pad(x, reach)
        out = np.zeros((x.shape[1], side, side, x.shape[0], whole.shape[2], rows, columns, x.shape[5]))
        for n, c, d, y, z, lane in np.ndindex(*x.shape[:2], *out.shape[4:]):
            patch = whole[n, c, d, y * tile : y * tile + side, z * tile : z * tile + side, lane]
            out[c, :, :, n, d, y, z, lane] = matrices[1] @ patch @ matrices[1].T
        return out

    def product(v: Any, u: Any) -> Any:
        slices = v.shape[4] - depth + 1
        out = np.zeros((u.shape[1], side**2, v.shape[3], slices * v.shape[5] * v.shape[6], u.shape[5]))
        for n, z, y, x in np.ndindex(v.shape[3], slices, *v.shape[5:7]):
            part = v[:, :, :, n, z : z + depth, y, x].reshape(v.shape[0], side**2, depth, v.shape[7])
            out[:, :, n, (z * v.shape[5] + y) * v.shape[6] + x] = np.einsum("ipdk,poidkj->opj", part, u)
        return out

    tall = [{"n": 1, "h": 5}, {"n": 2, "h": 8}]
    check("nn.winograd_weight", [((2, 1, depth, 3, 3, 2, 4), dtype)], {"tile": tile, "axis": 3}, weight)
    check("nn.winograd_input", [(("n", 2, 3, "h", 4, 4), dtype)], {"tile": tile, "padding": padding}, image, sizes=tall)
    types = [((2, side, side, "n", 4, "h", 2, 4), dtype), ((side**2, 1, 2, depth, 4, 8), dtype)]
    check("nn.winograd_product", types, {}, product, sizes=[{"n": 1, "h": 3}, {"n": 2, "h": 1}], scale=8)


def rms_error(found: Any, exact: Any) -> float:
    return float(np.sqrt(np.mean((found - exact) ** 2)))


@pytest.mark.parametrize(("tile", "most"), [(2, 1.0), (4, 2.0)])
def test_the_error_is_bounded_by_that_of_the_direct_sum(tile: int, most: float) -> None:
    rng = np.random.default_rng(5)
    data = rng.standard_normal((1, 8, 24, 24, 16)).astype(np.float32)
    weight = rng.standard_normal((2, 8, 3, 3, 16, 16)).astype(np.float32)
    x = gi.var("x", shape=data.shape)
    layouts = {"padding": 1, "data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o"}
    mod = tw.IRModule.from_expr(gi.Function([x], gi.nn.conv2d(x, gi.const(weight), **layouts)))
    exact = gi.evaluate(mod, data, dtype="float64")
    target = tw.Target("llvm", num_threads=1)
    with tw.PassContext(opt_level=3, disabled_pass=["Winograd"]):
        direct = rms_error(tw.build(mod, target=target)(data), exact)
    op = gi.get_operator
    transformed = op("nn.winograd_input")(x, tile=tile, padding=1)
    products = op("nn.winograd_product")(transformed, op("nn.winograd_weight")(gi.const(weight), tile=tile))
    whole = gi.Function([x], op("nn.winograd_output")(products, tile=tile, size=(1, 24, 24)))
    with tw.PassContext(opt_level=3):
        found = rms_error(tw.build(whole, target=target)(data), exact)
    assert found <= most * direct


REFUSED = [
    ("nn.winograd_weight", [(4, 4, 5, 5)], {"tile": 4}, "a window of 3x3 as dimensions 2 and 3"),
    ("nn.winograd_weight", [(4, 4, 3, 3)], {"tile": 4, "axis": 3}, "dimensions 3 and 4"),
    ("nn.winograd_weight", [(4, 4, 3, 3)], {"tile": 3}, "tile: expected one of 2, 4, found 3"),
    ("nn.winograd_input", [(1, 4, 8, 8)], {"tile": 4}, "NCHWc"),
    ("nn.winograd_input", [(1, 4, 8, 8, 4)], {"tile": 4, "padding": (1,) * 6}, "NCDHWc"),
    ("nn.winograd_input", [(1, 1, 2, 8, 4)], {"tile": 4, "padding": 0}, "at least 3 rows"),
    ("nn.winograd_product", [(2, 4, 4, 1, 1, 1, 4), (16, 3, 2, 5, 8)], {}, "points, I and i as in data"),
    ("nn.winograd_product", [(2, 4, 4, 4), (16, 3, 2, 4, 8)], {}, "7 or 8 dimensions"),
    ("nn.winograd_product", [(2, 4, 4, 1, 2, 1, 1, 4), (16, 3, 2, 4, 8)], {}, "a tensor (points, O, I, D, i, o)"),
    ("nn.winograd_product", [(2, 4, 4, 1, 2, 1, 1, 4), (16, 3, 2, 3, 4, 8)], {}, "at least 3"),
    ("nn.winograd_output", [(3, 36, 5, 4)], {"tile": 4, "size": (1, 8, 8)}, "4 tiles"),
    ("nn.winograd_output", [(3, 16, 4, 4)], {"tile": 4, "size": (1, 8, 8)}, "36"),
    ("nn.winograd_output", [(3, 36, 4, 4)], {"tile": 4, "size": (8, 8)}, "batch, height and width"),
    ("nn.winograd_output", [(3, 36, 4, 4)], {"tile": 4, "size": (1, 2, 8, 8)}, "(C, 36, N, tiles, c)"),
]


@pytest.mark.parametrize(("name", "shapes", "attrs", "message"), REFUSED)
def test_what_does_not_fit_is_refused(name: str, shapes: Any, attrs: Any, message: str) -> None:
    args = [gi.var(f"a{number}", shape=shape) for number, shape in enumerate(shapes)]
    with pytest.raises(TypeInferenceError, match=message.replace("(", r"\(").replace(")", r"\)").replace(".", r"\.")):
        gi.get_operator(name)(*args, **attrs)


@pytest.mark.parametrize("tile", TILES)
def test_weights_in_parts_have_the_bits_of_all_at_once(tile: int) -> None:
    """1,200 windows are two whole parts and the rest of a third."""
    weight = np.random.default_rng(2).standard_normal((3, 5, 3, 3, 8, 10)).astype("float32")
    matrix = np.array(transforms(tile).weight)
    windows = np.moveaxis(weight, (2, 3), (0, 1)).reshape(9, -1).astype("float64")
    whole = (np.kron(matrix, matrix) @ windows).astype("float32")
    operator = get_operator("nn.winograd_weight")
    found = operator.reference([weight], operator.Attrs(tile=tile))
    np.testing.assert_array_equal(found, whole.reshape(found.shape))
