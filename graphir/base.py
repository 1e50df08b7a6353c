"""Define the base class of all expressions of the graph IR.

An expression answers Python's operators, NumPy's functions and the usual methods of an array (``x.sum(axis=1)``) by
building nodes. The operators stand above this module, so calls go through their registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tilewright.graphir.dims import Dim
from tilewright.graphir.op import get_operator
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import ArgumentTypeError, TypeInferenceError


def call_operator(name: str, *args: Any, **attrs: Any) -> Expr:
    """Build a call of the operator ``name``, as its function does."""
    return get_operator(name)(*args, **attrs)


def _bitwise(operand: Expr, logical: str, bitwise: str) -> str:
    """Return the operator behind ``&`` and the like: the bitwise one for integers, the logical one for bools."""
    found = operand.type
    return bitwise if isinstance(found, TensorType) and found.dtype.is_integer else logical


class Expr:
    """Base of all graph-level expressions.

    Attributes:
        type: the inferred type, or None while it is not known.
        span: where the expression comes from (a node name of an imported model, a source line), or None.
    """

    __slots__ = ("__weakref__", "_order", "_unchanged_by", "span", "type")

    type: Type | None
    span: str | None
    # The expressions below a function, which `visitor.post_order` keeps; not set before.
    _order: tuple[Expr, ...]
    # The last table of rewrite rules none of which applies to this expression; not set before.
    _unchanged_by: object

    #: (name, role) of each field of the node, in order of evaluation (``node.py``).
    node_fields: ClassVar[tuple[tuple[str, str], ...]] = ()

    #: Whether nodes with equal fields are interchangeable, so that their number does not count.
    by_value: ClassVar[bool] = False

    def __str__(self) -> str:
        from tilewright.graphir.printer import to_text  # knows every node class

        return to_text(self)

    __repr__ = __str__

    # Derived from the fields of nodes that have parts.

    @property
    def children(self) -> tuple[Expr, ...]:
        """The expressions that this one is made of, in order of evaluation."""
        return ()

    @property
    def bound(self) -> tuple[Any, ...]:
        """The variables among the children that this expression binds."""
        return ()

    @property
    def outside(self) -> tuple[Expr, ...]:
        """The children that are evaluated outside the scope of these variables."""
        return ()

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the same expression with other children; its type is inferred again."""
        return self

    # The methods and properties of a NumPy array.

    @property
    def tensor_type(self) -> TensorType:
        """The type, which must be a tensor's.

        Raises:
            TypeInferenceError: the type is not known yet or is another one.
        """
        if not isinstance(self.type, TensorType):
            found = "unknown; run the pass InferType" if self.type is None else str(self.type)
            raise TypeInferenceError(f"expected a tensor, but the type is {found}: {self!s:.200}")
        return self.type

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The dimensions of a tensor."""
        return self.tensor_type.shape

    @property
    def dtype(self) -> DataType:
        """The element type of a tensor."""
        return self.tensor_type.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions of a tensor."""
        return self.tensor_type.ndim

    @property
    def T(self) -> Expr:
        """The tensor with its axes reversed."""
        return call_operator("transpose", self)

    def astype(self, dtype: Any) -> Expr:
        """Return the tensor converted to ``dtype``."""
        return call_operator("cast", self, dtype=dtype)

    def reshape(self, *newshape: Any) -> Expr:
        """Reshape the tensor: keep its elements in row-major order under another shape."""
        shape = newshape[0] if len(newshape) == 1 and isinstance(newshape[0], (tuple, list)) else newshape
        return call_operator("reshape", self, newshape=tuple(shape))

    def transpose(self, *axes: Any) -> Expr:
        """Permute the axes (reverse them if none are given)."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return call_operator("transpose", self, axes=tuple(order) or None)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Expr:
        """Sum over ``axis`` (over all axes without it)."""
        return call_operator("sum", self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Expr:
        """Compute the mean over ``axis`` (over all axes without it)."""
        return call_operator("mean", self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Expr:
        """Compute the greatest value over ``axis`` (over all axes without it)."""
        return call_operator("max", self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Expr:
        """Compute the least value over ``axis`` (over all axes without it)."""
        return call_operator("min", self, axis=axis, keepdims=keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Expr:
        """Multiply the elements over ``axis`` (over all axes without it)."""
        return call_operator("prod", self, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> Expr:
        """Test whether any bool over ``axis`` is true (over all axes without it)."""
        return call_operator("any", self, axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> Expr:
        """Test whether all bools over ``axis`` are true (over all axes without it)."""
        return call_operator("all", self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: Any = None, keepdims: bool = False) -> Expr:
        """Find the index of the greatest value along ``axis`` (in row-major order without it)."""
        return call_operator("argmax", self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: Any = None, keepdims: bool = False) -> Expr:
        """Find the index of the least value along ``axis`` (in row-major order without it)."""
        return call_operator("argmin", self, axis=axis, keepdims=keepdims)

    def squeeze(self, axis: Any = None) -> Expr:
        """Drop axes of extent 1."""
        return call_operator("squeeze", self, axis=axis)

    def clip(self, a_min: Any, a_max: Any) -> Expr:
        """Limit the elements to ``[a_min, a_max]``."""
        return call_operator("clip", self, a_min=a_min, a_max=a_max)

    def __add__(self, other: Any) -> Expr:
        return call_operator("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return call_operator("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return call_operator("subtract", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return call_operator("subtract", other, self)

    def __mul__(self, other: Any) -> Expr:
        return call_operator("multiply", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return call_operator("multiply", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return call_operator("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return call_operator("divide", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return call_operator("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return call_operator("floor_divide", other, self)

    def __mod__(self, other: Any) -> Expr:
        return call_operator("floor_mod", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return call_operator("floor_mod", other, self)

    def __pow__(self, other: Any) -> Expr:
        return call_operator("power", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return call_operator("power", other, self)

    def __matmul__(self, other: Any) -> Expr:
        return call_operator("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Expr:
        return call_operator("matmul", other, self)

    def __neg__(self) -> Expr:
        return call_operator("negative", self)

    def __abs__(self) -> Expr:
        return call_operator("abs", self)

    def __and__(self, other: Any) -> Expr:
        return call_operator(_bitwise(self, "logical_and", "bitwise_and"), self, other)

    def __rand__(self, other: Any) -> Expr:
        return call_operator(_bitwise(self, "logical_and", "bitwise_and"), other, self)

    def __or__(self, other: Any) -> Expr:
        return call_operator(_bitwise(self, "logical_or", "bitwise_or"), self, other)

    def __ror__(self, other: Any) -> Expr:
        return call_operator(_bitwise(self, "logical_or", "bitwise_or"), other, self)

    def __xor__(self, other: Any) -> Expr:
        return call_operator(_bitwise(self, "logical_xor", "bitwise_xor"), self, other)

    def __rxor__(self, other: Any) -> Expr:
        return call_operator(_bitwise(self, "logical_xor", "bitwise_xor"), other, self)

    def __invert__(self) -> Expr:
        return call_operator(_bitwise(self, "logical_not", "bitwise_not"), self)

    def __lshift__(self, other: Any) -> Expr:
        return call_operator("left_shift", self, other)

    def __rlshift__(self, other: Any) -> Expr:
        return call_operator("left_shift", other, self)

    def __rshift__(self, other: Any) -> Expr:
        return call_operator("right_shift", self, other)

    def __rrshift__(self, other: Any) -> Expr:
        return call_operator("right_shift", other, self)

    def __lt__(self, other: Any) -> Expr:
        return call_operator("less", self, other)

    def __le__(self, other: Any) -> Expr:
        return call_operator("less_equal", self, other)

    def __gt__(self, other: Any) -> Expr:
        return call_operator("greater", self, other)

    def __ge__(self, other: Any) -> Expr:
        return call_operator("greater_equal", self, other)

    def equal(self, other: Any) -> Expr:
        """Compare elementwise, ``self == other`` (``==`` itself tests whether two nodes are the same object)."""
        return call_operator("equal", self, other)

    def not_equal(self, other: Any) -> Expr:
        """Compare elementwise, ``self != other``."""
        return call_operator("not_equal", self, other)

    def __bool__(self) -> bool:
        raise ArgumentTypeError(
            "the value of a graph expression is not known while the graph is built; use gi.where or gi.If"
        )

    def __iter__(self) -> Any:
        # Not a generator, which would raise at its first item only.
        if not isinstance(self.type, TupleType):
            raise ArgumentTypeError("a tensor of a graph cannot be iterated over; index it, or use gi.split")
        return iter([self[number] for number in range(len(self.type.fields))])

    def __getitem__(self, key: Any) -> Expr:
        from tilewright.graphir.indexing import index  # stands above the operators

        return index(self, key)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from tilewright.graphir.numpy_protocol import call_ufunc  # stands above the operators

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from tilewright.graphir.numpy_protocol import call_function  # stands above the operators

        return call_function(function, args, kwargs)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ArgumentTypeError("a graph expression has no value yet; build and call the model to get arrays")


def new_fields(target: Expr, **fields: Any) -> None:
    """Set fields of a node while it is constructed; afterwards it is immutable."""
    for name, value in fields.items():
        _set(target, name, value)


_set = object.__setattr__


class FrozenExpr(Expr):
    """Base of immutable expressions: assignment is an error, so that a shared node never changes."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; make a new one instead of setting {name!r}")
