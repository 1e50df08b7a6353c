"""Compute running sums, products and extremes along an axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import NUMBERS, axis_index, check_dtype, compute_type, widened
from tilewright.graphir.ops.loop_nests import assign, let, loop, nest, register
from tilewright.graphir.types import TensorType, TupleType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import INT32, INT64
from tilewright.tensorir.expr import Buffer, Expr, Var, as_expr, binary, cast, compare, const, select
from tilewright.tensorir.stmt import Allocate, BufferStore, Stmt, sequence
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class CumulativeAttrs:
    """The direction of a running sum or product.

    Attributes:
        axis: the axis along which it runs.
        exclusive: whether to leave out an element's own value, so that the first result is the neutral element.
        reverse: whether to run from the end.
    """

    axis: int = 0
    exclusive: bool = False
    reverse: bool = False


class Cumulative(Operator):
    """Base of the cumulative operators: one pass along each row. Half types accumulate in float32; integers keep their
    type."""

    arguments = ("x",)
    Attrs = CumulativeAttrs
    combine: ClassVar[str] = ""
    over_nothing: ClassVar[int] = 0
    function: ClassVar[Callable[..., Any]]

    def infer_type(self, args: Sequence[TensorType], attrs: CumulativeAttrs) -> TensorType:
        (x,) = args
        check_dtype(self, 0, x, NUMBERS)
        axis_index(self, attrs.axis, x.ndim)
        return x

    def reference(self, args: Sequence[Any], attrs: CumulativeAttrs) -> Any:
        x = np.moveaxis(widened(args[0]), attrs.axis, 0)
        x = x[::-1] if attrs.reverse else x
        with np.errstate(all="ignore"):
            if attrs.exclusive and len(x):
                x = np.concatenate([np.full_like(x[:1], self.over_nothing), x[:-1]])
            result = type(self).function(x, axis=0, dtype=x.dtype)
            result = result[::-1] if attrs.reverse else result
            return np.ascontiguousarray(np.moveaxis(result, 0, attrs.axis)).astype(args[0].dtype, copy=False)

    def compute(self, args: Sequence[Tensor], attrs: CumulativeAttrs, out: TensorType) -> list[Tensor]:
        (x,) = args
        axis = attrs.axis % x.ndim
        extent = x.shape[axis]
        wide = compute_type(x.dtype)

        def loops(outputs: list[Buffer]) -> Stmt:
            def row(place: list[Expr]) -> Stmt:
                total = Buffer("total", (as_expr(1),), wide, "register")

                def step(k: Var) -> Stmt:
                    at = (*place[:axis], extent - 1 - k if attrs.reverse else k, *place[axis:])
                    emit = BufferStore(outputs[0], cast(out.dtype, total[0]), at)
                    update = BufferStore(total, binary(self.combine, total[0], cast(wide, x[at])), (as_expr(0),))
                    return sequence(emit, update) if attrs.exclusive else sequence(update, emit)

                start = BufferStore(total, const(self.over_nothing, wide), (as_expr(0),))
                return Allocate(total, sequence(start, loop(extent, step, "k")))

            return nest([*x.shape[:axis], *x.shape[axis + 1 :]], row)

        return te.extern([(out.shape, out.dtype)], loops, self.__name__)


@register_operator
class cumsum(Cumulative):
    """Compute the running sum along an axis, as ``numpy.cumsum``: each result sums the elements up to its own."""

    name = "cumsum"
    combine = "add"
    function = np.cumsum


@register_operator
class cumprod(Cumulative):
    """Compute the running product along an axis, as ``numpy.cumprod``: each result multiplies the elements up to its
    own."""

    name = "cumprod"
    combine = "mul"
    over_nothing = 1
    function = np.cumprod


@dataclasses.dataclass(frozen=True)
class RunningExtremeAttrs:
    """The axis of a running extreme.

    Attributes:
        axis: the axis along which it runs.
    """

    axis: int = 0


class RunningExtreme(Operator):
    """Base of the running extremes: one pass along each row. Each element is compared with the extreme of those before
    it; a NaN is more extreme than any number, and of equal elements the last one counts, as in PyTorch."""

    arguments = ("x",)
    num_outputs = 2
    Attrs = RunningExtremeAttrs
    #: The comparison of an element with the extreme before it.
    reaches: ClassVar[str] = ""
    accumulate: ClassVar[Callable[..., Any]]

    def infer_type(self, args: Sequence[TensorType], attrs: RunningExtremeAttrs) -> TupleType:
        (x,) = args
        check_dtype(self, 0, x, (*NUMBERS, "bool"))
        axis_index(self, attrs.axis, x.ndim)
        return TupleType([x, TensorType(x.shape, INT64)])

    def reference(self, args: Sequence[Any], attrs: RunningExtremeAttrs) -> Any:
        x = widened(args[0])
        values = type(self).accumulate(x, axis=attrs.axis)
        hits = (x == values) | (x != x)  # an element is equal to the extreme up to it where it reaches it
        numbers = np.arange(x.shape[attrs.axis]).reshape(-1, *(1,) * (x.ndim - attrs.axis % x.ndim - 1))
        places = np.maximum.accumulate(np.where(hits, numbers, 0), axis=attrs.axis)
        return values.astype(args[0].dtype, copy=False), places

    def compute(self, args: Sequence[Tensor], attrs: RunningExtremeAttrs, out: TupleType) -> list[Tensor]:
        (x,) = args
        axis = attrs.axis % x.ndim
        types = [found for found in out.fields if isinstance(found, TensorType)]
        # Kept as it is loaded, and compared in a type that has comparisons.
        wide = INT32 if x.dtype.is_bool else compute_type(x.dtype)

        def loops(outputs: list[Buffer]) -> Stmt:
            def row(place: list[Expr]) -> Stmt:
                best, found = register("best", x.dtype), register("place")

                def step(k: Var) -> Stmt:
                    at = (*place[:axis], k, *place[axis:])

                    def compared(element: Var) -> Stmt:
                        number = cast(wide, element)
                        reaches = binary("or", compare("eq", k, 0), compare(self.reaches, number, cast(wide, best[0])))
                        if wide.is_float:
                            reaches = binary("or", reaches, compare("ne", number, number))
                        return let("reaches", reaches, lambda reached: kept(element, reached))

                    def kept(element: Var, reached: Var) -> Stmt:
                        return sequence(
                            assign(best, select(reached, element, best[0])),
                            assign(found, select(reached, k, found[0])),
                            BufferStore(outputs[0], best[0], at),
                            BufferStore(outputs[1], found[0], at),
                        )

                    return let("element", x[at], compared)

                start = sequence(assign(best, const(0, x.dtype)), assign(found, 0))
                return Allocate(best, Allocate(found, sequence(start, loop(x.shape[axis], step, "k"))))

            return nest([*x.shape[:axis], *x.shape[axis + 1 :]], row)

        return te.extern([(found.shape, found.dtype) for found in types], loops, self.__name__)


@register_operator
class cummax(RunningExtreme):
    """Compute the greatest element up to each one along an axis, and its index (int64): the last of several, or of the
    last NaN, if there is any."""

    name = "cummax"
    reaches = "ge"
    accumulate = np.maximum.accumulate


@register_operator
class cummin(RunningExtreme):
    """Compute the least element up to each one along an axis, and its index (int64): the last of several, or of the
    last NaN, if there is any."""

    name = "cummin"
    reaches = "le"
    accumulate = np.minimum.accumulate
