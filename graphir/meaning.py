"""Forms of arithmetic that passes look for, whatever operators it is written in.

``Operator.meaning`` says which of these forms a call has, if any. A pass about sums or products matches on forms, so
that an operator of a user's takes part by stating its own.
"""

from __future__ import annotations

import dataclasses

from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.op import Operator


@dataclasses.dataclass(frozen=True)
class Sum:
    """``left + right``, with broadcasting."""

    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True)
class Difference:
    """``left - right``, with broadcasting."""

    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True)
class Product:
    """``left * right``, with broadcasting."""

    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True)
class Quotient:
    """``left / right`` of floats, with broadcasting."""

    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True)
class Choice:
    """``chosen`` where the bool ``condition`` holds, else ``other``, with broadcasting."""

    condition: Expr
    chosen: Expr
    other: Expr


@dataclasses.dataclass(frozen=True)
class Conversion:
    """``value`` converted to the type of the result, as ``cast`` does."""

    value: Expr


@dataclasses.dataclass(frozen=True)
class MatrixProduct:
    """``left @ right`` by NumPy's rules, in the type of the factors."""

    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True)
class Softmax:
    """``exp(value) / sum(exp(value))`` along ``axis``."""

    value: Expr
    axis: int


Meaning = Sum | Difference | Product | Quotient | Choice | Conversion | MatrixProduct | Softmax


def meaning_of(node: Expr) -> Meaning | None:
    """The form of an expression; None for what is no call of an operator, or has none of these forms."""
    return node.op.meaning(node.args, node.attrs) if type(node) is Call and isinstance(node.op, Operator) else None
