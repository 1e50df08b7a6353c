"""Convolution with 3x3 windows by Winograd's minimal filtering: fewer multiplications for more additions.

A tile of ``tile`` x ``tile`` results needs ``(tile + 2) ** 2`` multiplications for each pair of channels where the
direct sum takes ``9 * tile ** 2``: 4 times fewer for a tile of 4, 2.25 times fewer for one of 2. Image and weight are
transformed (``nn.winograd_input``, ``nn.winograd_weight``), multiplied at each of the ``(tile + 2) ** 2`` points
(``nn.winograd_product``), and transformed back (``nn.winograd_output``). ``Winograd`` (``passes.graph``) chooses it.

A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016). The matrices are those of Toom and
Cook for interpolation points ``0, +-5/8, +-3/2, infinity`` (tile 4) and ``0, +-1, infinity`` (tile 2). The points
decide on the error: that of a tile of 4 is about 1.8 times as large as the direct sum's (root mean square; with the
usual points ``0, +-1, +-2, infinity`` it is twice that), that of a tile of 2 about 0.6 times.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, as_dim, dim_equal, format_shape, product, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import check_dtype, guarded, normalize, same_dtype, sequence_of
from tilewright.graphir.ops.nn.window import borders
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, all_of, const, select
from tilewright.tensorir.tensor import Tensor

WINDOW = 3
#: The finite interpolation points for a tile of that size; one more lies at infinity.
POINTS = {2: (0, 1, -1), 4: (0, Fraction(5, 8), Fraction(-5, 8), Fraction(3, 2), Fraction(-3, 2))}
_DTYPES = ("float32", "float64")

Matrix = tuple[tuple[float, ...], ...]
Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Transforms:
    """The matrices of one-dimensional minimal filtering, ``result @ ((weight @ w) * (image @ x))``.

    Attributes:
        image: ``(tile + 2, tile + 2)``.
        weight: ``(tile + 2, 3)``.
        result: ``(tile, tile + 2)``.
    """

    image: Matrix
    weight: Matrix
    result: Matrix


@functools.cache
def transforms(tile: int) -> Transforms:
    """The matrices for ``tile`` results, built from exact fractions."""
    points = [Fraction(point) for point in POINTS[tile]]
    zero, one = Fraction(0), Fraction(1)
    size = len(points) + 1
    result = [[*(point**row for point in points), one if row == tile - 1 else zero] for row in range(tile)]
    weight, image = [], []
    for point in points:
        others = [other for other in points if other is not point]
        scale = math.prod((point - other for other in others), start=one)
        weight.append([point**power / scale for power in range(WINDOW)])
        image.append([*_coefficients(others), zero])
    weight.append([zero] * (WINDOW - 1) + [one])
    image.append(_coefficients(points))
    assert all(len(row) == size for row in (*image, *result))
    return Transforms(_floats(image), _floats(weight), _floats(result))


def _coefficients(roots: Sequence[Fraction]) -> list[Fraction]:
    """The polynomial with these roots, its constant term first."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def _floats(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(tuple(float(value) for value in row) for row in rows)


def _combine(factors: Sequence[float], value: Callable[[int], Expr]) -> Expr:
    """The sum of ``factors[k] * value(k)``, its even and its odd terms apart: rows for the points ``p`` and ``-p`` have
    the same even terms and opposite odd ones, so that each sum is computed once for both."""
    halves = [[(k, factors[k]) for k in reversed(range(start, len(factors), 2)) if factors[k]] for start in (0, 1)]
    return _joined([_factored(terms, value) for terms in halves if terms])


def _paired(factors: Sequence[float], value: Callable[[int], Expr]) -> Expr:
    """As :func:`_combine` for a row over the points ``0, p, -p, q, -q, .., infinity``: the two of a pair have the same
    factor but for its sign, so that their sum, or their difference, is shared by several rows."""
    groups = [[0], *([k, k + 1] for k in range(1, len(factors) - 1, 2)), [len(factors) - 1]]
    kept = [[(k, factors[k]) for k in group if factors[k]] for group in groups]
    return _joined([_factored(terms, value) for terms in kept if terms])


def _joined(parts: Sequence[tuple[float, Expr]]) -> Expr:
    total: Expr | None = None
    for factor, part in parts:
        scaled = part if abs(factor) == 1 else part * const(abs(factor), part.dtype)
        if total is None:
            total = scaled if factor > 0 else -scaled
        else:
            total = total + scaled if factor > 0 else total - scaled
    assert total is not None
    return total


def _factored(terms: Sequence[tuple[int, float]], value: Callable[[int], Expr]) -> tuple[float, Expr]:
    """A sum as a factor, that of its first term, and what is left."""
    factor = terms[0][1]
    return factor, _joined([(weight / factor, value(k)) for k, weight in terms])


def _choose(index: Expr, values: Sequence[Expr]) -> Expr:
    """``values[index]``."""
    chosen = values[-1]
    for number in range(len(values) - 2, -1, -1):
        chosen = select(index.equal(number), values[number], chosen)
    return chosen


def tile_count(extent: Dim, tile: int) -> Dim:
    """How many tiles cover ``extent`` results."""
    return simplify((as_dim(extent) + (tile - 1)) // tile)


def _check_tile(tile: Any) -> None:
    if tile not in POINTS:
        raise ValueError(f"tile: expected one of {', '.join(map(str, POINTS))}, found {tile!r}")


@dataclasses.dataclass(frozen=True)
class WinogradAttrs:
    """``tile``: how many results a tile has along height and width, 2 or 4."""

    tile: int

    def __post_init__(self) -> None:
        _check_tile(self.tile)


@register_operator
class winograd_weight(Operator):
    """The weight ``[O, I, 3, 3, ...]`` of a convolution, in any layout with the window as dimensions 2 and 3, at the
    interpolation points: ``[points, O, I, ...]``."""

    name = "nn.winograd_weight"
    arguments = ("weight",)
    kind = "opaque"
    Attrs = WinogradAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: WinogradAttrs) -> TensorType:
        (weight,) = args
        check_dtype(self, 0, weight, _DTYPES)
        if weight.ndim < 4 or weight.shape[2:4] != (WINDOW, WINDOW):
            raise self.error(0, "a tensor (O, I, 3, 3, ...)", weight)
        return TensorType(((attrs.tile + 2) ** 2, *weight.shape[:2], *weight.shape[4:]), weight.dtype)

    def reference(self, args: Sequence[Any], attrs: WinogradAttrs) -> Any:
        (weight,) = args
        matrix = np.array(transforms(attrs.tile).weight)
        window = np.moveaxis(weight, (2, 3), (0, 1)).reshape(WINDOW**2, -1).astype(np.float64)
        at_points = (np.kron(matrix, matrix) @ window).astype(weight.dtype)
        return at_points.reshape(-1, *weight.shape[:2], *weight.shape[4:])

    def compute(self, args: Sequence[Tensor], attrs: WinogradAttrs, out: TensorType) -> Tensor:
        (weight,) = args
        matrix, points = transforms(attrs.tile).weight, attrs.tile + 2

        def at_row(x: Var, *place: Var) -> Expr:
            o, i, *rest = place
            places = [(o, i, k, *rest) for k in range(WINDOW)]
            return _choose(x, [_combine(row, lambda k: weight[places[k]]) for row in matrix])

        rows = te.compute((points, *weight.shape[:2], *weight.shape[3:]), at_row, name="weight_rows")

        def at_point(point: Var, *place: Var) -> Expr:
            o, i, *rest = place
            places = [(point // points, o, i, k, *rest) for k in range(WINDOW)]
            return _choose(point % points, [_combine(row, lambda k: rows[places[k]]) for row in matrix])

        return te.compute(out.shape, at_point, name="winograd_weight")


@dataclasses.dataclass(frozen=True)
class WinogradInputAttrs:
    """How tiles lie over the image.

    Attributes:
        tile: how many results a tile has along height and width, 2 or 4.
        padding: zeros around the image: one size, (height, width), or (top, left, bottom, right).
    """

    tile: int
    padding: Any = (1, 1)

    def __post_init__(self) -> None:
        _check_tile(self.tile)
        normalize(self, padding=borders(self.padding))

    def results(self, height: Dim, width: Dim) -> tuple[Dim, Dim]:
        """Height and width of the convolution's result."""
        top, left, bottom, right = self.padding
        return simplify(height + (top + bottom - 2)), simplify(width + (left + right - 2))


@register_operator
class winograd_input(Operator):
    """The image ``[N, C, H, W, c]`` in blocks of channels, tile by tile at the interpolation points:
    ``[C, x, y, N, tiles of a column, tiles of a row, c]``."""

    name = "nn.winograd_input"
    arguments = ("data",)
    kind = "injective"
    contiguous_reads = True
    Attrs = WinogradInputAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: WinogradInputAttrs) -> TensorType:
        (data,) = args
        check_dtype(self, 0, data, _DTYPES)
        if data.ndim != 5:
            raise self.error(0, "a tensor in layout NCHWc (5 dimensions)", data)
        n, channels, height, width, block = data.shape
        for name, extent in zip(("rows", "columns"), attrs.results(height, width), strict=True):
            if isinstance(extent, int) and extent < 1:
                raise self.error(0, f"at least 3 {name} with the padding", data)
        tiles = [tile_count(extent, attrs.tile) for extent in attrs.results(height, width)]
        points = attrs.tile + 2
        return TensorType((channels, points, points, n, *tiles, block), data.dtype)

    def reference(self, args: Sequence[Any], attrs: WinogradInputAttrs) -> Any:
        (data,) = args
        n, channels, height, width, block = data.shape
        tile, matrix = attrs.tile, np.array(transforms(attrs.tile).image)
        top, left, _, _ = attrs.padding
        rows, columns = (tile_count(extent, tile) for extent in attrs.results(height, width))
        assert isinstance(rows, int) and isinstance(columns, int)
        padded = np.zeros((n, channels, rows * tile + 2, columns * tile + 2, block))
        kept = data[:, :, : padded.shape[2] - top, : padded.shape[3] - left]
        padded[:, :, top : top + kept.shape[2], left : left + kept.shape[3]] = kept
        result = np.empty((channels, tile + 2, tile + 2, n, rows, columns, block), data.dtype)
        for y in range(rows):
            for x in range(columns):
                patch = padded[:, :, y * tile : (y + 1) * tile + 2, x * tile : (x + 1) * tile + 2]
                result[..., y, x, :] = np.einsum("ai,bj,ncijk->cabnk", matrix, matrix, patch, optimize=True)
        return result

    def compute(self, args: Sequence[Tensor], attrs: WinogradInputAttrs, out: TensorType) -> Tensor:
        (data,) = args
        matrix, tile = transforms(attrs.tile).image, attrs.tile
        channels, points, _, n, height, width, block = out.shape
        top, left, _, _ = attrs.padding

        def pixel(c: Var, b: Var, ty: Var, tx: Var, y: Var, x: Var, lane: Var) -> Expr:
            row, column = ty * tile + y - top, tx * tile + x - left
            inside = all_of(row >= 0, row < data.shape[2], column >= 0, column < data.shape[3])
            return guarded(inside, data[b, c, row, column, lane], 0)

        patch = te.compute((channels, n, height, width, points, points, block), pixel, name="patch")

        def at_row(c: Var, b: Var, ty: Var, tx: Var, y: Var, x: Var, lane: Var) -> Expr:
            sums = [_combine(row, lambda k: patch[c, b, ty, tx, k, x, lane]) for row in matrix]
            return _choose(y, sums)

        rows = te.compute(patch.shape, at_row, name="input_rows")

        def at_point(c: Var, y: Var, x: Var, b: Var, ty: Var, tx: Var, lane: Var) -> Expr:
            return _choose(x, [_combine(row, lambda k: rows[c, b, ty, tx, y, k, lane]) for row in matrix])

        return te.compute(out.shape, at_point, name="winograd_input")


@register_operator
class winograd_product(Operator):
    """Products of image ``[I, x, y, N, rows, columns, i]`` and weight ``[points, O, I, i, o]`` at the interpolation
    points, summed over the input channels: ``[O, points, tiles, o]``."""

    name = "nn.winograd_product"
    arguments = ("data", "weight")
    kind = "contraction"
    bounded_reference = False

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        data, weight = args
        dtype = same_dtype(self, args)
        check_dtype(self, 0, data, _DTYPES)
        if data.ndim != 7:
            raise self.error(0, "a tensor of 7 dimensions, as nn.winograd_input gives it", data)
        points = simplify(data.shape[1] * data.shape[2])
        if weight.ndim != 5:
            raise self.error(1, "a tensor (points, O, I, i, o)", weight)
        inner = (points, data.shape[0], data.shape[6])
        for expected, found in zip(inner, (weight.shape[0], *weight.shape[2:4]), strict=True):
            if not dim_equal(expected, found):
                raise self.error(1, f"points, I and i as in data, {format_shape(inner)}", weight)
        return TensorType((weight.shape[1], points, product(data.shape[3:6]), weight.shape[4]), dtype)

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        data, weight = args
        flat = data.reshape(data.shape[0], weight.shape[0], -1, data.shape[6])
        return np.einsum("iptk,poikj->optj", flat, weight, optimize=True).astype(data.dtype)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        data, weight = args
        channels, _, side, _, height, width, block = data.shape
        outer, inner = te.reduce_axis(channels, "ic"), te.reduce_axis(block, "ici")

        def element(o: Var, point: Var, tile: Var, lane: Var) -> te.Reduction:
            row = tile // width
            place = (outer, point // side, point % side, row // height, row % height, tile % width, inner)
            return te.sum(data[place] * weight[point, o, outer, inner, lane], axis=[outer, inner])

        return te.compute(out.shape, element, name="winograd_product")


@dataclasses.dataclass(frozen=True)
class WinogradOutputAttrs:
    """What tiles are put together to.

    Attributes:
        tile: how many results a tile has along height and width, 2 or 4.
        size: batch, height and width of the result: integers, or expressions over symbolic dimensions.
    """

    tile: int
    size: Any

    def __post_init__(self) -> None:
        _check_tile(self.tile)
        size = tuple(as_dim(extent) for extent in sequence_of(self.size, "size"))
        if len(size) != 3:
            raise ValueError(f"size: expected batch, height and width, found {self.size!r}")
        normalize(self, size=size)

    @property
    def tiles(self) -> tuple[Dim, Dim, Dim]:
        """Images, tiles of a column, tiles of a row."""
        batch, height, width = self.size
        return batch, tile_count(height, self.tile), tile_count(width, self.tile)


@register_operator
class winograd_output(Operator):
    """The tiles ``[C, points, tiles, c]`` from their values at the interpolation points, put together to an image
    ``[N, C, H, W, c]``."""

    name = "nn.winograd_output"
    arguments = ("data",)
    kind = "contraction"  # what follows is computed on the tile while it is in registers
    Attrs = WinogradOutputAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: WinogradOutputAttrs) -> TensorType:
        (data,) = args
        check_dtype(self, 0, data, _DTYPES)
        if data.ndim != 4 or not dim_equal(data.shape[1], (attrs.tile + 2) ** 2):
            raise self.error(0, f"a tensor (C, {(attrs.tile + 2) ** 2}, tiles, c)", data)
        count = product(attrs.tiles)
        if not dim_equal(data.shape[2], count):
            raise self.error(0, f"{count} tiles for a result of {format_shape(attrs.size)}", data)
        batch, *pixels = attrs.size
        return TensorType((batch, data.shape[0], *pixels, data.shape[3]), data.dtype)

    def reference(self, args: Sequence[Any], attrs: WinogradOutputAttrs) -> Any:
        (data,) = args
        tile, matrix = attrs.tile, np.array(transforms(attrs.tile).result)
        _, height, width = attrs.size
        batch, rows, columns = attrs.tiles
        channels, _, _, block = data.shape
        tiles = data.reshape(channels, tile + 2, tile + 2, batch, rows, columns, block)
        whole = np.einsum("ai,bj,cijnyxk->ncyaxbk", matrix, matrix, tiles, optimize=True)
        image = whole.reshape(whole.shape[0], channels, rows * tile, columns * tile, block)
        return np.ascontiguousarray(image[:, :, :height, :width]).astype(data.dtype)

    def compute(self, args: Sequence[Tensor], attrs: WinogradOutputAttrs, out: TensorType) -> Tensor:
        (data,) = args
        matrix, tile = transforms(attrs.tile).result, attrs.tile
        points = tile + 2
        _, channels, _, _, block = out.shape
        batch, height, width = attrs.tiles

        def at_row(b: Var, c: Var, ty: Var, tx: Var, y: Var, x: Var, lane: Var) -> Expr:
            number = (b * height + ty) * width + tx
            sums = [_paired(row, lambda k: data[c, k * points + x, number, lane]) for row in matrix]
            return _choose(y, sums)

        rows = te.compute((batch, channels, height, width, tile, points, block), at_row, name="output_rows")

        def pixel(b: Var, c: Var, y: Var, x: Var, lane: Var) -> Expr:
            sums = [_paired(row, lambda k: rows[b, c, y // tile, x // tile, y % tile, k, lane]) for row in matrix]
            return _choose(x % tile, sums)

        return te.compute(out.shape, pixel, name="winograd_output")
