"""HoistLoopInvariant: hoist loop-invariant expressions, and keep others inside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.op import Operator
from tilewright.graphir.visitor import call_nodes, post_order
from tilewright.passes import PassContext, Sequential
from tilewright.passes.graph import FuseOps, HoistLoopInvariant

X = gi.var("x", shape=(2, 3))
Y = gi.var("y", shape=(2, 3))
N = gi.const(4, "int64")
VALUES = [np.random.default_rng(n).uniform(-0.5, 0.5, (2, 3)).astype("f4") for n in range(2)]


def loop(step: Callable[[gi.Expr, gi.Var], gi.Expr], initial: gi.Expr, trips: gi.Expr = N) -> gi.Expr:
    """The state after ``trips`` times ``state = step(i, state)``."""
    i, state = gi.var("i", shape=(), dtype="int64"), gi.Var("state", initial.type)
    return gi.TupleGetItem(gi.Loop(trips, None, gi.Function([i, state], gi.Tuple([step(i, state)])), [initial]), 0)


def model(result: gi.Expr) -> gi.IRModule:
    return gi.IRModule({"main": gi.Function([X, Y], result)})


def hoisted(mod: gi.IRModule) -> list[gi.Expr]:
    """Return the values that lets bind."""
    return [node.value for node in post_order(mod["main"].body) if isinstance(node, gi.Let)]


def operators(root: gi.Expr) -> list[str]:
    return [node.op.name for node in call_nodes(root) if isinstance(node.op, Operator)]


def test_what_does_not_change_is_bound_around_the_loop(rewrites):
    ctx = rewrites(
        HoistLoopInvariant(),
        """
        def @main(%x: Tensor[(2, 3), float32], %n: Tensor[(), int64]) {
          %0 = fn (%i: Tensor[(), int64], %state: Tensor[(2, 3), float32]) {
            %1 = exp(%x)
            %2 = multiply(%1, %state)
            %3 = (%2,)
            %3
          }
          %4 = loop(%n, None, %0, %x)
          %4
        }
        """,
        """
        def @main(%x: Tensor[(2, 3), float32], %n: Tensor[(), int64]) {
          let %invariant0 = exp(%x)
          %0 = fn (%i: Tensor[(), int64], %state: Tensor[(2, 3), float32]) {
            %2 = multiply(%invariant0, %state)
            %3 = (%2,)
            %3
          }
          %4 = loop(%n, None, %0, %x)
          %4
        }
        """,
        opt_level=0,
    )
    (remark,) = ctx.remarks
    assert "exp" in str(remark)
    assert "hoisted out of the loop" in str(remark)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: loop(lambda i, s: s * gi.tanh(X + Y), Y), ["add+tanh"]),
        (lambda: loop(lambda i, s: s * gi.tanh(X + s), Y), []),
        (lambda: loop(lambda i, s: s * gi.cast(i, dtype="float32"), Y), []),
        (lambda: loop(lambda i, s: s + X, Y), []),
        (lambda: gi.tanh(X) + loop(lambda i, s: s * gi.tanh(X), Y), ["tanh"]),
        (lambda: (lambda e: loop(lambda i, s: s * e, Y) + e)(gi.exp(X)), ["exp"]),
        # From both loops, and from the inner one only.
        (lambda: loop(lambda i, s: loop(lambda j, t: t * gi.exp(X), s), Y), ["exp"]),
        (lambda: loop(lambda i, s: loop(lambda j, t: t * gi.exp(s), s), Y), ["exp"]),
        # A loop in a loop that does not change is itself computed once.
        (lambda: loop(lambda i, s: s + loop(lambda j, t: gi.tanh(t), X), Y), ["tanh"]),
        # What a branch alone needs stays there: it may never be taken.
        (lambda: loop(lambda i, s: gi.If(gi.equal(i, 1), s * gi.exp(X), s), Y), []),
        (lambda: (lambda e: loop(lambda i, s: gi.If(gi.equal(i, 1), s * e, e), Y))(gi.exp(X)), ["exp"]),
    ],
)
def test_what_is_hoisted(keeps_values, build, expected):
    after = keeps_values(HoistLoopInvariant(), model(build()), *VALUES, opt_level=0)
    assert sorted("+".join(dict.fromkeys(operators(value))) for value in hoisted(after)) == expected


def test_a_loop_that_never_runs_gives_what_it_began_with(keeps_values):
    never = gi.const(0, "int64")
    keeps_values(HoistLoopInvariant(), model(loop(lambda i, s: s / gi.log(X - X), Y, never)), *VALUES, opt_level=0)


def test_a_condition_is_asked_with_what_was_computed_before(keeps_values):
    i, state = gi.var("i", shape=(), dtype="int64"), gi.Var("state", Y.type)
    asked = gi.var("i", shape=(), dtype="int64"), gi.Var("state", Y.type)
    condition = gi.Function(asked, gi.less(gi.mean(asked[1]), gi.sum(gi.exp(X))))
    body = gi.Function([i, state], gi.Tuple([state + gi.exp(X)]))
    many = gi.const(50, "int64")
    result = gi.TupleGetItem(gi.Loop(many, condition, body, [Y]), 0)
    after = keeps_values(HoistLoopInvariant(), model(result), *VALUES, opt_level=0)
    assert len(hoisted(after)) == 2


def test_a_body_of_two_loops_stays_as_it_is(keeps_values):
    i, state = gi.var("i", shape=(), dtype="int64"), gi.Var("state", Y.type)
    body = gi.Function([i, state], gi.Tuple([gi.exp(X) * state]))
    both = [gi.TupleGetItem(gi.Loop(N, None, body, [value]), 0) for value in (X, Y)]
    assert not hoisted(keeps_values(HoistLoopInvariant(), model(gi.add(*both)), *VALUES, opt_level=0))


class Noise(Operator):
    """An operator with an effect."""

    name = "test.noise"
    arity = 1
    pure = False

    def infer_type(self, args, attrs):
        return args[0]

    def reference(self, args, attrs):
        return args[0]


def test_what_has_effects_stays():
    noise = gi.Call(Noise(), [X], None, X.type)
    mod = model(loop(lambda i, s: s + gi.exp(noise), Y))
    assert not hoisted(HoistLoopInvariant()(mod))


def test_fusion_keeps_what_changes_apart_from_what_does_not(keeps_values):
    mod = model(loop(lambda i, s: gi.tanh(s * gi.exp(X)) + gi.sin(X * Y), Y))
    after = keeps_values(Sequential([FuseOps(), HoistLoopInvariant()]), mod, *VALUES)
    assert sorted("+".join(operators(value)) for value in hoisted(after)) == ["exp", "multiply+sin"]


def test_a_variable_around_a_loop_is_known_inside():
    named = gi.Var("e", X.type)
    mod = model(gi.Let(named, gi.exp(X), loop(lambda i, s: s * named, Y)))
    with PassContext(opt_level=0, disabled_pass=["HoistLoopInvariant"]):
        built = tw.build(mod)
    np.testing.assert_allclose(built(*VALUES), VALUES[1] * np.exp(VALUES[0].astype("f8")) ** 4, rtol=1e-5)


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
@pytest.mark.parametrize("operator", ["rnn", "gru", "lstm"])
def test_the_projection_of_a_long_sequence_is_one_product_before_its_loop(operator, opt_level):
    steps, batch, size, hidden = 20, 2, 5, 4
    rows = {"rnn": 1, "gru": 3, "lstm": 4}[operator] * hidden
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> gi.Constant:
        return gi.const(rng.standard_normal(shape).astype("f4") / 2)

    x = gi.var("x", shape=(steps, batch, size))
    states = [normal(1, batch, hidden) for _ in range(2 if operator == "lstm" else 1)]
    args = [x, normal(1, rows, size), normal(1, rows, hidden), normal(1, 2 * rows), *states]
    mod = tw.IRModule.from_expr(gi.Function([x], getattr(gi.nn, operator)(*args)))
    value = rng.standard_normal((steps, batch, size)).astype("f4")
    with PassContext(opt_level=opt_level):
        built = tw.build(mod)
    for found, expected in zip(built(value), gi.evaluate(mod, value, dtype="float64"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    optimized = gi.parse(built.ir("optimized", constants="inline"))
    (run,) = [node for node in post_order(optimized["main"]) if isinstance(node, gi.Loop)]
    of_the_state = 2 if operator == "gru" else 1  # of a GRU, the reset gate changes the state that the last part takes
    assert operators(run.body).count("nn.dense") == of_the_state
