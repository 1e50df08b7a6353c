"""FuseOps: form groups of operators, and keep others apart for a reason."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes
from tilewright.passes import PassContext
from tilewright.passes.graph import FuseOps, ToANormalForm

RNG = np.random.default_rng(4)
X = gi.var("x", shape=(6, 8))
W = gi.const(RNG.standard_normal((8, 8)).astype(np.float32))
ROW = gi.const(RNG.standard_normal(8).astype(np.float32))
VALUES = RNG.standard_normal((6, 8)).astype(np.float32)


def groups(mod: gi.IRModule) -> list[list[str]]:
    """The operators of each group (and of each operator that stands alone), sorted."""
    found = []
    for call in call_nodes(mod["main"].body):
        if isinstance(call.op, gi.Function):
            found.append([inner.op.name.removeprefix("nn.") for inner in call_nodes(call.op.body)])
    inside = {
        c for call in call_nodes(mod["main"].body) if isinstance(call.op, gi.Function) for c in call_nodes(call.op)
    }
    alone = [c for c in call_nodes(mod["main"].body) if c not in inside and not isinstance(c.op, gi.Function)]
    return sorted([*found, *([call.op.name.removeprefix("nn.")] for call in alone)])


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: gi.tanh(gi.exp(x) + ROW), [["exp", "add", "tanh"]]),
        (lambda x: gi.nn.relu(gi.nn.dense(x, W) + ROW), [["dense", "add", "relu"]]),
        (lambda x: (lambda y: gi.tanh(y) * gi.exp(y))(x + ROW), [["add", "tanh", "exp", "multiply"]]),
        (lambda x: gi.sqrt(gi.sum(x * x, axis=1)), [["multiply", "sum", "sqrt"]]),
        (lambda x: gi.tanh(gi.transpose(gi.reshape(x, (8, 6)))), [["reshape", "transpose", "tanh"]]),
        (lambda x: gi.nn.softmax(gi.nn.relu(x)), [["relu", "softmax"]]),
        (lambda x: gi.nn.dense(x, W) + gi.tanh(x), [["dense", "tanh", "add"]]),
        (lambda x: gi.nn.dense(gi.nn.dense(x, W), W), [["dense"], ["dense"]]),
        (lambda x: gi.nn.dense(gi.tanh(x), W), [["dense"], ["tanh"]]),
        (lambda x: gi.nn.dense(x, W) + gi.nn.dense(x, W), [["dense"], ["dense", "add"]]),
        (lambda x: gi.sum(gi.nn.dense(x, W), axis=1), [["dense"], ["sum"]]),
        (lambda x: gi.sum(gi.max(x, axis=1)), [["max"], ["sum"]]),
        (lambda x: gi.tanh(gi.reshape(gi.nn.dense(x, W), (48,))), [["dense"], ["reshape", "tanh"]]),
        (lambda x: gi.transpose(gi.concatenate([x, x + ROW], axis=0)), [["add", "concatenate"], ["transpose"]]),
        (
            lambda x: gi.concatenate([gi.transpose(x), gi.exp(gi.transpose(x))], axis=0),
            [["concatenate"], ["transpose"], ["transpose", "exp"]],
        ),
        (lambda x: x * gi.exp(ROW + gi.sum(x, axis=0)), [["multiply"], ["sum", "add", "exp"]]),
        (lambda x: gi.sum(gi.exp(gi.transpose(x)), axis=0), [["transpose", "exp", "sum"]]),
        (lambda x: gi.nn.lrn(gi.exp(gi.transpose(x)), size=3, axis=0), [["transpose", "exp"], ["lrn"]]),
        (lambda x: gi.nn.lrn(gi.exp(x), size=3, axis=0), [["exp", "lrn"]]),
        (lambda x: gi.transpose(gi.exp(gi.nn.lrn(x, size=3, axis=0))), [["exp", "lrn"], ["transpose"]]),
    ],
)
def test_what_is_fused(keeps_values, build, expected):
    mod = gi.IRModule({"main": gi.Function([X], build(X))})
    found = groups(keeps_values(FuseOps(), mod, VALUES))
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))


def test_a_group_is_a_primitive_function_with_arguments_for_tensors(rewrites):
    rewrites(
        FuseOps(),
        """def @main(%x: Tensor[(2,), float32]) {
             %0 = add(%x, float32(1.0))
             %1 = maximum(%0, const(float32, [1.0, 2.0]))
             %1
           }""",
        """def @main(%x: Tensor[(2,), float32]) {
             %0 = fn (%a: Tensor[(2,), float32], %b: Tensor[(2,), float32])
                  attrs {"Primitive": True, "kind": "broadcast"} {
               %1 = add(%a, float32(1.0))
               %2 = maximum(%1, %b)
               %2
             }
             %3 = %0(%x, const(float32, [1.0, 2.0]))
             %3
           }""",
    )


def test_a_result_that_escapes_ends_its_group(keeps_values):
    y = gi.nn.dense(X, W)
    mod = gi.IRModule({"main": gi.Function([X], gi.Tuple([y, gi.tanh(y)]))})
    with PassContext() as ctx:
        assert groups(FuseOps()(mod)) == [["dense"], ["tanh"]]
    assert any("its result must be stored" in remark.message for remark in ctx.remarks)


def test_groups_do_not_cross_into_a_branch(keeps_values):
    c = gi.var("c", shape=(), dtype="bool")
    y = gi.tanh(X)
    mod = gi.IRModule({"main": gi.Function([X, c], gi.If(c, gi.exp(y), gi.sin(y)))})
    after = keeps_values(FuseOps(), mod, VALUES, np.array(True))
    assert groups(after) == [["exp"], ["sin"], ["tanh"]]


def test_remarks_say_why_two_contractions_stay_apart():
    mod = gi.IRModule({"main": gi.Function([X], gi.nn.dense(gi.nn.dense(X, W), W))})
    with PassContext() as ctx:
        FuseOps()(mod)
    assert [r.message for r in ctx.remarks if r.kind == "missed"] == [
        "nn.dense and nn.dense not fused: nn.dense is a contraction as well, and a group holds only one"
    ]


def test_lets_do_not_hinder(keeps_values):
    mod = ToANormalForm()(gi.IRModule({"main": gi.Function([X], gi.tanh(gi.exp(X) + ROW))}))
    assert groups(keeps_values(FuseOps(), mod, VALUES)) == [["exp", "add", "tanh"]]


def test_the_size_of_a_group_is_limited():
    y: gi.Expr = X
    for _ in range(10):
        y = gi.tanh(y)
    with PassContext(config={"graphir.FuseOps": {"max_depth": 4}}):
        sizes = [len(group) for group in groups(FuseOps()(gi.IRModule({"main": gi.Function([X], y)})))]
    assert max(sizes) == 4
    assert sum(sizes) == 10


def test_arguments_of_an_anchor_say_nothing_about_each_other() -> None:
    """A query with a strided access does not affect keys that are concatenated."""
    query, old, new = (
        gi.var(name, shape=shape) for name, shape in (("q", (3, 2, 4)), ("old", (2, 5, 4)), ("new", (2, 1, 4)))
    )
    keys = gi.concatenate(old, new, axis=1)
    attended = gi.nn.attention(gi.transpose(query, axes=(1, 0, 2)), keys, gi.tanh(keys))
    with PassContext(opt_level=1):
        after = FuseOps()(gi.IRModule.from_expr(gi.Function([query, old, new], attended)))
    assert [sorted(group) for group in groups(after)] == [["attention", "concatenate", "tanh", "transpose"]]
