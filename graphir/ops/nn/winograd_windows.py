"""Compute convolutions by large windows, whose results have 3x3 pixels, by Winograd's minimal filtering.

The gradient of a convolution's 3x3 weight is such a convolution: its windows are as large as the images, and its images
are added up. Window and image are cut into tiles, which the 3x3 results of each have in common: a tile of the window of
``tile`` x ``tile`` elements takes ``(tile + 2) ** 2`` multiplications instead of ``9 * tile ** 2``. The image is
transformed as for other convolutions (``nn.winograd_input``) and the window by the adjoint of the transform of results
(``nn.winograd_window``); their products are added up over all tiles and images (``nn.winograd_sums``), and the sums
transformed by the adjoint of the transform of weights (``nn.winograd_sums_output``). The pass ``WinogradWindows``
chooses it; ``winograd.py`` has the literature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import dim_equal, format_shape, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import check_dtype, guarded, same_dtype
from tilewright.graphir.ops.nn.winograd import WinogradAttrs, tile_count
from tilewright.graphir.ops.nn.winograd_transforms import WINDOW, Matrix, combine, transforms
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, all_of, choose
from tilewright.tensorir.tensor import Tensor

_DTYPES = ("float32", "float64")


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


@register_operator
class winograd_window(Operator):
    """Transform the window ``[N, C, H, W, c]`` in blocks of channels, tile by tile, to the interpolation points:
    ``[C, x, y, N, tiles of a column, tiles of a row, c]``. Behind its end there are zeros."""

    name = "nn.winograd_window"
    arguments = ("data",)
    kind = "injective"
    contiguous_reads = True
    Attrs = WinogradAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: WinogradAttrs) -> TensorType:
        (data,) = args
        check_dtype(self, 0, data, _DTYPES)
        if data.ndim != 5:
            raise self.error(0, "a tensor in layout NCHWc (5 dimensions)", data)
        n, channels, height, width, block = data.shape
        points, tiles = attrs.tile + 2, (tile_count(height, attrs.tile), tile_count(width, attrs.tile))
        return TensorType((channels, points, points, n, *tiles, block), data.dtype)

    def reference(self, args: Sequence[Any], attrs: WinogradAttrs) -> Any:
        (data,) = args
        n, channels, height, width, block = data.shape
        tile, matrix = attrs.tile, np.array(transforms(attrs.tile).result).T
        rows, columns = -(-height // tile), -(-width // tile)
        whole = np.zeros((n, channels, rows * tile, columns * tile, block))
        whole[:, :, :height, :width] = data
        tiles = whole.reshape(n, channels, rows, tile, columns, tile, block)
        at_points = np.einsum("ai,bj,ncyixjk->cabnyxk", matrix, matrix, tiles, optimize=True)
        return np.ascontiguousarray(at_points).astype(data.dtype)

    def compute(self, args: Sequence[Tensor], attrs: WinogradAttrs, out: TensorType) -> Tensor:
        (data,) = args
        matrix, tile = _transposed(transforms(attrs.tile).result), attrs.tile
        channels, points, _, n, rows, columns, block = out.shape

        def pixel(c: Var, b: Var, ty: Var, tx: Var, y: Var, x: Var, lane: Var) -> Expr:
            at = (ty * tile + y, tx * tile + x)
            inside = [index < extent for index, extent in zip(at, data.shape[2:4], strict=True)]
            return guarded(all_of(*inside), data(b, c, *at, lane), 0)

        patch = te.compute((channels, n, rows, columns, tile, tile, block), pixel, name="window_patch")

        def at_row(*place: Var) -> Expr:
            *tile_of, y, x, lane = place
            return choose(y, [combine(row, lambda k: patch(*tile_of, k, x, lane)) for row in matrix])

        at_rows = te.compute((channels, n, rows, columns, points, tile, block), at_row, name="window_rows")

        def at_point(c: Var, y: Var, x: Var, *place: Var) -> Expr:
            *tile_of, lane = place
            return choose(x, [combine(row, lambda k: at_rows(c, *tile_of, y, k, lane)) for row in matrix])

        return te.compute(out.shape, at_point, name="winograd_window")


@register_operator
class winograd_sums(Operator):
    """Multiply image ``[I, x, y, N, rows, columns, i]`` and window ``[O, x, y, N, rows, columns, o]`` at the
    interpolation points, and add up over all tiles of all images: ``[x, y, O, I, i, o]``."""

    name = "nn.winograd_sums"
    arguments = ("data", "window")
    kind = "contraction"
    bounded_reference = False

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        data, window = args
        dtype = same_dtype(self, args)
        check_dtype(self, 0, data, _DTYPES)
        if data.ndim != 7:
            raise self.error(0, "a tensor of 7 dimensions, as nn.winograd_input gives it", data)
        if window.ndim != 7 or not all(map(dim_equal, data.shape[1:-1], window.shape[1:-1])):
            expected = f"points and tiles as in data, {format_shape(data.shape[1:-1])}"
            raise self.error(1, expected, window)
        return TensorType((*data.shape[1:3], window.shape[0], data.shape[0], data.shape[-1], window.shape[-1]), dtype)

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        data, window = args
        return np.einsum("ixyntsk,oxyntsl->xyoikl", data, window, optimize=True).astype(data.dtype)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        data, window = args
        tiles = [te.reduce_axis(size, name) for size, name in zip(data.shape[3:-1], ("n", "ty", "tx"), strict=True)]

        def element(x: Var, y: Var, o: Var, i: Var, inner: Var, lane: Var) -> te.Reduction:
            return te.sum(data(i, x, y, *tiles, inner) * window(o, x, y, *tiles, lane), axis=tiles)

        return te.compute(out.shape, element, name="winograd_sums")


@register_operator
class winograd_sums_output(Operator):
    """Transform the sums ``[x, y, O, I, i, o]`` back from the interpolation points: ``[O, I, 3, 3, i, o]``."""

    name = "nn.winograd_sums_output"
    arguments = ("data",)
    kind = "opaque"
    Attrs = WinogradAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: WinogradAttrs) -> TensorType:
        (data,) = args
        check_dtype(self, 0, data, _DTYPES)
        points = attrs.tile + 2
        if data.ndim != 6 or data.shape[:2] != (points, points):
            raise self.error(0, f"a tensor ({points}, {points}, O, I, i, o)", data)
        *_, outputs, inputs, inner, lane = (simplify(dim) for dim in data.shape)
        return TensorType((outputs, inputs, WINDOW, WINDOW, inner, lane), data.dtype)

    def reference(self, args: Sequence[Any], attrs: WinogradAttrs) -> Any:
        (data,) = args
        matrix = np.array(transforms(attrs.tile).weight).T
        whole = np.einsum("ai,bj,ijonkl->onabkl", matrix, matrix, data, optimize=True)
        return np.ascontiguousarray(whole).astype(data.dtype)

    def compute(self, args: Sequence[Tensor], attrs: WinogradAttrs, out: TensorType) -> Tensor:
        (data,) = args
        matrix, points = _transposed(transforms(attrs.tile).weight), attrs.tile + 2
        outputs, inputs, _, _, *inner = out.shape

        def at_row(o: Var, i: Var, y: Var, x: Var, *lanes: Var) -> Expr:
            return choose(y, [combine(row, lambda k: data(k, x, o, i, *lanes)) for row in matrix])

        rows = te.compute((outputs, inputs, WINDOW, points, *inner), at_row, name="sums_rows")

        def at_place(o: Var, i: Var, y: Var, x: Var, *lanes: Var) -> Expr:
            return choose(x, [combine(row, lambda k: rows(o, i, y, k, *lanes)) for row in matrix])

        return te.compute(out.shape, at_place, name="winograd_sums_output")
