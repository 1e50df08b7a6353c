"""Register how operators are differentiated: one rule for each, which maps the cotangent of a call's result to those of
its arguments (reverse mode). The pass ``Gradient`` applies them.

The rules of the project's operators are in ``graphir/gradients``, those of users' operators where users register them.
An operator that is composed of others (``decompose``) needs none: it is differentiated through its parts, unless a rule
is faster or more accurate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.op import Operator, get_operator
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError, UnsupportedOperatorError
from tilewright.tensorir.lazy import Registry

#: Return the cotangent of each argument of the call, given that of its result (of a tuple: the tuple of its fields'
#: cotangents). A cotangent has the type of what it belongs to; None stands for zero.
GradientRule = Callable[[Call, Expr], Sequence[Expr | None]]

#: Return a call in operators that have gradients: its derivative is that of this expression.
Composition = Callable[[Call], Expr]

F = TypeVar("F", bound=Callable[..., Any])

#: The rules by the operators' names.
GRADIENTS: Registry[str, GradientRule] = Registry("tilewright.graphir.gradients")
#: The forms of operators that are differentiated through others, although they are computed by loops of their own.
COMPOSITIONS: Registry[str, Composition] = Registry("tilewright.graphir.gradients")


def register_gradient(*operators: Operator | str) -> Callable[[GradientRule], GradientRule]:
    """Return a decorator that makes a function the rule of ``operators``, given by name or themselves.

    The function ``rule(call, cotangent)`` returns a sequence with the cotangent of each argument: an expression of the
    argument's type, or None if the result does not depend on the argument smoothly (integers, conditions) or its
    derivative is zero everywhere. ``call`` is the value of the result, for derivatives that it shortens (that of
    ``exp`` is ``exp`` itself). Broadcasting is undone with ``tilewright.graphir.gradients.collapse``.

    Raises:
        TypeError: something is no operator.
        ValueError: an operator has a rule already.
        UnsupportedOperatorError: there is no operator of that name.
    """
    return _decorator(GRADIENTS, operators)


def register_composition(*operators: Operator | str) -> Callable[[Composition], Composition]:
    """Return a decorator that makes a function the form in which ``operators`` are differentiated.

    The function ``form(call)`` returns an expression of the call's type in operators that have gradients.

    Raises:
        TypeError, ValueError, UnsupportedOperatorError: as :func:`register_gradient`.
    """
    return _decorator(COMPOSITIONS, operators)


def _decorator(table: Registry[str, F], operators: Sequence[Operator | str]) -> Callable[[F], F]:
    if not operators or not all(isinstance(operator, (Operator, str)) for operator in operators):
        raise ArgumentTypeError(f"a gradient is registered for operators or their names; found {operators!r}")

    def register(function: F) -> F:
        if not callable(function):
            raise ArgumentTypeError(f"a gradient is a function, found {function!r}")
        for operator in operators:
            name = operator if isinstance(operator, str) else operator.name
            if (function.__module__ or "").startswith("tilewright.graphir.gradients"):
                known: object = GRADIENTS.loaded.get(name) or COMPOSITIONS.loaded.get(name)
            else:
                name = get_operator(name).name
                known = GRADIENTS.get(name) or COMPOSITIONS.get(name)
            if known is not None and not _is_same_definition(known, function):
                raise ArgumentValueError(f"operator {name!r} has a gradient already")
            table[name] = function
        return function

    return register


def _is_same_definition(a: Any, b: Any) -> bool:
    """Return whether a function is defined anew by the same code (a notebook cell run twice)."""
    return (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)


def unsupported(call: Call, what: str) -> UnsupportedOperatorError:
    """Return the error of a rule for a call that it does not cover: ``what`` it is that has no gradient."""
    place = f" (at {call.span})" if call.span else ""
    name = call.op.name if isinstance(call.op, Operator) else str(call.op)
    return UnsupportedOperatorError(f"{name}: no gradient of {what}{place}")
