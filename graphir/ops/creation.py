"""Create tensors from attributes alone, and constants of the shape of another tensor."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.graphir.dims import Dim, as_dim, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import ANY, Unary, normalize, sequence_of
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, INT64, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, as_expr, binary, cast, const
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class ShapeAttrs:
    """``shape``: dimensions, which may be symbolic; ``dtype``: element type."""

    shape: Any
    dtype: DataType = FLOAT32

    def __post_init__(self) -> None:
        shape = tuple(as_dim(dim) for dim in sequence_of(self.shape, "shape"))
        normalize(self, shape=shape, dtype=as_dtype(self.dtype))


@dataclasses.dataclass(frozen=True)
class FullAttrs:
    """``shape``: dimensions, which may be symbolic; ``fill``: the value; ``dtype``: element type."""

    shape: Any
    fill: float
    dtype: DataType = FLOAT32

    def __post_init__(self) -> None:
        shape = tuple(as_dim(dim) for dim in sequence_of(self.shape, "shape"))
        fill = self.fill.item() if hasattr(self.fill, "item") else self.fill
        if not isinstance(fill, (bool, int, float)):
            raise ArgumentTypeError(f"fill: expected a number, found {fill!r}")
        dtype = as_dtype(self.dtype)
        if isinstance(fill, float) and not dtype.is_float:
            raise ArgumentTypeError(f"fill: expected a value of type {dtype!s}, found {fill!r}")
        normalize(self, shape=shape, fill=fill, dtype=dtype)


class Creation(Operator):
    """Base of tensors with one value everywhere."""

    kind = "elementwise"
    Attrs: ClassVar[type] = ShapeAttrs
    fill: ClassVar[int] = 0

    def value(self, attrs: Any) -> float:
        """Return the value."""
        return type(self).fill

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        return TensorType(attrs.shape, attrs.dtype)

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        return np.full(attrs.shape, self.value(attrs), attrs.dtype.numpy)

    def uniform_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        return np.asarray(self.value(attrs)).astype(attrs.dtype.numpy)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        return te.compute(out.shape, lambda *place: const(self.value(attrs), out.dtype), name=self.__name__)


@register_operator
class zeros(Creation):
    """Create a tensor of zeros."""

    name = "zeros"


@register_operator
class ones(Creation):
    """Create a tensor of ones."""

    name = "ones"
    fill = 1


@register_operator
class full(Creation):
    """Create a tensor filled with one value."""

    name = "full"
    Attrs = FullAttrs

    def value(self, attrs: FullAttrs) -> float:
        return attrs.fill


@register_operator
class zeros_like(Unary):
    """Create a tensor of zeros of the shape and type of ``x``."""

    name = "zeros_like"
    dtypes = ANY
    ignores_elements = True
    function = np.zeros_like

    def scalar(self, x: Expr) -> Expr:
        return const(0, x.dtype)


@register_operator
class ones_like(Unary):
    """Create a tensor of ones of the shape and type of ``x``."""

    name = "ones_like"
    dtypes = ANY
    ignores_elements = True
    function = np.ones_like

    def scalar(self, x: Expr) -> Expr:
        return const(1, x.dtype)


@dataclasses.dataclass(frozen=True)
class ArangeAttrs:
    """The numbers ``start, start + step, ...`` below ``stop``; a single number is ``stop``, and ``start`` is 0.

    Attributes:
        start: a number or an integer expression over symbolic dimensions.
        stop: the same.
        step: a number, not 0; with symbolic bounds an integer.
        dtype: element type; by default int64, or float32 if one of the numbers is a float.
    """

    start: Any
    stop: Any = None
    step: Any = 1
    dtype: Any = None

    def __post_init__(self) -> None:
        start, stop = (0, self.start) if self.stop is None else (self.start, self.stop)
        numbers = [_number(value, name) for value, name in ((start, "start"), (stop, "stop"), (self.step, "step"))]
        if not isinstance(numbers[2], (int, float)) or numbers[2] == 0:
            raise ArgumentValueError(f"step: expected a number other than 0, found {numbers[2]}")
        default = FLOAT32 if any(isinstance(number, float) for number in numbers) else INT64
        if default is FLOAT32 and any(isinstance(number, Expr) for number in numbers):
            raise ArgumentTypeError("start, stop, step: expected integers beside a symbolic bound")
        dtype = default if self.dtype is None else as_dtype(self.dtype)
        normalize(self, start=numbers[0], stop=numbers[1], step=numbers[2], dtype=dtype)


def _number(value: Any, name: str) -> int | float | Expr:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number: int | float = value
        return number
    if isinstance(value, (str, Expr)):
        return as_dim(value)
    raise ArgumentTypeError(f"{name}: expected a number or a symbolic dimension, found {value!r}")


@register_operator
class arange(Operator):
    """Create a vector of equally spaced numbers, as ``numpy.arange``."""

    name = "arange"
    kind = "elementwise"
    Attrs = ArangeAttrs

    def _count(self, attrs: ArangeAttrs) -> Dim:
        if isinstance(attrs.start, Expr) or isinstance(attrs.stop, Expr):
            step, distance = attrs.step, as_expr(attrs.stop) - as_expr(attrs.start)
            if step < 0:
                step, distance = -step, as_expr(attrs.start) - as_expr(attrs.stop)
            return simplify(binary("max", (distance + (step - 1)) // step, as_expr(0)))
        try:
            count: int = math.ceil((attrs.stop - attrs.start) / attrs.step)
        except (ValueError, OverflowError) as error:
            raise self.error("stop", "a finite count of numbers", f"{attrs.stop} from {attrs.start}: {error}") from None
        return max(0, count)

    def infer_type(self, args: Sequence[TensorType], attrs: ArangeAttrs) -> TensorType:
        return TensorType((self._count(attrs),), attrs.dtype)

    def reference(self, args: Sequence[Any], attrs: ArangeAttrs) -> Any:
        return np.arange(attrs.start, attrs.stop, attrs.step).astype(attrs.dtype.numpy)

    def compute(self, args: Sequence[Tensor], attrs: ArangeAttrs, out: TensorType) -> Tensor:
        is_float = isinstance(attrs.start, float) or isinstance(attrs.step, float)

        def element(i: Var) -> Expr:
            if is_float:
                number: Expr = const(attrs.start, FLOAT64) + cast(FLOAT64, i) * const(attrs.step, FLOAT64)
            else:
                number = as_expr(attrs.start) + i * attrs.step
            return cast(out.dtype, number)

        return te.compute(out.shape, element, name="arange")
