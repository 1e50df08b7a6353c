"""Take parts of a tensor: slices and splits."""

from __future__ import annotations

import builtins
import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import Dim, analyzer_for, as_dim, simplify
from tilewright.graphir.expr import Call, Tuple
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.op import Operator, get_operator, register_alias, register_operator
from tilewright.graphir.ops.common import axis_index, normalize, sequence_of
from tilewright.graphir.types import TensorType, TupleType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError
from tilewright.tensorir.expr import Expr, IntImm, as_expr, binary
from tilewright.tensorir.tensor import Tensor


def _bound(value: Any, name: str) -> int | Expr | None:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, IntImm):
        return value.value
    if isinstance(value, (Expr, str)):
        return as_dim(value)
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name}: expected integers, symbolic dimensions or None, found {value!r}") from None


@dataclasses.dataclass(frozen=True)
class SliceAttrs:
    """Bounds of slices, with the meaning of Python's ``x[begin:end:stride]`` on each axis.

    Attributes:
        begin: for each axis an integer (negative: from the end), an expression over symbolic dimensions (which counts
            from the front), or None.
        end: the same; the first element that is not taken.
        strides: integers, not zero; None: all 1.
        axes: the sliced axes; None: the first ones.
    """

    begin: Any
    end: Any
    strides: Any = None
    axes: Any = None

    def __post_init__(self) -> None:
        begin = tuple(_bound(value, "begin") for value in sequence_of(self.begin, "begin"))
        end = tuple(_bound(value, "end") for value in sequence_of(self.end, "end"))
        strides = (1,) * len(begin) if self.strides is None else sequence_of(self.strides, "strides")
        strides = tuple(1 if stride is None else operator.index(stride) for stride in strides)
        axes = None if self.axes is None else tuple(operator.index(a) for a in sequence_of(self.axes, "axes"))
        if len(strides) == 1 and len(begin) > 1:
            strides = strides * len(begin)
        for name, found in (("end", end), ("strides", strides), ("axes", axes)):
            if found is not None and len(found) != len(begin):
                raise ArgumentValueError(f"{name}: expected as many values as in begin, {len(begin)}, found {found}")
        if 0 in strides:
            raise ArgumentValueError(f"strides: expected no zero, found {strides}")
        normalize(self, begin=begin, end=end, strides=strides, axes=axes)


@register_operator
class slice(Operator):
    """Slice ``x[begin:end:strides]``. Bounds outside the tensor are clamped to its borders, as in NumPy. On an axis of
    symbolic extent only bounds that are provably inside, or missing, can be compared with it; the others are clamped
    when the program runs."""

    name = "slice"
    arguments = ("x",)
    kind = "injective"
    moves_elements = True
    Attrs = SliceAttrs

    def is_identity(self, args: Sequence[GraphExpr], attrs: SliceAttrs) -> bool:
        return all(stride > 0 for stride in attrs.strides)

    def ranges(self, shape: Sequence[Dim], attrs: SliceAttrs) -> list[tuple[Dim, Dim, int]]:
        """Return the first index, the number of elements and the stride for each axis.

        Raises:
            TypeInferenceError: there are more bounds than axes, or an axis twice.
        """
        ndim = len(shape)
        if attrs.axes is None:
            if len(attrs.begin) > ndim:
                raise self.error("begin", f"bounds for {ndim} axes at most", attrs.begin)
            axes = list(range(len(attrs.begin)))
        else:
            axes = [axis_index(self, axis, ndim, "axes") for axis in attrs.axes]
            if len(set(axes)) != len(axes):
                raise self.error("axes", "different axes", attrs.axes)
        result: list[tuple[Dim, Dim, int]] = [(0, dim, 1) for dim in shape]
        for axis, begin, end, stride in zip(axes, attrs.begin, attrs.end, attrs.strides, strict=True):
            result[axis] = _range(shape[axis], begin, end, stride)
        return result

    def infer_type(self, args: Sequence[TensorType], attrs: SliceAttrs) -> TensorType:
        (x,) = args
        return TensorType([count for _, count, _ in self.ranges(x.shape, attrs)], x.dtype)

    def reference(self, args: Sequence[Any], attrs: SliceAttrs) -> Any:
        (x,) = args
        indices = [_builtin_slice(None)] * x.ndim
        axes = range(len(attrs.begin)) if attrs.axes is None else attrs.axes
        for axis, begin, end, stride in zip(axes, attrs.begin, attrs.end, attrs.strides, strict=True):
            indices[axis] = _builtin_slice(begin, end, stride)
        return x[tuple(indices)].copy()

    def in_layout(
        self,
        args: Sequence[GraphExpr],
        blocked: Sequence[GraphExpr | None],
        attrs: SliceAttrs,
        plain: str,
        target: str,
    ) -> GraphExpr | None:
        (x,), (data,) = args, blocked
        source, layout = parse_layout(plain), parse_layout(target)
        if data is None or x.ndim != source.ndim:
            return None
        axes = range(len(attrs.begin)) if attrs.axes is None else [axis % x.ndim for axis in attrs.axes]
        ranges = self.ranges(x.shape, attrs)
        bounds: list[tuple[Any, Any, int]] = []
        for axis, begin, end, stride in zip(axes, attrs.begin, attrs.end, attrs.strides, strict=True):
            block = layout.block(source.axes[axis][0])
            if block > 1:
                blocks = _whole_blocks(x.shape[axis], ranges[axis], block)
                if blocks is None:
                    return None
                begin, end = blocks
            bounds.append((begin, end, stride))
        positions = [layout.position(source.axes[axis][0]) for axis in axes]
        begins, ends, strides = zip(*bounds, strict=True) if bounds else ((), (), ())
        made = {"begin": begins, "end": ends, "strides": strides, "axes": positions}
        return Call(self, (data,), made, None, data.span)

    def compute(self, args: Sequence[Tensor], attrs: SliceAttrs, out: TensorType) -> Tensor:
        (x,) = args
        ranges = self.ranges([as_dim(extent) for extent in x.shape], attrs)
        return te.compute(
            out.shape,
            lambda *place: x[
                tuple(index * stride + first for index, (first, _, stride) in zip(place, ranges, strict=True))
            ],
            name="slice",
        )


_builtin_slice = builtins.slice


def _whole_blocks(extent: Dim, taken: tuple[Dim, Dim, int], block: int) -> tuple[int, int] | None:
    """Return the first block and the one behind the last of what is taken of an axis, in the form of ``ranges``; None
    if that does not fill whole blocks. The last block of the axis is whole: zeros follow its elements."""
    first, count, stride = taken
    if not isinstance(extent, int) or not isinstance(first, int) or not isinstance(count, int) or stride != 1:
        return None
    end = first + count
    if count == 0 or first % block or (end % block and end != extent):
        return None
    return first // block, -(-end // block)


def _range(extent: Dim, begin: int | Expr | None, end: int | Expr | None, stride: int) -> tuple[Dim, Dim, int]:
    """Return the first index and the number of elements of ``begin:end:stride`` along an axis of ``extent``."""
    if isinstance(extent, int) and not isinstance(begin, Expr) and not isinstance(end, Expr):
        start, stop, step = _builtin_slice(begin, end, stride).indices(extent)
        return start, len(range(start, stop, step)), step
    size = as_expr(extent)
    if stride > 0:
        # No element behind the end is taken: only the end needs the upper limit, and only the begin the lower.
        first = as_expr(0) if begin is None else _from_front(begin, size, lower=0)
        last = size if end is None else _from_front(end, size, upper=size)
        distance = last - first
    else:
        first = size - 1 if begin is None else _from_front(begin, size, upper=size - 1)
        last = as_expr(-1) if end is None else _from_front(end, size, lower=-1)
        distance = first - last
    step = stride if stride > 0 else -stride
    count = (distance + (step - 1)) // step
    return _proved(first, extent), _proved(binary("max", count, as_expr(0)), extent), stride


def _from_front(bound: int | Expr, size: Expr, lower: int | None = None, upper: Expr | None = None) -> Expr:
    """Return ``bound`` clamped to the limits; a negative number counts from the end."""
    place = size + bound if isinstance(bound, int) and bound < 0 else as_expr(bound)
    if lower is not None and not (isinstance(bound, int) and bound >= 0):
        place = binary("max", place, as_expr(lower))
    if upper is not None and not (isinstance(bound, int) and bound < 0):
        place = binary("min", place, upper)
    return place


def _proved(value: Expr, extent: Dim) -> Dim:
    """Simplify ``value``, given that no symbolic dimension is negative."""
    found = analyzer_for(value, extent).simplify(value)
    return found.value if isinstance(found, IntImm) else found


@dataclasses.dataclass(frozen=True)
class SplitAttrs:
    """The cuts of a tensor.

    Attributes:
        indices_or_sections: a number of equal parts, or the indices at which parts begin.
        axis: the axis that is cut.
    """

    indices_or_sections: Any
    axis: int = 0

    def __post_init__(self) -> None:
        given = self.indices_or_sections
        if isinstance(given, (tuple, list)):
            normalize(self, indices_or_sections=tuple(_bound(value, "indices_or_sections") for value in given))
        elif operator.index(given) < 1:
            raise ArgumentValueError(f"indices_or_sections: expected a positive number of parts, found {given}")


@register_operator
class split(Operator):
    """Split ``x`` along an axis into a tuple of parts, as ``numpy.split``."""

    name = "split"
    arguments = ("x",)
    kind = "injective"
    Attrs = SplitAttrs
    num_outputs = 0  # the attributes determine it

    def _cuts(self, shape: Sequence[Dim], attrs: SplitAttrs) -> list[tuple[Any, Any]]:
        axis = axis_index(self, attrs.axis, len(shape))
        given = attrs.indices_or_sections
        if isinstance(given, tuple):
            return list(zip((0, *given), (*given, None), strict=True))
        extent = shape[axis]
        part = simplify(as_dim(as_expr(extent) // given))
        if simplify(extent - part * given) != 0:
            raise self.error("indices_or_sections", f"a number that divides axis {axis} of extent {extent}", given)
        ends = [simplify(part * (number + 1)) for number in range(given)]
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def infer_type(self, args: Sequence[TensorType], attrs: SplitAttrs) -> TupleType:
        (x,) = args
        parts = [_part(begin, end, attrs) for begin, end in self._cuts(x.shape, attrs)]
        return TupleType([get_operator("slice").infer_type([x], part) for part in parts])

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: SplitAttrs) -> GraphExpr:
        return self.decompose(args, attrs)  # slices, each of which is fused with what reads it

    def decompose(self, args: Sequence[GraphExpr], attrs: SplitAttrs) -> GraphExpr:
        (x,) = args
        return Tuple([Call("slice", [x], _part(begin, end, attrs)) for begin, end in self._cuts(x.shape, attrs)])


def _part(begin: Any, end: Any, attrs: SplitAttrs) -> Any:
    return SliceAttrs((begin,), (end,), None, (attrs.axis,))


register_alias("strided_slice", get_operator("slice"))
