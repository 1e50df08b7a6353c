"""Represent dimensions of tensors: Python integers, or integer expressions over symbolic variables.

A symbolic dimension is known by its name: ``symbol("batch")`` is the same variable everywhere, so that two inputs
declared with ``"batch"`` have provably equal first dimensions.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var, const
from tilewright.tensorir.folding import fold_integers
from tilewright.tensorir.functor import free_vars, substitute

Dim = int | Expr

#: Capacity of the caches of answers about dimensions: a model asks the same questions for every layer.
_REMEMBERED = 4096

_symbols: dict[str, Var] = {}


def symbol(name: str) -> Var:
    """Return the symbolic dimension ``name``, an int64 variable that is never negative."""
    found = _symbols.get(name)
    if found is None:
        if not name.isidentifier():
            raise ArgumentValueError(f"a symbolic dimension is named by an identifier, not {name!r}")
        found = _symbols.setdefault(name, Var(name))
    return found


def as_dim(value: Any) -> Dim:
    """Convert ``value`` to a dimension: an integer, a name, or an integer expression (simplified).

    Raises:
        TypeError: it is none of these.
        ShapeError: it is a negative integer.
    """
    if type(value) is int:
        if value < 0:
            raise ShapeError(f"a dimension cannot be negative, found {value}")
        return value
    if type(value) is Var and value.dtype is INT64:
        return value
    if type(value) is IntImm:
        return as_dim(value.value)
    if isinstance(value, str):
        return symbol(value)
    if isinstance(value, Expr):
        if not value.dtype.is_integer:
            raise ArgumentTypeError(f"a dimension is an integer expression, found {value.dtype!s}: {value!s}")
        return value if isinstance(value, Var) else simplify(value)
    try:
        return as_dim(int(operator.index(value)))
    except TypeError:
        raise ArgumentTypeError(
            f"a dimension is an integer, a name or an integer expression, found {value!r}"
        ) from None


def as_amount(value: Any) -> Dim:
    """Convert ``value`` to a number of elements to add (or, if negative, to remove): an integer, or an integer
    expression (simplified).

    Raises:
        TypeError: it is neither.
    """
    if isinstance(value, Expr) and value.dtype.is_integer:
        return simplify(value)
    return operator.index(value)


def analyzer_for(*dims: Dim) -> Analyzer:
    """Return an analyzer with the fact that the symbolic variables of ``dims`` are not negative."""
    analyzer = Analyzer()
    for dim in dims:
        if isinstance(dim, Expr):
            for var in free_vars(dim):
                analyzer.bind_nonnegative(var)
    return analyzer


#: Formulas for sizes are short; a longer one came from sizes that were combined with themselves repeatedly, each step
#: of which may double the length.
MOST_TERMS = 256


def simplify(dim: Dim) -> Dim:
    """Return the dimension in its simplest form, a Python integer if it is constant.

    Raises:
        ShapeError: it is a formula of more than :data:`MOST_TERMS` terms.
    """
    return dim if isinstance(dim, int) else _simplified(dim)


class _Formula:
    """A dimension compared by its structure: layers ask about the same sizes in new nodes."""

    __slots__ = ("_hash", "dim", "key")

    def __init__(self, dim: Dim) -> None:
        self.dim = dim
        self.key = _structure(dim)
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Formula) and self.key == other.key


def _structure(dim: Dim) -> object:
    """Return a key that is equal for integers and expressions of the same structure."""
    if isinstance(dim, BinaryOp):
        return dim.op, _structure(dim.a), _structure(dim.b)
    if isinstance(dim, IntImm):
        return dim.value, dim.dtype
    return dim


@functools.lru_cache(maxsize=_REMEMBERED)
def _simplified(dim: Expr) -> Dim:
    return _simplified_formula(_Formula(dim))


@functools.lru_cache(maxsize=_REMEMBERED)
def _simplified_formula(formula: _Formula) -> Dim:
    dim = formula.dim
    assert isinstance(dim, Expr)
    waiting: list[Expr] = [dim]
    for _ in range(MOST_TERMS):
        waiting += waiting.pop().parts()
        if not waiting:
            break
    else:
        raise ShapeError(f"a size is a formula of more than {MOST_TERMS} terms")
    found = analyzer_for(dim).simplify(dim)
    return found.value if isinstance(found, IntImm) else found


class DimTable:
    """Map equal dimensions to one object, so that they are compared by identity."""

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._known: set[Var] = set()

    def canonical(self, dim: Expr) -> Expr:
        """Return the object that represents all dimensions with the canonical form of ``dim``."""
        for var in free_vars(dim):
            if var not in self._known:
                self._known.add(var)
                self._analyzer.bind_nonnegative(var)
        return self._analyzer.canonical(dim)


def dim_equal(a: Dim, b: Dim) -> bool:
    """Return whether two dimensions are provably equal for all values of their variables."""
    if a is b:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if (isinstance(a, Var) and isinstance(b, (int, Var))) or (isinstance(b, Var) and isinstance(a, int)):
        return False
    return _equal(_Formula(a), _Formula(b))


@functools.lru_cache(maxsize=_REMEMBERED)
def _equal(first: _Formula, second: _Formula) -> bool:
    a, b = first.dim, second.dim
    found = analyzer_for(a, b).simplify(a - b)
    return isinstance(found, IntImm) and found.value == 0


def never_negative(dim: Dim) -> bool:
    """Return whether a dimension is provably not negative for all sizes of its variables."""
    if isinstance(dim, (int, Var)):
        return isinstance(dim, Var) or dim >= 0
    return _never_negative(_Formula(dim))


@functools.lru_cache(maxsize=_REMEMBERED)
def _never_negative(formula: _Formula) -> bool:
    dim = formula.dim
    assert isinstance(dim, Expr)
    return analyzer_for(dim).prove(dim >= 0)


def shape_equal(a: Iterable[Dim], b: Iterable[Dim]) -> bool:
    """Return whether two shapes are provably equal."""
    if a is b:
        return True
    a, b = tuple(a), tuple(b)
    return len(a) == len(b) and all(map(dim_equal, a, b))


def product(dims: Iterable[Dim]) -> Dim:
    """Return the product of dimensions (1 for none)."""
    number = 1
    symbolic: list[Expr] = []
    for dim in dims:
        if type(dim) is int:
            number *= dim
        else:
            symbolic.append(dim)  # type: ignore[arg-type]  # it is no integer
    if not symbolic or not number:
        return number
    result: Expr = symbolic[0]
    for factor in symbolic[1:]:
        result = result * factor
    result = result * number
    return result if len(symbolic) == 1 and isinstance(symbolic[0], Var) else simplify(result)


#: The assumed size of a symbolic dimension, where a choice needs a number.
TYPICAL = 224


def estimate(dim: Dim, each: int = TYPICAL) -> int:
    """Evaluate a dimension with ``each`` in place of every symbolic variable, for choices that need a number."""
    return dim if isinstance(dim, int) else _estimated(_Formula(dim), each)


@functools.lru_cache(maxsize=_REMEMBERED)
def _estimated(formula: _Formula, each: int) -> int:
    dim = formula.dim
    assert isinstance(dim, Expr)
    number = _evaluated(dim, each)
    found = as_dim(substitute(dim, {var: IntImm(each) for var in free_vars(dim)}) if number is None else number)
    return found if isinstance(found, int) else each


def _evaluated(dim: Expr, each: int) -> int | None:
    """Evaluate a formula of integer operations as :func:`estimate` does; None for any other."""
    if type(dim) is IntImm:
        return dim.value
    if type(dim) is Var:
        return each
    if type(dim) is not BinaryOp:
        return None
    a, b = _evaluated(dim.a, each), _evaluated(dim.b, each)
    return None if a is None or b is None else fold_integers(dim.op, a, b, dim.dtype)


def bind_dims(value: Any, sizes: Mapping[Expr, int] | Mapping[Expr, Dim]) -> Any:
    """Replace symbolic variables by sizes in a dimension or in nested tuples of dimensions; return anything else
    unchanged."""
    if isinstance(value, tuple):
        return tuple(bind_dims(item, sizes) for item in value)
    if isinstance(value, Expr):
        found = {var: sizes[var] for var in free_vars(value) if var in sizes}
        known = {var: size if isinstance(size, Expr) else const(size, "int64") for var, size in found.items()}
        return simplify(substitute(value, known)) if known else value
    return value


def has_symbols(value: Any) -> bool:
    """Return whether a dimension, a tuple of them, or a field of a record of attributes contains a symbolic
    variable."""
    if isinstance(value, (int, str, float)):
        return False
    if isinstance(value, Expr):
        return not isinstance(value, IntImm)
    if isinstance(value, tuple):
        return any(map(has_symbols, value))
    return any(map(has_symbols, [getattr(value, name) for name in getattr(value, "__dataclass_fields__", ())]))


def symbols_of(dims: Iterable[Dim]) -> list[Var]:
    """Return the symbolic variables in ``dims``, in order of first use."""
    found: dict[Var, None] = {}
    for dim in dims:
        if isinstance(dim, Expr):
            found.update(dict.fromkeys(free_vars(dim)))
    return list(found)


def symbols_in_attributes(value: Any) -> set[Expr]:
    """Return the symbolic variables in a dimension, in a tuple of them, or in the fields of a record of attributes."""
    if isinstance(value, Expr):
        return set(free_vars(value))
    if isinstance(value, tuple):
        return {symbol for part in value for symbol in symbols_in_attributes(part)}
    fields = getattr(value, "__dataclass_fields__", ())
    return {symbol for name in fields for symbol in symbols_in_attributes(getattr(value, name))}


def format_shape(shape: Iterable[Dim]) -> str:
    """Format a shape as users write it: ``(batch, 3, 224)``."""
    dims = [str(dim) for dim in shape]
    return f"({dims[0]},)" if len(dims) == 1 else f"({', '.join(dims)})"
