"""Hash-consing: one node for each structure; unused nodes are freed."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import threading

import pytest
from hypothesis import given, settings
from strategies import prim_funcs

from tilewright.tensorir.consing import NODES, made_anew, sweep
from tilewright.tensorir.dtype import BOOL, FLOAT64, INT32, INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Choose,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    PureExpr,
    Ramp,
    Select,
    UnaryOp,
    Var,
    address_of,
    call,
)
from tilewright.tensorir.functor import walk
from tilewright.tensorir.parser import parse
from tilewright.tensorir.stmt import PrimFunc

X, Y = Var("x"), Var("y")
A = Buffer("a", (4, 8))


def examples() -> list[Expr]:
    condition = Compare("lt", X, Y)
    return [
        IntImm(2048),
        FloatImm(1.5),
        BinaryOp("add", X, Y),
        UnaryOp("neg", X),
        condition,
        Select(condition, X, Y),
        Choose(X, (X, Y)),
        Cast("float32", X),
        BufferLoad(A, (X, Y)),
        BufferLoad(A, (X, Ramp(Y, IntImm(1), 4)), Broadcast(condition, 4)),
        Call("exp", (FloatImm(1.5),)),
        Ramp(X, IntImm(1), 8),
        Broadcast(X, 8),
        address_of(A, X, Y),
    ]


@pytest.mark.parametrize("number", range(len(examples())))
def test_expressions_of_one_structure_are_one_node(number: int) -> None:
    assert examples()[number] is examples()[number]


def test_every_class_of_pure_expressions_is_tested_above() -> None:
    assert {type(each).__name__ for each in examples()} == {kind.__name__ for kind in PureExpr.__subclasses__()}


def test_what_is_given_in_another_form_is_the_same_node() -> None:
    assert Cast("float32", X) is Cast(Cast("float32", X).dtype, X)
    assert BufferLoad(A, [X, 3]) is BufferLoad(A, (X, IntImm(3)))  # type: ignore[arg-type]
    assert IntImm(True, INT32) is IntImm(1, INT32)
    assert BinaryOp(b=Y, a=X, op="add") is X + Y


def test_what_differs_is_not_one_node() -> None:
    assert X + Y is not Y + X
    assert Var("x") is not Var("x")
    assert IntImm(1, INT64) is not IntImm(1, INT32)
    assert IntImm(1, BOOL) is not IntImm(1, INT64)
    assert FloatImm(1.0) is not FloatImm(1.0, FLOAT64)
    assert BufferLoad(A, (X, Y)) is not BufferLoad(Buffer("a", (4, 8)), (X, Y))
    assert Ramp(X, Y, 4) is not Ramp(X, Y, 8)


def test_floats_are_told_apart_by_their_bits() -> None:
    assert FloatImm(0.0) is not FloatImm(-0.0)
    assert math.copysign(1.0, FloatImm(-0.0).value) == -1.0
    assert FloatImm(math.nan) is FloatImm(math.nan)
    assert FloatImm(0.1) is FloatImm(float(FloatImm(0.1).value))


def test_a_call_with_an_effect_is_like_no_other() -> None:
    assert call("prefetch", BufferLoad(A, (X, Y))) is not call("prefetch", BufferLoad(A, (X, Y)))


def test_bad_operands_are_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match="different types"):
            BinaryOp("add", X, FloatImm(1.0))


def test_copies_are_the_node_where_variables_are() -> None:
    node = X * 3 + Y
    assert copy.copy(node) is node
    again = pickle.loads(pickle.dumps((node, node * node)))
    assert again[1].a is again[0] and again[1].b is again[0]


@settings(max_examples=40, deadline=None)
@given(prim_funcs())
def test_no_two_nodes_of_a_program_have_one_structure(func: PrimFunc) -> None:
    seen: dict[tuple[object, ...], Expr] = {}
    for node in walk(parse(str(func))):
        if isinstance(node, PureExpr) and not isinstance(node, (FloatImm, Call)):
            key = (type(node), *[getattr(node, name) for name, _ in node.node_fields])
            assert seen.setdefault(key, node) is node


def test_what_nobody_uses_is_dropped_and_the_rest_stays() -> None:
    gc.collect()
    sweep()
    before = len(NODES)
    kept = Var("kept") + 4096
    for number in range(1000):
        _ = (Var("dropped") + (5000 + number)) * 4097
    assert len(NODES) >= before + 2000
    sweep()
    assert len(NODES) <= before + 6  # those that have names here
    assert isinstance(kept, BinaryOp) and BinaryOp("add", kept.a, IntImm(4096)) is kept


def test_threads_get_one_node() -> None:
    variables = [Var(f"v{number}") for number in range(200)]
    found: list[list[Expr]] = [[] for _ in range(4)]
    ready = threading.Barrier(4)

    def make(mine: list[Expr]) -> None:
        ready.wait()
        for _ in range(5):
            mine[:] = [a * 3 + b for a in variables for b in variables[:10]]

    threads = [threading.Thread(target=make, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(x is y for mine in found[1:] for x, y in zip(mine, found[0], strict=True))


def test_a_node_may_be_made_anew_while_others_are_dropped() -> None:
    """Another thread may drop it from the table meanwhile; here the drop of a younger one does."""
    older, younger = ("older",), ("younger",)

    class Dropped:
        def __del__(self) -> None:
            del NODES[older]

    NODES[older] = object()
    NODES[younger] = Dropped()
    sweep()
    assert older not in NODES and younger not in NODES


def test_a_node_is_made_anew_beside_the_table() -> None:
    """Another thread may look the node up meanwhile, and must find it."""
    node = Var("x") + 3
    made = made_anew(node)
    assert made is not node and made.dtype is node.dtype
    assert Var("y") + 3 is not node and made.a + 3 is node
