"""Translate PyTorch's symbolic sizes, which are sympy expressions, to dimensions and to numbers of the graph."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from tilewright.graphir.dims import Dim, simplify, symbol
from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, cast, divide, multiply
from tilewright.graphir.runtime_sizes import fresh_symbol
from tilewright.tensorir.dtype import FLOAT64, INT64
from tilewright.tensorir.errors import UnsupportedOperatorError
from tilewright.tensorir.expr import BinaryOp, as_expr, compare, maximum, minimum, select
from tilewright.tensorir.expr import Expr as Scalar
from tilewright.tensorir.expr import Var as Symbol


class Sizes:
    """The sizes of one program: a symbol of PyTorch's is a symbolic dimension of the same name, unless it is bound to
    another dimension.

    Args:
        bind: returns an int64 scalar of the graph, which may be negative or not, as a dimension: for formulas that
            dimensions do not have. Without it they are errors.
    """

    def __init__(self, bind: Callable[[Expr, bool], Dim] | None = None) -> None:
        self._known: dict[str, Dim] = {}
        self._states: dict[str, Expr] = {}
        self._bind = bind
        self._bound: dict[sympy.Basic, Dim] = {}

    def bind_state(self, name: str, number: Expr) -> None:
        """State that the symbol ``name`` is an int64 scalar of the graph of a loop: a state, which is no dimension."""
        self._states[name] = number

    def has_state(self, size: torch.SymInt) -> bool:
        """Return whether a number is computed from the state of a loop."""
        return self._is_state(size.node.expr)

    def scalar(self, size: torch.SymInt) -> Expr:
        """Return a number that is computed from sizes and the state of a loop as an int64 scalar of the graph.

        Raises:
            UnsupportedOperatorError: its formula has functions that are not supported.
        """
        return self._scalar(size.node.expr)

    def _is_state(self, found: sympy.Basic) -> bool:
        return any(each.name in self._states for each in found.free_symbols)

    def _scalar(self, found: sympy.Basic) -> Expr:
        if not self._is_state(found):
            return as_number(simplify(as_expr(self._integer(found))))
        if isinstance(found, sympy.Symbol):
            return self._states[found.name]
        name = _SCALAR_FUNCTIONS.get(type(found).__name__)
        if name is None:
            raise UnsupportedOperatorError(f"a number {found} that is computed in a loop is not supported")
        return functools.reduce(get_operator(name), map(self._scalar, found.args))

    def bind(self, name: str, dim: Dim) -> None:
        """State that the symbol ``name`` is ``dim``."""
        self._known[name] = dim

    def knows(self, name: str) -> bool:
        """Return whether the symbol ``name`` is bound."""
        return name in self._known

    def dim(self, size: int | torch.SymInt) -> Dim:
        """Return a size as a dimension.

        Raises:
            UnsupportedOperatorError: its formula has functions that dimensions do not have.
        """
        if isinstance(size, torch.SymInt):
            return simplify(as_expr(self._integer(size.node.expr)))
        return int(size)

    def number(self, value: torch.SymFloat) -> Expr:
        """Return a float that was computed from sizes as a float64 scalar of the graph.

        Raises:
            UnsupportedOperatorError: its formula has an unknown function.
        """
        return self._float(value.node.expr)

    def condition(self, value: torch.SymBool) -> Expr:
        """Return a condition on sizes as a bool scalar of the graph.

        Raises:
            UnsupportedOperatorError: its formula has an unknown function.
        """
        return self._condition(value.node.expr)

    def _condition(self, found: sympy.Basic) -> Expr:
        name = type(found).__name__
        if name in _CONNECTIVES:
            make = get_operator(_CONNECTIVES[name])
            parts = [self._condition(part) for part in found.args]
            return make(*parts) if name == "Not" else functools.reduce(make, parts)
        if name in _RELATIONS:
            return get_operator(_RELATIONS[name])(*map(self._scalar, found.args))
        raise UnsupportedOperatorError(f"a condition {found} on sizes is not supported")

    def _integer(self, found: sympy.Basic) -> Any:
        """Return a formula as a Python integer or an integer expression."""
        if isinstance(found, sympy.Integer):
            return int(found)
        if isinstance(found, sympy.Symbol):
            return self._known.get(found.name) if found.name in self._known else symbol(found.name)
        make = _FUNCTIONS.get(type(found).__name__)
        if make is not None:
            return functools.reduce(make, map(self._integer, found.args))
        if isinstance(found, sympy.Pow) or type(found).__name__ == "PowByNatural":
            base, exponent = found.args
            if isinstance(exponent, sympy.Integer) and 0 < int(exponent) <= 8:
                return functools.reduce(operator.mul, [self._integer(base)] * int(exponent))
        if isinstance(found, sympy.Piecewise) and found.args[-1][1] == sympy.true:
            *choices, (other, _) = found.args
            made = as_expr(self._integer(other))
            for value, condition in reversed(choices):
                made = select(self._predicate(condition), self._integer(value), made)
            return made
        rounding = _ROUNDINGS.get(type(found).__name__)
        if rounding is not None and self._bind is not None:
            if found not in self._bound:
                number = get_operator(rounding)(self._float(found.args[0]))
                self._bound[found] = self._bind(cast(number, dtype=INT64), _may_be_negative(found.args[0]))
            return self._bound[found]
        raise UnsupportedOperatorError(f"a size {found} is not supported")

    def _predicate(self, found: sympy.Basic) -> Scalar:
        """Return a condition on sizes as an expression of them."""
        name = type(found).__name__
        if name in _JUNCTIONS:
            parts = map(self._predicate, found.args)
            return functools.reduce(lambda a, b: BinaryOp(_JUNCTIONS[name], a, b), parts)
        if name in _COMPARISONS:
            a, b = map(self._integer, found.args)
            return compare(_COMPARISONS[name], as_expr(a), b)
        raise UnsupportedOperatorError(f"a condition {found} on sizes is not supported")

    def _float(self, found: sympy.Basic) -> Expr:
        name = type(found).__name__
        if isinstance(found, (sympy.Float, sympy.Rational)):
            return const(float(found), FLOAT64)
        if name in ("ToFloat", "Symbol") or getattr(found, "is_integer", False):
            inner = found.args[0] if name == "ToFloat" else found
            return cast(as_number(simplify(as_expr(self._integer(inner)))), dtype=FLOAT64)
        arguments = [self._float(argument) for argument in found.args]
        if name in ("Add", "Mul"):
            return functools.reduce(add if name == "Add" else multiply, arguments)
        if name in ("FloatTrueDiv", "IntTrueDiv"):
            return divide(*arguments)
        if name in ("Pow", "FloatPow"):
            return get_operator("power")(*arguments)
        if name.startswith("OpaqueUnaryFn_"):
            return get_operator(name.removeprefix("OpaqueUnaryFn_"))(*arguments)
        raise UnsupportedOperatorError(f"a number {found} that is computed from sizes is not supported")


def _may_be_negative(formula: sympy.Basic) -> bool:
    """Return whether it is not proved that a formula of sizes, which are not, is not negative."""
    sizes = dict.fromkeys(formula.free_symbols, ValueRanges(sympy.Integer(0), int_oo))
    return not bool(bound_sympy(formula, sizes).lower >= 0)


def find_roots(sizes: Sizes, formulas: Sequence[sympy.Basic], known: Iterable[sympy.Symbol]) -> dict[Any, Symbol]:
    """Find the symbols that are no dimension by themselves, but only in formulas such as ``2*s0``: a dimension with
    such a formula gets a symbol of its own, from which the others follow. They are bound in ``sizes``.

    Args:
        sizes: the sizes of the program.
        formulas: those of the dimensions of its inputs.
        known: the symbols that are dimensions or inputs.

    Returns:
        The symbols of such dimensions, by their formulas.

    Raises:
        UnsupportedOperatorError: a symbol does not follow from a formula.
    """
    found = set(known)
    roots: dict[Any, Symbol] = {}
    for formula in formulas:
        unknown = formula.free_symbols - found
        if len(unknown) != 1:
            continue
        (name,) = unknown
        if not _gives(formula, name):
            raise UnsupportedOperatorError(f"a dimension {formula}, from which {name} does not follow")
        roots[formula] = root = fresh_symbol("size")
        sizes.bind(str(name), simplify((root - int(formula.subs(name, 0))) // int(formula.coeff(name))))
        found.add(name)
    return roots


def undetermined(formulas: Sequence[sympy.Basic]) -> list[sympy.Symbol]:
    """Return the symbols of formulas that do not follow from them, as :func:`find_roots` finds it, in the order of
    their names: each must be given as a number of its own."""
    found = {formula for formula in formulas if isinstance(formula, sympy.Symbol)}
    missing: set[sympy.Symbol] = set()
    for formula in formulas:
        unknown = formula.free_symbols - found
        if len(unknown) == 1 and _gives(formula, *unknown):
            found |= unknown
        else:
            missing |= unknown
    return sorted(missing, key=str)


def _gives(formula: sympy.Basic, name: sympy.Symbol) -> bool:
    """Return whether a symbol follows from a formula whose value is known: the formula is linear."""
    factor, rest = formula.coeff(name), formula.subs(name, 0)
    return bool(factor.is_Integer and factor > 0 and rest.is_Integer)


#: Functions of two or more integers.
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "CeilDiv": lambda a, b: (a + b - 1) // b,
    "Max": lambda a, b: maximum(as_expr(a), b),
    "Min": lambda a, b: minimum(as_expr(a), b),
}

#: The operators for functions that round a float to an integer, such as the side of a square of ``n`` elements,
#: ``int(n ** 0.5)``.
_ROUNDINGS = {"TruncToInt": "trunc", "FloorToInt": "floor", "CeilToInt": "ceil", "RoundToInt": "round"}

#: The operators for functions of numbers that are computed in a loop.
_SCALAR_FUNCTIONS = {
    **{"Add": "add", "Mul": "multiply", "FloorDiv": "floor_divide", "Mod": "floor_mod", "PythonMod": "floor_mod"},
    **{"Max": "maximum", "Min": "minimum"},
}
#: The operators of relations between integers, and those of conditions.
_RELATIONS = {
    "Equality": "equal",
    "Unequality": "not_equal",
    "GreaterThan": "greater_equal",
    "LessThan": "less_equal",
    "StrictGreaterThan": "greater",
    "StrictLessThan": "less",
}
_CONNECTIVES = {"And": "logical_and", "Or": "logical_or", "Not": "logical_not"}
#: The same in expressions of sizes.
_COMPARISONS = {
    **{"Equality": "eq", "Unequality": "ne", "GreaterThan": "ge", "LessThan": "le"},
    **{"StrictGreaterThan": "gt", "StrictLessThan": "lt"},
}
_JUNCTIONS = {"And": "and", "Or": "or"}
