"""Numbers as expressions: constants, variables, operations on them, and the functions that build and fold these.

Types are strict: both operands of an operation have the same type, Python numbers take the type of the other
operand, and nothing is promoted silently. Integer division comes in two kinds that are different nodes:
``floordiv``/``floormod`` (Python's ``//`` and ``%``) and ``truncdiv``/``truncmod`` (C's).

All of these are names of ``expr.py``, too, as all expressions are.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Union

import numpy as np

from tilewright.tensorir.dtype import BOOL, FLOAT32, INT64, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError
from tilewright.tensorir.folding import INTEGER_DIVISIONS, fold_binary, fold_compare, fold_integers, wrap_integer
from tilewright.tensorir.node import Node, child, derived, node

ExprLike = Union["Expr", int, float, bool]

ARITHMETIC_OPS = ("add", "sub", "mul", "div", *INTEGER_DIVISIONS, "min", "max")
BIT_OPS = ("bitand", "bitor", "bitxor", "shl", "shr")
LOGICAL_OPS = ("and", "or")
BINARY_OPS = ARITHMETIC_OPS + BIT_OPS + LOGICAL_OPS
UNARY_OPS = ("neg", "not", "bitnot")
COMPARE_OPS = ("eq", "ne", "lt", "le", "gt", "ge")
INTEGER_ONLY = (*INTEGER_DIVISIONS, *BIT_OPS)

_set = object.__setattr__

#: Compiled code compares integers below this limit, which most are, as machine words; int64 holds them.
_SHORT = 1 << 60

#: The greatest number of the smallest type of floats: greater ones may become infinite where they are rounded.
_LARGE = 65504.0


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
        """The comparison ``self == other`` as an expression (``==`` itself compares identity)."""
        return compare("eq", self, other)

    def not_equal(self, other: ExprLike) -> Expr:
        """The comparison ``self != other`` as an expression."""
        return compare("ne", self, other)

    def astype(self, dtype: Any) -> Expr:
        """The value converted to ``dtype``."""
        return cast(dtype, self)

    def __bool__(self) -> bool:
        raise ArgumentTypeError(
            f"{self!s} has no truth value when the program is built; use select() or structural_equal()"
        )


class PureExpr(Expr):
    """Base of hash-consed expressions: constructing one that exists already returns the existing node.

    A load is one, too, although the memory that it reads may change: code that moves an expression or merges two
    occurrences checks the stores between them. A call with an effect is never merged.
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
        if not isinstance(self.name, str):
            raise ArgumentTypeError(f"a variable's name is a string, found {self.name!r:.80}")


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
            raise ArgumentTypeError(f"IntImm takes an integer or bool type, not {self.dtype!s}")
        if wrap_integer(self.value, self.dtype) != self.value:
            raise ArgumentValueError(f"{self.value} does not fit into {self.dtype!s}")


@node
class FloatImm(PureExpr):
    """A floating-point constant, rounded to its type."""

    value: float
    dtype: DataType = FLOAT32

    def __post_init__(self) -> None:
        _set(self, "dtype", as_dtype(self.dtype))
        if not self.dtype.is_float or self.dtype.lanes != 1:
            raise ArgumentTypeError(f"FloatImm takes a float type, not {self.dtype!s}")
        value = float(self.value)
        if abs(value) > _LARGE:  # it may become infinite
            with np.errstate(over="ignore"):
                value = float(self.dtype.numpy.type(value))
        elif math.isfinite(value):
            value = float(self.dtype.numpy.type(value))
        _set(self, "value", value)

    def key(self) -> tuple[Any, ...]:
        """Return the identity of the constant: zeros of either sign and NaNs compare by their bits."""
        return FloatImm, struct.pack("d", self.value), self.dtype


#: Pairs of operation and operand type that have passed the check.
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
            raise ArgumentValueError(f"unknown binary operation {self.op!r}; expected one of {', '.join(BINARY_OPS)}")
        if a is not b:
            raise ArgumentTypeError(
                f"{self.op}: operands have different types, {a!s} and {b!s}: {self.a!s}, {self.b!s}"
            )
        if self.op in LOGICAL_OPS:
            if not a.is_bool:
                raise ArgumentTypeError(f"{self.op}: expected bool operands, found {a!s}")
        elif self.op in ("bitand", "bitor", "bitxor"):
            if not (a.is_integer or a.is_bool):
                raise ArgumentTypeError(f"{self.op}: expected integer operands, found {a!s}")
        elif self.op in INTEGER_ONLY and not a.is_integer:
            raise ArgumentTypeError(f"{self.op}: expected integer operands, found {a!s}")
        elif self.op == "div" and not a.is_float:
            raise ArgumentTypeError(
                f"div: expected floating-point operands, found {a!s}; integers have floordiv and truncdiv"
            )
        elif a.is_bool and self.op not in ("min", "max"):
            raise ArgumentTypeError(f"{self.op}: expected numbers, found bool")
        _BINARY_TYPES.add((self.op, a))
        _set(self, "dtype", a)

    def with_operands(self, a: Expr, b: Expr) -> BinaryOp:
        """The same operation on other operands, of the same type as those before; nothing is folded."""
        return BinaryOp(self.op, a, b)


@node
class UnaryOp(PureExpr):
    """``op a``: ``neg`` of a number, ``not`` of a bool, ``bitnot`` of an integer."""

    op: str
    a: Expr = child()
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        dtype = self.a.dtype
        if self.op not in UNARY_OPS:
            raise ArgumentValueError(f"unknown unary operation {self.op!r}; expected one of {', '.join(UNARY_OPS)}")
        if (self.op == "not") != dtype.is_bool or (self.op == "bitnot" and not dtype.is_integer):
            raise ArgumentTypeError(f"{self.op}: found an operand of type {dtype!s}: {self.a!s}")
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
            raise ArgumentValueError(f"unknown comparison {self.op!r}; expected one of {', '.join(COMPARE_OPS)}")
        a = self.a.dtype
        if a is not self.b.dtype:
            raise ArgumentTypeError(f"{self.op}: operands have different types, {a!s} and {self.b.dtype!s}")
        if a is INT64:
            _set(self, "dtype", BOOL)
            return
        _set(self, "dtype", BOOL if a.lanes == 1 else BOOL.with_lanes(a.lanes))


@node
class Cast(PureExpr):
    """``value`` converted to ``dtype``; float to integer truncates toward zero, any number to bool is ``!= 0``."""

    dtype: DataType
    value: Expr = child()

    def __post_init__(self) -> None:
        _set(self, "dtype", as_dtype(self.dtype))
        if self.dtype.lanes != self.value.dtype.lanes:
            raise ArgumentTypeError(f"cast: {self.value.dtype!s} to {self.dtype!s} changes the number of lanes")


@node
class Broadcast(PureExpr):
    """A vector of ``lanes`` copies of a scalar."""

    value: Expr = child()
    lanes: int
    dtype: DataType = derived()

    def __post_init__(self) -> None:
        if self.value.dtype.lanes != 1:
            raise ArgumentTypeError(f"broadcast: expected a scalar, found {self.value.dtype!s}")
        if self.lanes < 2:
            raise ArgumentValueError(f"broadcast: expected at least 2 lanes, found {self.lanes}")
        _set(self, "dtype", self.value.dtype.with_lanes(self.lanes))

    def with_operands(self, value: Expr) -> Broadcast:
        """A vector of as many copies of another scalar, of the same type as the one before."""
        return Broadcast(value, self.lanes)


def binary(op: str, a: object, b: object) -> Expr:
    """``a op b`` with constants folded and the neutral elements of integer arithmetic dropped."""
    if type(b) is int and isinstance(a, Expr) and a.dtype is INT64:  # most are indices and numbers
        b = as_expr(b)
    elif not (isinstance(a, Expr) and isinstance(b, Expr) and a.dtype is b.dtype):
        a, b = match_operands(a, b)
    if type(b) is IntImm:
        if type(a) is IntImm and a.dtype is b.dtype:
            folded = fold_integers(op, a.value, b.value, a.dtype)
            if folded is not None:
                return const(folded, a.dtype)
        if (b.value == 0 or b.value == 1) and b.dtype.is_integer:
            if b.value == 1:
                if op in ("mul", "floordiv", "truncdiv"):
                    return a
                if op in ("floormod", "truncmod"):
                    return const(0, b.dtype)
            elif op in ("add", "sub"):
                return a
            elif op == "mul":
                return b
    elif type(b) is FloatImm and type(a) is FloatImm and a.dtype is b.dtype:
        rounded = fold_binary(op, a.value, b.value, a.dtype)
        if rounded is not None:
            return const(rounded, a.dtype)
    if type(a) is IntImm and (a.value == 0 or a.value == 1) and a.dtype.is_integer:
        if op == "mul":
            return b if a.value == 1 else a
        if op == "add" and a.value == 0:
            return b
    return BinaryOp(op, a, b)


def compare(op: str, a: Any, b: Any) -> Expr:
    """The comparison ``a op b``, folded if both are constants."""
    if type(b) is int and isinstance(a, Expr) and a.dtype is INT64:
        b = as_expr(b)
    elif not (isinstance(a, Expr) and isinstance(b, Expr) and a.dtype is b.dtype):
        a, b = match_operands(a, b)
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)) and a.dtype is b.dtype:
        return const(fold_compare(op, a.value, b.value), BOOL)
    return Compare(op, a, b)


def cast(dtype: Any, value: Any) -> Expr:
    """``value`` converted to the element type ``dtype`` (lanes are kept); no node where nothing changes."""
    source = value if isinstance(value, Expr) else as_expr(value)
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


def const(value: int | float | bool, dtype: Any) -> Expr:
    """A constant of any scalar or vector type; integers wrap to the type."""
    if dtype is INT64 and type(value) is int:
        known = _INDICES.get(value)
        if known is not None:
            return known
        if -_SHORT <= value <= _SHORT:
            made = IntImm(value)
            if -_SMALL <= value <= _SMALL:
                _INDICES[value] = made
            return made
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
    return found


#: Small constants, one node for each; those of int64 by their values alone.
_INTEGERS: dict[tuple[int, DataType], IntImm] = {}
_INDICES: dict[int, IntImm] = {}
_SMALL = 1 << 10


def as_expr(value: Any, dtype: Any = None) -> Expr:
    """``value`` as an expression; Python and NumPy numbers become constants of ``dtype`` (int64, float32 or bool if
    not given).

    Raises:
        TypeError: it is neither a number nor an expression.
        ValueError: it is an int64 that has more bits.
    """
    if isinstance(value, Expr):
        return value
    if type(value) is int:
        if dtype is None or dtype is INT64:
            known = _INDICES.get(value)
            if known is not None:
                return known
            if not -_SHORT <= value <= _SHORT and wrap_integer(value, INT64) != value:
                raise ArgumentValueError(f"expected an integer of 64 bits with sign, found {value:#x}")
            dtype = INT64
        return const(value, dtype)
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
            raise ArgumentTypeError(f"expected a number of type {dtype}, found {value!r}")
        return const(value, dtype if dtype is not None else FLOAT32)
    raise ArgumentTypeError(f"expected an expression or a number, found {type(value).__name__}: {value!r}")


def match_operands(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Both operands as expressions of one type: numbers take the other's type, scalars broadcast to vectors."""
    if type(b) is int and b in _INDICES and isinstance(a, Expr) and a.dtype is INT64:  # as in most indices
        return a, _INDICES[b]
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
