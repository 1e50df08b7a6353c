"""Structural equality and hash: names do not count, everything else does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright import graphir as gi


def function(name: str, build: Callable[[gi.Expr], gi.Expr], shape: tuple[object, ...] = ("n", 4)) -> gi.Function:
    x = gi.var(name, shape=shape)
    return gi.Function([x], build(x))


def let(x: gi.Expr, name: str) -> gi.Expr:
    v = gi.var(name, shape=("n", 4))
    return gi.Let(v, gi.tanh(x), v + v)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: gi.tanh(x) + x,
        lambda x: let(x, "v"),
        lambda x: x + gi.const(np.ones(4, np.float32)),
        lambda x: x * float("nan"),
        lambda x: gi.sum(x, axis=1),
        lambda x: gi.TupleGetItem(gi.Tuple([x, x]), 0),
        lambda x: gi.Call(gi.Function([], x), []),
    ],
)
def test_names_do_not_count(build: Callable[[gi.Expr], gi.Expr]):
    a, b = function("x", build), function("other", build)
    gi.assert_structural_equal(a, b)
    assert gi.structural_hash(a) == gi.structural_hash(b)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda x: gi.tanh(x), lambda x: gi.exp(x)),
        (lambda x: x + 1.0, lambda x: 1.0 + x),
        (lambda x: x + 0.0, lambda x: x + -0.0),
        (lambda x: x + 1.0, lambda x: x + 2.0),
        (lambda x: gi.sum(x, axis=1), lambda x: gi.sum(x, axis=0)),
        (lambda x: gi.sum(x, axis=1, keepdims=True), lambda x: gi.sum(x, axis=1)),
        (lambda x: gi.Tuple([x]), lambda x: gi.Tuple([x, x])),
        (lambda x: gi.TupleGetItem(gi.Tuple([x, x]), 0), lambda x: gi.TupleGetItem(gi.Tuple([x, x]), 1)),
        (lambda x: let(x, "v"), lambda x: gi.tanh(x) + gi.tanh(x)),
        (lambda x: (lambda y: y + y)(gi.tanh(x)), lambda x: gi.tanh(x) + gi.tanh(x)),
        (lambda x: gi.Call(gi.GlobalVar("f"), [x]), lambda x: gi.Call(gi.GlobalVar("g"), [x])),
    ],
)
def test_what_is_computed_counts(left: Callable[[gi.Expr], gi.Expr], right: Callable[[gi.Expr], gi.Expr]):
    a, b = function("x", left), function("x", right)
    assert not gi.structural_equal(a, b)
    assert gi.structural_hash(a) != gi.structural_hash(b)


def test_parameter_types_count():
    a, b = function("x", gi.tanh, (4,)), function("x", gi.tanh, (5,))
    assert not gi.structural_equal(a, b)
    assert not gi.structural_equal(function("x", gi.tanh, ("n",)), function("x", gi.tanh, ("m",)))


def test_dimensions_are_equal_if_provably_so():
    n = gi.symbol("n")
    a, b = function("x", gi.tanh, (2 * n + n,)), function("x", gi.tanh, (3 * n,))
    assert gi.structural_equal(a, b)
    assert gi.structural_hash(a) == gi.structural_hash(b)


def test_parameters_are_not_interchangeable():
    x, y = gi.var("x", shape=(4,)), gi.var("y", shape=(4,))
    assert not gi.structural_equal(gi.Function([x, y], x - y), gi.Function([x, y], y - x))


def test_free_variables_are_compared_by_identity_or_mapped():
    x, y = gi.var("x", shape=(4,)), gi.var("y", shape=(4,))
    assert not gi.structural_equal(gi.tanh(x), gi.tanh(y))
    assert gi.structural_equal(gi.tanh(x), gi.tanh(y), map_free_vars=True)
    assert not gi.structural_equal(x - y, x - x, map_free_vars=True)
    assert gi.structural_hash(gi.tanh(x)) == gi.structural_hash(gi.tanh(y))


def test_modules_are_compared_by_the_names_of_their_functions():
    a, b = function("x", gi.tanh), function("y", gi.tanh)
    assert gi.structural_equal(gi.IRModule({"f": a, "g": b}), gi.IRModule({"g": a, "f": b}))
    assert not gi.structural_equal(gi.IRModule({"f": a}), gi.IRModule({"g": a}))
    assert gi.structural_hash(gi.IRModule({"f": a, "g": b})) == gi.structural_hash(gi.IRModule({"g": a, "f": b}))


def test_the_error_names_the_difference_and_shows_both_places():
    a, b = function("x", lambda x: gi.tanh(x) + 1.0), function("x", lambda x: gi.exp(x) + 1.0)
    with pytest.raises(AssertionError, match=r"different operators\nleft:  tanh\(%x\).*\nright: exp\(%x\)"):
        gi.assert_structural_equal(a, b)


def test_deep_shared_graphs_take_linear_time():
    def chain() -> gi.Function:
        x = y = gi.var("x", shape=(4,))
        for _ in range(20_000):
            y = gi.add(y, y)  # as a tree it would have 2 ** 20_000 nodes
        return gi.Function([x], y)

    a, b = chain(), chain()
    assert gi.structural_equal(a, b)
    assert gi.structural_hash(a) == gi.structural_hash(b)
