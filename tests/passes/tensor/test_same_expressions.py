"""SameExpressions: expressions of one structure have one representative."""

from __future__ import annotations

import pytest

from tilewright.passes.tensor.same_expressions import SameExpressions
from tilewright.tensorir.expr import Broadcast, Buffer, BufferLoad, Expr, FloatImm, IntImm, Ramp, Var, call, cast, const

I, J = Var("i"), Var("j")
A, B = Buffer("A", (8,)), Buffer("A", (8,))


def a_tree(var: Var = I, buffer: Buffer = A, number: float = 2.0) -> Expr:
    return call("exp", BufferLoad(buffer, (var * 3 + 1,)) * FloatImm(number)) / cast("float32", var)


def test_equal_trees_share_the_one_that_was_met_first():
    same = SameExpressions()
    first = a_tree()
    assert same.first(first) is first
    assert same.first(a_tree()) is first
    assert same.first(a_tree()) is first


def test_parts_of_a_tree_have_been_met_with_it():
    same = SameExpressions()
    met = same.first(I * 3 + J)
    assert same.first(I * 3) is met.a


@pytest.mark.parametrize(
    "other",
    [
        a_tree(var=J),
        a_tree(buffer=B),
        a_tree(number=-2.0),
        a_tree() + 0.0,
        call("log", BufferLoad(A, (I * 3 + 1,)) * FloatImm(2.0)) / cast("float32", I),
    ],
)
def test_another_variable_buffer_number_or_operation_makes_another_expression(other):
    same = SameExpressions()
    same.first(a_tree())
    assert same.first(other) is other


def test_zeros_of_both_signs_types_and_lanes_are_told_apart():
    same = SameExpressions()
    different = [
        FloatImm(0.0),
        FloatImm(-0.0),
        FloatImm(0.0, "float64"),
        const(0, "int64"),
        const(0, "int32"),
        IntImm(0, "bool"),
        Broadcast(FloatImm(0.0), 4),
        Broadcast(FloatImm(0.0), 8),
        Ramp(IntImm(0), IntImm(1), 4),
        BufferLoad(A, (Ramp(IntImm(0), IntImm(1), 4),)),
        BufferLoad(A, (Ramp(IntImm(0), IntImm(1), 4),), Broadcast(IntImm(1, "bool"), 4)),
    ]
    assert [same.first(expr) for expr in different] == different
