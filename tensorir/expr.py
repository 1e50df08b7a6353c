"""Scalar and vector expressions of the loop-level IR, and the buffers that they read.

Types are strict: both operands of an operation have the same type, Python numbers take the type of the other
operand, and nothing is promoted silently. Integer division comes in two kinds that are different nodes:
``floordiv``/``floormod`` (Python's ``//`` and ``%``) and ``truncdiv``/``truncmod`` (C's).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any, Union

from tilewright.tensorir.dtype import BOOL, FLOAT32, HANDLE, INT64, DataType, as_dtype
from tilewright.tensorir.folding import fold_binary, fold_compare, wrap_integer
from tilewright.tensorir.intrinsics import find_intrinsic
from tilewright.tensorir.node import Node, buffer, child, children, derived, node

ExprLike = Union["Expr", int, float, bool]

ARITHMETIC_OPS = ("add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")
BIT_OPS = ("bitand", "bitor", "bitxor", "shl", "shr")
LOGICAL_OPS = ("and", "or")
BINARY_OPS = ARITHMETIC_OPS + BIT_OPS + LOGICAL_OPS
UNARY_OPS = ("neg", "not", "bitnot")
COMPARE_OPS = ("eq", "ne", "lt", "le", "gt", "ge")
INTEGER_ONLY = ("floordiv", "floormod", "truncdiv", "truncmod", "bitand", "bitor", "bitxor", "shl", "shr")

#: Where a buffer lives: an argument or constant (global), the planned arena, the stack, or registers (a small buffer
#: that is only accessed at constant indices once loops are unrolled).
SCOPES = ("global", "arena", "stack", "register")


_set = object.__setattr__

#: int64 holds integers up to this one, which most are; compiled code compares them as machine words.
_SHORT = 1 << 60


class Expr(Node):
    """Base of all expressions. ``dtype`` is the type of the value, with its number of lanes."""

    __slots__ = ()

    dtype: DataType

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("floormod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("floormod", other, self)

    def __and__(self, other: ExprLike) -> Expr:
        return binary("and" if self.dtype.is_bool else "bitand", self, other)

    def __or__(self, other: ExprLike) -> Expr:
        return binary("or" if self.dtype.is_bool else "bitor", self, other)

    def __xor__(self, other: ExprLike) -> Expr:
        return binary("bitxor", self, other)

    def __lshift__(self, other: ExprLike) -> Expr:
        return binary("shl", self, other)

    def __rshift__(self, other: ExprLike) -> Expr:
        return binary("shr", self, other)

    def __neg__(self) -> Expr:
        return UnaryOp("neg", self)

    def __invert__(self) -> Expr:
        return UnaryOp("not" if self.dtype.is_bool else "bitnot", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return compare("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return compare("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return compare("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return compare("ge", self, other)

    def equal(self, other: ExprLike) -> Expr:
        """The comparison ``self == other`` as an expression (``==`` itself asks for identity)."""
        return compare("eq", self, other)

    def not_equal(self, other: ExprLike) -> Expr:
        """The comparison ``self != other`` as an expression."""
        return compare("ne", self, other)

    def astype(self, dtype: Any) -> Expr:
        """The value converted to ``dtype``."""
        return cast(dtype, self)

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth of {self!s} is not known while the program is built; use select() or structural_equal()"
        )


class PureExpr(Expr):
    """Base of the expressions that are their structure: to make one that there is already gives that one.

    A load is one, too, although what it reads may change: whoever moves an expression or takes two places for one
    looks at the stores between them. A call with an effect is like no other.
    """

    __slots__ = ()

    hash_consed = True


@node
class Var(Expr):
    """A scalar variable: a loop variable, a symbolic dimension, a let-bound value. Identity is the variable."""

    name: str
    dtype: DataType = INT64

    def __post_init__(self) -> None:
        if type(self.dtype) is not DataType:
            _set(self, "dtype", as_dtype(self.dtype))


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
        _set(self, "dtype", as_dtype(self.dtype))
        _set(self, "shape", tuple(as_expr(extent, INT64) for extent in self.shape))
        _set(self, "strides", tuple(as_expr(stride, INT64) for stride in self.strides))
        if self.scope not in SCOPES:
            raise ValueError(f"buffer {self.name}: unknown scope {self.scope!r}; expected one of {', '.join(SCOPES)}")
        if self.strides and len(self.strides) != len(self.shape):
            raise ValueError(f"buffer {self.name}: {len(self.shape)} dimensions but {len(self.strides)} strides")

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, indices: Any) -> BufferLoad:
        return BufferLoad(self, indices if isinstance(indices, tuple) else (indices,))


@node
class IntImm(PureExpr):
    """An integer or boolean constant; the value must lie in the range of its type."""

    value: int
    dtype: DataType = INT64

    def __post_init__(self) -> None:
        if self.dtype is INT64 and type(self.value) is int and -_SHORT <= self.value <= _SHORT:
            return
        _set(self, "dtype", as_dtype(self.dtype))
        _set(self, "value", int(self.value))
        if not (self.dtype.is_integer or self.dtype.is_bool) or self.dtype.lanes != 1:
            raise TypeError(f"IntImm takes an integer or bool type, not {self.dtype!s}")
        if wrap_integer(self.value, self.dtype) != self.value:
            raise ValueError(f"{self.value} does not fit into {self.dtype!s}")


@node
class FloatImm(PureExpr):
    """A floating-point constant, rounded to its type."""

    value: float
    dtype: DataType = FLOAT32

    def __post_init__(self) -> None:
        _set(self, "dtype", as_dtype(self.dtype))
        if not self.dtype.is_float or self.dtype.lanes != 1:
            raise TypeError(f"FloatImm takes a float type, not {self.dtype!s}")
        value = float(self.value)
        if math.isfinite(value):
            value = float(self.dtype.numpy.type(value))
        _set(self, "value", value)

    def key(self) -> tuple[Any, ...]:
        """What tells it apart: zeros of either sign and NaNs compare by their bits."""
        return FloatImm, struct.pack("d", self.value), self.dtype


#: Operations with types that they take: what was checked once.
_BINARY_TYPES: set[tuple[str, DataType]] = set()


@node
class BinaryOp(PureExpr):
    """``a op b`` on operands of one type; ``op`` is one of :data:`BINARY_OPS`. Integer results wrap."""

    op: str
    a: Expr = child()
    b: Expr = child()
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        a, b = self.a.dtype, self.b.dtype
        if a is b and (self.op, a) in _BINARY_TYPES:
            _set(self, "dtype", a)
            return
        if self.op not in BINARY_OPS:
            raise ValueError(f"unknown binary operation {self.op!r}; expected one of {', '.join(BINARY_OPS)}")
        if a is not b:
            raise TypeError(f"{self.op}: operands have different types, {a!s} and {b!s}: {self.a!s}, {self.b!s}")
        if self.op in LOGICAL_OPS:
            if not a.is_bool:
                raise TypeError(f"{self.op}: expected bool operands, found {a!s}")
        elif self.op in ("bitand", "bitor", "bitxor"):
            if not (a.is_integer or a.is_bool):
                raise TypeError(f"{self.op}: expected integer operands, found {a!s}")
        elif self.op in INTEGER_ONLY and not a.is_integer:
            raise TypeError(f"{self.op}: expected integer operands, found {a!s}")
        elif self.op == "div" and not a.is_float:
            raise TypeError(f"div: expected floating-point operands, found {a!s}; integers have floordiv and truncdiv")
        elif a.is_bool and self.op not in ("min", "max"):
            raise TypeError(f"{self.op}: expected numbers, found bool")
        _BINARY_TYPES.add((self.op, a))
        _set(self, "dtype", a)


@node
class UnaryOp(PureExpr):
    """``op a``: ``neg`` of a number, ``not`` of a bool, ``bitnot`` of an integer."""

    op: str
    a: Expr = child()
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        dtype = self.a.dtype
        if self.op not in UNARY_OPS:
            raise ValueError(f"unknown unary operation {self.op!r}; expected one of {', '.join(UNARY_OPS)}")
        if (self.op == "not") != dtype.is_bool or (self.op == "bitnot" and not dtype.is_integer):
            raise TypeError(f"{self.op}: found an operand of type {dtype!s}: {self.a!s}")
        _set(self, "dtype", dtype)


@node
class Compare(PureExpr):
    """``a op b`` as a bool (per lane); ordered comparisons with NaN are false, ``ne`` is true."""

    op: str
    a: Expr = child()
    b: Expr = child()
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        if self.op not in COMPARE_OPS:
            raise ValueError(f"unknown comparison {self.op!r}; expected one of {', '.join(COMPARE_OPS)}")
        a = self.a.dtype
        if a is not self.b.dtype:
            raise TypeError(f"{self.op}: operands have different types, {a!s} and {self.b.dtype!s}")
        if a is INT64:
            _set(self, "dtype", BOOL)
            return
        _set(self, "dtype", BOOL if a.lanes == 1 else BOOL.with_lanes(a.lanes))


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
            raise TypeError(f"select: values have different types, {a!s} and {b!s}")
        if not condition.is_bool or condition.lanes not in (1, a.lanes):
            raise TypeError(f"select: expected a bool condition with 1 or {a.lanes} lanes, found {condition!s}")
        _set(self, "dtype", a)


@node
class Choose(PureExpr):
    """``values[index]``, the last one for any other ``index``. All values are evaluated.

    States that an element's formula is chosen by its place: schedules unroll the loops that ``index`` is made of, so
    that each choice is made when the code is. :func:`choose` makes it.
    """

    index: Expr = child()
    values: tuple[Expr, ...] = children()
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        if not self.index.dtype.is_integer or self.index.dtype.lanes != 1:
            raise TypeError(f"choose: expected an integer as index, found {self.index.dtype!s}")
        if not self.values:
            raise ValueError("choose: expected at least one value")
        dtype = self.values[0].dtype
        for value in self.values:
            if value.dtype is not dtype:
                raise TypeError(f"choose: values have different types, {dtype!s} and {value.dtype!s}")
        _set(self, "dtype", dtype)

    def chosen(self, index: int) -> Expr:
        """Return the value for that index."""
        return self.values[index if 0 <= index < len(self.values) else -1]

    def as_selections(self) -> Expr:
        """Return the same as comparisons with each place, for what knows no ``Choose``."""
        chosen = self.values[-1]
        for number in range(len(self.values) - 2, -1, -1):
            chosen = select(self.index.equal(number), self.values[number], chosen)
        return chosen


@node
class Cast(PureExpr):
    """``value`` converted to ``dtype``; float to integer truncates toward zero, to bool asks ``!= 0``."""

    dtype: DataType
    value: Expr = child()

    def __post_init__(self) -> None:
        _set(self, "dtype", as_dtype(self.dtype))
        if self.dtype.lanes != self.value.dtype.lanes:
            raise TypeError(f"cast: {self.value.dtype!s} to {self.dtype!s} changes the number of lanes")


@node
class BufferLoad(PureExpr):
    """``buffer[indices]``; one vector index makes it a vector. Lanes whose ``predicate`` is false read as zero."""

    buffer: Buffer = buffer()
    indices: tuple[Expr, ...] = children()
    predicate: Expr | None = child(default=None)
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        _set(self, "indices", as_indices(self.indices))
        lanes = check_access(self.buffer, self.indices, self.predicate)
        stored = self.buffer.dtype
        _set(self, "dtype", stored if lanes == stored.lanes else stored.with_lanes(lanes))


#: Intrinsics with types of results and of arguments: what was checked once.
_CALL_TYPES: set[tuple[str | DataType, ...]] = set()

#: What was asked of calls by their names.
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
        """What tells it apart: nothing but itself, if it has an effect or depends on more than its arguments."""
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
            raise TypeError(f"ramp: expected scalar integers, found {self.base.dtype!s} and {self.stride.dtype!s}")
        if self.lanes < 2:
            raise ValueError(f"ramp: expected at least 2 lanes, found {self.lanes}")
        _set(self, "dtype", self.base.dtype.with_lanes(self.lanes))


@node
class Broadcast(PureExpr):
    """A vector of ``lanes`` copies of a scalar."""

    value: Expr = child()
    lanes: int
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        if self.value.dtype.lanes != 1:
            raise TypeError(f"broadcast: expected a scalar, found {self.value.dtype!s}")
        if self.lanes < 2:
            raise ValueError(f"broadcast: expected at least 2 lanes, found {self.lanes}")
        _set(self, "dtype", self.value.dtype.with_lanes(self.lanes))


def as_indices(indices: Any) -> tuple[Expr, ...]:
    """Indices as a tuple of expressions; the very tuple if it is one."""
    if type(indices) is not tuple:
        return tuple([as_expr(index) for index in indices])
    for index in indices:
        if not isinstance(index, Expr):
            return tuple([as_expr(index) for index in indices])
    return indices


def check_access(accessed: Buffer, indices: tuple[Expr, ...], predicate: Expr | None) -> int:
    """Check an access to a buffer and return its number of lanes.

    Raises:
        TypeError: wrong number or type of indices, or a predicate that is no bool of as many lanes.
    """
    if len(indices) != len(accessed.shape):
        raise TypeError(f"buffer {accessed.name} has {len(accessed.shape)} dimensions, found {len(indices)} indices")
    lanes = 1
    for index in indices:
        dtype = index.dtype
        if dtype is INT64:
            continue
        if not dtype.is_integer:
            raise TypeError(f"buffer {accessed.name}: expected integer indices, found {dtype!s}: {index!s}")
        if dtype.lanes != 1:
            if lanes not in (1, dtype.lanes):
                raise TypeError(f"buffer {accessed.name}: indices of {lanes} and {dtype.lanes} lanes")
            lanes = dtype.lanes
    if predicate is not None and (not predicate.dtype.is_bool or predicate.dtype.lanes not in (1, lanes)):
        raise TypeError(
            f"buffer {accessed.name}: expected a bool predicate of {lanes} lanes, found {predicate.dtype!s}"
        )
    return lanes


def binary(op: str, a: Any, b: Any) -> Expr:
    """``a op b`` with constants folded and the neutral elements of integer arithmetic dropped."""
    return _fold_operation(op, *match_operands(a, b))


def _fold_operation(op: str, a: Expr, b: Expr) -> Expr:
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        folded = fold_binary(op, a.value, b.value, a.dtype) if a.dtype is b.dtype else None
        if folded is not None:
            return const(folded, a.dtype)
    if isinstance(b, IntImm) and b.dtype.is_integer:
        if b.value == 0 and op in ("add", "sub"):
            return a
        if b.value == 1 and op in ("mul", "floordiv", "truncdiv"):
            return a
        if b.value == 0 and op == "mul":
            return b
        if b.value == 1 and op in ("floormod", "truncmod"):
            return const(0, b.dtype)
    if isinstance(a, IntImm) and a.dtype.is_integer:
        if a.value == 0 and op == "add":
            return b
        if a.value == 1 and op == "mul":
            return b
        if a.value == 0 and op == "mul":
            return a
    return BinaryOp(op, a, b)


def compare(op: str, a: Any, b: Any) -> Expr:
    """The comparison ``a op b``, folded if both are constants."""
    a, b = match_operands(a, b)
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)) and a.dtype is b.dtype:
        return const(fold_compare(op, a.value, b.value), BOOL)
    return Compare(op, a, b)


def cast(dtype: Any, value: Any) -> Expr:
    """``value`` converted to the element type ``dtype`` (lanes are kept); no node where nothing changes."""
    source = as_expr(value)
    if dtype is source.dtype:
        return source
    dtype = as_dtype(dtype)
    if dtype.lanes != source.dtype.lanes:
        dtype = dtype.with_lanes(source.dtype.lanes)
    if dtype is source.dtype:
        return source
    if isinstance(source, IntImm) and (dtype.is_integer or dtype.is_bool):
        return const(source.value, dtype)
    return Cast(dtype, source)


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


def const(value: int | float | bool, dtype: Any) -> Expr:
    """A constant of any scalar or vector type; integers wrap to the type."""
    if dtype is INT64 and type(value) is int:
        known = _INDICES.get(value)
        if known is not None:
            return known
    if type(dtype) is not DataType:
        dtype = as_dtype(dtype)
    if dtype.lanes != 1:
        return Broadcast(const(value, dtype.element), dtype.lanes)
    if dtype.is_float:
        return FloatImm(float(value), dtype)
    number = int(value)
    found = _INTEGERS.get((number, dtype))
    if found is None:
        found = IntImm(wrap_integer(number, dtype), dtype)
        if -_SMALL <= number <= _SMALL:
            _INTEGERS[number, dtype] = found
            if dtype is INT64:
                _INDICES[number] = found
    return found


#: Small constants, one node for each; those of int64 by their values alone, too.
_INTEGERS: dict[tuple[int, DataType], IntImm] = {}
_INDICES: dict[int, IntImm] = {}
_SMALL = 1 << 10


def as_expr(value: Any, dtype: Any = None) -> Expr:
    """``value`` as an expression; Python and NumPy numbers become constants of ``dtype`` (int64, float32 or bool if
    not given).

    Raises:
        TypeError: it is neither a number nor an expression.
    """
    if isinstance(value, Expr):
        return value
    if type(value) is int:
        return const(value, dtype if dtype is not None else INT64)
    if hasattr(value, "as_tensorir_expr"):  # iteration variables, scalar views of tensors
        converted: Expr = value.as_tensorir_expr()
        return converted
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        return const(value.item(), dtype if dtype is not None else value.dtype)
    if isinstance(value, bool):
        return const(value, dtype if dtype is not None else BOOL)
    if isinstance(value, int):
        return const(value, dtype if dtype is not None else INT64)
    if isinstance(value, float):
        if dtype is not None and not as_dtype(dtype).is_float:
            raise TypeError(f"expected a number of type {dtype}, found {value!r}")
        return const(value, dtype if dtype is not None else FLOAT32)
    raise TypeError(f"expected an expression or a number, found {type(value).__name__}: {value!r}")


def match_operands(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Both operands as expressions of one type: numbers take the other's type, scalars broadcast to vectors."""
    if isinstance(a, Expr):
        if not isinstance(b, Expr):
            b = as_expr(b, a.dtype.element)
    elif isinstance(b, Expr):
        a = as_expr(a, b.dtype.element)
    else:
        a, b = as_expr(a), as_expr(b)
    if a.dtype is not b.dtype and a.dtype.lanes != b.dtype.lanes:
        if a.dtype.lanes == 1:
            a = Broadcast(a, b.dtype.lanes)
        elif b.dtype.lanes == 1:
            b = Broadcast(b, a.dtype.lanes)
    return a, b


def address_of(target: Buffer, *indices: ExprLike) -> Call:
    """The address of an element, as an argument for a PrimFunc's buffer."""
    return Call("address_of", (BufferLoad(target, tuple(as_expr(index) for index in indices)),), HANDLE)
