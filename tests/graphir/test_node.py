"""A node of a graph is one declaration: what walks, rewrites, compares, hashes and prints it follows from that."""

from __future__ import annotations

import pytest

from tilewright import graphir as gi
from tilewright.graphir.base import FrozenExpr
from tilewright.graphir.expr import Expr, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.node import child, children, definition, given, node, note, outer
from tilewright.graphir.types import Type
from tilewright.graphir.verify import verify
from tilewright.graphir.visitor import free_vars, post_order, substitute, users
from tilewright.tensorir.errors import VerifyError


@node
class Scan(FrozenExpr):
    """``element`` of each part of ``sequence``, after ``first``: binds a variable, has an optional part and data."""

    element: Var = definition()
    sequence: Expr = outer()
    body: Expr = child()
    seed: Expr | None = child(default=None)
    others: tuple[Expr, ...] = children(default=())
    steps: int = 1
    span: str | None = note(default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", self.body.type)


@node
class Plain(FrozenExpr):
    """Has the type that it is given."""

    value: Expr = child()
    type: Type | None = given(default=None)
    span: str | None = note(default=None)


X = gi.var("x", shape=(4,))


def scan(name: str = "v", steps: int = 1, seed: Expr | None = None, **given: object) -> Scan:
    v = gi.var(name, shape=(4,))
    return Scan(v, gi.tanh(X), v + v, seed, (X, X * 2.0), steps, **given)  # type: ignore[arg-type]


def test_parts_come_in_order_of_evaluation() -> None:
    node = scan(seed=X)
    assert node.children == (node.sequence, node.element, node.body, node.seed, *node.others)
    absent = scan()
    assert absent.children == (absent.sequence, absent.element, absent.body, *absent.others)
    assert node.bound == (node.element,) and node.outside == (node.sequence,)
    order = post_order(node)
    assert order.index(node.sequence) < order.index(node.element) < order.index(node.body) < order.index(node)
    assert users(node)[node.body] == [node]


def test_a_node_is_made_again_of_other_parts() -> None:
    for old in (scan(span="here"), scan(seed=X, span="here")):
        again = old.with_children(old.children)
        assert isinstance(again, Scan) and again is not old
        assert all(getattr(again, name) == getattr(old, name) for name, _ in Scan.node_fields)
        assert again.type == gi.TensorType((4,))
        y = gi.var("y", shape=(4,))
        made = substitute(old, {X: y})
        assert isinstance(made, Scan) and free_vars(made) == [y] and free_vars(old) == [X]
        assert made.others[0] is y and made.element is old.element and made.steps == 1 and made.span == "here"
    with pytest.raises(AttributeError, match="Scan is immutable"):
        old.steps = 2  # type: ignore[misc]


def test_a_given_type_stays_with_parts_of_the_same_types() -> None:
    assert Plain(X).type is None
    typed = Plain(X, X.type)
    assert typed.with_children([gi.var("y", shape=(4,))]).type is X.type
    assert typed.with_children([gi.var("y", shape=(5,))]).type is None


def test_names_of_bound_variables_do_not_count_all_else_does() -> None:
    one = scan()
    for same in (scan("w"), scan(span="elsewhere")):
        gi.assert_structural_equal(one, same)
        assert gi.structural_hash(one) == gi.structural_hash(same)
    v = gi.var("v", shape=(4,))
    for other, reason in (
        (scan(steps=2), "steps 1 and 2"),
        (scan(seed=X), "one has a part seed and the other has none"),
        (Scan(v, gi.tanh(X), v + v, None, (X,)), "2 and 1 others"),
        (Scan(v, gi.exp(X), v + v, None, (X, X * 2.0)), "different operators"),
        (Scan(v, gi.tanh(X), v + X, None, (X, X * 2.0)), "one is shared or bound where the other is not"),
    ):
        assert gi.structural_hash(one) != gi.structural_hash(other)
        with pytest.raises(AssertionError, match=reason):
            gi.assert_structural_equal(one, other)


def test_its_text_has_all_its_fields() -> None:
    line = str(scan(steps=3)).split("\n")[-1]
    assert line == "Scan(%0, %v, %1, seed=None, [%x, %2], steps=3) : Tensor[(4,), float32]"


def test_the_verifier_knows_what_it_binds() -> None:
    verify(IRModule({"main": gi.Function([X], scan())}))
    v = gi.var("v", shape=(4,))
    with pytest.raises(VerifyError, match="used outside of the function or let that binds it"):
        verify(IRModule({"main": gi.Function([X], Scan(v, v * 2.0, v + X))}))


def test_long_chains_are_walked_without_recursion() -> None:
    def chain() -> Expr:
        value: Expr = X
        for _ in range(20_000):
            value = Plain(value)
        return value

    one = chain()
    assert gi.structural_equal(one, chain()) and gi.structural_hash(one) == gi.structural_hash(chain())
    assert len(post_order(substitute(one, {X: gi.tanh(X)}))) == 20_002
