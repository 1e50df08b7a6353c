"""Share code among operators of one family: broadcasting, axes, element types, and the families' base classes."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.graphir import expr as graph
from tilewright.graphir.dims import Dim, analyzer_for, dim_equal, format_shape
from tilewright.graphir.layout_rewrite import axes_in_layout, operands_in_layout
from tilewright.graphir.op import Operator
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import BOOL, FLOAT32, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError
from tilewright.tensorir.expr import BufferLoad, Expr, IntImm, Var, as_expr, cast, const, select
from tilewright.tensorir.tensor import Tensor

#: Groups of element types that operators accept.
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = INTEGERS + FLOATS
ANY = ("bool", *NUMBERS)


def is_half(dtype: DataType) -> bool:
    """Return whether arithmetic on ``dtype`` is done in float32 and rounded once."""
    return dtype.is_float and dtype.bits == 16


def compute_type(dtype: DataType) -> DataType:
    """Return the type in which arithmetic on ``dtype`` is done."""
    return FLOAT32 if is_half(dtype) else dtype


def widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert a half-typed array to float32, in which references compute; return any other unchanged."""
    return array.astype(np.float32) if array.dtype.kind not in "biuf" or array.dtype == np.float16 else array


def axis_index(op: Operator, axis: Any, ndim: int, name: str = "axis") -> int:
    """Return ``axis`` counted from the front.

    Raises:
        TypeInferenceError: it is no integer in ``[-ndim, ndim)``.
    """
    try:
        number = operator.index(axis)
    except TypeError:
        raise op.error(name, "an integer", repr(axis)) from None
    if not -ndim <= number < ndim:
        raise op.error(name, f"an axis of a tensor with {ndim} dimensions", number)
    return number % ndim


def broadcast_shapes(op: Operator, types: Sequence[TensorType]) -> tuple[Dim, ...]:
    """Return the shape that all arguments broadcast to by NumPy's rule; symbolic dimensions must be provably equal or
    1.

    Raises:
        TypeInferenceError: two dimensions differ; the argument that does not fit is named.
    """
    first = types[0].shape if types else ()
    result: list[Dim] = [*first]
    changed = False
    for number, found in enumerate(types):
        shape = found.shape
        if shape is first:
            continue
        if len(shape) > len(result):
            result[:0] = [1] * (len(shape) - len(result))
            changed = True
        offset = len(result) - len(shape)
        for position, dim in enumerate(shape, offset):
            known = result[position]
            if dim is known or (type(dim) is int and dim == 1):
                continue
            if type(known) is int and known == 1:
                result[position] = dim
                changed = True
            elif not dim_equal(dim, known):
                raise op.error(number, f"a shape that broadcasts with {format_shape(result)}", format_shape(shape))
    return tuple(result) if changed else first


def same_dtype(op: Operator, types: Sequence[TensorType], first: int = 0) -> DataType:
    """Return the element type that all arguments from ``first`` on share.

    Raises:
        TypeInferenceError: they differ.
    """
    dtype = types[first].dtype
    for number, found in enumerate(types):
        if found.dtype is not dtype and number > first:
            raise op.error(number, f"element type {dtype!s} as {op.argument_name(first)}", f"{found}; cast one of them")
    return dtype


def check_dtype(op: Operator, number: int, found: TensorType, allowed: Sequence[str]) -> None:
    """Check an argument's element type.

    Raises:
        TypeInferenceError: it is not among ``allowed``.
    """
    if found.dtype not in allowed:
        raise op.error(number, f"an element type among {', '.join(allowed)}", found)


_ZERO = as_expr(0)


def read_broadcast(source: Tensor, place: Sequence[Expr]) -> Expr:
    """Return the element of ``source`` that broadcasts to ``place`` of the output."""
    shape = source.shape
    aligned = place[len(place) - len(shape) :]
    return source[
        tuple(
            [
                _ZERO if type(extent) is IntImm and extent.value == 1 else index
                for extent, index in zip(shape, aligned, strict=True)
            ]
        )
    ]


def guarded(condition: Expr, load: Expr, otherwise: int | float) -> Expr:
    """Return ``load`` where ``condition`` holds, else ``otherwise``.

    Both values of a select are evaluated, so the load carries the condition as its predicate too: memory outside the
    tensor is never touched.
    """
    if isinstance(condition, IntImm) and condition.value:
        return load
    if isinstance(load, BufferLoad):
        load = BufferLoad(load.buffer, load.indices, condition)
    return select(condition, load, const(otherwise, load.dtype))


def normalize(attrs: Any, **fields: Any) -> None:
    """Set fields of a frozen attribute record while it is constructed."""
    for name, value in fields.items():
        object.__setattr__(attrs, name, value)


def sequence_of(value: Any, name: str) -> tuple[Any, ...]:
    """Convert ``value``, a sequence or one item, to a tuple.

    Raises:
        TypeError: it is a string.
    """
    if isinstance(value, str):
        raise ArgumentTypeError(f"{name}: expected a sequence, found {value!r}")
    return tuple(value) if isinstance(value, (tuple, list, np.ndarray)) else (value,)


class Elementwise(Operator):
    """Base of operators that compute each output element from the input elements at its place after broadcasting.

    A subclass states ``dtypes`` (the accepted element types), ``scalar`` (the formula on expressions; halves come as
    float32) and ``function`` (the same on NumPy arrays).
    """

    kind = "elementwise"
    dtypes: ClassVar[Sequence[str]] = NUMBERS
    result_dtype: ClassVar[DataType | None] = None
    function: ClassVar[Callable[..., Any]]
    scalar: ClassVar[Callable[..., Expr]]

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        dtype = args[0].dtype if len(args) == 1 else same_dtype(self, args)
        check_dtype(self, 0, args[0], self.dtypes)
        result = self.result_dtype or dtype
        if len(args) == 1:
            return args[0] if result is dtype else TensorType(args[0].shape, result)
        first = args[0]
        shape = broadcast_shapes(self, args)
        return first if shape is first.shape and first.dtype is result else TensorType(shape, result)

    def formula(self, values: Sequence[Expr], attrs: Any) -> Expr:
        """Compute an output element from the input elements, for operators whose formula depends on attributes."""
        return type(self).scalar(self, *values)

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        """Compute the result on NumPy arrays (halves come as float32) before it is rounded to the result type."""
        return type(self).function(*arrays)

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        result = (self.result_dtype or as_dtype(args[0].dtype)).numpy
        with np.errstate(all="ignore"):
            return np.asarray(self.evaluate([widened(arg) for arg in args], attrs)).astype(result, copy=False)

    def uniform_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        return self.reference(args, attrs)

    def symbolic(self, *values: Any) -> Any:
        """Compute the formula on integers and integer expressions over symbolic dimensions; None: not followed."""
        return None

    def symbolic_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: Any, out: TensorType) -> Any:
        if not out.dtype.is_integer:
            return None
        spread = np.broadcast_arrays(*[arg.astype(object) for arg in args])
        made = np.empty(spread[0].size, object)
        for number, values in enumerate(zip(*[array.reshape(-1) for array in spread], strict=True)):
            made[number] = self.symbolic(*values)
            if made[number] is None:
                return None
        return made.reshape(spread[0].shape)

    def in_layout(self, args: Sequence[Any], blocked: Sequence[Any], attrs: Any, plain: str, target: str) -> Any:
        """Compute in the blocked layout: each element depends on those that broadcast to it, whatever the layout."""
        operands = operands_in_layout(args, blocked, plain, target)
        return None if operands is None else graph.Call(self, operands, attrs)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        wide = compute_type(args[0].dtype)

        def element(*place: Var) -> Expr:
            values = [cast(wide, read_broadcast(arg, place)) for arg in args]
            return cast(out.dtype, self.formula(values, attrs))

        return te.compute(out.shape, element, name=self.__name__)


class Unary(Elementwise):
    """Base of elementwise operators of one argument."""

    arguments: ClassVar[tuple[str, ...]] = ("x",)
    dtypes: ClassVar[Sequence[str]] = FLOATS


class Binary(Elementwise):
    """Base of elementwise operators of two arguments with broadcasting."""

    arguments = ("lhs", "rhs")
    kind = "broadcast"


class Comparison(Binary):
    """Base of comparisons: two arguments of one type, a bool result."""

    dtypes: ClassVar[Sequence[str]] = ANY
    result_dtype = BOOL

    def symbolic_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: Any, out: TensorType) -> Any:
        """Return true or false where that can be proved for all sizes, otherwise an expression."""
        if any(arg.dtype.kind not in "iuO" for arg in args):
            return None
        lhs, rhs = np.broadcast_arrays(*[arg.astype(object) for arg in args])
        made = np.empty(lhs.size, object)
        for number, (x, y) in enumerate(zip(lhs.flat, rhs.flat, strict=True)):
            holds = self.formula([as_expr(x), as_expr(y)], attrs)
            analyzer = analyzer_for(x, y)
            made[number] = True if analyzer.prove(holds) else False if analyzer.prove(~holds) else holds
        decided = all(isinstance(x, bool) for x in made)
        return made.astype(bool).reshape(lhs.shape) if decided else made.reshape(lhs.shape)


@dataclasses.dataclass(frozen=True)
class ReduceAttrs:
    """The axes of a reduction.

    Attributes:
        axis: an axis or a tuple of axes, negative from the end; None: all.
        keepdims: whether reduced axes stay with extent 1.
    """

    axis: Any = None
    keepdims: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.axis, list):
            object.__setattr__(self, "axis", tuple(self.axis))


class Reduce(Operator):
    """Base of reductions over axes.

    A subclass states ``dtypes``, ``combine`` (a reduction of ``tensorir.tensor``) and ``evaluate`` (NumPy's). Half
    types accumulate in float32 and round once.
    """

    arguments = ("x",)
    kind = "reduction"
    Attrs = ReduceAttrs
    dtypes: ClassVar[Sequence[str]] = NUMBERS

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        """Return the reduction of ``source`` over ``axes``."""
        raise NotImplementedError(f"operator {self.name} states no reduction")

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        """Compute the result on a NumPy array (halves come as float32) before it is rounded to its type."""
        raise NotImplementedError(f"operator {self.name} states no NumPy reference")

    def axes(self, ndim: int, attrs: ReduceAttrs) -> tuple[int, ...]:
        """Return the reduced axes, ascending.

        Raises:
            TypeInferenceError: an axis is out of range or given twice.
        """
        if attrs.axis is None:
            return tuple(range(ndim))
        given = attrs.axis if isinstance(attrs.axis, tuple) else (attrs.axis,)
        axes = sorted(axis_index(self, axis, ndim) for axis in given)
        if len(set(axes)) != len(axes):
            raise self.error("axis", "different axes", attrs.axis)
        return tuple(axes)

    def in_layout(self, args: Sequence[Any], blocked: Sequence[Any], attrs: Any, plain: str, target: str) -> Any:
        """Reduce in the blocked layout, if no reduced axis is blocked and reduced axes stay: the layout of the others
        does not matter."""
        axes = axes_in_layout(self.axes(args[0].ndim, attrs), plain, target)
        if blocked[0] is None or axes is None or not attrs.keepdims:
            return None
        return graph.Call(self, [blocked[0]], dataclasses.replace(attrs, axis=axes))

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        check_dtype(self, 0, args[0], self.dtypes)
        axes = self.axes(args[0].ndim, attrs)
        shape: list[Dim] = []
        for position, dim in enumerate(args[0].shape):
            if position not in axes:
                shape.append(dim)
            elif attrs.keepdims:
                shape.append(1)
        return TensorType(shape, args[0].dtype)

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        (x,) = args
        with np.errstate(all="ignore"):
            result = self.evaluate(widened(x), self.axes(x.ndim, attrs), attrs)
        return np.asarray(result).astype(x.dtype, copy=False)

    def stage(
        self,
        x: Tensor,
        axes: Sequence[int],
        attrs: Any,
        out: TensorType,
        name: str,
        source: Callable[[Sequence[Expr], Expr], Expr],
        combine: Callable[[Expr, list[Var]], te.Reduction],
    ) -> Tensor:
        """Return the stage ``name`` with the shape of the result that combines ``source(place, element of x)`` over
        ``axes``."""
        over = {axis: te.reduce_axis(x.shape[axis], f"k{axis}") for axis in axes}

        def element(*place: Var) -> te.Reduction | Expr:
            kept: list[Expr] = list(place)
            indices: list[Expr] = []
            for axis in range(x.ndim):
                if axis in over:
                    indices.append(over[axis])
                    if attrs.keepdims:
                        kept.pop(0)
                else:
                    indices.append(kept.pop(0))
            value = source(place, x[tuple(indices)])
            return combine(value, list(over.values())) if over else value

        return te.compute(out.shape, element, name=name)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor | list[Tensor]:
        (x,) = args
        wide = compute_type(x.dtype)
        axes = self.axes(x.ndim, attrs)
        result = self.stage(x, axes, attrs, out, self.__name__, lambda place, value: cast(wide, value), self.combine)
        if result.dtype is not out.dtype:
            result = te.compute(out.shape, lambda *place: cast(out.dtype, result[place]), name=f"{self.__name__}_cast")
        return result
