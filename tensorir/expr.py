"""Scalar and vector expressions of the loop-level IR, and the buffers that they read.

Numbers and the operations on them are defined in ``arithmetic.py``, which expressions' own operators need. This module
defines choices, accesses to buffers, calls and vectors, and has the names of all expressions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.tensorir.arithmetic import (
    ARITHMETIC_OPS,
    BINARY_OPS,
    BIT_OPS,
    COMPARE_OPS,
    INTEGER_ONLY,
    LOGICAL_OPS,
    UNARY_OPS,
    BinaryOp,
    Broadcast,
    Cast,
    Compare,
    Expr,
    ExprLike,
    FloatImm,
    IntImm,
    PureExpr,
    UnaryOp,
    Var,
    as_expr,
    binary,
    cast,
    compare,
    const,
    match_operands,
)
from tilewright.tensorir.dtype import BOOL, FLOAT32, HANDLE, INT64, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError
from tilewright.tensorir.intrinsics import find_intrinsic
from tilewright.tensorir.node import Node, buffer, child, children, derived, node

__all__ = [
    "ARITHMETIC_OPS",
    "BINARY_OPS",
    "BIT_OPS",
    "COMPARE_OPS",
    "INTEGER_ONLY",
    "LOGICAL_OPS",
    "SCOPES",
    "UNARY_OPS",
    "BinaryOp",
    "Broadcast",
    "Buffer",
    "BufferLoad",
    "Call",
    "Cast",
    "Choose",
    "Compare",
    "Expr",
    "ExprLike",
    "FloatImm",
    "IntImm",
    "PureExpr",
    "Ramp",
    "Select",
    "UnaryOp",
    "Var",
    "address_of",
    "all_of",
    "as_expr",
    "as_indices",
    "binary",
    "call",
    "cast",
    "check_access",
    "choose",
    "compare",
    "const",
    "match_operands",
    "maximum",
    "minimum",
    "select",
]

#: Where a buffer lives: an argument or constant (global), the planned arena, the stack, or registers (a small buffer
#: that is only accessed at constant indices once loops are unrolled).
SCOPES = ("global", "arena", "stack", "register")

_set = object.__setattr__


@node
class Buffer(Node):
    """A multi-dimensional array in memory; row-major unless ``strides`` (in elements) are given.

    Attributes:
        shape: the extents, integer expressions over the function's symbolic dimensions.
        scope: one of :data:`SCOPES`.
        alignment: guaranteed alignment of the first element in bytes; 0 means that of the element.
    """

    name: str
    shape: tuple[Expr, ...] = children()
    dtype: DataType = FLOAT32
    scope: str = "global"
    strides: tuple[Expr, ...] = children(default=())
    alignment: int = 0

    def __post_init__(self) -> None:
        if type(self.dtype) is not DataType:
            _set(self, "dtype", as_dtype(self.dtype))
        if not isinstance(self.name, str):
            raise ArgumentTypeError(f"a buffer's name is a string, found {self.name!r:.80}")
        if type(self.shape) is not tuple or type(self.strides) is not tuple:
            for what, sizes in (("shape", self.shape), ("strides", self.strides)):
                if not isinstance(sizes, Iterable) or isinstance(sizes, (str, bytes)):
                    raise ArgumentTypeError(
                        f"buffer {self.name}: {what}: expected a sequence of integers, found {sizes!r:.80}"
                    )
        if isinstance(self.alignment, bool) or not isinstance(self.alignment, int) or self.alignment < 0:
            raise ArgumentTypeError(f"buffer {self.name}: expected an alignment in bytes, found {self.alignment!r:.80}")
        _set(self, "shape", as_indices(self.shape, INT64))
        _set(self, "strides", as_indices(self.strides, INT64))
        if self.scope not in SCOPES:
            raise ArgumentValueError(
                f"buffer {self.name}: unknown scope {self.scope!r}; expected one of {', '.join(SCOPES)}"
            )
        if self.strides and len(self.strides) != len(self.shape):
            raise ArgumentValueError(
                f"buffer {self.name}: {len(self.shape)} dimensions but {len(self.strides)} strides"
            )

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, indices: Any) -> BufferLoad:
        return BufferLoad(self, indices if isinstance(indices, tuple) else (indices,))

    def __setitem__(self, indices: Any, value: Any) -> None:
        raise ArgumentTypeError(
            f"{self.name}[..] = .. stands in a function decorated with @func; a Builder has store()"
        )

    @classmethod
    def __class_getitem__(cls, items: Any) -> Any:
        from tilewright.tensorir.script_types import buffer_type  # annotations of @func, which are seldom there

        return buffer_type(items)


@node
class Select(PureExpr):
    """``true_value if condition else false_value``, per lane. Both values are evaluated."""

    condition: Expr = child()
    true_value: Expr = child()
    false_value: Expr = child()
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        a, b, condition = self.true_value.dtype, self.false_value.dtype, self.condition.dtype
        if a is not b:
            raise ArgumentTypeError(f"select: values have different types, {a!s} and {b!s}")
        if not condition.is_bool or condition.lanes not in (1, a.lanes):
            raise ArgumentTypeError(f"select: expected a bool condition with 1 or {a.lanes} lanes, found {condition!s}")
        _set(self, "dtype", a)


@node
class Choose(PureExpr):
    """``values[index]``, the last one for any other ``index``. All values are evaluated.

    States that the formula of an element depends on its place: schedules unroll the loops whose variables are in
    ``index``, so that each choice is made at compile time. :func:`choose` makes it.
    """

    index: Expr = child()
    values: tuple[Expr, ...] = children()
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        if not self.index.dtype.is_integer or self.index.dtype.lanes != 1:
            raise ArgumentTypeError(f"choose: expected an integer as index, found {self.index.dtype!s}")
        if not self.values:
            raise ArgumentValueError("choose: expected at least one value")
        dtype = self.values[0].dtype
        for value in self.values:
            if value.dtype is not dtype:
                raise ArgumentTypeError(f"choose: values have different types, {dtype!s} and {value.dtype!s}")
        _set(self, "dtype", dtype)

    def chosen(self, index: int) -> Expr:
        """Return the value for that index."""
        return self.values[index if 0 <= index < len(self.values) else -1]

    def as_selections(self) -> Expr:
        """Return the same value as selections by comparison with each place, for code that does not know ``Choose``."""
        chosen = self.values[-1]
        for number in range(len(self.values) - 2, -1, -1):
            chosen = select(self.index.equal(number), self.values[number], chosen)
        return chosen


@node
class BufferLoad(PureExpr):
    """``buffer[indices]``; one vector index makes it a vector. Lanes whose ``predicate`` is false read as zero."""

    buffer: Buffer = buffer()
    indices: tuple[Expr, ...] = children()
    predicate: Expr | None = child(default=None)
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        lanes = check_access(self.buffer, self.indices, self.predicate)
        if not lanes:
            _set(self, "indices", as_indices(self.indices))
            lanes = check_access(self.buffer, self.indices, self.predicate)
        stored = self.buffer.dtype
        _set(self, "dtype", stored if lanes == stored.lanes else stored.with_lanes(lanes))

    def with_operands(self, indices: tuple[Expr, ...]) -> BufferLoad:
        """The same load at other indices, which have the same types as those before."""
        return BufferLoad(self.buffer, indices, self.predicate)


#: Intrinsics with types of results and of arguments that have passed the check.
_CALL_TYPES: set[tuple[str | DataType, ...]] = set()

#: Whether calls are pure, by name.
_PURE: dict[str, bool] = {}


@node
class Call(PureExpr):
    """A call of an intrinsic (``exp``, ``fma``) or, with a name that starts with ``@``, of another PrimFunc.

    The arguments of a PrimFunc call are addresses (``address_of``) for its buffers and integers for its variables.
    """

    name: str
    args: tuple[Expr, ...] = children()
    dtype: DataType = FLOAT32

    def __post_init__(self) -> None:
        if type(self.dtype) is not DataType:
            _set(self, "dtype", as_dtype(self.dtype))
        if not self.name.startswith("@"):
            types = (self.name, self.dtype, *[arg.dtype for arg in self.args])
            if types not in _CALL_TYPES:
                find_intrinsic(self.name).check(self)
                _CALL_TYPES.add(types)

    def key(self) -> tuple[Any, ...] | None:
        """Return the key that equal calls share; None (the call equals no other) if it has an effect or depends on more
        than its arguments."""
        return (Call, self.name, self.args, self.dtype) if self.is_pure else None

    @property
    def is_pure(self) -> bool:
        """Whether the call has no effect and depends on nothing but its arguments."""
        known = _PURE.get(self.name)
        if known is None:
            known = _PURE[self.name] = not self.name.startswith("@") and bool(find_intrinsic(self.name).pure)
        return known


@node
class Ramp(PureExpr):
    """The vector ``base, base + stride, base + 2 stride, ...`` of ``lanes`` integers."""

    base: Expr = child()
    stride: Expr = child()
    lanes: int
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        if self.base.dtype is not self.stride.dtype or not self.base.dtype.is_integer or self.base.dtype.lanes != 1:
            raise ArgumentTypeError(
                f"ramp: expected scalar integers, found {self.base.dtype!s} and {self.stride.dtype!s}"
            )
        if self.lanes < 2:
            raise ArgumentValueError(f"ramp: expected at least 2 lanes, found {self.lanes}")
        _set(self, "dtype", self.base.dtype.with_lanes(self.lanes))

    def with_operands(self, base: Expr, stride: Expr) -> Ramp:
        """The ramp of as many lanes from another base by another stride, of the same type as those before."""
        return Ramp(base, stride, self.lanes)


def as_indices(indices: Any, dtype: DataType | None = None) -> tuple[Expr, ...]:
    """Return indices as a tuple of expressions, where numbers become constants of ``dtype`` (see :func:`as_expr`); the
    same object if they are one."""
    if type(indices) is not tuple:
        return tuple([as_expr(index, dtype) for index in indices])
    for index in indices:
        if not isinstance(index, Expr):
            return tuple([as_expr(index, dtype) for index in indices])
    return indices


def check_access(accessed: Buffer, indices: Any, predicate: Expr | None) -> int:
    """Check an access to a buffer and return its number of lanes; 0 if the indices are to be converted before
    (:func:`as_indices`).

    Raises:
        TypeError: wrong number or type of indices, or a predicate that is no bool of as many lanes.
    """
    if type(indices) is not tuple:
        return 0
    given: tuple[Any, ...] = indices
    if len(given) != len(accessed.shape):
        as_indices(given)  # an index that is no number is the first error
        raise ArgumentTypeError(
            f"buffer {accessed.name} has {len(accessed.shape)} dimensions, found {len(given)} indices"
        )
    lanes = 1
    for index in given:
        if not isinstance(index, Expr):
            return 0
        dtype = index.dtype
        if dtype is INT64:
            continue
        if not dtype.is_integer:
            raise ArgumentTypeError(f"buffer {accessed.name}: expected integer indices, found {dtype!s}: {index!s}")
        if dtype.lanes != 1:
            if lanes not in (1, dtype.lanes):
                raise ArgumentTypeError(f"buffer {accessed.name}: indices of {lanes} and {dtype.lanes} lanes")
            lanes = dtype.lanes
    if predicate is not None and (not predicate.dtype.is_bool or predicate.dtype.lanes not in (1, lanes)):
        raise ArgumentTypeError(
            f"buffer {accessed.name}: expected a bool predicate of {lanes} lanes, found {predicate.dtype!s}"
        )
    return lanes


def minimum(a: Any, b: Any) -> Expr:
    """The smaller of two values; NaN if either is NaN."""
    return binary("min", a, b)


def maximum(a: Any, b: Any) -> Expr:
    """The larger of two values; NaN if either is NaN."""
    return binary("max", a, b)


def select(condition: Any, true_value: Any, false_value: Any) -> Expr:
    """``true_value`` where ``condition`` holds, else ``false_value``; folded for a constant condition."""
    true_value, false_value = match_operands(true_value, false_value)
    condition = as_expr(condition)
    if isinstance(condition, IntImm):
        chosen: Expr = true_value if condition.value else false_value
        return chosen
    return Select(condition, true_value, false_value)


def choose(index: Any, values: Iterable[Any]) -> Expr:
    """Return ``values[index]``, the formula of a place; folded for a constant index. See :class:`Choose`."""
    index, values = as_expr(index), tuple(values)
    dtype = next((value.dtype for value in values if isinstance(value, Expr)), None)
    values = tuple([as_expr(value, dtype) for value in values])
    if isinstance(index, IntImm):
        return Choose(index, values).chosen(index.value)
    return Choose(index, values)


def all_of(*conditions: Any) -> Expr:
    """The conjunction of any number of conditions (true for none)."""
    result: Expr = IntImm(1, BOOL)
    for condition in conditions:
        condition = as_expr(condition)
        if isinstance(condition, IntImm):
            if not condition.value:
                return condition
            continue
        result = condition if isinstance(result, IntImm) else BinaryOp("and", result, condition)
    return result


def call(name: str, *args: Any, dtype: Any = None) -> Call:
    """A call of the intrinsic ``name``; the result type is that of the first argument unless the intrinsic or
    ``dtype`` says otherwise."""
    exprs: list[Expr] = [as_expr(arg) for arg in args]
    intrinsic = find_intrinsic(name)
    return Call(name, tuple(exprs), as_dtype(dtype) if dtype is not None else intrinsic.result_type(exprs))


def zero_bits(dtype: DataType) -> Expr:
    """The value whose bits are zero. Types that are only stored have no constants: it is that of a byte, as theirs."""
    if dtype.kind == "storage":
        return Call("reinterpret", (const(0, DataType("uint8").with_lanes(dtype.lanes)),), dtype)
    return const(0, dtype)


def address_of(target: Buffer, *indices: ExprLike) -> Call:
    """The address of an element, as an argument for a PrimFunc's buffer."""
    return Call("address_of", (BufferLoad(target, as_indices(indices)),), HANDLE)
