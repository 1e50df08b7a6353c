"""Compute convolution with 3x3 windows by Winograd's minimal filtering: fewer multiplications for more additions.

A tile of ``tile`` x ``tile`` results needs ``(tile + 2) ** 2`` multiplications for each pair of channels, where the
direct sum takes ``9 * tile ** 2``: 4 times fewer for a tile of 4, 2.25 times fewer for one of 2. Image and weight are
transformed (``nn.winograd_input``, ``nn.winograd_weight``), multiplied at each of the ``(tile + 2) ** 2`` points
(``nn.winograd_product``), and transformed back (``nn.winograd_output``). ``Winograd`` (``passes.graph``) chooses it.

A volume is transformed slice by slice, and its products are summed over the window's depth as over channels: each slice
is transformed once, for all windows that contain it.

A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016). The matrices are those of Toom and
Cook for interpolation points ``0, +-5/8, +-3/2, infinity`` (tile 4) and ``0, +-1, infinity`` (tile 2). The points
determine the error: that of a tile of 4 is about 1.8 times as large as the direct sum's (root mean square; with the
usual points ``0, +-1, +-2, infinity`` it is twice that), that of a tile of 2 about 0.6 times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, as_dim, dim_equal, format_shape, product, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import check_dtype, guarded, normalize, same_dtype, sequence_of
from tilewright.graphir.ops.nn.window import margins, window_count
from tilewright.graphir.ops.nn.winograd_transforms import POINTS, WINDOW, combine, combine_paired, transforms
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, all_of, choose
from tilewright.tensorir.tensor import Tensor

_DTYPES = ("float32", "float64")

#: NumPy's product of so many windows is too small to be given to threads: waking and waiting for those costs more than
#: the product of all weights. The transforms of so many windows stay in the second-level cache until they are rounded.
_WINDOWS_AT_ONCE = 512


def tile_count(extent: Dim, tile: int) -> Dim:
    """Return the number of tiles that cover ``extent`` results."""
    return simplify((as_dim(extent) + (tile - 1)) // tile)


def _check_tile(tile: Any) -> None:
    if tile not in POINTS:
        raise ArgumentValueError(f"tile: expected one of {', '.join(map(str, POINTS))}, found {tile!r}")


@dataclasses.dataclass(frozen=True)
class WinogradAttrs:
    """``tile``: the number of results in a tile along height and width, 2 or 4."""

    tile: int

    def __post_init__(self) -> None:
        _check_tile(self.tile)


@dataclasses.dataclass(frozen=True)
class WinogradWeightAttrs(WinogradAttrs):
    """As :class:`WinogradAttrs`; ``axis``: the dimension of the window's height, directly before that of its width."""

    axis: int = 2


@register_operator
class winograd_weight(Operator):
    """Transform the weight ``[O, I, 3, 3, ...]`` or, with ``axis=3``, ``[O, I, D, 3, 3, ...]`` of a convolution to the
    interpolation points: ``[points, O, I, ...]`` or ``[points, O, I, D, ...]``."""

    name = "nn.winograd_weight"
    arguments = ("weight",)
    kind = "opaque"
    total_reference = True
    Attrs = WinogradWeightAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: WinogradWeightAttrs) -> TensorType:
        (weight,) = args
        check_dtype(self, 0, weight, _DTYPES)
        axis = attrs.axis
        if weight.ndim < axis + 2 or weight.shape[axis : axis + 2] != (WINDOW, WINDOW):
            raise self.error(0, f"a tensor with a window of 3x3 as dimensions {axis} and {axis + 1}", weight)
        return TensorType(((attrs.tile + 2) ** 2, *weight.shape[:axis], *weight.shape[axis + 2 :]), weight.dtype)

    def reference(self, args: Sequence[Any], attrs: WinogradWeightAttrs) -> Any:
        (weight,) = args
        matrix, axis = np.array(transforms(attrs.tile).weight), attrs.axis
        transform = np.kron(matrix, matrix)
        rest = (*weight.shape[:axis], *weight.shape[axis + 2 :])
        windows = np.moveaxis(weight, (axis, axis + 1), (0, 1)).reshape(WINDOW, WINDOW, *(rest or (1,)))
        at_points = np.empty((len(transform), *windows.shape[2:]), weight.dtype)
        for number in range(windows.shape[2]):  # gathered in double precision at once, for one O
            gathered = windows[:, :, number].astype(np.float64, order="C").reshape(WINDOW**2, -1)
            result = at_points[:, number].reshape(len(transform), -1)
            for start in range(0, gathered.shape[1], _WINDOWS_AT_ONCE):
                part = slice(start, start + _WINDOWS_AT_ONCE)
                result[:, part] = transform @ gathered[:, part]
        return at_points.reshape(len(transform), *rest)

    def compute(self, args: Sequence[Tensor], attrs: WinogradWeightAttrs, out: TensorType) -> Tensor:
        (weight,) = args
        matrix, points, axis = transforms(attrs.tile).weight, attrs.tile + 2, attrs.axis

        def at_row(x: Var, *place: Var) -> Expr:
            places = [(*place[:axis], k, *place[axis:]) for k in range(WINDOW)]
            return choose(x, [combine(row, lambda k: weight[places[k]]) for row in matrix])

        rows = te.compute((points, *weight.shape[:axis], *weight.shape[axis + 1 :]), at_row, name="weight_rows")

        def at_point(point: Var, *place: Var) -> Expr:
            places = [(point // points, *place[:axis], k, *place[axis:]) for k in range(WINDOW)]
            return choose(point % points, [combine(row, lambda k: rows[places[k]]) for row in matrix])

        return te.compute(out.shape, at_point, name="winograd_weight")


@dataclasses.dataclass(frozen=True)
class WinogradInputAttrs:
    """The tiles over an image, and the zeros around it.

    Attributes:
        tile: the number of results in a tile along height and width, 2 or 4.
        padding: zeros around the image: one size, (height, width), or (top, left, bottom, right). Around a volume:
            those before depth, height and width and then those behind.
    """

    tile: int
    padding: Any = (1, 1)

    def __post_init__(self) -> None:
        _check_tile(self.tile)
        is_volume = isinstance(self.padding, (tuple, list)) and len(self.padding) == 6
        normalize(self, padding=margins(self.padding, "padding", 3 if is_volume else 2))

    @property
    def before(self) -> tuple[Dim, ...]:
        """The zeros before each spatial dimension."""
        return tuple(self.padding[: len(self.padding) // 2])

    def padded(self, space: Sequence[Dim]) -> list[Dim]:
        """Return the extents of an image of that size with its padding."""
        behind = self.padding[len(self.before) :]
        return [simplify(extent + (a + b)) for extent, a, b in zip(space, self.before, behind, strict=True)]

    def results(self, space: Sequence[Dim]) -> tuple[Dim, Dim]:
        """Return height and width of the convolution's result."""
        *_, height, width = self.padded(space)
        return simplify(height - 2), simplify(width - 2)


@register_operator
class winograd_input(Operator):
    """Transform the image ``[N, C, H, W, c]`` in blocks of channels, tile by tile, to the interpolation points:
    ``[C, x, y, N, tiles of a column, tiles of a row, c]``. Of a volume ``[N, C, D, H, W, c]``, transform each slice,
    those of the padding too: ``[C, x, y, N, D, tiles of a column, tiles of a row, c]``."""

    name = "nn.winograd_input"
    arguments = ("data",)
    kind = "injective"
    contiguous_reads = True
    Attrs = WinogradInputAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: WinogradInputAttrs) -> TensorType:
        (data,) = args
        check_dtype(self, 0, data, _DTYPES)
        rank = len(attrs.before)
        if data.ndim != rank + 3:
            raise self.error(0, f"a tensor in layout NC{'DHW'[-rank:]}c ({rank + 3} dimensions)", data)
        n, channels, *space, block = data.shape
        for name, extent in zip(("rows", "columns"), attrs.results(space), strict=True):
            if isinstance(extent, int) and extent < 1:
                raise self.error(0, f"at least 3 {name} with the padding", data)
        tiles = [tile_count(extent, attrs.tile) for extent in attrs.results(space)]
        points = attrs.tile + 2
        return TensorType((channels, points, points, n, *attrs.padded(space)[:-2], *tiles, block), data.dtype)

    def reference(self, args: Sequence[Any], attrs: WinogradInputAttrs) -> Any:
        (data,) = args
        n, channels, *space, block = data.shape
        tile, matrix = attrs.tile, np.array(transforms(attrs.tile).image)
        rows, columns = (tile_count(extent, tile) for extent in attrs.results(space))
        assert isinstance(rows, int) and isinstance(columns, int)
        depth = attrs.padded(space)[:-2]
        padded = np.zeros((n, channels, *depth, rows * tile + 2, columns * tile + 2, block))
        inside = [slice(a, a + extent) for a, extent in zip(attrs.before, space, strict=True)]
        at: Any = (slice(None), slice(None), *inside)
        padded[at] = data
        result = np.empty((channels, tile + 2, tile + 2, n, *depth, rows, columns, block), data.dtype)
        for y in range(rows):
            for x in range(columns):
                patch = padded[..., y * tile : (y + 1) * tile + 2, x * tile : (x + 1) * tile + 2, :]
                at_points = np.einsum("ai,bj,nc...ijk->cabn...k", matrix, matrix, patch, optimize=True)
                result[..., y, x, :] = at_points
        return result

    def compute(self, args: Sequence[Tensor], attrs: WinogradInputAttrs, out: TensorType) -> Tensor:
        (data,) = args
        matrix, tile = transforms(attrs.tile).image, attrs.tile
        channels, points, _, n, *tiles, block = out.shape

        def pixel(c: Var, b: Var, *place: Var) -> Expr:
            *depth, ty, tx, y, x, lane = place
            at = [index - a for index, a in zip((*depth, ty * tile + y, tx * tile + x), attrs.before, strict=True)]
            inside = [condition for n, i in enumerate(at) for condition in (i >= 0, i < data.shape[n + 2])]
            return guarded(all_of(*inside), data(b, c, *at, lane), 0)

        patch = te.compute((channels, n, *tiles, points, points, block), pixel, name="patch")

        def at_row(*place: Var) -> Expr:
            *tile_of, y, x, lane = place
            sums = [combine(row, lambda k: patch(*tile_of, k, x, lane)) for row in matrix]
            return choose(y, sums)

        rows = te.compute(patch.shape, at_row, name="input_rows")

        def at_point(c: Var, y: Var, x: Var, *place: Var) -> Expr:
            *tile_of, lane = place
            return choose(x, [combine(row, lambda k: rows(c, *tile_of, y, k, lane)) for row in matrix])

        return te.compute(out.shape, at_point, name="winograd_input")


@register_operator
class winograd_product(Operator):
    """Multiply image ``[I, x, y, N, rows, columns, i]`` and weight ``[points, O, I, i, o]`` at the interpolation
    points, and sum over the input channels: ``[O, points, tiles, o]``. For a volume
    ``[I, x, y, N, slices, rows, columns, i]`` and a weight ``[points, O, I, D, i, o]``, sum also over ``D``
    neighbouring slices: ``[O, points, N, tiles, o]``."""

    name = "nn.winograd_product"
    arguments = ("data", "weight")
    kind = "contraction"
    bounded_reference = False

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        data, weight = args
        dtype = same_dtype(self, args)
        check_dtype(self, 0, data, _DTYPES)
        if data.ndim not in (7, 8):
            raise self.error(0, "a tensor of 7 or 8 dimensions, as nn.winograd_input gives it", data)
        points = simplify(data.shape[1] * data.shape[2])
        if weight.ndim != data.ndim - 2:
            raise self.error(1, f"a tensor (points, O, I, {'D, ' if data.ndim == 8 else ''}i, o)", weight)
        inner = (points, data.shape[0], data.shape[-1])
        for expected, found in zip(inner, (weight.shape[0], weight.shape[2], weight.shape[-2]), strict=True):
            if not dim_equal(expected, found):
                raise self.error(1, f"points, I and i as in data, {format_shape(inner)}", weight)
        *images, slices, rows, columns = data.shape[3:-1]
        for depth in weight.shape[3:-2]:
            slices = window_count(self, slices, depth, 1, 1, (0, 0))
        return TensorType((weight.shape[1], points, *images, product((slices, rows, columns)), weight.shape[-1]), dtype)

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        data, weight = args
        volumes = data if data.ndim == 8 else data[:, :, :, None]
        taps = weight if data.ndim == 8 else weight[:, :, :, None]
        channels, side, _, n, slices, rows, columns, block = volumes.shape
        depth = taps.shape[3]
        result = np.zeros((*taps.shape[1::-1], n, (slices - depth + 1) * rows * columns, taps.shape[-1]), data.dtype)
        for k in range(depth):
            part = volumes[:, :, :, :, k : slices - depth + 1 + k]
            flat = part.reshape(channels, side**2, n, -1, block)
            result += np.einsum("ipntk,poikj->opntj", flat, taps[:, :, :, k], optimize=True)
        return result if data.ndim == 8 else result[:, :, 0]

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        data, weight = args
        channels, _, side, *_, height, width, block = data.shape
        outer, inner = te.reduce_axis(channels, "ic"), te.reduce_axis(block, "ici")
        depth = [te.reduce_axis(size, "kd") for size in weight.shape[3:-2]]

        def element(o: Var, point: Var, *place: Var) -> te.Reduction:
            # Tiles are numbered across all images, or, as the slices of a volume follow each other, within each volume.
            *images, tile, lane = place
            number = sum(depth, tile // width // height)
            at = (outer, point // side, point % side, *images, number, tile // width % height, tile % width, inner)
            return te.sum(data[at] * weight(point, o, outer, *depth, inner, lane), axis=[outer, *depth, inner])

        return te.compute(out.shape, element, name="winograd_product")


@dataclasses.dataclass(frozen=True)
class WinogradOutputAttrs:
    """The result that is assembled from tiles.

    Attributes:
        tile: the number of results in a tile along height and width, 2 or 4.
        size: batch, height and width of the result, of a volume with the depth before the height: integers, or
            expressions over symbolic dimensions.
    """

    tile: int
    size: Any

    def __post_init__(self) -> None:
        _check_tile(self.tile)
        size = tuple(as_dim(extent) for extent in sequence_of(self.size, "size"))
        if len(size) not in (3, 4):
            raise ArgumentValueError(
                f"size: expected batch, height and width, or a depth before them, found {self.size!r}"
            )
        normalize(self, size=size)

    @property
    def tiles(self) -> tuple[Dim, ...]:
        """The numbers of images, slices of a volume, tiles of a column, tiles of a row."""
        *images, height, width = self.size
        return *images, tile_count(height, self.tile), tile_count(width, self.tile)


@register_operator
class winograd_output(Operator):
    """Transform the tiles ``[C, points, tiles, c]`` back from the interpolation points, and assemble them to an image
    ``[N, C, H, W, c]``; those of volumes, ``[C, points, N, tiles, c]``, to ``[N, C, D, H, W, c]``."""

    name = "nn.winograd_output"
    arguments = ("data",)
    kind = "contraction"  # consumers are computed on the tile while it is in registers
    Attrs = WinogradOutputAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: WinogradOutputAttrs) -> TensorType:
        (data,) = args
        check_dtype(self, 0, data, _DTYPES)
        *volumes, slices = attrs.size[:-2]
        if data.ndim != 4 + len(volumes) or not dim_equal(data.shape[1], (attrs.tile + 2) ** 2):
            layout = f"(C, {(attrs.tile + 2) ** 2}, {'N, ' if volumes else ''}tiles, c)"
            raise self.error(0, f"a tensor {layout}", data)
        count = product((slices, *attrs.tiles[-2:]))
        if not all(map(dim_equal, data.shape[2:-1], (*volumes, count))):
            raise self.error(0, f"{count} tiles for a result of {format_shape(attrs.size)}", data)
        batch, *space = attrs.size
        return TensorType((batch, data.shape[0], *space, data.shape[-1]), data.dtype)

    def reference(self, args: Sequence[Any], attrs: WinogradOutputAttrs) -> Any:
        (data,) = args
        tile, matrix = attrs.tile, np.array(transforms(attrs.tile).result)
        *_, height, width = attrs.size
        batch, *depth, rows, columns = attrs.tiles
        channels, block = data.shape[0], data.shape[-1]
        tiles = data.reshape(channels, tile + 2, tile + 2, batch, *depth, rows, columns, block)
        whole = np.einsum("ai,bj,cijn...yxk->nc...yaxbk", matrix, matrix, tiles, optimize=True)
        image = whole.reshape(batch, channels, *depth, rows * tile, columns * tile, block)
        return np.ascontiguousarray(image[..., :height, :width, :]).astype(data.dtype)

    def compute(self, args: Sequence[Tensor], attrs: WinogradOutputAttrs, out: TensorType) -> Tensor:
        (data,) = args
        matrix, tile = transforms(attrs.tile).result, attrs.tile
        points = tile + 2
        batch, *depth, height, width = attrs.tiles

        def at_row(b: Var, c: Var, *place: Var) -> Expr:
            *slices, ty, tx, y, x, lane = place
            *volume, number = b, *slices
            line = (number * height + ty) * width + tx
            sums = [combine_paired(row, lambda k: data(c, k * points + x, *volume, line, lane)) for row in matrix]
            return choose(y, sums)

        shape = (batch, out.shape[1], *depth, height, width, tile, points, out.shape[-1])
        rows = te.compute(shape, at_row, name="output_rows")

        def pixel(b: Var, c: Var, *place: Var) -> Expr:
            *slices, y, x, lane = place
            at = (b, c, *slices, y // tile, x // tile, y % tile)
            return choose(x % tile, [combine_paired(row, lambda k: rows(*at, k, lane)) for row in matrix])

        return te.compute(out.shape, pixel, name="winograd_output")
