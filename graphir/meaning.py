"""Define forms of arithmetic that passes look for, independent of the operators in which it is written.

``Operator.meaning`` states the form of a call, if it has one of these. Passes on sums and products match forms, so that
users' operators take part by stating theirs.
"""

from __future__ import annotations

import dataclasses

from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.op import Operator


@dataclasses.dataclass(frozen=True)
class Sum:
    """A sum ``left + right``, with broadcasting."""

    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference ``left - right``, with broadcasting."""

    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True)
class Product:
    """A product ``left * right``, with broadcasting."""

    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True)
class Quotient:
    """A quotient ``left / right`` of floats, with broadcasting."""

    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True)
class Choice:
    """A selection: ``chosen`` where the bool ``condition`` holds, else ``other``, with broadcasting."""

    condition: Expr
    chosen: Expr
    other: Expr


@dataclasses.dataclass(frozen=True)
class Conversion:
    """A conversion of ``value`` to the element type of the result, as by ``cast``."""

    value: Expr


@dataclasses.dataclass(frozen=True)
class MatrixProduct:
    """A matrix product ``left @ right`` by NumPy's rules, in the type of the factors."""

    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True)
class Softmax:
    """A softmax ``exp(value) / sum(exp(value))`` along ``axis``."""

    value: Expr
    axis: int


Meaning = Sum | Difference | Product | Quotient | Choice | Conversion | MatrixProduct | Softmax


def meaning_of(node: Expr) -> Meaning | None:
    """Return the form of an expression; None if it is no call of an operator, or has none of these forms."""
    return node.op.meaning(node.args, node.attrs) if type(node) is Call and isinstance(node.op, Operator) else None
