"""Compute transposed convolution, which spreads each element over a window of the result."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, as_dim, dim_equal, shape_equal, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import concatenate, expand_dims, reshape, squeeze, transpose
from tilewright.graphir.ops.calls import slice as slice_of
from tilewright.graphir.ops.common import NUMBERS, check_dtype, guarded, normalize, same_dtype
from tilewright.graphir.ops.nn.window import cuts, per_axis
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, all_of
from tilewright.tensorir.tensor import Tensor

_CONVOLUTIONS = {2: "nn.conv2d", 3: "nn.conv3d"}
#: The greatest number of convolutions, each for the pixels at one offset between two windows: with more, one for all
#: pixels is faster, even if it computes some that are cut off.
_MOST_PARTS = 4


@dataclasses.dataclass(frozen=True)
class DilateAttrs:
    """The new positions of elements.

    Attributes:
        strides: their new distance along each of the last dimensions.
        padding: zeros before each of these dimensions and then behind each; negative numbers crop.
    """

    strides: Any
    padding: Any = 0

    def __post_init__(self) -> None:
        rank = len(self.strides) if isinstance(self.strides, (tuple, list)) else 1
        normalize(
            self,
            strides=per_axis(self.strides, "strides", rank),
            padding=cuts(self.padding, "padding", rank),
        )


@register_operator
class dilate(Operator):
    """Insert zeros between the elements of ``x`` and around them: along the last dimensions, element ``i`` moves to
    ``i * stride + padding``."""

    name = "nn.dilate"
    arguments = ("x",)
    kind = "injective"
    Attrs = DilateAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: DilateAttrs) -> TensorType:
        (x,) = args
        rank = len(attrs.strides)
        if x.ndim < rank:
            raise self.error(0, f"at least {rank} dimensions", x)
        shape = list(x.shape)
        for n, stride in enumerate(attrs.strides):
            at = x.ndim - rank + n
            margin = attrs.padding[n] + attrs.padding[n + rank]
            shape[at] = simplify((shape[at] - 1) * stride + (1 + margin))
            extent = shape[at]
            if isinstance(extent, int) and extent < 0:
                raise self.error(0, "more elements than padding cuts off", x)
        return TensorType(shape, x.dtype)

    def reference(self, args: Sequence[Any], attrs: DilateAttrs) -> Any:
        (x,) = args
        first = x.ndim - len(attrs.strides)
        extents = self.infer_type([TensorType(x.shape, x.dtype)], attrs).shape
        out = np.zeros(tuple(int(extent) for extent in extents), x.dtype)  # type: ignore[arg-type]
        source = [slice(None)] * x.ndim
        target = [slice(None)] * x.ndim
        for n, stride in enumerate(attrs.strides):
            places = np.arange(x.shape[first + n]) * stride + attrs.padding[n]
            kept = np.flatnonzero((places >= 0) & (places < out.shape[first + n]))
            if not kept.size:
                return out
            source[first + n] = slice(kept[0], kept[-1] + 1)
            target[first + n] = slice(places[kept[0]], places[kept[-1]] + 1, stride)
        out[tuple(target)] = x[tuple(source)]
        return out

    def compute(self, args: Sequence[Tensor], attrs: DilateAttrs, out: TensorType) -> Tensor:
        (x,) = args
        rank = len(attrs.strides)

        def element(*place: Var) -> Expr:
            indices: list[Expr] = list(place)
            inside: list[Expr] = []
            for n, stride in enumerate(attrs.strides):
                number = x.ndim - rank + n
                before, behind = attrs.padding[n], attrs.padding[n + rank]
                at = place[number] - before
                inside.extend([at >= 0] if before > 0 else [])
                inside.extend([(at % stride).equal(0)] if stride > 1 else [])
                indices[number] = at // stride
                inside.extend([indices[number] < x.shape[number]] if behind > 0 else [])
            return guarded(all_of(*inside), x[tuple(indices)], 0)

        return te.compute(out.shape, element, name="dilate")


@dataclasses.dataclass(frozen=True)
class ConvTransposeAttrs:
    """The position of windows in the result; each attribute is one number for all spatial dimensions, or one for each.

    Attributes:
        strides: the steps from one window to the next.
        padding: the sizes to crop from the result: one size, one for each dimension, or those before each dimension and
            then behind each; negative numbers add zeros.
        dilation: the distance between elements in a window.
        groups: independent groups of channels.
        output_padding: zeros behind each dimension of the result, which windows may reach into.
    """

    strides: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    output_padding: Any = 0

    def __post_init__(self) -> None:
        fields = ("strides", "padding", "dilation", "output_padding")
        for name in fields:
            value = getattr(self, name)
            normalize(self, **{name: tuple(value) if isinstance(value, (tuple, list)) else (value,)})
        if type(self.groups) is not int or self.groups < 1:
            raise ArgumentValueError(f"groups: expected a positive integer, found {self.groups!r}")

    def for_rank(self, rank: int) -> ConvTransposeAttrs:
        """Return the same with one number for each of ``rank`` spatial dimensions.

        Raises:
            ValueError: an attribute has another number of them.
        """
        return dataclasses.replace(
            self,
            strides=per_axis(self.strides, "strides", rank),
            padding=cuts(self.padding, "padding", rank),
            dilation=per_axis(self.dilation, "dilation", rank),
            output_padding=per_axis(self.output_padding, "output_padding", rank, 0),
        )

    def under_a_row(self) -> ConvTransposeAttrs:
        """Return the attributes for an image of height 1, from those for its row."""
        before, behind = self.padding
        return dataclasses.replace(
            self,
            strides=(1, *self.strides),
            padding=(0, before, 0, behind),
            dilation=(1, *self.dilation),
            output_padding=(0, *self.output_padding),
        )


@register_operator
class conv_transpose(Operator):
    """Compute the transposed convolution: multiply each element of ``data`` (batch, channels, 1 to 3 dimensions of
    space) by a window of ``weight`` (inputs, outputs of a group, window), and add the products at the positions of the
    windows: ``out[n, o, x*s + i*d - p] += data[n, c, x] * weight[c, o, i]``. This is the gradient of a convolution with
    regard to its data.

    With strides, the pixels at one offset between the beginnings of two windows get their products from every ``s``-th
    factor of the windows: they are a convolution of ``data`` with these, flipped, and the results for all offsets are
    interleaved (W. Shi and others, "Is the deconvolution layer the same as a convolutional layer?", 2016). If windows
    leave gaps, it is the convolution of ``data``, dilated by the strides, with the flipped weight. Zeros around
    the data, and in its gaps, take part in these convolutions: a factor that is infinite or NaN makes NaN of all pixels
    where it meets one (as in Apache TVM; PyTorch and ONNX Runtime add products of elements only).
    """

    name = "nn.conv_transpose"
    arguments = ("data", "weight")
    kind = "contraction"
    bounded_reference = False
    Attrs = ConvTransposeAttrs

    def _attrs(self, rank: int, attrs: ConvTransposeAttrs) -> ConvTransposeAttrs:
        try:
            return attrs.for_rank(rank)
        except (TypeError, ValueError) as error:
            raise self.error("attributes", f"those of {rank} spatial dimensions", str(error)) from error

    def infer_type(self, args: Sequence[TensorType], attrs: ConvTransposeAttrs) -> TensorType:
        data, weight = args
        dtype = same_dtype(self, args)
        check_dtype(self, 0, data, NUMBERS)
        rank = data.ndim - 2
        if not 1 <= rank <= 3:
            raise self.error(0, "1, 2 or 3 spatial dimensions behind batch and channels", data)
        if weight.ndim != data.ndim or not all(isinstance(extent, int) for extent in weight.shape[1:]):
            raise self.error(1, f"a tensor with {data.ndim} dimensions and a window of static size", weight)
        if not dim_equal(weight.shape[0], data.shape[1]):
            raise self.error(1, f"{data.shape[1]} input channels", weight)
        if attrs.groups > 1 and not (isinstance(data.shape[1], int) and data.shape[1] % attrs.groups == 0):
            raise self.error(1, f"a number of input channels divisible by {attrs.groups} groups", weight)
        attrs = self._attrs(rank, attrs)
        space: list[Dim] = []
        for n, extent in enumerate(data.shape[2:]):
            margin = attrs.output_padding[n] - attrs.padding[n] - attrs.padding[n + rank]
            size = (as_dim(weight.shape[n + 2]) - 1) * attrs.dilation[n] + 1
            made = simplify((extent - 1) * attrs.strides[n] + size + margin)
            if isinstance(made, int) and made < 0:
                raise self.error("padding", "less than the result has", attrs.padding)
            space.append(made)
        return TensorType((data.shape[0], simplify(weight.shape[1] * attrs.groups), *space), dtype)

    def channel_axis(self, argument: int, attrs: ConvTransposeAttrs) -> int | None:
        return 1

    def decompose(self, args: Sequence[GraphExpr], attrs: ConvTransposeAttrs) -> GraphExpr:
        data, weight = args
        rank = data.ndim - 2
        attrs = self._attrs(rank, attrs)
        result = self.infer_type([arg.tensor_type for arg in args], attrs)
        if any(isinstance(dim, int) and dim == 0 for dim in result.shape):  # no convolution makes it if all is cropped
            return call_operator("zeros", shape=result.shape, dtype=result.dtype)
        if rank == 1:
            wide = [expand_dims(arg, axis=2) for arg in args]
            return squeeze(self.decompose(wide, attrs.under_a_row()), axis=2)
        taken, made, *window = weight.shape
        groups = attrs.groups
        turned = reshape(weight, newshape=(groups, simplify(taken // groups), made, *window))
        turned = transpose(turned, axes=(0, 2, 1, *range(3, rank + 3)))
        if any(size != 1 for size in window):
            turned = call_operator("flip", turned, axis=tuple(range(3, rank + 3)))
        space = result.shape[2:]
        sizes = [size for size in window if isinstance(size, int)]
        # A dimension with one element has one window: the next one may as well begin at its end.
        moves = zip(sizes, data.shape[2:], attrs.dilation, attrs.strides, strict=True)
        strides = [
            size if dim_equal(extent, 1) and dilation == 1 else stride for size, extent, dilation, stride in moves
        ]
        attrs = dataclasses.replace(attrs, strides=tuple(strides))
        phases = [_phases(size, n, attrs) for n, size in enumerate(sizes)]
        if not all(phase.count for along in phases for phase in along):
            return self._apart(data, turned, attrs)
        if math.prod(strides) > _MOST_PARTS and not _alike(phases) and (groups == 1 or made != 1):
            # Pixels cropped in the middle between two windows are computed: then all phases use the same elements.
            more = [cut % stride for cut, stride in zip(attrs.padding[:rank], strides, strict=True)]
            cuts = [cut - extra for cut, extra in zip(attrs.padding[:rank], more, strict=True)]
            whole = dataclasses.replace(attrs, padding=(*cuts, *attrs.padding[rank:]))
            others = [_phases(size, n, whole) for n, size in enumerate(sizes)]
            if _alike(others):
                return self._in_phases(data, turned, whole, others, more, space)
        return self._in_phases(data, turned, attrs, phases, [0] * rank, space)

    def _in_phases(
        self,
        data: GraphExpr,
        turned: GraphExpr,
        attrs: ConvTransposeAttrs,
        phases: Sequence[Sequence[_Phase]],
        first: Sequence[int],
        space: Sequence[Dim],
    ) -> GraphExpr:
        """Compute the pixels at each offset between two windows by one convolution, with the factors that meet there;
        return the range ``space`` from ``first`` of the whole."""
        groups, made, taken, *window = turned.shape
        rank, together = len(window), list(itertools.product(*phases))
        weights = []
        for place in together:
            begin = [simplify(size - (1 + phase.last)) for size, phase in zip(window, place, strict=True)]
            end = [simplify(size - phase.last % s) for size, phase, s in zip(window, place, attrs.strides, strict=True)]
            axes = tuple(range(3, rank + 3))
            weights.append(slice_of(turned, begin=begin, end=end, strides=attrs.strides, axes=axes))
        # Pixels that use the same elements are channels of one convolution; a depthwise one remains so.
        if _alike(phases) and len(together) > 1 and (attrs.groups == 1 or made != 1):
            weights = [concatenate(*weights, axis=1)]
        parts = []
        for weight, place in zip(weights, together, strict=False):
            channels = simplify(weight.shape[1] * groups)
            kernel = reshape(weight, newshape=(channels, taken, *weight.shape[3:]))
            parts.append(_convolved(data, kernel, attrs, place))
        result = parts[0] if len(parts) == 1 else concatenate(*parts, axis=1)
        if len(together) > 1:
            own = attrs.groups if len(parts) == 1 else 1
            result = call_operator("nn.interleave", result, strides=attrs.strides, groups=own)
        kept = [n for n in range(rank) if first[n] or not dim_equal(result.shape[n + 2], space[n])]
        if not kept:
            return result
        begin, end = [first[n] for n in kept], [simplify(first[n] + space[n]) for n in kept]
        cropped = slice_of(result, begin=begin, end=end, axes=tuple(n + 2 for n in kept))
        # A slice may be empty, so that its size is ``max(n * 2 - 1, 0)``; the result's is ``n * 2 - 1``.
        wanted = (*result.shape[:2], *space)
        return cropped if shape_equal(cropped.shape, wanted) else call_operator("match_shape", cropped, shape=wanted)

    def _apart(self, data: GraphExpr, turned: GraphExpr, attrs: ConvTransposeAttrs) -> GraphExpr:
        """Compute one convolution of the data with zeros between its elements."""
        groups, made, taken, *window = turned.shape
        rank = len(window)
        kernel = reshape(turned, newshape=(simplify(made * groups), taken, *window))
        reach = [(size - 1) * d for size, d in zip(window, attrs.dilation, strict=True)]
        padding = [amount - cut for amount, cut in zip(reach * 2, attrs.padding, strict=True)]
        behind = [amount + extra for amount, extra in zip(padding[rank:], attrs.output_padding, strict=True)]
        spread = call_operator("nn.dilate", data, strides=attrs.strides, padding=(*padding[:rank], *behind))
        return call_operator(_CONVOLUTIONS[rank], spread, kernel, dilation=attrs.dilation, groups=attrs.groups)

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: ConvTransposeAttrs) -> GraphExpr:
        return self.decompose(args, attrs)


@dataclasses.dataclass(frozen=True)
class _Phase:
    """The factors of a window that meet at pixels ``x * stride + r`` of the result, for one ``r``, along one dimension:
    every ``stride``-th one.

    Attributes:
        last: the last of them in the window.
        count: their number; 0: the pixels are in gaps between the windows.
        before, behind: the padding around the data with which a convolution gives these pixels; negative: it is
            cropped.
    """

    last: int
    count: int
    before: int
    behind: int


def _alike(phases: Sequence[Sequence[_Phase]]) -> bool:
    """Return whether all phases along each dimension use the same elements of the data."""
    return all(len({(phase.count, phase.before, phase.behind) for phase in along}) == 1 for along in phases)


def _phases(size: int, n: int, attrs: ConvTransposeAttrs) -> list[_Phase]:
    """Return the phases along spatial dimension ``n``, on which the window has size ``size``.

    Pixel ``y = q * stride + r`` gets the products of elements ``x`` and factors ``i`` with
    ``x * stride + i * dilation == y + cut``. With ``r + cut == ahead * stride + rest``, that is ``x == q + ahead - j``
    for each factor with ``i * dilation == rest + j * stride``. Where there are no gaps, stride and dilation have
    no common divisor: the factors are a stride apart, and the elements that they are for, a dilation.
    """
    stride, dilation, cut = attrs.strides[n], attrs.dilation[n], attrs.padding[n]
    span = (size - 1) * dilation + 1
    # Each phase has so many more pixels than the data has elements; the last ones may be superfluous.
    more = -(-(span - stride + attrs.output_padding[n] - cut - attrs.padding[n + len(attrs.strides)]) // stride)
    found = []
    for r in range(stride):
        ahead, rest = divmod(r + cut, stride)
        factors = [i for i in range(size) if (i * dilation - rest) % stride == 0]
        if not factors:
            found.append(_Phase(0, 0, 0, 0))
            continue
        nearest, farthest = ((i * dilation - rest) // stride for i in (factors[0], factors[-1]))
        found.append(_Phase(factors[-1], len(factors), farthest - ahead, more + ahead - nearest))
    return found


def _convolved(data: GraphExpr, kernel: GraphExpr, attrs: ConvTransposeAttrs, place: Sequence[_Phase]) -> GraphExpr:
    """Return the pixels of one phase along each dimension."""
    padding = (*[phase.before for phase in place], *[phase.behind for phase in place])
    if min(padding) < 0:
        data = call_operator("nn.dilate", data, strides=(1,) * len(place), padding=padding)
        padding = (0,) * len(padding)
    moves = {"padding": padding, "dilation": attrs.dilation, "groups": attrs.groups}
    return call_operator(_CONVOLUTIONS[len(place)], data, kernel, **moves)
