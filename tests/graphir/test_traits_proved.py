"""Prove with z3 what operators state about their algebra, from which ``SimplifyExpr`` derives its integer rules: for
all integers of 8 and 16 bits, wrapping included."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("z3")

from z3_meaning import Meaning, counterexample

from tilewright import graphir as gi
from tilewright.graphir.op import Operator, get_operator, list_operators
from tilewright.passes import get_pass
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.expr import Cast, Expr, Var, const

DTYPES = ("int8", "uint8", "int16", "uint16", "bool")
TRAITS = ("involution", "idempotent", "even", "associative", "commutative", "neutral")


def takes(op: Operator, dtype: str) -> bool:
    try:
        op.infer_type([gi.TensorType((4,), dtype)] * op.required, op.make_attrs({}))
    except TypeInferenceError:
        return False
    return True


def claims(op: Operator, trait: str, dtype: DataType) -> list[tuple[Expr, Expr]]:
    """The equalities that a trait of the operator states, on scalars."""
    x, y, z = (Var(name, dtype) for name in "xyz")
    scalar: Any = op.scalar  # type: ignore[attr-defined]
    if trait == "neutral":
        numbers = [op.neutral(argument, dtype) for argument in (0, 1)]
        return [
            (scalar(const(number, dtype), x) if argument == 0 else scalar(x, const(number, dtype)), x)
            for argument, number in enumerate(numbers)
            if number is not None
        ]
    if not getattr(op, trait):
        return []
    if trait == "involution":
        return [(scalar(scalar(x)), x)]
    if trait == "idempotent":
        return [(scalar(scalar(x)), scalar(x))] if op.required == 1 else [(scalar(x, x), x)]
    if trait == "even":
        return [] if dtype.is_uint or dtype.is_bool else [(scalar(-x), scalar(x))]
    if trait == "associative":
        return [(scalar(scalar(x, y), z), scalar(x, scalar(y, z)))]
    return [(scalar(x, y), scalar(y, x))]


def stated() -> list[Any]:
    """The equalities of all operators of which one formula gives an element. An integer power is a loop over bits."""
    found = []
    for op, trait, name in itertools.product(map(get_operator, list_operators()), TRAITS, DTYPES):
        if (
            op.name != "power"
            and hasattr(op, "scalar")
            and op.required == len(op.arguments)
            and op.required <= 2
            and takes(op, name)
        ):
            found += [
                pytest.param(before, after, id=f"{op.name}-{trait}-{name}-{number}")
                for number, (before, after) in enumerate(claims(op, trait, DataType(name)))
                if before is not after
            ]
    return found


@pytest.mark.parametrize(("before", "after"), stated())
def test_a_trait_holds_for_all_integers(before: Expr, after: Expr) -> None:
    meaning = Meaning()
    assert counterexample(meaning.of(before) == meaning.of(after)) is None


def test_the_traits_of_many_operators_are_proved() -> None:
    names = {str(param.id).split("-")[0] for param in stated()}
    assert names >= {"add", "multiply", "bitwise_and", "left_shift", "maximum", "abs", "negative"}


# -- conversions ------------------------------------------------------------------------------------------------------

INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]


def simplified(expr: gi.Expr, x: gi.Var) -> gi.Expr:
    mod = get_pass("SimplifyExpr")(gi.IRModule.from_expr(gi.Function([x], expr)))
    body: gi.Expr = mod["main"].body  # type: ignore[union-attr]
    return body


def conversions(expr: gi.Expr) -> list[str]:
    """The types that a chain of conversions passes through."""
    found: list[str] = []
    while isinstance(expr, gi.Call):
        found.insert(0, str(expr.attrs.dtype))
        (expr,) = expr.args
    return found


@pytest.mark.parametrize("source", [*INTEGERS, "bool"])
def test_a_conversion_that_is_left_out_changes_no_integer(source: str) -> None:
    """Of two conversions: by z3 between integers."""
    x = gi.var("x", shape=(4,), dtype=source)
    value = Var("x", DataType(source))
    shortened = 0
    for middle, result in itertools.product([*INTEGERS, "bool"], repeat=2):
        left = conversions(simplified(gi.cast(gi.cast(x, dtype=middle), dtype=result), x))
        if left == [middle, result]:
            continue
        shortened += 1
        before: Expr = Cast(DataType(result), Cast(DataType(middle), value))
        after: Expr = value
        for dtype in left:
            after = Cast(DataType(dtype), after)
        meaning = Meaning()
        assert counterexample(meaning.of(before) == meaning.of(after)) is None, (middle, result)
    assert shortened >= 10


@pytest.mark.parametrize("source", ["int8", "uint8", "int16", "uint16"])
def test_a_conversion_through_a_float_that_is_left_out_changes_no_integer(source: str) -> None:
    """All values of the type."""
    x = gi.var("x", shape=(4,), dtype=source)
    info = np.iinfo(source)
    values = np.arange(info.min, info.max + 1).astype(source)
    kinds = {"bfloat16": ml_dtypes.bfloat16}
    shortened = 0
    for middle, result in itertools.product(("float16", "bfloat16", "float32", "float64"), [*INTEGERS, "float32"]):
        left = conversions(simplified(gi.cast(gi.cast(x, dtype=middle), dtype=result), x))
        if left == [middle, result]:
            continue
        shortened += 1
        before, after = values.astype(kinds.get(middle, middle)).astype(result), values
        for dtype in left:
            after = after.astype(kinds.get(dtype, dtype))
        np.testing.assert_array_equal(after, before, err_msg=f"{middle} {result}")
    assert shortened


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_two_clips_are_the_one_that_replaces_them() -> None:
    """Clips only compare: orders of four bounds and a number are all cases there are, and the numbers 0 to 8 give each
    order, equal ones included."""
    x = gi.var("x", shape=(9,), dtype="int32")
    numbers = np.arange(9, dtype="int32")
    bounds = [(low, high) for low in (None, 1, 3, 5, 7) for high in (None, 1, 3, 5, 7) if (low, high) != (None, None)]
    shortened = 0
    for (a, b), (c, d) in itertools.product(bounds, repeat=2):
        twice = gi.clip(gi.clip(x, a_min=a, a_max=b), a_min=c, a_max=d)
        once = simplified(twice, x)
        if once is twice:
            continue
        shortened += 1
        expected, found = (gi.evaluate(gi.Function([x], body), numbers) for body in (twice, once))
        np.testing.assert_array_equal(found, expected, err_msg=f"{a} {b} {c} {d}")
    assert shortened > 200
