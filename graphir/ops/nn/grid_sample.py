"""Sample images at the places in a grid."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import as_dim, dim_equal
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, NUMBERS, check_dtype, guarded
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, DataType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, all_of, as_expr, binary, call, cast, const, maximum, minimum, select
from tilewright.tensorir.tensor import Tensor

METHODS = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "edge", "reflection")

#: Keys' parameter of the cubic kernel, as in PyTorch and ONNX.
_COEFF = -0.75


@dataclasses.dataclass(frozen=True)
class GridSampleAttrs:
    """The interpolation between pixels, and the values outside.

    Attributes:
        method: ``nearest`` (of two, the even one), ``linear`` or ``cubic``.
        padding_mode: the values outside: ``zeros``; ``border``, places move to the nearest one of the image; ``edge``,
            the nearest pixel; or ``reflection``, the mirrored image. ``border`` and ``edge`` differ for ``cubic``: the
            first is ONNX's, the second what PyTorch calls border.
        align_corners: whether -1 and 1 are the centres of the outermost pixels; otherwise their outer borders.
    """

    method: str = "linear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("method", self.method, METHODS),
            ("padding_mode", self.padding_mode, PADDINGS),
        ):
            if value not in known:
                raise ArgumentValueError(f"{name}: expected one of {', '.join(known)}, found {value!r}")


@register_operator
class grid_sample(Operator):
    """Sample ``data`` (N, C, and one or more axes of an image) at the places in ``grid`` (N, extents of the result,
    number of axes): its last axis has coordinates from -1 to 1, that of the last axis first, as in PyTorch."""

    name = "nn.grid_sample"
    arguments = ("data", "grid")
    kind = "opaque"
    bounded_reference = False
    Attrs = GridSampleAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: GridSampleAttrs) -> TensorType:
        data, grid = args
        check_dtype(self, 0, data, NUMBERS)
        check_dtype(self, 1, grid, FLOATS)
        axes = data.ndim - 2
        if axes < 1:
            raise self.error(0, "images (N, C, and one axis or more)", data)
        if grid.ndim != data.ndim or not dim_equal(grid.shape[-1], axes) or not dim_equal(grid.shape[0], data.shape[0]):
            raise self.error(1, f"places (N, {axes} extents, {axes}) for the images {data}", grid)
        return TensorType((data.shape[0], data.shape[1], *grid.shape[1:-1]), data.dtype)

    def reference(self, args: Sequence[Any], attrs: GridSampleAttrs) -> Any:
        data, grid = args
        wide = sampling_type(DataType(data.dtype.name), DataType(grid.dtype.name)).numpy
        extents = data.shape[2:]
        result = np.zeros((*data.shape[:2], *grid.shape[1:-1]), wide)
        if result.size == 0 or data.size == 0:
            return result.astype(data.dtype)
        places = [
            _place(grid[..., len(extents) - 1 - n].astype(wide), extent, attrs) for n, extent in enumerate(extents)
        ]
        values = data.astype(wide)
        batch = np.arange(data.shape[0]).reshape(-1, *[1] * (grid.ndim - 2))
        for taps in itertools.product(taps_of(attrs.method), repeat=len(extents)):
            weight = np.ones((), wide)
            inside = np.ones((), bool)
            indices = []
            for tap, place, extent in zip(taps, places, extents, strict=True):
                base = np.floor(place).astype(np.int64)
                weight = weight * weight_of(tap, place - np.floor(place), attrs.method)
                index = base + tap
                inside = inside & (index >= 0) & (index < extent)
                indices.append(_inner_reference(index, extent, attrs))
            where = (batch, slice(None), *indices)
            taken = np.moveaxis(values[where], -1, 1)
            if attrs.padding_mode == "zeros":
                taken = np.where(inside[:, None], taken, 0)
            result = result + weight[:, None] * taken if weight.ndim else taken
        return result.astype(data.dtype)

    def compute(self, args: Sequence[Tensor], attrs: GridSampleAttrs, out: TensorType) -> Tensor:
        data, grid = args
        wide = sampling_type(data.dtype, grid.dtype)
        axes = data.ndim - 2
        # The places are the same for all channels.
        places = [
            te.compute(grid.shape[:-1], _places(grid, data.shape[2 + n], axes - 1 - n, wide, attrs), name=f"place{n}")
            for n in range(axes)
        ]
        empty = [as_expr(extent) > 0 for extent in data.shape[2:] if not isinstance(as_dim(extent), int)]

        def element(*place: Var) -> Expr:
            at = [stage(place[0], *place[2:]) for stage in places]
            bases = [call("floor", value) for value in at]
            result: Expr = const(0, wide)
            for taps in itertools.product(taps_of(attrs.method), repeat=axes):
                weight: Expr | None = None
                indices: list[Expr] = []
                inside = list(empty)
                for tap, value, base, extent in zip(taps, at, bases, data.shape[2:], strict=True):
                    index = cast("int64", base) + tap
                    if attrs.padding_mode == "zeros":
                        inside.extend([index >= 0, index < extent])
                    indices.append(_inner(index, extent, attrs))
                    if attrs.method != "nearest":
                        share = weight_of(tap, value - base, attrs.method)
                        weight = share if weight is None else weight * share
                load = cast(wide, guarded(all_of(*inside), data(place[0], place[1], *indices), 0))
                result = load if weight is None else result + weight * load
            return cast(out.dtype, result)

        return te.compute(out.shape, element, name="grid_sample")


def sampling_type(data: DataType, grid: DataType) -> DataType:
    """Return the type in which places and samples are computed."""
    is_wide = FLOAT64 in (data, grid) or (data.is_integer and data.bits > 16)
    return FLOAT64 if is_wide else FLOAT32


def _places(grid: Tensor, extent: Expr, number: int, wide: DataType, attrs: GridSampleAttrs) -> Any:
    """Build the formula of the places along one axis."""
    return lambda *place: _place(cast(wide, grid(*place, number)), extent, attrs)


def _place(grid: Any, extent: Any, attrs: GridSampleAttrs) -> Any:
    """Convert a coordinate of the grid to pixels, of arrays or of formulas."""
    if isinstance(grid, Expr):
        return moved_place(grid, cast(grid.dtype, extent), const(0, grid.dtype), attrs, select, call)
    rounding = {"floor": np.floor, "round": np.rint}
    return moved_place(grid, grid.dtype.type(extent), 0, attrs, np.where, lambda name, value: rounding[name](value))


def moved_place(
    grid: Any,
    length: Any,
    zero: Any,
    attrs: GridSampleAttrs,
    where: Callable[[Any, Any, Any], Any],
    rounding: Callable[[str, Any], Any],
) -> Any:
    """Convert a coordinate of the grid to pixels, moved onto the image according to the padding mode.

    Args:
        grid: the coordinate.
        length: the extent of the image along its axis.
        zero: 0 in the type of both.
        attrs: how the image is sampled.
        where: chooses between two values.
        rounding: applies ``floor`` or ``round``.
    """
    half = zero + 0.5
    if attrs.align_corners:
        place, low, high = (grid + 1) / 2 * (length - 1), zero, length - 1
    else:
        place, low, high = ((grid + 1) * length - 1) / 2, zero - half, length - half
    if attrs.method == "nearest":
        place = rounding("round", place)
    outside = (place < low) | (place > high)
    if attrs.padding_mode == "border":
        clipped = where(place < zero, zero, where(place > length - 1, length - 1, place))
        place = where(outside, clipped, place)
    elif attrs.padding_mode == "reflection":
        span = where(high > low, high - low, zero + 1)
        away = where(place < low, low - place, place - low)
        away = away - 2 * span * rounding("floor", away / (2 * span))
        place = where(outside, low + where(away > span, 2 * span - away, away), place)
    # Coordinates far outside, and NaN, become a place outside that an integer can represent.
    place = where(place >= zero - 4, place, zero - 4)
    return where(place <= length + 4, place, length + 4)


def taps_of(method: str) -> tuple[int, ...]:
    return {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[method]


def weight_of(tap: int, share: Any, method: str) -> Any:
    """Return the weight of the pixel ``tap`` after the one before the place, which is ``share`` behind that one."""
    if method == "nearest":
        return np.ones_like(share)
    if method == "linear":
        return share if tap else 1 - share
    if tap in (0, 1):
        t = share if tap == 0 else 1 - share
        return ((_COEFF + 2) * t - (_COEFF + 3)) * t * t + 1
    t = share + 1 if tap == -1 else 2 - share
    return ((_COEFF * t - 5 * _COEFF) * t + 8 * _COEFF) * t - 4 * _COEFF


def _inner(index: Expr, extent: Expr, attrs: GridSampleAttrs) -> Expr:
    """Move the index of a pixel onto the image."""
    if attrs.padding_mode == "zeros":
        return index
    if attrs.padding_mode == "reflection":
        last = 2 * extent - (2 if attrs.align_corners else 1)
        index = binary("floormod", index, maximum(2 * extent - (2 if attrs.align_corners else 0), 1))
        index = minimum(index, last - index)
    return maximum(minimum(index, extent - 1), 0)


def _inner_reference(index: Any, extent: int, attrs: GridSampleAttrs) -> Any:
    if attrs.padding_mode == "reflection":
        index = index % max(2 * extent - 2 * attrs.align_corners, 1)
        index = np.minimum(index, 2 * extent - (2 if attrs.align_corners else 1) - index)
    return np.clip(index, 0, extent - 1)
